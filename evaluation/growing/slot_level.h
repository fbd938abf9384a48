// SlotLevel: level hashing with locks of slots and one lock of resizes, as clevel hashing's paper
// compares with it (LEVEL). Slots point to items outside the table.
//
// WHAT  Two levels, two hash functions, four slots a bucket. An insert takes the less loaded bucket
//   of the top level, else of the bottom level, else moves one item within its level, else one from
//   bottom to top. If none of this makes room, the table gets a level and its smallest one is
//   rehashed, while all other operations wait.
// LAYOUT  A bucket is a line: four locks, four pointers. The locks need not be durable, but lie
//   there as in the authors' code.
// COST  insert 2F 2S: the item, then the pointer. erase 1F 1S. update 2F 2S: another item, then the
//   pointer. A movement 2F 2S: the pointer there, then none here.
// DEVIATIONS  Locks of slots alone let two threads insert one key, and a search miss an item that
//   moves. So threads that change one key take turns by a lock of DRAM, a mover takes that of the
//   item, and a search that finds nothing looks again if an item has moved meanwhile. Items that
//   were replaced or erased, and a level that was rehashed, are left to the heap. No recovery.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "evaluation/growing/growing_table.h"
#include "evaluation/growing/word_lock.h"

namespace perdure::paper {

template <Platform P>
class SlotLevel final : public InHeap<P, GrowingTable> {
  static constexpr std::uint32_t kSlots = 4;
  struct alignas(kLine) Bucket {
    Word locks[kSlots];
    Word items[kSlots];  // pointers; 0: empty
  };
  struct Place {
    Bucket* bucket = nullptr;
    std::uint32_t slot = 0;
    Word& lock() const noexcept { return bucket->locks[slot]; }
    Word& item() const noexcept { return bucket->items[slot]; }
  };

