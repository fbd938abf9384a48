// Pclht: the cache-line hash table of David, Guerraoui and Trigonakis (ASPLOS 2015) as RECIPE (Lee,
// Mohan, Kashyap, Kim and Chidambaram, SOSP 2019) made it persistent, in its form with locks.
//
// LAYOUT  A bucket is a line: a lock, three keys, three values, the next bucket of its chain.
// FIND    takes no lock: a value counts if its key is the same before and after it is read.
// INSERT  under the lock of the first bucket: the value, then the key, both written back with a
//   fence of their own: 2F 2S. A chain that is full gets a bucket, written back before its link.
// GROW    When the chains have as many buckets as the table, a thread makes a table four times as
//   large. That is about 5 keys a bucket, from which the authors' code computes the same factor. It
//   and all threads that meet a locked bucket copy ranges of buckets; then one store exchanges the
//   tables. A bucket that was copied stays locked.
// POINTERS  kPointers: a slot points to an item outside the table, as clevel hashing's paper has it
//   for all tables. Each key that is compared is read there. insert 2F 2S, the item and then the
//   pointer; update makes another item, 2F 2S. Items that were replaced or erased are left to the
//   heap.
// DEVIATIONS  update, which the authors' code lacks, stores the value in place, 1F 1S. The old
//   table is left to the heap, because finds may be in it; the authors' code keeps it for its
//   collector. The lock is in the heap, as in their code, and no restart is made.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "evaluation/growing/growing_table.h"
#include "evaluation/growing/word_lock.h"

namespace perdure::paper {

template <Platform P, bool kPointers = false>
class Pclht final : public InHeap<P, GrowingTable> {
  static constexpr std::uint32_t kSlots = 3;
  static constexpr std::uint64_t kRange = 1024;  // buckets that a thread copies at once
  static constexpr std::uint64_t kGrowth = 4;
  enum Lock : Word { kFree, kTaken, kCopied };
  struct alignas(kLine) Bucket {
    Word lock;
    Word keys[kSlots];    // kPointers: to items
    Word values[kSlots];  // kPointers: unused
    Bucket* next;
  };
  static_assert(sizeof(Bucket) == kLine);
  struct Table {
    Bucket* buckets;
    std::uint64_t count;  // a power of two
    std::atomic<std::uint64_t> chained{0};
    // While it grows:
    std::atomic<Table*> larger{nullptr};
    std::atomic<std::uint64_t> next_range{0};
    std::atomic<std::uint64_t> copied_ranges{0};
  };

 public:
  Pclht(P& platform, Heap<P>& heap) noexcept : InHeap<P, GrowingTable>(platform, heap) {}
  ~Pclht() override {
    for (Table* table : tables_) delete table;
  }
  Status open(std::uint64_t buckets = 512) {
    auto table = make_table(buckets);
    if (!table) return std::move(table.error());
    table_.store(*table);
    return {};
  }

  Expected<bool> insert(Word key, Word value) override {
    const auto made = this->template stored<kPointers>(key, value);
    if (!made) return fail(Status(made.error()));
    for (;;) {
      Table* table = table_.load(std::memory_order_acquire);
      Bucket& first = bucket_of(*table, key);
      if (!lock(*table, first)) continue;
      const auto inserted = insert_locked(*table, first, key, *made, value);
      unlock(first);
      if (inserted && !*inserted) this->template drop_unused<kPointers>(*made);
      if (table->chained.load(std::memory_order_relaxed) >= table->count) {
        if (Status s = grow(*table); !s.ok()) return fail(std::move(s));
      }
      return inserted;
    }
  }
  Expected<bool> update(Word key, Word value) override {
    const auto made = this->template stored<kPointers>(key, value);
    if (!made) return fail(Status(made.error()));
    auto changed = change(key, [&](Bucket& bucket, std::uint32_t at) {
      Word& word = kPointers ? bucket.keys[at] : bucket.values[at];
      this->store(word, kPointers ? *made : value);
      this->persist(&word, sizeof(Word));
    });
    if (changed && !*changed) this->template drop_unused<kPointers>(*made);
    return changed;
  }
  Expected<bool> erase(Word key) override {
    return change(key, [&](Bucket& bucket, std::uint32_t at) {
      this->store(bucket.keys[at], 0);
      this->persist(&bucket.keys[at], sizeof(Word));
    });
  }
  bool find(Word key, Word& value) override {
    const Table* table = table_.load(std::memory_order_acquire);
    for (const Bucket* bucket = &bucket_of(*table, key); bucket != nullptr;
         bucket = this->load(bucket->next)) {
      for (std::uint32_t i = 0; i < kSlots; ++i) {
        const Word word = this->load(bucket->keys[i]);
        if (this->template key_in<kPointers>(word) != key) continue;
        value = kPointers ? this->item_at(word).value : this->load(bucket->values[i]);
        if (kPointers || this->load(bucket->keys[i]) == key) return true;
      }
    }
    return false;
  }
  Word slots() override {
    const Table& table = *table_.load(std::memory_order_acquire);
    return (table.count + table.chained.load(std::memory_order_relaxed)) * kSlots;
  }

 private:
  static Bucket& bucket_of(const Table& table, Word key) noexcept {
    return table.buckets[hash_of(key) & (table.count - 1)];
  }
  Expected<Table*> make_table(std::uint64_t count) {
    auto block = this->heap_.allocate(count * sizeof(Bucket), BlockKind::zero_on_free);
    if (!block) return fail(std::move(block.error()));
    auto* table = new Table{.buckets = this->heap_.template at<Bucket>(*block), .count = count};
    tables_.push_back(table);
    return table;
  }

