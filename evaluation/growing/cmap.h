// Cmap: the concurrent hash map of pmemkv, whose table grows as oneTBB's: chains of nodes, and a
// bucket that is rehashed when it is first used after the table has doubled.
//
// INSERT  under the bucket's lock: the node is written back, then the link that names it: 2F 2S. An
//   update stores in place, 1F 1S. An erase stores the link before the node, 1F 1S.
// GROW    Doubling takes one allocation. The first use of a new bucket, also by a find, takes the
//   locks of it and of its parent, moves the nodes that belong to it, and writes both chains back.
//   A parent that is not rehashed itself is rehashed first.
// DEVIATIONS  The authors' code makes each mutation a transaction of libpmemobj, which logs before
//   it stores; here there is no log. Nodes of erased entries are left to the heap, as finds hold no
//   lock of a node here.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <mutex>

#include "evaluation/growing/growing_table.h"
#include "evaluation/growing/word_lock.h"

namespace perdure::paper {

template <Platform P>
class Cmap final : public InHeap<P, GrowingTable> {
  static constexpr std::uint32_t kFirstBits = 8;
  struct alignas(kLine / 2) Node {
    Word key;
    Word value;
    Node* next;
  };
  struct Bucket {
    Word lock;
    Word rehashed;
    Node* head;
    Word unused;
  };

 public:
  Cmap(P& platform, Heap<P>& heap) noexcept : InHeap<P, GrowingTable>(platform, heap) {}
  Status open() {
    if (Status s = add_part(0, Word{1} << kFirstBits); !s.ok()) return s;
    for (Word i = 0; i < Word{1} << kFirstBits; ++i) bucket_at(i).rehashed = 1;
    mask_.store((Word{1} << kFirstBits) - 1);
    return {};
  }

  Expected<bool> insert(Word key, Word value) override {
    const Word hash = hash_of(key);
    Bucket& bucket = locked(hash, true);
    SharedWordLock lock(bucket.lock);
    if (*link_of(bucket, key) != nullptr) {
      lock.unlock();
      return false;
    }
    auto made = this->template make<Node>();
    if (!made) {
      lock.unlock();
      return fail(std::move(made.error()));
    }
    **made = {.key = key, .value = value, .next = bucket.head};
    this->persist(*made, sizeof(Node));
    this->store(bucket.head, *made);
    this->persist(&bucket.head, sizeof(Word));
    lock.unlock();
    const Word count = count_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (count > mask_.load(std::memory_order_relaxed)) {
      if (Status s = grow(); !s.ok()) return fail(std::move(s));
    }
    return true;
  }
  Expected<bool> update(Word key, Word value) override {
    Bucket& bucket = locked(hash_of(key), true);
    Node* node = *link_of(bucket, key);
    if (node != nullptr) {
      this->store(node->value, value);
      this->persist(&node->value, sizeof(Word));
    }
    SharedWordLock(bucket.lock).unlock();
    return node != nullptr;
  }
  Expected<bool> erase(Word key) override {
    Bucket& bucket = locked(hash_of(key), true);
    Node** link = link_of(bucket, key);
    const bool found = *link != nullptr;
    if (found) {
      this->store(*link, (*link)->next);
      this->persist(link, sizeof(Word));
      count_.fetch_sub(1, std::memory_order_relaxed);
    }
    SharedWordLock(bucket.lock).unlock();
    return found;
  }
  bool find(Word key, Word& value) override {
    Bucket& bucket = locked(hash_of(key), false);
    const Node* node = *link_of(bucket, key);
    if (node != nullptr) value = node->value;
    SharedWordLock(bucket.lock).unlock_shared();
    return node != nullptr;
  }

 private:
  // Part 0 has the first buckets; part i > 0 those that the i-th doubling has added.
  Bucket& bucket_at(Word number) const noexcept {
    const auto width = static_cast<std::uint32_t>(std::bit_width(number >> kFirstBits));
    const Word first = width == 0 ? 0 : Word{1} << (kFirstBits + width - 1);
    return parts_[width].load(std::memory_order_acquire)[number - first];
  }
  Status add_part(std::uint32_t number, Word buckets) {
    auto block = this->heap_.allocate(buckets * sizeof(Bucket), BlockKind::zero_on_free);
    if (!block) return std::move(block.error());
    parts_[number].store(this->heap_.template at<Bucket>(*block), std::memory_order_release);
    return {};
  }
  Status grow() {
    const std::unique_lock guard(growing_, std::try_to_lock);
    const Word mask = mask_.load();
    if (!guard || count_.load() <= mask) return {};
    const auto number = static_cast<std::uint32_t>(std::bit_width(mask)) - kFirstBits + 1;
    if (Status s = add_part(number, mask + 1); !s.ok()) return s;
    mask_.store(mask * 2 + 1, std::memory_order_release);
    return {};
  }
  static Node** link_of(Bucket& bucket, Word key) noexcept {
    Node** link = &bucket.head;
    while (*link != nullptr && (*link)->key != key) link = &(*link)->next;
    return link;
  }

  // The bucket of the hash, rehashed and locked.
  Bucket& locked(Word hash, bool write) noexcept {
    for (;;) {
      const Word mask = mask_.load(std::memory_order_acquire);
      Bucket& bucket = bucket_at(hash & mask);
      if (this->load(bucket.rehashed) == 0) rehash(hash & mask);
      SharedWordLock lock(bucket.lock);
      if (write) {
        lock.lock();
      } else {
        lock.lock_shared();
      }
      // After a doubling the entry may be in a bucket that takes it from this one.
      if (&bucket_at(hash & mask_.load(std::memory_order_acquire)) == &bucket) return bucket;
      if (write) {
        lock.unlock();
      } else {
        lock.unlock_shared();
      }
    }
  }
  // Takes from the parent's chain what belongs to the bucket.
  void rehash(Word number) noexcept {
    const Word upper = Word{1} << (std::bit_width(number) - 1);  // the bit that the parent lacks
    Bucket& parent = bucket_at(number & ~upper);
    if (this->load(parent.rehashed) == 0) rehash(number & ~upper);
    Bucket& bucket = bucket_at(number);
    SharedWordLock parent_lock(parent.lock);
    const std::scoped_lock parent_guard(parent_lock);
    SharedWordLock lock(bucket.lock);
    const std::scoped_lock guard(lock);
    if (bucket.rehashed != 0) return;
    const Word mask = upper * 2 - 1;
    for (Node** link = &parent.head; *link != nullptr;) {
      Node* node = *link;
      if ((hash_of(node->key) & mask) != number) {
        link = &node->next;
        continue;
      }
      this->store(*link, node->next);
      this->persist(link, sizeof(Word));
      this->store(node->next, bucket.head);
      this->persist(&node->next, sizeof(Word));
      this->store(bucket.head, node);
    }
    this->store(bucket.rehashed, 1);
    this->persist(&bucket, sizeof(Bucket));
  }

  static constexpr std::size_t kParts = 48;
  std::array<std::atomic<Bucket*>, kParts> parts_{};
  std::atomic<Word> mask_{0};
  std::atomic<Word> count_{0};
  std::mutex growing_;
};

}  // namespace perdure::paper
