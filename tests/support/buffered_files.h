// A folder with a pool of durability `buffered`, processes that are killed while they use it, and
// restarts of the machine. Shared by the suites of tests/cut.
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <string>

#include "tests/support/other_boot.h"
#include "tests/support/small_pool.h"
#include "tests/support/support.h"

namespace perdure::test {

namespace fs = std::filesystem;

inline PoolOptions buffered(std::uint32_t interval_ms = 100) {
  return {.durability = Durability::buffered,
          .buffered = {.interval_ms = interval_ms},
          .max_size = 4_MiB,
          .recovery_threads = 1};
}
inline PoolOptions as_it_was() { return {.mode = OpenMode::existing, .recovery_threads = 1}; }

class BufferedFiles : public ::testing::Test {
 protected:
  BufferedFiles() { fs::create_directory(folder_); }
  ~BufferedFiles() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::string path(const std::string& name = "pool") const { return folder_ + "/" + name; }
  bool exists(const std::string& name) const { return fs::exists(folder_ + "/" + name); }
  std::size_t files() const {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_)) ++n;
    return n;
  }
  // A process opens the pool, calls work(pool), and is killed.
  template <class F>
  void in_killed_process(F&& work, const PoolOptions& options = buffered()) {
    const pid_t child = start_child([&] {
      Pool pool = must(Pool::open(path(), options));
      work(pool);
      ::kill(::getpid(), SIGKILL);
    });
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }
  void machine_restarts(const std::string& name = "pool") const { restart_machine(path(name)); }
  // The last put is in no durable cut.
  void kill_after_a_sync() {
    in_killed_process(
        [&](Pool& pool) {
          fill_pool(pool);
          must(pool.sync());
          must(later(pool).put(1, 1));
        },
        buffered(3'600'000));
  }
  static Map<std::uint64_t, std::uint64_t> later(Pool& pool) {
    return must(pool.map<std::uint64_t, std::uint64_t>("later", small_map()));
  }
  StatusCode refused(const PoolOptions& options = as_it_was(), const std::string& name = "pool") {
    auto pool = Pool::open(path(name), options);
    if (pool) return StatusCode::ok;
    message_ = pool.error().message();
    return pool.error().code();
  }

  std::string folder_ = on_disk("-buffered");
  std::string message_;
};

}  // namespace perdure::test
