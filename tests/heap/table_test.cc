// test: tsan, cross
// The extent table that an open does not read (heap/table.h): allocation, frees, marks and damage
// while extents are unread. tests/heap/crash_test.cc has the crashes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/memory_heap.h"

namespace perdure {
namespace {

using test::HeapFixture;
using test::kExtent;

constexpr BlockKind kKinds[] = {BlockKind::plain, BlockKind::dead_on_free, BlockKind::zero_on_free};

// Blocks in use, by offset.
class Blocks {
 public:
  // Returns false if the block overlaps another.
  bool add(std::uint64_t offset, std::uint64_t bytes) {
    const auto next = blocks_.upper_bound(offset);
    if (next != blocks_.end() && next->first < offset + bytes) return false;
    if (next != blocks_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second > offset) return false;
    }
    return blocks_.emplace(offset, bytes).second;
  }
  void remove(std::uint64_t offset) { blocks_.erase(offset); }
  const std::map<std::uint64_t, std::uint64_t>& all() const { return blocks_; }

 private:
  std::map<std::uint64_t, std::uint64_t> blocks_;
};

// Every class of an extent, and runs.
std::vector<std::size_t> sizes() {
  std::vector<std::size_t> all;
  for (const std::size_t size : kClassSizes) {
    if (size * 2 <= kExtent) all.push_back(size);
  }
  for (const std::size_t extents : {1, 2, 3, 20}) all.push_back(extents * kExtent);
  return all;
}

class UnreadTable : public HeapFixture {
 public:
  // Of `extents`, those that `used` leaves are free, and the last ones are among them.
  explicit UnreadTable(std::uint64_t extents = 600) : HeapFixture(extents + 100, extents) {
    EXPECT_TRUE(heap->end_sweep(true).ok());
  }
  std::uint64_t allocate(std::size_t n, BlockKind kind) {
    auto block = heap->allocate(n, kind);
    EXPECT_TRUE(block) << n << ": " << (block ? "" : block.error().message());
    if (!block) return 0;
    EXPECT_TRUE(blocks.add(*block, heap->block_bytes(*block))) << "handed out twice, of " << n;
    EXPECT_GE(heap->block_bytes(*block), n);
    return *block;
  }
  // A few blocks of every size and kind, and free extents between them.
  void fill() {
    std::vector<std::uint64_t> gaps;
    for (const std::size_t n : sizes()) {
      for (const BlockKind kind : kKinds) {
        for (int i = 0; i < 3; ++i) (void)allocate(n, kind);
      }
      gaps.push_back(allocate(2 * kExtent, BlockKind::plain));
    }
    for (const std::uint64_t gap : gaps) release(gap);
    heap->flush_caches();
  }
  void release(std::uint64_t block) {
    blocks.remove(block);
    const EpochGuard<RealPlatform> guard(*epochs);
    heap->retire(block);
  }
  // The next process.
  void reopen() {
    epochs->drain_all();
    attach(true);
    EXPECT_FALSE(heap->table_read());
    EXPECT_TRUE(heap->sweeping());
  }
  // Marks the blocks that are there, and ends the sweep.
  void sweep(const Blocks& old) {
    for (const auto& [offset, bytes] : old.all()) {
      const Status s = heap->mark_serving(offset);
      EXPECT_TRUE(s.ok()) << s.message();
    }
    const Status s = heap->end_sweep(true);
    EXPECT_TRUE(s.ok()) << s.message();
  }
  void expect_no_leak() {
    epochs->drain_all();
    heap->flush_caches();
    ASSERT_TRUE(heap->begin_audit().ok());
    for (const auto& [offset, bytes] : blocks.all()) {
      const Status s = heap->audit_mark(offset);
      EXPECT_TRUE(s.ok()) << s.message();
    }
    EXPECT_EQ(heap->end_audit(), 0U);
    std::vector<std::string> wrong;
    heap->verify_table([&](const char* what) { wrong.emplace_back(what); });
    EXPECT_EQ(wrong, std::vector<std::string>{});
  }

