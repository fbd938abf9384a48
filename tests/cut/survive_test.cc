// test: tsan, three engines
// Processes with three threads that change a `buffered` pool, one that calls sync(), and in every
// second round one that folds the log and compacts all the time, are killed at random moments.
// After some of the kills the power also fails: the live image is gone, and the next boot has base
// and log. Each thread's operations must be there up to one of them: after a kill all that were
// acknowledged, after a power failure all that sync() returned for. The same with large values: the
// live image and then the base give their space back to the file system in between.
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

constexpr int kWriters = 3;  // at most

// Of a thread: operations that have begun and ended, and that a sync() has returned for.
struct Progress {
  std::atomic<std::uint64_t> begun{0}, ended{0}, durable{0};
};
struct Shared {
  std::atomic<bool> ready{false};
  std::atomic<std::uint64_t> returned{0};  // bytes of the live image, by the last process
  Progress progress[kWriters];
};

using Texts = Map<std::uint64_t, std::string_view>;

// What the threads do. Each writes its keys in turn.
struct Load {
  int writers;
  std::uint64_t keys;  // of a thread
  std::uint64_t value_bytes;
  std::uint64_t max_size;

  bool is_large() const { return value_bytes >= 1_MiB; }
  // All large values are erased in every second turn.
  bool erases(std::uint64_t n) const { return is_large() ? n / keys % 2 == 1 : n % 7 == 3; }
  std::string value_of(std::uint64_t thread, std::uint64_t n) const {
    std::string value = std::to_string(thread) + ":" + std::to_string(n) + ":";
    value.resize(value.size() + mix(thread + n) % value_bytes, static_cast<char>('a' + n % 26));
    return value;
  }
  void write(Texts& map, std::uint64_t thread, std::uint64_t n) const {
    const std::uint64_t key = thread * keys + n % keys;
    if (erases(n)) {
      (void)must(map.erase(key));
    } else {
      must(map.put(key, value_of(thread, n)));
    }
  }
  // Whether the keys of the thread are as after n operations.
  std::string differs(Texts& map, std::uint64_t thread, std::uint64_t n) const {
    for (std::uint64_t key = 0; key < keys; ++key) {
      const auto found = must(map.get(thread * keys + key));
      const bool written = key < n;
      const std::uint64_t last = written ? (n - 1 - key) / keys * keys + key : 0;
      const bool there = written && !erases(last);
      if (there != found.has_value() || (there && *found != value_of(thread, last))) {
        return "key " + std::to_string(key) + " after " + std::to_string(n);
      }
    }
    return {};
  }
};
constexpr Load kSmall{.writers = 3, .keys = 400, .value_bytes = 150, .max_size = 32_MiB};
constexpr Load kLarge{.writers = 1, .keys = 24, .value_bytes = 8_MiB, .max_size = 1_GiB};

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
    return must(Pool::open(path_, {.durability = Durability::buffered,
                                   .buffered = {.interval_ms = 2},
                                   .max_size = load_.max_size}));
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
    for (std::uint64_t t = 0; t < writers(); ++t) {
      threads.emplace_back([&, t] {
        Progress& mine = shared_->progress[t];
        for (std::uint64_t n = mine.ended.load();; ++n) {
          mine.begun.store(n + 1);
          load_.write(map, t, n);
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
      for (std::uint64_t t = 0; t < writers(); ++t) ended[t] = shared_->progress[t].ended.load();
      must(pool.sync());
      for (std::uint64_t t = 0; t < writers(); ++t) shared_->progress[t].durable.store(ended[t]);
      if (load_.is_large()) shared_->returned.store(must(pool.stats()).punched_bytes);
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
    for (std::uint64_t t = 0; t < writers(); ++t) {
      Progress& mine = shared_->progress[t];
      operations_ += mine.begun.load();
      std::uint64_t n = power ? mine.durable.load() : mine.ended.load();
      std::string wrong;
      do {
        wrong = load_.differs(map, t, n);
      } while (!wrong.empty() && ++n <= mine.begun.load());
      EXPECT_EQ(wrong, "") << "thread " << t << ", " << mine.durable << " durable, " << mine.ended
                           << " to " << mine.begun;
      mine.begun.store(n);
      mine.ended.store(n);
      mine.durable.store(n);  // by the close
    }
    must(pool.close());
  }

  std::uint64_t writers() const { return static_cast<std::uint64_t>(load_.writers); }
  // Rounds of one to three kills, each within some time of the open, and perhaps a power failure.
  void survive(const Load& load, std::uint64_t rounds, std::uint64_t most_us) {
    PERDURE_TRACE_SEED();
    Rng random;
    load_ = load;
    {
      Pool pool = open();
    }
    for (std::uint64_t i = 0; i < rounds && !HasFailure(); ++i) {
      // Some are killed while they go on after a kill.
      const std::uint64_t kills = 1 + random.below(3);
      for (std::uint64_t k = 0; k < kills; ++k) {
        const bool waits = k + 1 == kills || random.below(2) == 0;
        kill_after(static_cast<int>(random.below(waits ? most_us : 6'000)), waits, i % 2 == 0);
        if (HasFailure()) return;
        returned_ += shared_->returned.exchange(0);
      }
      const bool power = random.below(2) == 0;
      powers_ += power ? 1 : 0;
      if (power) power_fails();
      verify(power);
    }
    std::printf("%llu power failures, %llu MiB given back\n",
                static_cast<unsigned long long>(powers_),
                static_cast<unsigned long long>(returned_ >> 20));
  }

  const std::string folder_ = on_disk("-survive");
  const std::string path_ = folder_ + "/pool";
  Shared* shared_ = nullptr;
  Load load_ = kSmall;
  std::uint64_t operations_ = 0;  // that were begun; more than once if they were lost
  std::uint64_t returned_ = 0;    // bytes
  std::uint64_t powers_ = 0;
};

TEST_F(Survive, KillsAndPowerFailures) {
  survive(kSmall, scaled(300, 8, 3), 40'000);
  EXPECT_GT(operations_, scaled(3 * kSmall.keys, 0));
}
TEST_F(Survive, WhileSpaceGoesBack) {
  // The engines differ little here.
  if (chosen_engine().engine != Engine::phast && !at_length()) return;
  survive(kLarge, scaled(30, 4, 1), 1'000'000);
  EXPECT_GE(returned_, scaled(1, 0));
}

}  // namespace
}  // namespace perdure::test
