// test: tsan, cross
// Heap<RealPlatform> over ordinary memory: classes, runs, reuse, growth, pool_full, sweep,
// punching.
#include "heap/heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "perdure/pool.h"
#include "platform/real_platform.h"
#include "tests/support/memory_heap.h"

namespace perdure {
namespace {

using test::HeapFixture;
using test::kExtent;

TEST(SizeClasses, HoldWhatTheyPromise) {
  for (std::size_t n = 1; n <= kClassSizes.back(); ++n) {
    const std::uint32_t c = class_of(n);
    ASSERT_LT(c, kClassCount) << n;
    ASSERT_GE(kClassSizes[c], n);
    ASSERT_TRUE(c == 0 || kClassSizes[c - 1] < n);
  }
  EXPECT_EQ(class_of(kClassSizes.back() + 1), kClassCount);
  for (const std::uint32_t wanted : {32U, 48U, 64U, 1024U})
    EXPECT_EQ(kClassSizes[class_of(wanted)], wanted);
}

TEST(ExtentWord, RoundTripsAndRefusesEveryBitFlip) {
  const ExtentWord word{.state = ExtentState::run, .kind = BlockKind::zero_on_free, .run = 12345};
  const std::uint64_t encoded = word.encode(77);
  ExtentWord out;
  ASSERT_TRUE(ExtentWord::decode(encoded, 77, out));
  EXPECT_EQ(out.run, 12345U);
  EXPECT_FALSE(ExtentWord::decode(encoded, 78, out)) << "a word of another extent";
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_FALSE(ExtentWord::decode(encoded ^ (1ULL << bit), 77, out)) << bit;
    EXPECT_FALSE(ExtentWord::decode(1ULL << bit, 77, out)) << "virgin, bit " << bit;
  }
}

// The thinnest extents are set aside if the others have room for their blocks. Nothing is allocated
// from them, and what is freed in them is not allocated again, until the pool is full.
TEST(Heap, ThinExtentsAreSetAside) {
  constexpr std::uint64_t kBlocks = kExtent / 1024;
  HeapFixture f(8);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  std::vector<std::uint64_t> kept;
  std::vector<std::uint64_t> freed;
  for (std::uint64_t i = 0; i < 8 * kBlocks; ++i) {
    const std::uint64_t block = f.heap->allocate(1024, BlockKind::plain).value();
    // A quarter of the blocks of the first extents stays, and 7 of 8 of the last two.
    const bool stays = i < 6 * kBlocks ? i % 4 == 0 : i % 8 != 0;
    (stays ? kept : freed).push_back(block);
  }
  for (const std::uint64_t block : freed) f.heap->free(block);
  ASSERT_TRUE(f.heap->set_aside());
  std::uint64_t aside = 0;
  for (const std::uint64_t block : kept) aside += f.heap->is_aside(block) ? 1 : 0;
  EXPECT_EQ(aside, 4 * kBlocks / 4) << "four of the six";
  EXPECT_FALSE(f.heap->is_aside(kept.back()));
  for (std::uint64_t& block : kept) {
    if (!f.heap->is_aside(block)) continue;
    const std::uint64_t moved = f.heap->allocate(1024, BlockKind::plain).value();
    EXPECT_FALSE(f.heap->is_aside(moved));
    f.heap->free(block);
    block = moved;
  }
  EXPECT_GE(f.heap->punch_free().value(), 4 * kExtent);
  // Again, and the pool gets full.
  for (std::uint64_t i = 0; i < kept.size(); i += 2) f.heap->free(kept[i]);
  ASSERT_TRUE(f.heap->set_aside());
  std::uint64_t more = 0;
  while (f.heap->allocate(1024, BlockKind::plain)) ++more;
  f.heap->reclaim();
  while (f.heap->allocate(1024, BlockKind::plain)) ++more;
  EXPECT_EQ(more, 8 * kBlocks - kept.size() / 2);
}

TEST(Heap, BlocksAreDistinctAlignedAndFree) {
  HeapFixture f(64);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  std::set<std::uint64_t> seen;
  for (const std::size_t n : {16, 32, 48, 64, 100, 1024, 5000, 32768}) {
    for (int i = 0; i < 40; ++i) {
      auto block = f.heap->allocate(n, BlockKind::plain);
      if (!block) {
        ASSERT_EQ(block.error(), StatusCode::pool_full);
        break;
      }
      EXPECT_TRUE(seen.insert(*block).second);
      EXPECT_EQ(*block % 16, 0U);
      EXPECT_TRUE(kClassSizes[class_of(n)] % 64 != 0 || *block % 64 == 0);
      EXPECT_GE(f.heap->block_bytes(*block), n);
      std::memset(f.heap->at<void>(*block), 0xAA, n);
    }
  }
}

// Everything is assigned to other classes. A larger block serves only on request, only if it is
// aligned as well, and only within kMostLarger. A freed block returns to the class it came from.
TEST(Heap, ALargerBlockServesAsTheLastResort) {
  HeapFixture f(2);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  const auto fill = [&](std::size_t n) {
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < kExtent / n; ++i) {
      auto block = f.heap->allocate(n, BlockKind::plain);
      EXPECT_TRUE(block);
      if (block) last = *block;
    }
    return last;
  };
  const std::uint64_t of_192 = fill(192);
  const std::uint64_t of_2048 = fill(2048);
  f.heap->free(of_192);
  f.heap->free(of_2048);
  EXPECT_EQ(f.heap->allocate(64, BlockKind::plain).error(), StatusCode::pool_full);
  f.heap->take_larger(true);
  auto block = f.heap->allocate(64, BlockKind::plain);
  ASSERT_TRUE(block);
  EXPECT_EQ(*block, of_192);
  EXPECT_EQ(f.heap->block_bytes(*block), 192U);
  EXPECT_EQ(f.heap->allocate(64, BlockKind::plain).error(), StatusCode::pool_full)
      << "2048 is much";
  EXPECT_EQ(f.heap->allocate(64, BlockKind::dead_on_free).error(), StatusCode::pool_full);
  f.heap->free(*block);
  EXPECT_EQ(f.heap->allocate(128, BlockKind::plain).error(), StatusCode::pool_full)
      << "192 is no multiple of 128";
  block = f.heap->allocate(512, BlockKind::plain);
  ASSERT_TRUE(block);
  EXPECT_EQ(*block, of_2048);
  f.heap->take_larger(false);
  EXPECT_EQ(f.heap->allocate(64, BlockKind::plain).error(), StatusCode::pool_full);
  block = f.heap->allocate(192, BlockKind::plain);
  ASSERT_TRUE(block);
  EXPECT_EQ(*block, of_192);
}

