// InHeap: the common part of baselines that live in a heap for the time of a run. They leave their
// blocks to it. No root names them, and they are never opened again: their papers' recovery is not
// here. Nodes hold addresses, as in the authors' code.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "heap/heap.h"
#include "platform/platform.h"

namespace perdure::paper {

using Word = std::uint64_t;

struct alignas(16) Entry {  // lies in one line
  Word key;
  Word value;
};

// `Interface`: what the baseline implements.
template <Platform P, class Interface>
class InHeap : public Interface {
 protected:
  InHeap(P& platform, Heap<P>& heap) noexcept : platform_(platform), heap_(heap) {}

  // A node of zeros, which no link names yet. A block of a line or more begins at a line.
  template <class Node>
  Expected<Node*> make() noexcept {
    auto block = heap_.allocate(sizeof(Node), BlockKind::plain);
    if (!block) return fail(std::move(block.error()));
    auto* node = heap_.template at<Node>(*block);
    platform_.copy(node, &kZero<Node>, sizeof(Node));
    return node;
  }
  // An item that a slot points to, written back: 1F 1S. Items do not change.
  Expected<Word> make_item(Word key, Word value) noexcept {
    auto made = make<Entry>();
    if (!made) return fail(std::move(made.error()));
    store(**made, key, value);
    persist(*made, sizeof(Entry));
    return reinterpret_cast<Word>(*made);
  }
  const Entry& item_at(Word pointer) const noexcept {
    return *reinterpret_cast<const Entry*>(pointer);
  }
  // What a slot holds of an item: its key or, in a table with pointers, where the item is.
  template <bool kPointers>
  Expected<Word> stored(Word key, Word value) noexcept {
    if constexpr (kPointers) return make_item(key, value);
    return key;
  }
  // No slot names it.
  template <bool kPointers>
  void drop_unused([[maybe_unused]] Word word) noexcept {
    if constexpr (kPointers) free(reinterpret_cast<const void*>(word));
  }
  // The key of a slot; 0: the slot is empty.
  template <bool kPointers>
  Word key_in(Word word) const noexcept {
    return kPointers && word != 0 ? item_at(word).key : word;
  }
  // Gives the block of a node back.
  void free(const void* node) noexcept {
    this->heap_.free(static_cast<std::uint64_t>(static_cast<const std::byte*>(node) -
                                                heap_.template at<std::byte>(0)));
  }
  // Writes back what was stored, and waits.
  void persist(const void* begin, std::size_t bytes) noexcept {
    platform_.flush(begin, bytes, "bench.node"_site);
    (void)platform_.fence("bench.node"_site);  // memory without a file is never poisoned
  }
  Word load(const Word& word) const noexcept { return platform_.load(word); }
  template <class T>
  static T* load(T* const& link) noexcept {
    return std::atomic_ref(const_cast<T*&>(link)).load(std::memory_order_acquire);
  }
  void store(Word& word, Word value) noexcept { platform_.store(word, value); }
  template <class T>
  void store(T*& link, T* to) noexcept {
    platform_.store(reinterpret_cast<Word&>(link), reinterpret_cast<Word>(to));
  }
  void store(Entry& entry, Word key, Word value) noexcept {
    store(entry.value, value);
    store(entry.key, key);
  }
  void copy(void* to, const void* from, std::size_t bytes) noexcept {
    platform_.copy(to, from, bytes);
  }

  P& platform_;
  Heap<P>& heap_;

 private:
  template <class Node>
  static constexpr Node kZero{};
};

}  // namespace perdure::paper
