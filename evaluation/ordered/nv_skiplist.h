// NvSkiplist: the skiplist of PhaST's evaluation whose lowest list has nodes of 64 unsorted entries
// in the heap and whose towers are in DRAM. PhaST's paper describes it (sections 2.3 and 5.1); its
// own paper has no text here.
//
// INSERT  The entry, then its bit: 2F 2S. An update stores in place, 1F 1S; an erase clears the
//   bit, 1F 1S. Nodes have no fingerprints: a search compares the keys one after the other.
// SPLIT   Two new nodes with half of the entries each are written back whole, then one store in the
//   node before links both. No log.
// DEVIATIONS  One thread. A node that has become empty stays in the list. Towers begin at the first
//   key that a node can have; every node has one.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "evaluation/in_heap.h"
#include "evaluation/ordered/ordered_map.h"

namespace perdure::paper {

template <Platform P>
class NvSkiplist final : public InHeap<P, OrderedMap> {
  static constexpr std::uint32_t kEntries = 64;
  static constexpr std::uint32_t kLevels = 24;
  struct alignas(kLine) Leaf {
    Word bitmap;
    Leaf* next;
    alignas(kLine) Entry entries[kEntries];
  };
  struct Tower {
    Word least;  // the keys of its leaf are not below
    Leaf* leaf;
    std::array<Tower*, kLevels> next{};
  };

 public:
  NvSkiplist(P& platform, Heap<P>& heap) noexcept : InHeap<P, OrderedMap>(platform, heap) {}
  Status open() {
    auto leaf = this->template make<Leaf>();
    if (!leaf) return std::move(leaf.error());
    auto head = this->template make<Leaf>();  // never has entries: the node before the first
    if (!head) return std::move(head.error());
    (*head)->next = *leaf;
    this->persist(*leaf, sizeof(Leaf));
    this->persist(*head, sizeof(Leaf));
    head_leaf_ = *head;
    first_ = add_tower(0, *leaf);
    return {};
  }

  Expected<bool> insert(Word key, Word value) override {
    Tower* tower = descend(key);
    if (lookup(*tower->leaf, key) != kEntries) return false;
    if (~tower->leaf->bitmap == 0) {
      auto half = split(*tower, key);
      if (!half) return fail(std::move(half.error()));
      tower = *half;
    }
    Leaf& leaf = *tower->leaf;
    const auto at = static_cast<std::uint32_t>(__builtin_ctzll(~leaf.bitmap));
    this->store(leaf.entries[at], key, value);
    this->persist(&leaf.entries[at], sizeof(Entry));
    set_bitmap(leaf, leaf.bitmap | Word{1} << at);
    return true;
  }
  Expected<bool> update(Word key, Word value) override {
    Leaf& leaf = *descend(key)->leaf;
    const std::uint32_t at = lookup(leaf, key);
    if (at == kEntries) return false;
    this->store(leaf.entries[at].value, value);
    this->persist(&leaf.entries[at].value, sizeof(Word));
    return true;
  }
  Expected<bool> erase(Word key) override {
    Leaf& leaf = *descend(key)->leaf;
    const std::uint32_t at = lookup(leaf, key);
    if (at == kEntries) return false;
    set_bitmap(leaf, leaf.bitmap & ~(Word{1} << at));
    return true;
  }
  bool find(Word key, Word& value) override {
    const Leaf& leaf = *descend(key)->leaf;
    const std::uint32_t at = lookup(leaf, key);
    if (at == kEntries) return false;
    value = leaf.entries[at].value;
    return true;
  }
  void scan(Word from, std::uint64_t limit, FunctionRef<void(Word, Word)> visit) override {
    std::vector<Entry> sorted;
    for (const Leaf* leaf = descend(from)->leaf; leaf != nullptr && limit > 0; leaf = leaf->next) {
      sorted.clear();
      for (Word rest = leaf->bitmap; rest != 0; rest &= rest - 1) {
        const Entry& entry = leaf->entries[__builtin_ctzll(rest)];
        if (entry.key >= from) sorted.push_back(entry);
      }
      std::ranges::sort(sorted, {}, &Entry::key);
      for (std::size_t i = 0; i < sorted.size() && limit > 0; ++i, --limit) {
        visit(sorted[i].key, sorted[i].value);
      }
    }
  }

 private:
  static std::uint32_t lookup(const Leaf& leaf, Word key) noexcept {
    for (Word rest = leaf.bitmap; rest != 0; rest &= rest - 1) {
      const auto at = static_cast<std::uint32_t>(__builtin_ctzll(rest));
      if (leaf.entries[at].key == key) return at;
    }
    return kEntries;
  }
  void set_bitmap(Leaf& leaf, Word bitmap) noexcept {
    this->store(leaf.bitmap, bitmap);
    this->persist(&leaf.bitmap, sizeof(Word));
  }

  // The last tower whose keys begin at the key or below. before_ has the tower before it at each
  // level, from which a new tower behind it is linked.
  Tower* descend(Word key) noexcept {
    Tower* tower = first_;
    for (std::uint32_t level = kLevels; level-- > 0;) {
      while (tower->next[level] != nullptr && tower->next[level]->least <= key) {
        tower = tower->next[level];
      }
      before_[level] = tower;
    }
    return tower;
  }
  Tower* add_tower(Word least, Leaf* leaf) {
    towers_.push_back(std::make_unique<Tower>(Tower{.least = least, .leaf = leaf}));
    return towers_.back().get();
  }

  // Splits the full leaf of a tower. Returns the tower of the half that the key belongs to.
  Expected<Tower*> split(Tower& tower, Word key) {
    std::array<Entry, kEntries> sorted;
    std::ranges::copy(tower.leaf->entries, sorted.begin());
    std::ranges::sort(sorted, {}, &Entry::key);
    Leaf* halves[2];
    for (Leaf*& half : halves) {
      auto made = this->template make<Leaf>();
      if (!made) return fail(std::move(made.error()));
      half = *made;
    }
    for (std::uint32_t i = 0; i < 2; ++i) {
      this->copy(halves[i]->entries, sorted.data() + i * kEntries / 2,
                 kEntries / 2 * sizeof(Entry));
      this->store(halves[i]->bitmap, (Word{1} << kEntries / 2) - 1);
      this->store(halves[i]->next, i == 0 ? halves[1] : tower.leaf->next);
      this->persist(halves[i], sizeof(Leaf));
    }
    Leaf* previous = leaf_before(tower);
    this->store(previous->next, halves[0]);
    this->persist(&previous->next, sizeof(Word));
    this->free(tower.leaf);
    tower.leaf = halves[0];
    const Word separator = sorted[kEntries / 2].key;
    Tower* right = add_tower(separator, halves[1]);
    descend(separator);  // the towers before the new one
    const auto levels =
        static_cast<std::uint32_t>(1 + __builtin_ctzll(draw() | 1ULL << (kLevels - 1)));
    for (std::uint32_t level = 0; level < levels; ++level) {
      right->next[level] = before_[level]->next[level];
      before_[level]->next[level] = right;
    }
    return key < separator ? &tower : right;
  }
  Leaf* leaf_before(const Tower& tower) noexcept {
    return tower.least == 0 ? head_leaf_ : descend(tower.least - 1)->leaf;
  }
  Word draw() noexcept {
    seed_ = seed_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return seed_ >> 33;
  }

  Leaf* head_leaf_ = nullptr;
  Tower* first_ = nullptr;
  std::array<Tower*, kLevels> before_{};
  std::vector<std::unique_ptr<Tower>> towers_;
  Word seed_ = 1;
};

}  // namespace perdure::paper
