// test: tsan, each engine
// A process that stores to a pool and cuts it is killed. The next one finds, in the log that both
// share, every line that the copy does not have.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
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
using testing::SparseStorage;
using Log = DirtyLog<RealPlatform>;

constexpr std::uint64_t kMost = 16 << 20;
constexpr std::uint64_t kWriters = 2;

// What the two processes share.
struct Shared {
  std::atomic<bool> ready{false};
  std::atomic<std::uint64_t> cuts{0};
  alignas(kPage) std::byte copy[kMost];
};

// Stores and cuts until it is killed.
[[noreturn]] void work(const std::string& path, SparseStorage& storage, Shared& shared) {
  Pool pool = must(Pool::open(
      path, {.durability = Durability::process, .max_size = kMost, .background_threads = 0}));
  auto map =
      must(pool.map<std::uint64_t, std::string_view>("map", {.engine = chosen_engine().engine}));
  PoolImpl& impl = PoolImpl::of(pool);
  Log log(storage, kMost);
  must(log.create());
  must(log.cover(kMost));
  StoreTracker<RealPlatform> tracker(impl.memory().data(), log);
  if (!tracker.make()) std::abort();
  std::memcpy(shared.copy, impl.memory().data(), impl.memory().size());
  impl.platform().track_stores(tracker);
  shared.ready.store(true);
  std::vector<std::thread> writers;
  for (std::uint64_t t = 0; t < kWriters; ++t) {
    writers.emplace_back([&map, t] {
      for (std::uint64_t n = 0;; ++n) {
        const std::uint64_t key = t << 32 | mix(n) % 2000;
        if (n % 5 == 0) {
          (void)must(map.erase(key));
        } else {
          must(map.put(key, std::string(mix(n) % 200, static_cast<char>('a' + n % 26))));
        }
      }
    });
  }
  Cutter<RealPlatform> cutter(impl.platform(), tracker);
  const auto sink = [&](std::uint64_t line, const LineWords& content) {
    std::memcpy(shared.copy + line * kLine, content.words, kLine);
  };
  for (;;) {
    CutReport report;
    if (cutter.cut(sink, report) == CutStep::done) {
      cutter.settle();
      shared.cuts.fetch_add(1);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
}

// Kills the child us microseconds after it has made `cuts` cuts. Returns how many lines the log
// had, and how many cuts there were.
std::pair<std::uint64_t, std::uint64_t> kill_once(int us, std::uint64_t cuts_before) {
  const TempPath path;
  SparseStorage storage(Log::bytes_for(kMost));
  must(storage.allocate(0, storage.capacity()));
  void* at =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  auto* shared = new (at) Shared;
  const pid_t child = start_child([&] { work(path, storage, *shared); });
  const auto begun = [&] { return shared->ready.load() && shared->cuts.load() >= cuts_before; };
  for (int i = 0; !begun() && i < 100'000; ++i) ::usleep(100);
  ::usleep(static_cast<useconds_t>(us));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(shared->ready.load());

  const std::string pool = read_bytes(path);
  Log log(storage, kMost);
  must(log.inherit());
  std::vector<std::uint64_t> lines(Log::kLeast);
  std::uint64_t total = 0;
  for (bool ended = false; !ended;) {
    const std::uint64_t count = log.take(lines, ended);
    for (std::uint64_t i = 0; i < count; ++i) {
      std::memcpy(shared->copy + lines[i] * kLine, pool.data() + lines[i] * kLine, kLine);
    }
    total += count;
  }
  EXPECT_TRUE(std::memcmp(shared->copy, pool.data(), pool.size()) == 0);
  const std::uint64_t cuts = shared->cuts.load();
  ::munmap(at, sizeof(Shared));
  return {total, cuts};
}

TEST(Kill, TheNextProcessFindsWhatTheCopyLacks) {
  PERDURE_TRACE_SEED();
  Rng random;
  std::uint64_t lines = 0;
  std::uint64_t cuts = 0;
  // On a busy machine a kill often comes when nothing was stored after a cut: then one more.
  const std::uint64_t kills = scaled(200, 12, 4);
  for (std::uint64_t i = 0; (i < kills || (lines == 0 && i < 500)) && !HasFailure(); ++i) {
    // Every second kill can come before the first cut.
    const std::uint64_t before = i % 2 == 0 ? 0 : 6 + random() % 6;
    const auto [found, made] = kill_once(static_cast<int>(2000 + random() % 15'000), before);
    lines += found;
    cuts += made;
  }
  EXPECT_GT(lines, 0U);
  EXPECT_GT(cuts, 10U);
}

}  // namespace
}  // namespace perdure::test