TEST(Heap, AllocateAndFreeCostNoFlushAndNoFence) {
  HeapFixture f(64);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  auto first = f.heap->allocate(100, BlockKind::plain);  // takes the extent
  ASSERT_TRUE(first);
  const Counters before = thread_counters();
  for (int i = 0; i < 200; ++i) {
    auto block = f.heap->allocate(100, BlockKind::plain);
    ASSERT_TRUE(block);
    f.heap->free(*block);
  }
  EXPECT_EQ(thread_counters().flushes, before.flushes);
  EXPECT_EQ(thread_counters().fences, before.fences);
}

// Freeing a level or a large record does not write it again, whichever thread reclaims it.
TEST(Heap, ARunIsZeroWhenItIsHandedOutAndNotBefore) {
  HeapFixture f(16);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  for (int round = 0; round < 20; ++round) {
    auto run = f.heap->allocate(3 * kExtent, BlockKind::zero_on_free);
    ASSERT_TRUE(run);
    const auto* bytes = f.heap->at<unsigned char>(*run);
    ASSERT_EQ(std::count(bytes, bytes + 3 * kExtent, 0), 3 * kExtent);
    std::memset(f.heap->at<void>(*run), 0xAA, 3 * kExtent);
    const Counters before = thread_counters();
    {
      const EpochGuard<RealPlatform> guard(*f.epochs);
      f.heap->retire(*run);
    }
    f.epochs->drain_all();
    EXPECT_LT(thread_counters().flushes - before.flushes, 20U);
  }
}

TEST(Heap, FullIsAnErrorAndSpaceComesBack) {
  HeapFixture f(4);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  std::vector<std::uint64_t> blocks;
  for (;;) {
    auto block = f.heap->allocate(1000, BlockKind::plain);
    if (!block) {
      EXPECT_EQ(block.error(), StatusCode::pool_full);
      break;
    }
    blocks.push_back(*block);
  }
  EXPECT_EQ(blocks.size(), 4 * kExtent / 1024);
  for (const std::uint64_t block : blocks) f.heap->free(block);
  f.heap->flush_caches();
  auto large = f.heap->allocate(3 * kExtent, BlockKind::plain);  // another class, three neighbours
  ASSERT_TRUE(large) << large.error().message();
  EXPECT_EQ(f.heap->block_bytes(*large), 3 * kExtent);
  f.heap->free(*large);
  EXPECT_TRUE(f.heap->allocate(1000, BlockKind::plain));
}

