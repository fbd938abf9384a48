// Cceh: cacheline-conscious extendible hashing (Nam, Cha, Choi, Noh and Nam, FAST 2019): a
// directory by the highest bits of the hash, segments of 16 KiB, buckets of a line with four
// entries, linear probing over four buckets.
//
// INSERT  under the segment's lock: the value, then the key, in one line: 1F 1S.
// SPLIT   kCopy: two new segments take the entries. Else one new segment takes half of them; those
//   that have gone stay as garbage, which their hash tells. New segments are written back whole
//   before the directory names them. The directory doubles when a segment is as deep as it.
// POINTERS  kPointers: a slot points to an item outside the table, as clevel hashing's paper has it
//   for all tables, and a line has eight of them. Each key that is compared is read there. insert
//   2F 2S, the item and then the pointer; update makes another item, 2F 2S. Items that were
//   replaced or erased are left to the heap.
// DEVIATIONS  Writers of one segment take turns; the authors' code claims slots under a shared
//   lock, and stores a key twice that two threads insert. Old directories and split segments are
//   left to the heap, because another thread may be about to lock them. update stores in place, 1F
//   1S, and erase stores key 0, 1F 1S: the authors' code has neither.
#pragma once

#include <atomic>
#include <mutex>
#include <type_traits>

#include "evaluation/growing/growing_table.h"
#include "evaluation/growing/word_lock.h"

namespace perdure::paper {

struct PointerSlot {
  Word key;  // an address
};

template <Platform P, bool kCopy, bool kPointers = false>
class Cceh final : public InHeap<P, GrowingTable> {
  static constexpr std::uint32_t kSlots = 1024;
  static constexpr std::uint32_t kProbed = 16;  // slots, of four lines or, with pointers, of two
  using Slot = std::conditional_t<kPointers, PointerSlot, Entry>;
  static constexpr Word kInLine = kLine / sizeof(Slot);
  struct alignas(kLine) Segment {
    Word lock;
    Word depth;    // how many bits of the hash its keys share
    Word pattern;  // those bits
    alignas(kLine) Slot entries[kSlots];
    bool owns(Word hash) const noexcept { return depth == 0 || hash >> (64 - depth) == pattern; }
  };
  struct Directory {
    Word depth;
    // Word segments[1 << depth]
    Word& segment(Word i) noexcept { return reinterpret_cast<Word*>(this + 1)[i]; }
  };

 public:
  Cceh(P& platform, Heap<P>& heap) noexcept : InHeap<P, GrowingTable>(platform, heap) {}
  Status open(std::uint32_t depth = 1) {
    auto directory = make_directory(depth);
    if (!directory) return std::move(directory.error());
    for (Word i = 0; i < Word{1} << depth; ++i) {
      auto segment = make_segment(depth, i);
      if (!segment) return std::move(segment.error());
      this->persist(*segment, sizeof(Segment));
      (*directory)->segment(i) = reinterpret_cast<Word>(*segment);
    }
    persist_directory(**directory);
    directory_.store(*directory);
    return {};
  }

  Expected<bool> insert(Word key, Word value) override {
    const Word hash = hash_of(key);
    const auto made = this->template stored<kPointers>(key, value);
    if (!made) return fail(Status(made.error()));
    for (;;) {
      Segment* segment = lock(hash);
      Slot* free = nullptr;
      bool exists = false;
      for (std::uint32_t i = 0; i < kProbed && !exists; ++i) {
        Slot& entry = probed(*segment, hash, i);
        const Word there = this->template key_in<kPointers>(entry.key);
        exists = there == key;
        const bool garbage = there == 0 || !segment->owns(hash_of(there));
        if (garbage && free == nullptr) free = &entry;
      }
      if (!exists && free == nullptr) {
        const Status split_up = split(*segment);  // unlocks
        if (!split_up.ok()) return fail(Status(split_up));
        continue;
      }
      if (!exists) {
        if constexpr (kPointers) {
          this->store(free->key, *made);
        } else {
          this->store(*free, key, value);
        }
        this->persist(free, sizeof(Slot));
      }
      SharedWordLock(segment->lock).unlock();
      if (exists) this->template drop_unused<kPointers>(*made);
      return !exists;
    }
  }
  Expected<bool> update(Word key, Word value) override {
    const auto made = this->template stored<kPointers>(key, value);
    if (!made) return fail(Status(made.error()));
    auto changed = change(key, [&](Slot& entry) {
      Word* word = &entry.key;
      if constexpr (!kPointers) word = &entry.value;
      this->store(*word, kPointers ? *made : value);
      this->persist(word, sizeof(Word));
    });
    if (changed && !*changed) this->template drop_unused<kPointers>(*made);
    return changed;
  }
  Expected<bool> erase(Word key) override {
    return change(key, [&](Slot& entry) {
      this->store(entry.key, 0);
      this->persist(&entry.key, sizeof(Word));
    });
  }
  bool find(Word key, Word& value) override {
    const Word hash = hash_of(key);
    for (;;) {
      Segment& segment = segment_of(hash);
      SharedWordLock lock(segment.lock);
      lock.lock_shared();
      const bool current = &segment_of(hash) == &segment;
      bool found = false;
      for (std::uint32_t i = 0; current && i < kProbed && !found; ++i) {
        const Slot& entry = probed(segment, hash, i);
        found = this->template key_in<kPointers>(entry.key) == key;
        if (!found) continue;
        if constexpr (kPointers) {
          value = this->item_at(entry.key).value;
        } else {
          value = entry.value;
        }
      }
      lock.unlock_shared();
      if (current) return found;
    }
  }
  Word slots() override {
    Directory& directory = *directory_.load(std::memory_order_acquire);
    Word count = 0;  // of segments; those that name one are neighbours
    for (Word i = 0, last = 0; i < Word{1} << directory.depth; ++i) {
      if (directory.segment(i) != last) ++count;
      last = directory.segment(i);
    }
    return count * kSlots;
  }

