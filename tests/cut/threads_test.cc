// test: no asan, tsan, each engine
// Cuts of a real pool while threads use it. Each has what had been acknowledged before it, nothing
// that began after it, and every operation of a thread up to one of them; and opens as a pool.
#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "pool/pool_impl.h"
#include "testing/cut/shadow.h"
#include "testing/cut/sparse_storage.h"
#include "tests/support/engines.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using detail::PoolImpl;
using testing::Shadow;
using testing::SparseStorage;

constexpr std::uint64_t kMost = 32 << 20;
constexpr std::uint64_t kKeys = 500;  // of a thread, written in turn
constexpr int kWriters = 3;

struct Progress {
  std::atomic<std::uint64_t> begun{0}, ended{0};  // operations of a thread
};
using Counts = std::vector<std::uint64_t>;

class Cuts {
 public:
  Cuts() {
    pool_.emplace(must(Pool::open(path_, options())));
    map_.emplace(must(
        pool_->map<std::uint64_t, std::string_view>("map", {.engine = chosen_engine().engine})));
    must(log_.create());
    must(log_.cover(kMost));
    PoolImpl& pool = PoolImpl::of(*pool_);
    tracker_.emplace(pool.memory().data(), log_);
    if (!tracker_->make()) throw std::bad_alloc();
    shadow_.load(pool.memory().data(), pool.memory().size());
    pool.platform().track_stores(*tracker_);
    cutter_.emplace(pool.platform(), *tracker_);
  }
  static PoolOptions options() {
    return {.accept_untrusted = true,
            .durability = Durability::process,
            .max_size = kMost,
            .background_threads = 0};
  }

  // Operation n of a thread: puts, erases and puts again. So at any time the last kKeys operations
  // say what the keys are.
  void write(std::uint64_t thread, std::uint64_t n) {
    const std::uint64_t key = thread * kKeys + n % kKeys;
    if (n % 7 == 3) {
      (void)must(map_->erase(key));
    } else {
      must(map_->put(key, value_of(thread, n)));
    }
  }
  // Returns whether there was a cut.
  bool cut() {
    Counts before, after;
    for (const Progress& p : progress_) before.push_back(p.ended.load());
    CutReport report;
    const CutStep step = cutter_->cut(shadow_, report);
    for (const Progress& p : progress_) after.push_back(p.begun.load());
    EXPECT_NE(step, CutStep::refused);
    if (step != CutStep::done) return false;
    if (++cuts_ % 4 == 0) verify(before, after);
    cutter_->settle();
    return true;
  }
  // Cuts so many times while threads write.
  void work(std::uint64_t wanted) {
    std::vector<std::thread> writers;
    for (std::uint64_t t = 0; t < kWriters; ++t) {
      writers.emplace_back([&, t] {
        for (std::uint64_t n = 0; !stop_.load(); ++n) {
          progress_[t].begun.store(n + 1);
          write(t, n);
          progress_[t].ended.store(n + 1);
        }
      });
    }
    while (cuts_ < wanted && !::testing::Test::HasFailure()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      (void)cut();
    }
    stop_.store(true);
    for (std::thread& writer : writers) writer.join();
    EXPECT_TRUE(cut());
    for (const Progress& p : progress_) EXPECT_GT(p.ended.load(), kKeys);
  }

 private:
  static std::string value_of(std::uint64_t thread, std::uint64_t n) {
    return std::to_string(thread) + ":" + std::to_string(n) + ":" +
           std::string(mix(thread + n) % 150, 'v');
  }
  void verify(const Counts& before, const Counts& after) {
    {
      std::ofstream file(copy_, std::ios::binary | std::ios::trunc);
      file.write(reinterpret_cast<const char*>(shadow_.data()),
                 static_cast<std::streamsize>(PoolImpl::of(*pool_).memory().size()));
    }
    Pool pool = must(Pool::open(copy_, options()));
    const CheckReport report = must(pool.check({.deep = true}));
    for (const auto& violation : report.violations) ADD_FAILURE() << violation;
    auto map = must(pool.map<std::uint64_t, std::string_view>("map"));
    for (std::uint64_t t = 0; t < kWriters; ++t) {
      std::uint64_t n = before[t];
      std::string wrong;
      do {
        wrong = differs(map, t, n);
      } while (!wrong.empty() && ++n <= after[t]);
      EXPECT_EQ(wrong, "") << "thread " << t << ", " << before[t] << " to " << after[t];
    }
  }
  // Whether the keys of the thread are as after n operations.
  template <class M>
  static std::string differs(M& map, std::uint64_t thread, std::uint64_t n) {
    for (std::uint64_t i = n > kKeys ? n - kKeys : 0; i < n; ++i) {
      const auto found = must(map.get(thread * kKeys + i % kKeys));
      const bool there = found.has_value();
      if (there != (i % 7 != 3) || (there && *found != value_of(thread, i))) {
        return "operation " + std::to_string(i) + " of " + std::to_string(n);
      }
    }
    return {};
  }

  TempPath path_, copy_;
  SparseStorage storage_{DirtyLog<RealPlatform>::bytes_for(kMost)};
  DirtyLog<RealPlatform> log_{storage_, kMost};
  std::optional<StoreTracker<RealPlatform>> tracker_;
  std::optional<Pool> pool_;  // its close still stores
  std::optional<Map<std::uint64_t, std::string_view>> map_;
  std::optional<Cutter<RealPlatform>> cutter_;
  Shadow shadow_{kMost};
  std::vector<Progress> progress_{kWriters};
  std::atomic<bool> stop_{false};
  std::uint64_t cuts_ = 0;
};

TEST(Threads, CutsHaveWhatWasAcknowledged) {
  Cuts cuts;
  cuts.work(scaled(2000, 40, 12));
}

}  // namespace
}  // namespace perdure::test