// 4b: blocks that the sweep does not reach are free again, blocks that it reaches are not.
TEST(Heap, SweepKeepsExactlyWhatIsMarked) {
  HeapFixture f(16);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 300; ++i) {
    auto block = f.heap->allocate(200, BlockKind::plain);
    ASSERT_TRUE(block);
    blocks.push_back(*block);
  }
  auto run = f.heap->allocate(2 * kExtent, BlockKind::plain);
  ASSERT_TRUE(run);
  f.attach();  // a new process
  for (std::size_t i = 0; i < blocks.size(); i += 3) ASSERT_TRUE(f.heap->mark(blocks[i]).ok());
  EXPECT_EQ(f.heap->mark(blocks[0]), StatusCode::corruption) << "reached twice";
  EXPECT_EQ(f.heap->mark(blocks[0] + 16), StatusCode::corruption) << "no block starts there";
  EXPECT_EQ(f.heap->mark(7), StatusCode::corruption) << "outside";
  ASSERT_TRUE(f.heap->mark(*run).ok());
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  std::set<std::uint64_t> live;
  for (std::size_t i = 0; i < blocks.size(); i += 3) live.insert(blocks[i]);
  for (int i = 0; i < 200; ++i) {
    auto block = f.heap->allocate(200, BlockKind::plain);
    ASSERT_TRUE(block);
    EXPECT_TRUE(live.insert(*block).second) << "handed out twice";
    EXPECT_FALSE(*block >= *run && *block < *run + 2 * kExtent) << "inside a live run";
  }
}

// A map made during a sweep recovers like any other: its blocks are allocated already.
TEST(Heap, AMapMadeWhileASweepRunsIsNotMarked) {
  HeapFixture f(16);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  auto old = f.heap->allocate(200, BlockKind::plain);
  ASSERT_TRUE(old);
  f.attach();
  ASSERT_TRUE(f.heap->sweeping());
  auto slab = f.heap->allocate(200, BlockKind::plain);
  auto run = f.heap->allocate(2 * kExtent, BlockKind::plain);
  ASSERT_TRUE(slab && run);
  EXPECT_TRUE(f.heap->mark(*slab).ok());
  EXPECT_TRUE(f.heap->mark(*run).ok());
  EXPECT_TRUE(f.heap->mark(*old).ok());
  EXPECT_EQ(f.heap->mark(*old), StatusCode::corruption) << "reached twice";
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  std::set<std::uint64_t> live{*old, *slab};
  for (int i = 0; i < 600; ++i) {
    auto block = f.heap->allocate(200, BlockKind::plain);
    ASSERT_TRUE(block);
    EXPECT_TRUE(live.insert(*block).second) << "handed out twice";
    EXPECT_FALSE(*block >= *run && *block < *run + 2 * kExtent);
  }
}

// A thread that helps the sweep may free and allocate, and may wait for a thread that searches all
// caches.
TEST(Heap, TheSweepIsHelpedWithoutALatch) {
  HeapFixture f(3);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  std::vector<std::uint64_t> blocks;
  for (auto block = f.heap->allocate(1000, BlockKind::plain); block.has_value();
       block = f.heap->allocate(1000, BlockKind::plain)) {
    blocks.push_back(*block);
  }
  f.attach();
  struct Sweep {
    Heap<RealPlatform>* heap;
    int calls = 0;
    bool waited = false;
    std::jthread other;
  } sweep{.heap = f.heap.get(), .other = {}};
  f.help = [&s = sweep] {
    if (++s.calls > 1) return false;  // from within itself
    std::promise<void> flushed;
    auto done = flushed.get_future();
    s.other = std::jthread([heap = s.heap, promise = std::move(flushed)]() mutable {
      heap->flush_caches();
      promise.set_value();
    });
    s.waited = done.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
    if (!s.waited) return false;
    EXPECT_FALSE(s.heap->allocate(2 * kExtent, BlockKind::plain).has_value());
    return s.heap->end_sweep(true).ok();
  };
  for (const std::size_t n : {std::size_t{1000}, std::size_t{2 * kExtent}}) {
    EXPECT_TRUE(f.heap->allocate(n, BlockKind::plain).has_value()) << n;
  }
  EXPECT_TRUE(sweep.waited);
  EXPECT_EQ(sweep.calls, 3) << "the allocation within tries once more after it is starved";
}