  Blocks blocks;
};

TEST(Table, AnAllocationOfEachSizeTakesNothingInUse) {
  UnreadTable f;
  f.fill();
  f.reopen();
  const Blocks old = f.blocks;
  (void)f.allocate(64, BlockKind::plain);
  EXPECT_FALSE(f.heap->table_read()) << "one free extent is enough";
  for (const std::size_t n : sizes()) {
    for (const BlockKind kind : kKinds) {
      const std::uint64_t block = f.allocate(n, kind);
      const auto* bytes = f.heap->at<char>(block);
      const std::size_t zeros = kind == BlockKind::zero_on_free ? n : 8;
      EXPECT_TRUE(kind == BlockKind::plain ||
                  std::count(bytes, bytes + zeros, 0) == std::ssize(std::span(bytes, zeros)));
      std::memset(f.heap->at<void>(block), 0xAA, n);
    }
  }
  f.sweep(old);
  f.expect_no_leak();
}

// Free extents are at the front only: the last chunk to be read has them.
TEST(Table, AnAllocationReadsUntilItFindsRoom) {
  UnreadTable f(100);
  const std::uint64_t gap = f.allocate(2 * kExtent, BlockKind::plain);
  for (int i = 0; i < 98; ++i) (void)f.allocate(kExtent, BlockKind::plain);
  f.release(gap);
  f.reopen();
  const Blocks old = f.blocks;
  EXPECT_EQ(f.allocate(2 * kExtent, BlockKind::plain), gap) << "the pool has grown instead";
  EXPECT_EQ(f.heap->extent_count(), 100U);
  f.sweep(old);
  f.expect_no_leak();
}

TEST(Table, AFreeOfEachSizeBeforeItsExtentIsRead) {
  UnreadTable f;
  f.fill();
  f.reopen();
  Blocks kept;
  std::vector<std::uint64_t> freed;
  int i = 0;
  for (const auto& [offset, bytes] : f.blocks.all()) {
    if (++i % 2 == 0) {
      freed.push_back(offset);
    } else {
      EXPECT_TRUE(kept.add(offset, bytes));
    }
  }
  for (const std::uint64_t block : freed) f.release(block);
  f.epochs->drain_all();
  EXPECT_FALSE(f.heap->table_read());
  f.sweep(kept);
  f.expect_no_leak();
  for (const std::size_t n : sizes()) (void)f.allocate(n, BlockKind::plain);
}

// A block that is freed in an unread extent must not come back twice: by the free and by the sweep.
TEST(Table, MarksOfUnreadExtentsCount) {
  UnreadTable f;
  f.fill();
  f.reopen();
  const std::uint64_t some = f.blocks.all().begin()->first;
  EXPECT_TRUE(f.heap->mark(some).ok());
  EXPECT_EQ(f.heap->mark(some), StatusCode::corruption) << "reached twice";
  EXPECT_FALSE(f.heap->table_read());
  EXPECT_TRUE(f.heap->read_table().ok());
  EXPECT_EQ(f.heap->mark(some), StatusCode::corruption) << "reached twice, now read";
  f.sweep(f.blocks);
  f.expect_no_leak();
}

// --- damage ---

enum class Harm : std::uint8_t { bit, other_class, empty_run, long_run, no_class };

void harm(std::uint64_t& word, std::uint64_t extent, Harm how) {
  ExtentWord decoded;
  ASSERT_TRUE(ExtentWord::decode(word, extent, decoded));
  switch (how) {
    case Harm::bit:
      word ^= 1ULL << (20 + extent % 40);
      return;
    case Harm::other_class:
      decoded = {.state = ExtentState::slab, .size_class = 3};
      break;
    case Harm::empty_run:
      decoded = {.state = ExtentState::run, .run = 0};
      break;
    case Harm::long_run:
      decoded = {.state = ExtentState::run, .run = 1 << 20};
      break;
    case Harm::no_class:
      decoded = {.state = ExtentState::slab, .size_class = kClassCount};
      break;
  }
  word = decoded.encode(extent);
}

// What an open knows of the pool when it has read everything: the assigned ranges, or its failure.
struct Known {
  Status failure;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> assigned;
};
Known known(HeapFixture& f) {
  Known out{.failure = f.heap->read_table(), .assigned = {}};
  if (!out.failure.ok()) return out;
  f.heap->for_each_assigned([&](const std::byte* p, std::uint64_t bytes) {
    out.assigned.emplace_back(p - f.storage.base(), bytes);
  });
  return out;
}

// Compares a table that is read in chunks with one that is read by the rule of the format: forward,
// without the words that a run covers.
TEST(Table, ChunksFindWhatAPassOverTheTableFinds) {
  UnreadTable f;
  f.fill();
  f.epochs->drain_all();
  auto* words = reinterpret_cast<std::uint64_t*>(f.storage.base());
  const std::uint64_t count = f.heap->extent_count();
  const std::vector<std::uint64_t> sound(words, words + count);
  for (const Harm how :
       {Harm::bit, Harm::other_class, Harm::empty_run, Harm::long_run, Harm::no_class}) {
    for (std::uint64_t at = 0; at < count; ++at) {
      harm(words[at], at, how);
      bool fails = false;
      bool inside = false;  // whether the word that was harmed lies in a run
      std::vector<std::pair<std::uint64_t, std::uint64_t>> assigned;
      for (std::uint64_t i = 0; i < count && !fails;) {
        ExtentWord word;
        fails = !ExtentWord::decode(words[i], i, word) ||
                (word.state == ExtentState::slab &&
                 (word.size_class >= kClassCount || kClassSizes[word.size_class] * 2 > kExtent)) ||
                (word.state == ExtentState::run && (word.run == 0 || word.run > count - i));
        const std::uint64_t length = word.state == ExtentState::run ? word.run : 1;
        inside = inside || (at > i && at < i + length);
        if (word.state == ExtentState::slab || word.state == ExtentState::run) {
          const std::uint64_t begin = (i + 1) * kExtent;
          if (!assigned.empty() && assigned.back().first + assigned.back().second == begin) {
            assigned.back().second += length * kExtent;
          } else {
            assigned.emplace_back(begin, length * kExtent);
          }
        }
        i += length;
      }
      f.attach(true);
      const Known found = known(f);
      words[at] = sound[at];
      // No process leaves a slab or a run inside a run. A chunk may believe either, or refuse.
      if (inside && how != Harm::bit) continue;
      ASSERT_EQ(found.failure.ok(), !fails) << at << " " << found.failure.message();
      if (!fails) {
        ASSERT_EQ(found.assigned, assigned) << at;
        continue;
      }
      EXPECT_EQ(found.failure, StatusCode::corruption);
      EXPECT_EQ(f.heap->read_table(), StatusCode::corruption) << "again";
      EXPECT_EQ(f.heap->end_sweep(true), StatusCode::corruption);
      EXPECT_EQ(f.heap->punch_free().error(), StatusCode::corruption);
    }
  }
}

// A run over a slab, which only a device that lost a write can leave. Behind the slab, the chunk
// that is read first takes the run's extents for free. The chunk with the run's head refuses.
TEST(Table, ARunOverASlabIsFoundOut) {
  HeapFixture f(300, 300);
  auto* words = reinterpret_cast<std::uint64_t*>(f.storage.base());
  constexpr std::uint64_t kLength = 40;
  int refused = 0;
  for (std::uint64_t head = 10; head < 200; ++head) {
    const std::uint64_t slab = head + 7;
    words[head] = ExtentWord{.state = ExtentState::run, .run = kLength}.encode(head);
    words[slab] = ExtentWord{.state = ExtentState::slab, .size_class = 3}.encode(slab);
    f.attach(true);
    const Known found = known(f);
    words[head] = words[slab] = 0;
    if (found.failure.ok()) {
      ASSERT_EQ(found.assigned.size(), 1U) << head;
      EXPECT_EQ(found.assigned[0], std::pair((head + 1) * kExtent, kLength * kExtent)) << head;
      continue;
    }
    ++refused;
    EXPECT_EQ(found.failure.message(),
              "extent table: run at " + std::to_string(head) + " is too long");
  }
  EXPECT_GT(refused, 50);
}

// A pool with a damaged word serves: what lies behind the word, and growth. Nothing of an extent
// that could not be read is handed out or freed, and a repaired word brings everything back.
TEST(Table, ADamagedWordThatIsFoundLateLosesNothing) {
  for (const std::uint64_t victim : {std::uint64_t{0}, std::uint64_t{100}, std::uint64_t{300}}) {
    UnreadTable f;
    f.fill();
    f.epochs->drain_all();
    auto* words = reinterpret_cast<std::uint64_t*>(f.storage.base());
    const Blocks old = f.blocks;
    std::uint64_t at = victim;  // the next slab or run
    ExtentWord word;
    while (ExtentWord::decode(words[at], at, word) && word.state < ExtentState::slab) ++at;
    ASSERT_LT(at, f.heap->extent_count());
    const std::uint64_t sound = words[at];
    words[at] ^= 1ULL << 50;
    f.attach(true);
    const std::uint64_t begin = (at + 1) * kExtent;
    const std::string name = "extent table: word " + std::to_string(at) + " is damaged";
    EXPECT_EQ(f.heap->block_bytes(begin), 0U);
    EXPECT_FALSE(f.heap->is_block(begin));
    EXPECT_EQ(f.heap->mark_serving(begin).message(), name);
    EXPECT_FALSE(f.heap->table_read());
    f.blocks = old;
    std::size_t got = 0;
    Status refused;
    for (;;) {
      auto block = f.heap->allocate(1000, BlockKind::plain);
      if (!block) {
        refused = block.error();
        break;
      }
      ASSERT_TRUE(f.blocks.add(*block, 1024)) << "handed out twice";
      ++got;
    }
    EXPECT_GE(got, 100 * kExtent / 1024) << "the pool has not grown";
    EXPECT_EQ(refused, StatusCode::corruption);
    EXPECT_EQ(refused.message(), name);
    const std::uint64_t offset = old.all().rbegin()->first;  // behind the damage
    f.heap->mark_copied(offset);
    f.heap->discard(offset);  // frees nothing
    f.epochs->drain_all();
    EXPECT_EQ(f.heap->end_sweep(true).message(), name);
    std::vector<std::string> wrong;
    f.heap->verify_table([&](const char* what) { wrong.emplace_back(what); });
    EXPECT_EQ(wrong, std::vector<std::string>{"a word of the extent table is damaged"});
    EXPECT_LE(f.heap->stats().assigned_extents, f.heap->extent_count());
    words[at] = sound;
    f.attach(true);
    f.blocks = old;
    f.sweep(old);
    f.expect_no_leak();
  }
}

// --- threads ---

// All that may happen at once while the table is read.
TEST(Table, ThreadsReadItTogether) {
  for (int round = 0; round < 20; ++round) {
    UnreadTable f;
    f.fill();
    f.reopen();
    const Blocks old = f.blocks;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> list(old.all().begin(), old.all().end());
    std::atomic<std::uint64_t> wrong{0};
    std::vector<std::uint64_t> taken[2];
    std::set<std::uint64_t> dropped[2];
    {
      std::vector<std::jthread> threads;
      threads.emplace_back([&] {  // the background
        while (!f.heap->table_read()) wrong += f.heap->read_some() ? 0 : 1;
      });
      for (std::size_t t = 0; t < 2; ++t) {
        threads.emplace_back([&, t] {
          for (std::size_t i = t; i < list.size(); i += 2) {
            const auto& [offset, bytes] = list[i];
            wrong += f.heap->block_bytes(offset) == bytes && f.heap->is_block(offset) ? 0 : 1;
            const EpochGuard<RealPlatform> guard(*f.epochs);
            f.heap->mark_copied(offset);
            if (i % 6 < 2) {
              f.heap->retire(offset);
              dropped[t].insert(offset);
            }
            auto block = f.heap->allocate(bytes > 4 * kExtent ? 100 : bytes, kKinds[i % 3]);
            if (block) taken[t].push_back(*block);
          }
        });
      }
    }
    EXPECT_EQ(wrong.load(), 0U);
    Blocks kept;
    for (const auto& [offset, bytes] : list) {
      if (dropped[0].contains(offset) || dropped[1].contains(offset)) {
        f.blocks.remove(offset);
      } else {
        (void)kept.add(offset, bytes);
      }
    }
    for (const auto& mine : taken) {
      for (const std::uint64_t block : mine) {
        // Beside `old`: what was freed meanwhile serves again after the sweep only.
        Blocks before = old;
        ASSERT_TRUE(before.add(block, f.heap->block_bytes(block))) << "was in use";
        ASSERT_TRUE(f.blocks.add(block, f.heap->block_bytes(block))) << "handed out twice";
      }
    }
    f.sweep(kept);
    f.expect_no_leak();
  }
}

}  // namespace
}  // namespace perdure