 private:
  static Slot& probed(Segment& segment, Word hash, std::uint32_t i) noexcept {
    return segment.entries[(hash * kInLine + i) % kSlots];
  }
  Segment& segment_of(Word hash) const noexcept {
    Directory& directory = *directory_.load(std::memory_order_acquire);
    return *reinterpret_cast<Segment*>(
        this->load(directory.segment(hash >> (64 - directory.depth))));
  }
  // The segment of the hash, locked.
  Segment* lock(Word hash) noexcept {
    for (;;) {
      Segment& segment = segment_of(hash);
      SharedWordLock lock(segment.lock);
      lock.lock();
      if (&segment_of(hash) == &segment) return &segment;
      lock.unlock();
    }
  }
  template <class F>
  Expected<bool> change(Word key, F apply) {
    const Word hash = hash_of(key);
    Segment* segment = lock(hash);
    bool found = false;
    for (std::uint32_t i = 0; i < kProbed && !found; ++i) {
      Slot& entry = probed(*segment, hash, i);
      found = this->template key_in<kPointers>(entry.key) == key;
      if (found) apply(entry);
    }
    SharedWordLock(segment->lock).unlock();
    return found;
  }

  Expected<Segment*> make_segment(Word depth, Word pattern) {
    auto segment = this->template make<Segment>();
    if (!segment) return fail(std::move(segment.error()));
    (*segment)->depth = depth;
    (*segment)->pattern = pattern;
    return segment;
  }
  Expected<Directory*> make_directory(Word depth) {
    auto block =
        this->heap_.allocate(sizeof(Directory) + (sizeof(Word) << depth), BlockKind::zero_on_free);
    if (!block) return fail(std::move(block.error()));
    auto* directory = this->heap_.template at<Directory>(*block);
    directory->depth = depth;
    return directory;
  }
  void persist_directory(const Directory& directory) noexcept {
    this->persist(&directory, sizeof(Directory) + (sizeof(Word) << directory.depth));
  }

  // Splits a segment that is locked, and unlocks it.
  Status split(Segment& segment) {
    SharedWordLock lock(segment.lock);
    const Word depth = segment.depth + 1;
    Segment* halves[2] = {&segment, nullptr};
    for (Word half = kCopy ? 0 : 1; half < 2; ++half) {
      auto made = make_segment(depth, segment.pattern * 2 + half);
      if (!made) {
        lock.unlock();
        return std::move(made.error());
      }
      halves[half] = *made;
    }
    for (std::uint32_t i = 0; i < kSlots; ++i) {  // an entry keeps its place
      const Slot& entry = segment.entries[i];
      const Word key = this->template key_in<kPointers>(entry.key);
      if (key == 0 || !segment.owns(hash_of(key))) continue;
      const Word half = hash_of(key) >> (64 - depth) & 1;
      if (kCopy || half == 1) halves[half]->entries[i] = entry;
    }
    for (Word half = kCopy ? 0 : 1; half < 2; ++half) this->persist(halves[half], sizeof(Segment));
    const Status named = name(segment, halves, depth);
    lock.unlock();
    return named;
  }
  // Makes the directory name the halves of a segment.
  Status name(Segment& segment, Segment* const* halves, Word depth) {
    const std::scoped_lock guard(naming_);
    Directory* directory = directory_.load(std::memory_order_relaxed);
    if (depth > directory->depth) {
      auto larger = make_directory(directory->depth + 1);
      if (!larger) return std::move(larger.error());
      for (Word i = 0; i < Word{2} << directory->depth; ++i) {
        (*larger)->segment(i) = directory->segment(i / 2);
      }
      persist_directory(**larger);
      directory = *larger;
    }
    const Word pattern = segment.pattern * 2;
    const Word shift = directory->depth - depth;
    for (Word i = pattern << shift; i < (pattern + 2) << shift; ++i) {
      const Word half = i >> shift & 1;
      this->store(directory->segment(i), reinterpret_cast<Word>(halves[half]));
    }
    this->persist(&directory->segment(pattern << shift), (sizeof(Word) * 2) << shift);
    directory_.store(directory, std::memory_order_release);  // in DRAM, for this process
    if (!kCopy) {
      segment.pattern = pattern;
      this->store(segment.depth, depth);
      this->persist(&segment, kLine);
    }
    return {};
  }

  std::atomic<Directory*> directory_{nullptr};
  std::mutex naming_;
};

}  // namespace perdure::paper