TEST(Heap, IncompleteSweepFreesNothing) {
  HeapFixture f(16);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  std::set<std::uint64_t> old;
  for (int i = 0; i < 100; ++i) old.insert(*f.heap->allocate(512, BlockKind::plain));
  f.attach();
  ASSERT_TRUE(f.heap->end_sweep(false).ok());
  for (int i = 0; i < 100; ++i) {
    auto block = f.heap->allocate(512, BlockKind::plain);
    ASSERT_TRUE(block);
    EXPECT_EQ(old.count(*block), 0U);
  }
}

TEST(Heap, PunchGivesFreeExtentsBackAndTakesThemAgain) {
  HeapFixture f(8);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  std::vector<std::uint64_t> blocks;
  for (std::uint64_t i = 0; i < 8 * kExtent / 2048; ++i) {
    auto block = f.heap->allocate(2048, BlockKind::plain);
    ASSERT_TRUE(block);
    std::memset(f.heap->at<void>(*block), 0x55, 2048);
    blocks.push_back(*block);
  }
  for (const std::uint64_t block : blocks) f.heap->free(block);
  auto bytes = f.heap->punch_free();
  ASSERT_TRUE(bytes);
  EXPECT_EQ(*bytes, 8 * kExtent);
  EXPECT_EQ(f.storage.punched, 8 * kExtent);
  EXPECT_EQ(*f.heap->punch_free(), 0U) << "twice the same space";
  EXPECT_TRUE(f.heap->allocate(8 * kExtent, BlockKind::zero_on_free));
}

// The medium has filled up meanwhile: free extents that still have their space serve.
TEST(Heap, BackedExtentsServeWhereHolesCannot) {
  HeapFixture f(4);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  std::uint64_t blocks[4];
  for (std::uint64_t& block : blocks) block = *f.heap->allocate(kExtent, BlockKind::plain);
  f.heap->free(blocks[0]);
  ASSERT_TRUE(f.heap->punch_free());  // the first one is a hole
  f.heap->free(blocks[2]);
  f.storage.full_below = blocks[1];
  auto again = f.heap->allocate(kExtent, BlockKind::plain);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(*again, blocks[2]);
  EXPECT_EQ(f.heap->allocate(kExtent, BlockKind::plain).error(), StatusCode::pool_full);
}

// A block of a kind that is made dead when it is freed waits for a fence, published or not.
TEST(Heap, BlocksOfEveryKindComeBack) {
  HeapFixture f(8);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  for (const BlockKind kind :
       {BlockKind::plain, BlockKind::dead_on_free, BlockKind::zero_on_free}) {
    for (const bool published : {false, true}) {
      auto block = f.heap->allocate(256, kind);
      ASSERT_TRUE(block);
      *f.heap->at<std::uint64_t>(*block) = 7;
      {
        EpochGuard<RealPlatform> guard(*f.epochs);
        published ? f.heap->retire(*block) : f.heap->discard(*block);
      }
      f.epochs->drain_all();
      EXPECT_EQ(*f.heap->at<std::uint64_t>(*block), kind == BlockKind::plain ? 7U : 0U);
      auto again = f.heap->allocate(256, kind);
      ASSERT_TRUE(again);
      EXPECT_EQ(*again, *block);
      f.heap->free(*again);
    }
  }
}

// References to invalid blocks are reported, and never followed.
TEST(Heap, BadReferencesAreNamed) {
  HeapFixture f(16);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  auto run = f.heap->allocate(3 * kExtent, BlockKind::plain);
  auto block = f.heap->allocate(64, BlockKind::plain);
  ASSERT_TRUE(run && block);
  f.attach();
  EXPECT_EQ(f.heap->mark(*run + 64), StatusCode::corruption) << "into a large object";
  EXPECT_EQ(f.heap->mark(*run + kExtent), StatusCode::corruption) << "into its second extent";
  f.heap->mark_copied(*run + 64);
  f.heap->mark_copied(7);
  ASSERT_TRUE(f.heap->mark(*run).ok());
  ASSERT_TRUE(f.heap->mark(*block).ok());
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  // A word of the table with a false value.
  auto* words = reinterpret_cast<std::uint64_t*>(f.storage.base());
  std::string found;
  f.heap->verify_table([&](const char* what) { found += what; });
  EXPECT_EQ(found, "");
  const std::uint64_t number = (*block - kExtent) / kExtent;
  const std::uint64_t before = words[number];
  words[number] = ExtentWord{.state = ExtentState::free}.encode(number);
  f.heap->verify_table([&](const char* what) { found += what; });
  EXPECT_NE(found.find("differs from its extent's use"), std::string::npos);
  words[number] = before ^ 1;
  f.heap->verify_table([&](const char* what) { found += what; });
  EXPECT_NE(found.find("is damaged"), std::string::npos);
  words[number] = before;
  ASSERT_TRUE(f.heap->begin_audit().ok());
  EXPECT_TRUE(f.heap->audit_mark(*block).ok());
  EXPECT_EQ(f.heap->audit_mark(*block), StatusCode::corruption) << "twice";
  EXPECT_EQ(f.heap->audit_mark(*block + 64), StatusCode::corruption) << "free";
  EXPECT_EQ(f.heap->audit_mark(5), StatusCode::corruption);
  EXPECT_EQ(f.heap->end_audit(), 1U) << "the run was not reached";
}

