// FpTree: the tree of Oukid, Lasperas, Nica, Willhalm and Lehner (SIGMOD 2016) as PhaST is compared
// with it: leaves of 64 unsorted entries with a bitmap and fingerprints in the heap, inner nodes in
// DRAM with a fanout of 256.
//
// INSERT  The entry, its fingerprint, then its bit: 3F 3S. An update writes a new entry, and one
//   store of the bitmap exchanges both: 3F 3S. An erase clears the bit: 1F 1S.
// SPLIT   The leaf's address goes to a log; the new leaf is a whole copy; then the bitmaps, new and
//   old; the link; the log is cleared.
// DEVIATIONS  One thread: no hardware transaction, no leaf lock. A leaf that has become empty stays
//   in the list. The paper's allocator writes the address of a new leaf to the log itself; here the
//   split does.
#pragma once

#include <algorithm>
#include <array>
#include <memory>

#include "evaluation/in_heap.h"
#include "evaluation/ordered/dram_index.h"
#include "evaluation/ordered/ordered_map.h"

namespace perdure::paper {

template <Platform P>
class FpTree final : public InHeap<P, OrderedMap> {
  static constexpr std::uint32_t kEntries = 64;
  struct alignas(kLine) Leaf {
    std::uint8_t fingerprints[kEntries];  // one line
    alignas(kLine) Word bitmap;
    Leaf* next;
    alignas(kLine) Entry entries[kEntries];
  };
  struct alignas(kLine) Log {
    Leaf* split;
    Leaf* made;
  };

 public:
  FpTree(P& platform, Heap<P>& heap) noexcept : InHeap<P, OrderedMap>(platform, heap) {}
  Status open() {
    auto first = this->template make<Leaf>();
    if (!first) return std::move(first.error());
    auto log = this->template make<Log>();
    if (!log) return std::move(log.error());
    log_ = *log;
    this->persist(*first, sizeof(Leaf));
    index_ = std::make_unique<DramIndex<Leaf>>(*first);
    return {};
  }

  Expected<bool> insert(Word key, Word value) override {
    Leaf* leaf = index_->find(key);
    if (lookup(*leaf, key) != kEntries) return false;
    if (~leaf->bitmap == 0) {
      auto half = split(*leaf, key);
      if (!half) return fail(std::move(half.error()));
      leaf = *half;
    }
    const auto at = free_entry(*leaf);
    write(*leaf, at, key, value);
    set_bitmap(*leaf, leaf->bitmap | Word{1} << at);
    return true;
  }
  Expected<bool> update(Word key, Word value) override {
    Leaf* leaf = index_->find(key);
    std::uint32_t old = lookup(*leaf, key);
    if (old == kEntries) return false;
    if (~leaf->bitmap == 0) {
      auto half = split(*leaf, key);
      if (!half) return fail(std::move(half.error()));
      leaf = *half;
      old = lookup(*leaf, key);
    }
    const auto at = free_entry(*leaf);
    write(*leaf, at, key, value);
    set_bitmap(*leaf, leaf->bitmap ^ (Word{1} << at | Word{1} << old));
    return true;
  }
  Expected<bool> erase(Word key) override {
    Leaf* leaf = index_->find(key);
    const std::uint32_t at = lookup(*leaf, key);
    if (at == kEntries) return false;
    set_bitmap(*leaf, leaf->bitmap & ~(Word{1} << at));
    return true;
  }
  bool find(Word key, Word& value) override {
    const Leaf* leaf = index_->find(key);
    const std::uint32_t at = lookup(*leaf, key);
    if (at == kEntries) return false;
    value = leaf->entries[at].value;
    return true;
  }
  // Each leaf is sorted as it is reached, as in the paper.
  void scan(Word from, std::uint64_t limit, FunctionRef<void(Word, Word)> visit) override {
    std::array<Entry, kEntries> sorted;
    for (const Leaf* leaf = index_->find(from); leaf != nullptr && limit > 0; leaf = leaf->next) {
      std::uint32_t count = 0;
      for (Word rest = leaf->bitmap; rest != 0; rest &= rest - 1) {
        const Entry& entry = leaf->entries[__builtin_ctzll(rest)];
        if (entry.key >= from) sorted[count++] = entry;
      }
      std::sort(sorted.begin(), sorted.begin() + count,
                [](const Entry& a, const Entry& b) { return a.key < b.key; });
      for (std::uint32_t i = 0; i < count && limit > 0; ++i, --limit) {
        visit(sorted[i].key, sorted[i].value);
      }
    }
  }

 private:
  static std::uint8_t fingerprint(Word key) noexcept {
    return static_cast<std::uint8_t>((key * 0x9E3779B97F4A7C15ULL) >> 56);
  }
  static std::uint32_t free_entry(const Leaf& leaf) noexcept {
    return static_cast<std::uint32_t>(__builtin_ctzll(~leaf.bitmap));
  }
  // The place of the key, or kEntries.
  static std::uint32_t lookup(const Leaf& leaf, Word key) noexcept {
    Word maybe = P::match_line(leaf.fingerprints, fingerprint(key)) & leaf.bitmap;
    for (; maybe != 0; maybe &= maybe - 1) {
      const auto at = static_cast<std::uint32_t>(__builtin_ctzll(maybe));
      if (leaf.entries[at].key == key) return at;
    }
    return kEntries;
  }
  void write(Leaf& leaf, std::uint32_t at, Word key, Word value) noexcept {
    this->store(leaf.entries[at], key, value);
    this->persist(&leaf.entries[at], sizeof(Entry));
    const std::uint8_t byte = fingerprint(key);
    this->copy(&leaf.fingerprints[at], &byte, 1);
    this->persist(&leaf.fingerprints[at], 1);
  }
  void set_bitmap(Leaf& leaf, Word bitmap) noexcept {
    this->store(leaf.bitmap, bitmap);
    this->persist(&leaf.bitmap, sizeof(Word));
  }

  // Splits a full leaf at its median. Returns the half of the key.
  Expected<Leaf*> split(Leaf& leaf, Word key) {
    this->store(log_->split, &leaf);
    this->persist(log_, sizeof(Log));
    auto made = this->template make<Leaf>();
    if (!made) return fail(std::move(made.error()));
    Leaf& right = **made;
    this->store(log_->made, &right);
    this->persist(log_, sizeof(Log));
    this->copy(&right, &leaf, sizeof(Leaf));
    this->persist(&right, sizeof(Leaf));
    std::array<Word, kEntries> keys;
    for (std::uint32_t i = 0; i < kEntries; ++i) keys[i] = leaf.entries[i].key;
    std::nth_element(keys.begin(), keys.begin() + kEntries / 2, keys.end());
    const Word separator = keys[kEntries / 2];
    Word above = 0;
    for (std::uint32_t i = 0; i < kEntries; ++i) {
      above |= Word{leaf.entries[i].key >= separator} << i;
    }
    set_bitmap(right, above);
    set_bitmap(leaf, ~above);
    this->store(leaf.next, &right);
    this->persist(&leaf.next, sizeof(Word));
    this->store(log_->split, static_cast<Leaf*>(nullptr));
    this->store(log_->made, static_cast<Leaf*>(nullptr));
    this->persist(log_, sizeof(Log));
    index_->insert(separator, &right);
    return key < separator ? &leaf : &right;
  }

  Log* log_ = nullptr;
  std::unique_ptr<DramIndex<Leaf>> index_;
};

}  // namespace perdure::paper