 public:
  SlotLevel(P& platform, Heap<P>& heap) noexcept : InHeap<P, GrowingTable>(platform, heap) {}
  // The top level has 2^log_top buckets.
  Status open(std::uint32_t log_top = 10) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      if (Status s = make_level(Word{1} << (log_top - i), levels_[i]); !s.ok()) return s;
    }
    return {};
  }

  Expected<bool> insert(Word key, Word value) override {
    auto made = this->make_item(key, value);
    if (!made) return fail(std::move(made.error()));
    for (;;) {
      Word top = 0;
      {
        const std::shared_lock table(resizing_);
        SharedWordLock turn = turn_of(key);
        const std::scoped_lock own(turn);
        top = levels_[0].count;
        if (holds(key)) {
          this->free(reinterpret_cast<const void*>(*made));
          return false;
        }
        if (put(key, *made) || make_room(key, *made)) return true;
      }
      if (Status s = expand(top); !s.ok()) return fail(std::move(s));
    }
  }
  Expected<bool> update(Word key, Word value) override {
    auto made = this->make_item(key, value);
    if (!made) return fail(std::move(made.error()));
    const bool changed = change(key, *made);
    if (!changed) this->free(reinterpret_cast<const void*>(*made));
    return changed;
  }
  Expected<bool> erase(Word key) override { return change(key, 0); }
  bool find(Word key, Word& value) override {
    const std::shared_lock table(resizing_);
    for (;;) {
      const Word before = moves_.load(std::memory_order_acquire);
      const bool found = visit(key, [&](const Place& place) {
        SharedWordLock lock(place.lock());
        lock.lock_shared();
        const Word item = place.item();
        const bool is = item != 0 && this->item_at(item).key == key;
        if (is) value = this->item_at(item).value;
        lock.unlock_shared();
        return is;
      });
      if (found || moves_.load(std::memory_order_acquire) == before) return found;
    }
  }
  Word slots() override { return (levels_[0].count + levels_[1].count) * kSlots; }

 private:
  struct Level {
    Bucket* buckets = nullptr;
    Word count = 0;
  };

  Status make_level(Word count, Level& level) {
    auto block = this->heap_.allocate(count * sizeof(Bucket), BlockKind::zero_on_free);
    if (!block) return std::move(block.error());
    level = {this->heap_.template at<Bucket>(*block), count};
    return {};
  }
  static Bucket& bucket_of(const Level& level, Word key, std::uint32_t which) noexcept {
    constexpr Word kSecond = 0xC2B2AE3D27D4EB4FULL;
    const Word hash = hash_of(key);
    return level.buckets[(which == 0 ? hash : hash_of(hash ^ kSecond)) & (level.count - 1)];
  }
  SharedWordLock turn_of(Word key) noexcept {
    return SharedWordLock(turns_[hash_of(key) % kTurns]);
  }
  static std::uint32_t used(const Bucket& bucket) noexcept {
    std::uint32_t count = 0;
    for (const Word& item : bucket.items) {
      count += std::atomic_ref(const_cast<Word&>(item)).load(std::memory_order_relaxed) != 0;
    }
    return count;
  }
  // Calls is_it(place) for the key's slots until it returns true. Returns whether it did.
  template <class F>
  bool visit(Word key, F is_it) {
    for (const Level& level : levels_) {
      for (std::uint32_t which = 0; which < 2; ++which) {
        for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
          if (is_it(Place{&bucket_of(level, key, which), slot})) return true;
        }
      }
    }
    return false;
  }

  // The functions below require the turn of the key.
  bool holds(Word key) {
    return visit(key, [&](const Place& place) {
      SharedWordLock lock(place.lock());
      lock.lock_shared();
      const bool is = place.item() != 0 && this->item_at(place.item()).key == key;
      lock.unlock_shared();
      return is;
    });
  }
  void set(const Place& place, Word item) noexcept {
    this->store(place.item(), item);
    this->persist(&place.item(), sizeof(Word));
  }
  bool put_into(const Level& level, Word key, Word item) {
    Bucket* buckets[2] = {&bucket_of(level, key, 0), &bucket_of(level, key, 1)};
    if (used(*buckets[1]) < used(*buckets[0])) std::swap(buckets[0], buckets[1]);
    for (Bucket* bucket : buckets) {
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        const Place place{bucket, slot};
        SharedWordLock lock(place.lock());
        if (!lock.try_lock()) continue;  // a reader, or another insert
        const bool free = place.item() == 0;
        if (free) set(place, item);
        lock.unlock();
        if (free) return true;
      }
    }
    return false;
  }
  bool put(Word key, Word item) {
    return put_into(levels_[0], key, item) || put_into(levels_[1], key, item);
  }
  // Moves an item of one of the key's buckets in `from` to `to`, and takes its slot.
  bool move_one(const Level& from, const Level& to, Word key, Word item) {
    for (std::uint32_t which = 0; which < 2; ++which) {
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        const Place place{&bucket_of(from, key, which), slot};
        SharedWordLock lock(place.lock());
        if (!lock.try_lock()) continue;
        const std::unique_lock held(lock, std::adopt_lock);
        const Word other = place.item();
        if (other == 0) {
          set(place, item);
          return true;
        }
        const Word other_key = this->item_at(other).key;
        // No other operation on it may change one of two; its turn may be this thread's own.
        const bool same = hash_of(other_key) % kTurns == hash_of(key) % kTurns;
        SharedWordLock turn = turn_of(other_key);
        if (!same && !turn.try_lock()) continue;
        const bool moved = put_into(to, other_key, other);
        if (moved) {
          moves_.fetch_add(1, std::memory_order_release);
          set(place, item);
        }
        if (!same) turn.unlock();
        if (moved) return true;
      }
    }
    return false;
  }
  bool make_room(Word key, Word item) {
    return move_one(levels_[0], levels_[0], key, item) ||
           move_one(levels_[1], levels_[1], key, item) ||
           move_one(levels_[1], levels_[0], key, item);
  }
  // Stores another item in the key's slot, or 0. Returns whether there is one.
  bool change(Word key, Word item) {
    const std::shared_lock table(resizing_);
    SharedWordLock turn = turn_of(key);
    const std::scoped_lock own(turn);
    return visit(key, [&](const Place& place) {
      SharedWordLock lock(place.lock());
      const std::scoped_lock guard(lock);
      const bool is = place.item() != 0 && this->item_at(place.item()).key == key;
      if (is) set(place, item);
      return is;
    });
  }

  // `top`: the buckets of the top level that had no room.
  Status expand(Word top) {
    const std::scoped_lock table(resizing_);
    if (levels_[0].count != top) return {};  // another thread did
    Level larger;
    if (Status s = make_level(levels_[0].count * 2, larger); !s.ok()) return s;
    const Level drained = levels_[1];
    levels_[1] = levels_[0];
    levels_[0] = larger;
    for (Word i = 0; i < drained.count; ++i) {
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        const Place place{&drained.buckets[i], slot};
        if (place.item() == 0) continue;
        const Word key = this->item_at(place.item()).key;
        if (!put(key, place.item())) return StatusCode::pool_full;  // the paper excludes it
        set(place, 0);
      }
    }
    return {};
  }

  static constexpr Word kTurns = 4096;
  Level levels_[2];  // top, bottom
  std::array<Word, kTurns> turns_{};
  std::atomic<Word> moves_{0};
  std::shared_mutex resizing_;
};

}  // namespace perdure::paper