// A sweep that serves has a helper. One that cannot continue is an error, not a wait.
TEST(Heap, AFullPoolAsksItsSweepForHelp) {
  HeapFixture f(2);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  ASSERT_TRUE(f.heap->allocate(2 * kExtent, BlockKind::plain));
  f.attach();
  EXPECT_EQ(f.heap->allocate(kExtent, BlockKind::plain).error(), StatusCode::pool_full);
  f.help = [] { return false; };
  EXPECT_EQ(f.heap->allocate(kExtent, BlockKind::plain).error(), StatusCode::pool_full);
}

TEST(Heap, ThreadsNeverShareABlock) {
  HeapFixture f(256);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&f, t] {
      std::vector<std::uint64_t> mine;
      for (int i = 0; i < 4000; ++i) {
        auto block = f.heap->allocate(64 + 16 * (i % 8), BlockKind::plain);
        ASSERT_TRUE(block);
        *f.heap->at<std::uint64_t>(*block) =
            static_cast<std::uint64_t>(t) << 32 | static_cast<unsigned>(i);
        mine.push_back(*block);
        if (i % 3 == 2) {
          f.heap->free(mine.front());
          mine.erase(mine.begin());
        }
      }
      for (const std::uint64_t block : mine) {
        EXPECT_EQ(*f.heap->at<std::uint64_t>(block) >> 32, static_cast<std::uint64_t>(t));
        f.heap->free(block);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  f.heap->flush_caches();
  ASSERT_TRUE(f.heap->begin_audit().ok());
  EXPECT_EQ(f.heap->end_audit(), 0U) << "blocks lost between caches and bitmaps";
}

// Runs `work` in a thread of its own, which ends. The slot of that thread is not the caller's.
template <class F>
void in_another_thread(F work) {
  std::jthread(work).join();
}

std::vector<std::uint64_t> allocate_all(Heap<RealPlatform>& heap, std::size_t bytes) {
  std::vector<std::uint64_t> blocks;
  for (auto block = heap.allocate(bytes, BlockKind::plain); block;
       block = heap.allocate(bytes, BlockKind::plain)) {
    blocks.push_back(*block);
  }
  return blocks;
}

// heap.I5: the extents of a thread that ended, the blocks in its cache, and what it freed of other
// threads' extents serve every other thread.
TEST(Heap, NoBlockIsStrandedWithAThread) {
  HeapFixture f(8);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  (void)RealPlatform::thread_slot();
  std::vector<std::uint64_t> blocks;
  in_another_thread([&] { blocks = allocate_all(*f.heap, 128); });
  EXPECT_EQ(blocks.size(), 8 * kExtent / 128);
  in_another_thread([&] {
    for (std::size_t i = 0; i < blocks.size(); i += 2) f.heap->free(blocks[i]);
  });
  EXPECT_EQ(allocate_all(*f.heap, 128).size(), blocks.size() / 2) << "in caches and lists";
  for (std::size_t i = 1; i < blocks.size(); i += 2) f.heap->free(blocks[i]);
  in_another_thread([&] { EXPECT_EQ(allocate_all(*f.heap, 128).size(), blocks.size() / 2); });
}

// A thread that frees the last block of another thread's extents does not wait for their owner.
// The space serves other classes before the pool grows or is refused.
TEST(Heap, AnExtentThatBecomesEmptyElsewhereComesBack) {
  HeapFixture f(8);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  (void)RealPlatform::thread_slot();
  std::vector<std::uint64_t> blocks;
  in_another_thread([&] {
    blocks = allocate_all(*f.heap, 128);
    for (std::size_t i = 0; i < blocks.size(); i += 128) f.heap->free(blocks[i]);
  });
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % 128 != 0) f.heap->free(blocks[i]);
  }
  f.heap->flush_caches();
  const std::uint64_t before = f.heap->extent_count();
  EXPECT_TRUE(f.heap->allocate(7 * kExtent, BlockKind::plain)) << "a run";
  EXPECT_EQ(f.heap->extent_count(), before);
}