  // False: the bucket was copied into a larger table, which is the table now.
  bool lock(Table& table, Bucket& bucket) {
    const std::atomic_ref word(bucket.lock);
    for (Backoff backoff;; backoff.pause()) {
      Word state = kFree;
      if (word.compare_exchange_weak(state, kTaken, std::memory_order_acquire)) return true;
      if (state == kCopied) {
        help(table);
        return false;
      }
    }
  }
  static void unlock(Bucket& bucket) noexcept {
    std::atomic_ref(bucket.lock).store(kFree, std::memory_order_release);
  }

  template <class F>
  Expected<bool> change(Word key, F apply) {
    for (;;) {
      Table* table = table_.load(std::memory_order_acquire);
      Bucket& first = bucket_of(*table, key);
      if (!lock(*table, first)) continue;
      bool found = false;
      for (Bucket* bucket = &first; bucket != nullptr && !found; bucket = bucket->next) {
        for (std::uint32_t i = 0; i < kSlots && !found; ++i) {
          if (this->template key_in<kPointers>(bucket->keys[i]) != key) continue;
          apply(*bucket, i);
          found = true;
        }
      }
      unlock(first);
      return found;
    }
  }
  Expected<bool> insert_locked(Table& table, Bucket& first, Word key, Word word, Word value) {
    Bucket* free = nullptr;
    std::uint32_t slot = 0;
    Bucket* last = &first;
    for (Bucket* bucket = &first; bucket != nullptr; bucket = bucket->next) {
      for (std::uint32_t i = 0; i < kSlots; ++i) {
        if (this->template key_in<kPointers>(bucket->keys[i]) == key) return false;
        if (bucket->keys[i] == 0 && free == nullptr) {
          free = bucket;
          slot = i;
        }
      }
      last = bucket;
    }
    if (free != nullptr) {
      if (!kPointers) {
        this->store(free->values[slot], value);
        this->persist(&free->values[slot], sizeof(Word));
      }
      this->store(free->keys[slot], word);
      this->persist(&free->keys[slot], sizeof(Word));
      return true;
    }
    auto made = this->template make<Bucket>();
    if (!made) return fail(std::move(made.error()));
    (*made)->keys[0] = word;
    (*made)->values[0] = value;
    this->persist(*made, sizeof(Bucket));
    this->store(last->next, *made);
    this->persist(&last->next, sizeof(Word));
    table.chained.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  // Makes a larger table, unless another thread does.
  Status grow(Table& table) {
    {
      const std::scoped_lock guard(growing_);
      if (table.larger.load() != nullptr) return {};
      auto larger = make_table(table.count * kGrowth);
      if (!larger) return std::move(larger.error());
      table.larger.store(*larger, std::memory_order_release);
    }
    help(table);
    return {};
  }
  // Copies ranges until none is left, then waits for the other threads'.
  void help(Table& table) {
    Table& larger = *table.larger.load(std::memory_order_acquire);
    const std::uint64_t ranges = (table.count + kRange - 1) / kRange;
    for (;;) {
      const std::uint64_t range = table.next_range.fetch_add(1, std::memory_order_relaxed);
      if (range >= ranges) break;
      const std::uint64_t end = std::min(table.count, (range + 1) * kRange);
      for (std::uint64_t i = range * kRange; i < end; ++i) copy(table, larger, i);
      if (table.copied_ranges.fetch_add(1, std::memory_order_acq_rel) + 1 == ranges) {
        table_.store(&larger, std::memory_order_release);  // in DRAM, for this process
      }
    }
    for (Backoff backoff; table_.load(std::memory_order_acquire) == &table; backoff.pause()) {
    }
  }
  // The bucket's entries go to kGrowth buckets, which no other thread writes yet.
  void copy(Table& table, Table& larger, std::uint64_t number) {
    Bucket& from = table.buckets[number];
    const std::atomic_ref word(from.lock);
    Word free = kFree;
    for (Backoff backoff; !word.compare_exchange_weak(free, kCopied, std::memory_order_acquire);
         backoff.pause()) {
      free = kFree;
    }
    for (const Bucket* bucket = &from; bucket != nullptr; bucket = bucket->next) {
      for (std::uint32_t i = 0; i < kSlots; ++i) {
        if (bucket->keys[i] != 0) place(larger, bucket->keys[i], bucket->values[i]);
      }
    }
    for (std::uint64_t i = number; i < larger.count; i += table.count) {
      persist_chain(larger.buckets[i]);
    }
  }
  void place(Table& larger, Word word, Word value) {
    Bucket* bucket = &bucket_of(larger, this->template key_in<kPointers>(word));
    for (;; bucket = bucket->next) {
      for (std::uint32_t i = 0; i < kSlots; ++i) {
        if (bucket->keys[i] != 0) continue;
        bucket->values[i] = value;
        bucket->keys[i] = word;
        return;
      }
      if (bucket->next == nullptr) {
        auto made = this->template make<Bucket>();
        if (!made) std::abort();  // the heap of a run has room for the copy
        bucket->next = *made;
        larger.chained.fetch_add(1, std::memory_order_relaxed);
      }
    }
  }
  void persist_chain(const Bucket& first) noexcept {
    for (const Bucket* bucket = &first; bucket != nullptr; bucket = bucket->next) {
      this->platform_.flush(bucket, sizeof(Bucket), "bench.node"_site);
    }
    (void)this->platform_.fence("bench.node"_site);
  }

  std::atomic<Table*> table_{nullptr};
  std::mutex growing_;
  std::vector<Table*> tables_;  // all that were made
};

}  // namespace perdure::paper
