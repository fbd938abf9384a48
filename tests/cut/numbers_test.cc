// test: injects
// Version numbers in pools with durability `buffered`: no number that a call has shown comes again
// for another version, also if a power failure takes back what no cut has.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/cut/trouble.h"
#include "tests/support/inject.h"

namespace perdure::test {
namespace {

constexpr std::uint32_t kSeldom = 3'600'000;
constexpr std::uint64_t kBlock = 4096;  // numbers that are reserved together
using Versioned = VersionedMap<std::uint64_t, std::uint64_t>;

Versioned map_of(Pool& pool) { return must(pool.versioned_map<std::uint64_t, std::uint64_t>("m")); }

// The threads of the pool make the cuts; or there are none, or the system refuses them, and callers
// make them.
enum class Cutters : std::uint8_t { threads, callers, refused };
std::string name_of(Cutters cutters) {
  const char* const names[] = {"threads", "callers", "refused"};
  return names[static_cast<int>(cutters)];
}

class Numbers : public BufferedFiles, public ::testing::WithParamInterface<Cutters> {
 protected:
  Numbers() {
    void* at = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    shown_ = new (at) std::atomic<std::uint64_t>(0);
  }
  ~Numbers() override { ::munmap(shown_, kPage); }

  PoolOptions options() const {
    PoolOptions options = buffered(kSeldom);
    options.buffered.on_log_failure = on_log_failure_;
    options.max_size = 16_MiB;
    if (GetParam() == Cutters::callers) options.background_threads = 0;
    return options;
  }
  Pool open() {
    const Failing failing(GetParam() == Cutters::refused ? Fault::thread : Fault::none, 1, true);
    return must(PoolImpl::open_in(disk_, path(), options()));
  }
  // A process opens the pool, calls work(pool), and is killed.
  template <class F>
  void in_killed_process(F&& work) {
    const pid_t child = start_child([&] {
      Pool pool = open();
      work(pool);
      ::kill(::getpid(), SIGKILL);
    });
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }
  // A caller has got this number.
  void show(std::uint64_t version) const {
    std::uint64_t shown = *shown_;
    while (shown < version && !shown_->compare_exchange_weak(shown, version)) {
    }
  }
  void tag(Versioned& map, std::uint64_t times = 1) const {
    for (; times != 0; --times) {
      must(map.put(1, times));
      show(must(map.tag()));
    }
  }
  // In a pool that has lost what no cut has.
  void expect_new_numbers() {
    ASSERT_NE(*shown_, 0U);
    machine_restarts();
    Pool pool = open();
    Versioned map = map_of(pool);
    EXPECT_GT(must(map.tag()), shown_->load());
    expect_sound(pool);
  }