// Growth is the last resort: free blocks in the extents of other threads come first.
TEST(Heap, ExtentsOfOtherThreadsServeBeforeThePoolGrows) {
  HeapFixture f(64);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  (void)RealPlatform::thread_slot();
  in_another_thread([&] {
    std::vector<std::uint64_t> blocks;
    for (std::uint64_t i = 0; i < 16 * kExtent / 256; ++i) {
      blocks.push_back(*f.heap->allocate(256, BlockKind::plain));
    }
    for (std::size_t i = 0; i < blocks.size(); i += 2) f.heap->free(blocks[i]);
  });
  const std::uint64_t before = f.heap->extent_count();
  for (std::uint64_t i = 0; i < 7 * kExtent / 256; ++i) {
    ASSERT_TRUE(f.heap->allocate(256, BlockKind::plain));
  }
  EXPECT_EQ(f.heap->extent_count(), before);
}

// Where several threads allocate, the pool grows while it has free extents: then none waits for
// the growth of another one. A refusal has no effect before they are used up.
TEST(Heap, ThePoolGrowsBeforeOthersHaveToWait) {
  for (const bool others : {false, true}) {
    for (const std::uint64_t most : {64, 32}) {
      HeapFixture f(most, 32);
      ASSERT_TRUE(f.heap->end_sweep(true).ok());
      (void)RealPlatform::thread_slot();
      if (others) in_another_thread([&] { (void)f.heap->allocate(128, BlockKind::plain); });
      const std::uint64_t taken = f.heap->stats().assigned_extents;
      for (std::uint64_t i = 0; i < (30 - taken) * kExtent / 256; ++i) {
        ASSERT_TRUE(f.heap->allocate(256, BlockKind::plain));
      }
      EXPECT_EQ(f.heap->stats().assigned_extents, 30U);
      EXPECT_EQ(f.heap->extent_count(), others && most > 32 ? 33U : 32U) << others;
      const std::size_t left = allocate_all(*f.heap, 256).size();
      EXPECT_EQ(left, (most - 30) * kExtent / 256) << others;
    }
  }
}

// heap.I3, heap.I5: threads free each other's blocks while caches are flushed and extents are
// released. No block has two owners, and none is lost.
TEST(Heap, ThreadsFreeEachOthersBlocks) {
  HeapFixture f(24);
  ASSERT_TRUE(f.heap->end_sweep(true).ok());
  constexpr unsigned kThreads = 4;
  constexpr std::size_t kShared = 4096;
  std::vector<std::atomic<std::uint64_t>> shared(kShared);
  std::atomic<bool> ends{false};
  std::atomic<int> wrong{0};
  const auto release = [&](std::uint64_t block, std::size_t place) {
    auto& stamp = *f.heap->at<std::uint64_t>(block);
    wrong += std::atomic_ref(stamp).exchange(0) != place + 1;
    f.heap->free(block);
  };
  std::vector<std::jthread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::uint64_t random = t + 1;
      for (int i = 0; i < 60'000; ++i) {
        random = random * 6364136223846793005 + 1442695040888963407;
        const std::size_t place = random >> 33 & (kShared - 1);
        const std::size_t bytes = 64 << (random >> 60 & 1);
        auto block = f.heap->allocate(bytes, BlockKind::plain);
        if (block) std::atomic_ref(*f.heap->at<std::uint64_t>(*block)).store(place + 1);
        const std::uint64_t before = shared[place].exchange(block.value_or(0));
        if (before != 0) release(before, place);
      }
    });
  }
  std::jthread cleaner([&] {
    while (!ends) {
      f.heap->reclaim();
      (void)f.heap->stats();
      f.heap->verify_table([&](const char*) { ++wrong; });
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  });
  threads.clear();
  ends = true;
  cleaner.join();
  for (std::size_t place = 0; place < kShared; ++place) {
    if (const std::uint64_t block = shared[place]; block != 0) release(block, place);
  }
  EXPECT_EQ(wrong, 0);
  f.heap->flush_caches();
  EXPECT_EQ(f.heap->stats().allocated_bytes, 0U);
  f.heap->reclaim();
  EXPECT_EQ(f.heap->stats().assigned_extents, 0U);
}

