// Processes with three threads that change a `buffered` pool, one that calls sync(), and in every
// second round one that folds the log and compacts all the time, are killed at random moments.
// After some of the kills the power also fails: the live image is gone, and the next boot has base
// and log. Each thread's operations must be there up to one of them: after a kill all that were
// acknowledged, after a power failure all that sync() returned for.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/engines.h"
#include "tests/support/other_boot.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kKeys = 400;  // of a thread, written in turn
constexpr int kWriters = 3;

// Of a thread: operations that have begun and ended, and that a sync() has returned for.
struct Progress {
  std::atomic<std::uint64_t> begun{0}, ended{0}, durable{0};
};
struct Shared {
  std::atomic<bool> ready{false};
  Progress progress[kWriters];
};

using Texts = Map<std::uint64_t, std::string_view>;

std::string value_of(std::uint64_t thread, std::uint64_t n) {
  return std::to_string(thread) + ":" + std::to_string(n) + ":" +
         std::string(mix(thread + n) % 150, 'v');
}
void write(Texts& map, std::uint64_t thread, std::uint64_t n) {
  const std::uint64_t key = thread * kKeys + n % kKeys;
  if (n % 7 == 3) {
    (void)must(map.erase(key));
  } else {
    must(map.put(key, value_of(thread, n)));
  }
}
// Whether the keys of the thread are as after n operations.
std::string differs(Texts& map, std::uint64_t thread, std::uint64_t n) {
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    const auto found = must(map.get(thread * kKeys + key));
    const bool written = key < n;
    const std::uint64_t last = written ? (n - 1 - key) / kKeys * kKeys + key : 0;
    const bool there = written && last % 7 != 3;
    if (there != found.has_value() || (there && *found != value_of(thread, last))) {
      return "key " + std::to_string(key) + " after " + std::to_string(n);
    }
  }
  return {};
}

class Survive : public ::testing::Test {
 protected:
  Survive() {
    fs::create_directory(folder_);
    void* at =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    shared_ = new (at) Shared;
  }
  ~Survive() override {
    ::munmap(shared_, sizeof(Shared));
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  Pool open() const {
    return must(Pool::open(
        path_,
        {.durability = Durability::buffered, .buffered = {.interval_ms = 2}, .max_size = 32_MiB}));
  }
  static Texts map_of(Pool& pool) {
    return must(
        pool.map<std::uint64_t, std::string_view>("map", {.engine = chosen_engine().engine}));
  }
  [[noreturn]] void work(bool folds) {
    Pool pool = open();
    auto map = map_of(pool);
    shared_->ready.store(true);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < kWriters; ++t) {
      threads.emplace_back([&, t] {
        Progress& mine = shared_->progress[t];
        for (std::uint64_t n = mine.ended.load();; ++n) {
          mine.begun.store(n + 1);
          write(map, t, n);
          mine.ended.store(n + 1);
        }
      });
    }
    if (folds) {
      threads.emplace_back([&] {
        for (;;) {
          must(pool.fold_log());
          (void)must(pool.compact());
        }
      });
    }
    for (;;) {
      std::uint64_t ended[kWriters];
      for (int t = 0; t < kWriters; ++t) ended[t] = shared_->progress[t].ended.load();
      must(pool.sync());
      for (int t = 0; t < kWriters; ++t) shared_->progress[t].durable.store(ended[t]);
      ::usleep(1000);
    }
  }
  // A process is killed `us` microseconds after it has opened the pool, or before that.
  void kill_after(int us, bool waits, bool folds) {
    shared_->ready.store(false);
    const pid_t child = start_child([&] { work(folds); });
    for (int i = 0; waits && !shared_->ready.load() && i < 200'000; ++i) ::usleep(100);
    ::usleep(static_cast<useconds_t>(us));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "exit " << status;
  }
  void power_fails() const {
    std::error_code ignored;
    fs::remove(path_ + "-live", ignored);
    fs::remove(path_ + "-live-dirty", ignored);
    restart_machine(path_);
  }
  void verify(bool power) {
    Pool pool = open();
    const CheckReport report = must(pool.check({.deep = true}));
    for (const auto& violation : report.violations) ADD_FAILURE() << violation;
    auto map = map_of(pool);
    for (std::uint64_t t = 0; t < kWriters; ++t) {
      Progress& mine = shared_->progress[t];
      operations_ += mine.begun.load();
      std::uint64_t n = power ? mine.durable.load() : mine.ended.load();
      std::string wrong;
      do {
        wrong = differs(map, t, n);
      } while (!wrong.empty() && ++n <= mine.begun.load());
      EXPECT_EQ(wrong, "") << "thread " << t << ", " << mine.durable << " durable, " << mine.ended
                           << " to " << mine.begun;
      mine.begun.store(n);
      mine.ended.store(n);
      mine.durable.store(n);  // by the close
    }
    must(pool.close());
  }

  const std::string folder_ = on_disk("-survive");
  const std::string path_ = folder_ + "/pool";
  Shared* shared_ = nullptr;
  std::uint64_t operations_ = 0;  // that were begun; more than once if they were lost
};

TEST_F(Survive, KillsAndPowerFailures) {
  PERDURE_TRACE_SEED();
  Rng random;
  std::uint64_t powers = 0;
  {
    Pool pool = open();
  }
  for (std::uint64_t i = 0; i < scaled(300, 8, 3) && !HasFailure(); ++i) {
    // Some are killed while they go on after a kill.
    const std::uint64_t kills = 1 + random.below(3);
    for (std::uint64_t k = 0; k < kills; ++k) {
      const bool waits = k + 1 == kills || random.below(2) == 0;
      kill_after(static_cast<int>(random.below(waits ? 40'000 : 6'000)), waits, i % 2 == 0);
      if (HasFailure()) return;
    }
    const bool power = random.below(2) == 0;
    powers += power ? 1 : 0;
    if (power) power_fails();
    verify(power);
  }
  EXPECT_GT(operations_, scaled(3 * kKeys, 0));
  std::printf("%llu power failures\n", static_cast<unsigned long long>(powers));
}

}  // namespace
}  // namespace perdure::test