  std::atomic<std::uint64_t>* shown_;  // the highest number
  Disk disk_;                          // of the processes that are killed, too
  OnLogFailure on_log_failure_ = OnLogFailure::refuse;
};
INSTANTIATE_TEST_SUITE_P(Pools, Numbers,
                         ::testing::Values(Cutters::threads, Cutters::callers, Cutters::refused),
                         [](const auto& pools) { return name_of(pools.param); });

TEST_P(Numbers, ATagBeyondTheBlockThatTheCutHas) {
  in_killed_process([&](Pool& pool) {
    Versioned map = map_of(pool);
    tag(map, kBlock - 2);
    must(pool.sync());
    tag(map, 5);
  });
  expect_new_numbers();
}

TEST_P(Numbers, SeveralBlocksInOneInterval) {
  in_killed_process([&](Pool& pool) {
    Versioned map = map_of(pool);
    must(pool.sync());
    tag(map, 3 * kBlock + 10);
  });
  EXPECT_GT(shown_->load(), 3 * kBlock);
  expect_new_numbers();
}

// Also the map is in a cut before its first number is shown.
TEST_P(Numbers, TheFirstTagOfANewMap) {
  in_killed_process([&](Pool& pool) {
    Versioned map = map_of(pool);
    tag(map);
  });
  expect_new_numbers();
}

TEST_P(Numbers, TheFirstTagAfterAKill) {
  for (int round = 0; round < 3; ++round) {
    in_killed_process([&](Pool& pool) {
      Versioned map = map_of(pool);
      tag(map, 2);
    });
  }
  expect_new_numbers();
}

// A close stores the exact number, so the next process begins a block.
TEST_P(Numbers, TheFirstTagAfterAClose) {
  {
    Pool pool = open();
    Versioned map = map_of(pool);
    tag(map, 3);
    must(pool.close());
  }
  in_killed_process([&](Pool& pool) {
    Versioned map = map_of(pool);
    tag(map, 3);
  });
  EXPECT_EQ(shown_->load(), 6U);
  expect_new_numbers();
}

TEST_P(Numbers, SeveralThreads) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kTags = 3000;
  in_killed_process([&](Pool& pool) {
    Versioned map = map_of(pool);
    std::vector<std::uint64_t> numbers[kThreads];
    std::vector<std::thread> threads;
    for (auto& mine : numbers) {
      threads.emplace_back([&] {
        for (std::uint64_t i = 0; i < kTags; ++i) mine.push_back(must(map.tag()));
      });
    }
    for (auto& thread : threads) thread.join();
    std::vector<std::uint64_t> all;
    for (const auto& mine : numbers) {
      require(std::ranges::is_sorted(mine), "the numbers of a thread rise");
      all.insert(all.end(), mine.begin(), mine.end());
    }
    std::ranges::sort(all);
    for (std::uint64_t i = 0; i < all.size(); ++i) require(all[i] == i + 1, "no number is missing");
    show(all.back());
  });
  EXPECT_EQ(shown_->load(), kThreads * kTags);
  expect_new_numbers();
}

// The version that a rollback closes is the first of a block.
TEST_P(Numbers, ARollbackThatClosesAVersion) {
  in_killed_process([&](Pool& pool) {
    Versioned map = map_of(pool);
    tag(map, kBlock);
    must(pool.sync());
    must(map.put(1, 0));
    must(map.rollback(5));
    show(map.versions().last);
  });
  EXPECT_EQ(shown_->load(), kBlock + 1);
  expect_new_numbers();
}

// A kill leaves a block whose numbers are closed for the next process.
TEST_P(Numbers, TheRangeThatAKillLeaves) {
  in_killed_process([&](Pool& pool) {
    Versioned map = map_of(pool);
    must(pool.sync());
    disk_.fail_at(1, true);
    require(map.tag().error() == StatusCode::io, "no cut has the first block");
  });
  in_killed_process([&](Pool& pool) {
    Versioned map = map_of(pool);
    show(map.versions().last);
    show(must(map.snapshot()).version());
  });
  EXPECT_EQ(shown_->load(), kBlock);
  expect_new_numbers();
}

TEST_P(Numbers, ATagFailsIfTheLogDoes) {
  in_killed_process([&](Pool& pool) {
    Versioned map = map_of(pool);
    tag(map, kBlock - 1);
    must(pool.sync());
    tag(map);  // the last of the block
    disk_.fail_at(1, true);
    for (int i = 0; i < 3; ++i)
      require(map.tag().error() == StatusCode::io, "a tag whose block no cut has");
    require(map.rollback(1) == StatusCode::io, "nor does a rollback close it");
    require(map.versions().last == kBlock, "nothing was closed");
    disk_.fail_at(0, false);
    must(pool.resume_log());
    tag(map);
    require(*shown_ == kBlock + 1, "no number is skipped");
  });
  expect_new_numbers();
}

// Other mutations go on.
TEST_P(Numbers, ATagFailsIfTheLogDoesAlsoIfMutationsAreServed) {
  on_log_failure_ = OnLogFailure::serve;
  in_killed_process([&](Pool& pool) {
    Versioned map = map_of(pool);
    tag(map, kBlock - 2);
    disk_.fail_at(1, true);
    require(pool.sync() == StatusCode::io, "a failed log");
    tag(map, 2);
    must(map.put(2, 2));
    for (int i = 0; i < 3; ++i)
      require(map.tag().error() == StatusCode::io, "a tag whose block no cut has");
    require(map.rollback(1) == StatusCode::io, "nor does a rollback close it");
    require(map.versions().last == kBlock, "nothing was closed");
  });
  EXPECT_EQ(shown_->load(), kBlock);
  expect_new_numbers();
}

// The thread would wait for itself.
TEST_P(Numbers, NoTagInReadBatch) {
  in_killed_process([&](Pool& pool) {
    Versioned map = map_of(pool);
    const auto refused = [&] {
      StatusCode code = StatusCode::ok;
      must(pool.read_batch([&] { code = code_of(map.tag()); }));
      return code == StatusCode::invalid_argument;
    };
    require(refused(), "it would begin the first block");
    tag(map, kBlock);
    require(refused(), "it would begin a block");
    tag(map);
    require(*shown_ == kBlock + 1, "no number is skipped");
  });
  expect_new_numbers();
}

}  // namespace
}  // namespace perdure::test