// Slots lie in chunks of 16. Only chunks that threads have used are read.
TEST(Epochs, AReaderInAnyChunkOfSlotsIsSeen) {
  constexpr int kReaders = 40;
  RealPlatform platform;
  EpochDomain<RealPlatform> epochs(platform);
  static std::atomic<int> finished;
  finished = 0;
  static constexpr Reclaimer kCount{nullptr, [](void*, std::uint64_t) { ++finished; }};
  std::atomic<int> pinned{0};
  std::atomic<int> leave{0};
  std::atomic<int> left{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.emplace_back([&, i] {
      epochs.retire(kCount, nullptr, 1);
      {
        const EpochGuard<RealPlatform> guard(epochs);
        ++pinned;
        while (leave <= i) std::this_thread::yield();
      }
      ++left;
      while (left < kReaders) std::this_thread::yield();  // a slot must not be used twice
    });
    while (pinned <= i) std::this_thread::yield();
  }
  for (int i = 0; i < kReaders; ++i) {
    epochs.drain_all();
    EXPECT_EQ(finished, 0) << i << " readers of " << kReaders << " have left";
    EXPECT_EQ(epochs.limbo_count(), kReaders);
    leave = i + 1;
    while (left <= i) std::this_thread::yield();
  }
  for (std::thread& reader : readers) reader.join();
  epochs.drain_all();
  EXPECT_EQ(finished, kReaders);
}

TEST(Epochs, NothingIsFinishedUnderAGuard) {
  RealPlatform platform;
  EpochDomain<RealPlatform> epochs(platform);
  static int finished;
  finished = 0;
  static constexpr Reclaimer kCount{nullptr, [](void*, std::uint64_t) { ++finished; }};
  {
    EpochGuard<RealPlatform> guard(epochs);
    ASSERT_TRUE(guard.ok());
    for (int i = 0; i < 500; ++i) epochs.retire(kCount, nullptr, 1);
    EXPECT_EQ(finished, 0);
    EXPECT_EQ(epochs.limbo_count(), 500U);
  }
  epochs.drain_all();
  EXPECT_EQ(finished, 500);
}

// An advance interrupts all threads. Therefore small objects wait for many of their kind; of large
// ones only a few may wait.
TEST(Epochs, LimboStaysSmall) {
  using Domain = EpochDomain<RealPlatform>;
  static constexpr Reclaimer kNothing{nullptr, [](void*, std::uint64_t) {}};
  const auto most_in_limbo = [](std::size_t bytes) {
    RealPlatform platform;
    Domain epochs(platform);
    std::uint64_t most = 0;
    for (int i = 0; i < 20'000; ++i) {
      const EpochGuard<RealPlatform> guard(epochs);
      epochs.retire(kNothing, nullptr, 1, bytes);
      most = std::max(most, epochs.limbo_count());
    }
    return most;
  };
  const std::uint64_t small = most_in_limbo(64);
  EXPECT_GE(small, Domain::kGrace * Domain::kAdvanceEvery);
  EXPECT_LE(small, (Domain::kGrace + 2) * Domain::kAdvanceEvery);
  EXPECT_LE(most_in_limbo(1 << 20) << 20, std::uint64_t{32} << 20);
}

// No operation pays for many that came before it.
TEST(Epochs, ARetirementFinishesFewObjects) {
  using Domain = EpochDomain<RealPlatform>;
  static std::uint64_t finished;
  static std::uint64_t prepared;
  finished = prepared = 0;
  static constexpr Reclaimer kCount{[](void*, std::uint64_t) { ++prepared; },
                                    [](void*, std::uint64_t) { ++finished; }};
  RealPlatform platform;
  platform.configure(FlushMode::cache_line, best_flush_instruction(), 0);
  Domain epochs(platform);
  const Counters before = thread_counters();
  constexpr std::uint64_t kRetired = 50'000;
  for (std::uint64_t i = 0; i < kRetired; ++i) {
    const std::uint64_t finished_before = finished;
    const std::uint64_t prepared_before = prepared;
    const EpochGuard<RealPlatform> guard(epochs);
    epochs.retire(kCount, nullptr, i);
    ASSERT_LE(finished - finished_before, Domain::kAtOnce);
    ASSERT_LE(prepared - prepared_before, Domain::kAtOnce);
  }
  EXPECT_GT(finished, kRetired - (Domain::kGrace + 2) * Domain::kAdvanceEvery);
  EXPECT_LE(thread_counters().fences - before.fences,
            kRetired / Domain::kBatch + 2 * kRetired / Domain::kAdvanceEvery);
}

// A thread that ends leaves its limbo to the threads that go on.
TEST(Epochs, TheLimboOfAThreadThatEndedIsEmptied) {
  using Domain = EpochDomain<RealPlatform>;
  static constexpr Reclaimer kNothing{nullptr, [](void*, std::uint64_t) {}};
  RealPlatform platform;
  Domain epochs(platform);
  (void)RealPlatform::thread_slot();
  in_another_thread([&] {
    const EpochGuard<RealPlatform> guard(epochs);
    for (int i = 0; i < 1000; ++i) epochs.retire(kNothing, nullptr, 1);
  });
  for (int i = 0; i < 100'000; ++i) {
    const EpochGuard<RealPlatform> guard(epochs);
    epochs.retire(kNothing, nullptr, 1);
  }
  EXPECT_LE(epochs.limbo_count(), (Domain::kGrace + 2) * Domain::kAdvanceEvery);
}

// A host that has the space of every growth ready. Another allocation comes between prepare() and
// grow().
struct OvertakenHost : HeapFixture {
  using HeapFixture::HeapFixture;
  bool prepare(std::uint64_t extents) override {
    asked.push_back(extents);
    if (between) std::exchange(between, nullptr)();
    return false;
  }
  std::vector<std::uint64_t> asked;
  std::function<void()> between;
};

// What was prepared for a run may be gone when the run is allocated: then it is prepared again.
TEST(Growth, ARunPreparesAgainIfAnotherHasTakenItsSpace) {
  OvertakenHost host(64);
  std::uint64_t other = 0;
  host.between = [&] { other = host.heap->allocate(8 * kExtent, BlockKind::plain).value(); };
  const std::uint64_t run = host.heap->allocate(8 * kExtent, BlockKind::plain).value();
  EXPECT_NE(run, other);
  // For the run, for the other allocation, and for the run once more.
  EXPECT_EQ(host.asked.size(), 3U);
}

TEST(Epochs, AStalledReaderIsBoundedAndReported) {
  RealPlatform platform;
  EpochDomain<RealPlatform> epochs(platform);
  static constexpr Reclaimer kNothing{nullptr, [](void*, std::uint64_t) {}};
  EpochGuard<RealPlatform> guard(epochs);
  std::uint32_t retired = 0;
  while (!guard.limbo_full()) {
    epochs.retire(kNothing, nullptr, 0);
    ASSERT_LE(++retired, 2 * EpochDomain<RealPlatform>::kMaxLimbo);
  }
  EXPECT_GE(retired, EpochDomain<RealPlatform>::kMaxLimbo);
}

TEST(Platform, CountsLinesAndFences) {
  RealPlatform platform;
  platform.configure(FlushMode::cache_line, best_flush_instruction(), 0);
  alignas(64) static std::uint64_t words[64] = {};
  const Counters before = thread_counters();
  for (std::uint64_t& word : words) platform.store(word, 1);
  platform.flush(words, sizeof(words), "test.platform.words"_site);
  EXPECT_TRUE(platform.fence("test.platform.words"_site));
  const Counters after = thread_counters();
  EXPECT_EQ(after.flushes - before.flushes, 8U);
  EXPECT_EQ(after.fences - before.fences, 1U);
  EXPECT_EQ(after.written_lines - before.written_lines, 8U);
  platform.flush(&words[7], 16, "test.platform.straddle"_site);
  EXPECT_EQ(thread_counters().flushes - after.flushes, 2U);
}

TEST(Platform, ProcessModeNeitherFlushesNorFences) {
  RealPlatform platform;
  alignas(64) static std::uint64_t word = 0;
  const Counters before = thread_counters();
  platform.store(word, 1);
  platform.flush(&word, 8, "test.platform.process"_site);
  EXPECT_TRUE(platform.fence("test.platform.process"_site));
  EXPECT_EQ(thread_counters().flushes, before.flushes);
  EXPECT_EQ(thread_counters().fences, before.fences);
  EXPECT_FALSE(platform.durable());
}

TEST(Platform, ThreadSlotsAreDenseAndReused) {
  std::set<std::uint32_t> slots;
  for (int round = 0; round < 50; ++round) {
    std::thread([&] { slots.insert(RealPlatform::thread_slot()); }).join();
  }
  EXPECT_EQ(slots.size(), 1U);
}

TEST(Crc32c, KnownVector) { EXPECT_EQ(crc32c(0, "123456789", 9), 0xE3069283U); }

}  // namespace
}  // namespace perdure
