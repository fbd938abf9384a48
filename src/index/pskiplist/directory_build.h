// DirectoryBuild: builds the directory at an open, by threads, while nothing else runs.
//
// WHAT  The keys come in sorted runs, one of each thread that has read the key chain. They are cut
//   into chunks of neighbouring keys: where a partition begins, and at keys of its longest run at
//   equal distances. A thread takes chunk after chunk. It merges the parts of the runs, fills
//   leaves of its own. One thread then links the chunks, and builds the inner nodes over them.
//   The threads that read the chain name the keys in the hints, while their nodes are in the
//   caches.
// MEMORY  No merged list of all keys exists: the first touch of its pages would cost more than the
//   merging.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "index/pskiplist/directory_lookup.h"
#include "util/containers.h"

namespace perdure::pskiplist {

// A key and its node, to build the directory from.
struct Listed {
  std::uint64_t word;
  std::uint32_t node;
};
using Run = std::span<const Listed>;

template <class T>
class DirectoryBuild : public DirectoryLookup<T> {
  using Base = DirectoryLookup<T>;

 protected:
  using Base::hash_of, Base::hints_, Base::inner_, Base::kBytes, Base::leaves_, Base::nodes_;
  using typename Base::P, typename Base::G;

 public:
  using Base::Base, Base::key_of, Base::kKeys, Base::prefetch_key;
  using typename Base::Inner, typename Base::LeafT;

  bool comes_before(const Listed& a, const Listed& b) const {
    if (!kBytes || a.word != b.word) return a.word < b.word;
    return key_of(a.node) < key_of(b.node);
  }
  // Before name() and build(), for at most so many keys.
  void expect(std::size_t keys) { hints_.prepare(keys); }
  // Names keys in the hints. build() has not begun. Several threads may call it.
  [[gnu::noinline]] void name(Run keys) {
    constexpr std::size_t kGroup = 16;  // the misses of a group overlap
    std::uint64_t hashes[kGroup];
    for (std::size_t begin = 0; begin < keys.size(); begin += kGroup) {
      const Run group = keys.subspan(begin, std::min(kGroup, keys.size() - begin));
      for (std::size_t i = 0; i < group.size(); ++i) {
        hashes[i] = hash_of(group[i].node);
        hints_.prefetch(hashes[i]);
      }
      for (std::size_t i = 0; i < group.size(); ++i) hints_.put(hashes[i], group[i].node);
    }
  }
  // Builds the directory of keys that are named. At least one run. Calls twice(), from any of the
  // threads, for a key that does not come behind the one before it: it is left out if that returns
  // ok. Errors: that, out_of_memory.
  [[gnu::noinline]] Status build(std::span<const Run> runs, std::size_t threads,
                                 FunctionRef<Status()> twice) {
    Plan plan;
    if (!cut(runs, plan)) return StatusCode::out_of_memory;
    P::parallel(threads, [&](std::size_t t) {
      Memory memory;
      for (std::size_t c = t; c < plan.chunks.size(); c += threads) {
        plan.chunks[c].status = fill(runs, plan, c, memory, twice);
      }
    });
    Status s;
    for (Chunk& chunk : plan.chunks) {
      if (s.ok()) s = std::move(chunk.status);
    }
    std::size_t begin = 0;
    for (std::uint32_t p = 0; p < inner_.partitioning().count() && s.ok(); ++p) {
      std::size_t end = begin;
      while (end < plan.chunks.size() && plan.chunks[end].partition == p) ++end;
      s = link(p, {&plan.chunks[begin], end - begin}, twice);
      begin = end;
    }
    if (!s.ok()) drop(plan);
    return s;
  }

 private:
  static constexpr std::uint32_t kFill = kKeys * 3 / 4;  // keys of a leaf
  // Keys of a chunk: they stay in the caches while it is built.
  static constexpr std::size_t kChunk = kKeys < 16 ? 3 * kKeys : 256 * kKeys;

  // Some neighbouring keys of a partition. It has no leaf if it has no key, but the only chunk of
  // its partition.
  struct Chunk {
    std::uint32_t partition = 0;
    std::uint32_t first = kNoLeaf;  // its leaves follow one another
    std::uint32_t reserved = 0;
    std::uint32_t filled = 0;
    Status status = {};
  };
  // Chunk c has of run r what lies between cuts[c * runs + r] and cuts[(c + 1) * runs + r].
  struct Plan {
    Array<Chunk> chunks;
    Array<std::size_t> cuts;
  };

  struct Memory {
    Array<Listed> keys;
    Array<Run> parts;
  };

  // Returns false if memory is short. Cuts of a run never go back: keys of a read-only open of a
  // pool in use may change meanwhile.
  [[gnu::noinline]] bool cut(std::span<const Run> runs, Plan& plan) {
    const ordered::Partitioning& partitioning = inner_.partitioning();
    const auto first_of = [&](const Run& run, std::uint32_t partition) {
      const auto begin =
          partition == partitioning.count()
              ? run.end()
              : std::ranges::lower_bound(run, partitioning.low(partition), {}, &Listed::word);
      return static_cast<std::size_t>(begin - run.begin());
    };
    bool room = true;
    Array<std::size_t> ends;  // of the partition's keys, by run
    for (std::uint32_t p = 0; p < partitioning.count(); ++p) {
      room = room && plan.chunks.push_back({.partition = p});
      std::size_t keys = 0;
      Run longest;
      ends.clear();
      for (const Run& run : runs) {
        const std::size_t begin = first_of(run, p);
        const Run part = run.subspan(begin, first_of(run, p + 1) - begin);
        keys += part.size();
        if (part.size() > longest.size()) longest = part;
        room = room && plan.cuts.push_back(begin) && ends.push_back(begin + part.size());
      }
      for (std::size_t i = 1, pieces = keys / kChunk; i < pieces && room; ++i) {
        const Listed& key = longest[longest.size() * i / pieces];
        room = plan.chunks.push_back({.partition = p});
        for (std::size_t r = 0; r < runs.size() && room; ++r) {
          const std::size_t last = plan.cuts[plan.cuts.size() - runs.size()];
          const Run rest = runs[r].subspan(last, ends[r] - last);
          const auto begin = std::ranges::lower_bound(
              rest, key, [this](const Listed& x, const Listed& y) { return comes_before(x, y); });
          room = plan.cuts.push_back(last + static_cast<std::size_t>(begin - rest.begin()));
        }
      }
    }
    for (const Run& run : runs) room = room && plan.cuts.push_back(run.size());
    return room && reserve_leaves(runs.size(), plan);
  }
  bool reserve_leaves(std::size_t runs, Plan& plan) {
    std::uint64_t leaves = 0;
    for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
      Chunk& chunk = plan.chunks[c];
      const bool alone =
          (c == 0 || plan.chunks[c - 1].partition != chunk.partition) &&
          (c + 1 == plan.chunks.size() || plan.chunks[c + 1].partition != chunk.partition);
      const std::size_t least = (keys_of(runs, plan, c) + kFill - 1) / kFill;
      chunk.reserved = static_cast<std::uint32_t>(std::max<std::size_t>(least, alone ? 1 : 0));
      leaves += chunk.reserved;
    }
    std::uint32_t number = leaves_.take_row(leaves);
    if (number == kNoLeaf) return false;
    for (Chunk& chunk : plan.chunks) {
      chunk.first = number;
      number += chunk.reserved;
    }
    return true;
  }
  static std::size_t keys_of(std::size_t runs, const Plan& plan, std::size_t c) {
    std::size_t keys = 0;
    for (std::size_t r = c * runs; r < (c + 1) * runs; ++r)
      keys += plan.cuts[r + runs] - plan.cuts[r];
    return keys;
  }

  // `memory`: of the thread.
  [[gnu::noinline]] Status fill(std::span<const Run> runs, Plan& plan, std::size_t c,
                                Memory& memory, FunctionRef<Status()> twice) {
    const std::size_t count = keys_of(runs.size(), plan, c);
    if (!memory.keys.reserve(2 * count) || !memory.parts.reserve(runs.size())) {
      return StatusCode::out_of_memory;
    }
    // Room without items: what is written there needs no constructor.
    static_assert(std::is_trivially_copyable_v<Listed> && std::is_trivially_copyable_v<Run>);
    Listed* const keys = memory.keys.begin();
    Run* const parts = memory.parts.begin();
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const std::size_t* cuts = &plan.cuts[c * runs.size() + r];
      parts[r] = runs[r].subspan(cuts[0], cuts[runs.size()] - cuts[0]);
    }
    merge({parts, runs.size()}, keys, keys + count);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (kept == 0 || comes_before(keys[kept - 1], keys[i])) {
        keys[kept++] = keys[i];
      } else if (Status s = twice(); !s.ok()) {
        return s;
      } else {
        hints_.remove(hash_of(keys[i].node), keys[i].node);
      }
    }
    return fill_leaves(plan.chunks[c], {keys, kept});
  }
  void merge(std::span<const Run> parts, Listed* out, Listed* scratch) const {
    if (parts.size() == 1) {
      std::ranges::copy(parts[0], out);
      return;
    }
    const std::span<const Run> left = parts.first(parts.size() / 2);
    const std::span<const Run> right = parts.subspan(left.size());
    std::size_t sizes[2] = {0, 0};
    for (const Run& part : left) sizes[0] += part.size();
    for (const Run& part : right) sizes[1] += part.size();
    merge(left, scratch, out);
    merge(right, scratch + sizes[0], out + sizes[0]);
    std::merge(scratch, scratch + sizes[0], scratch + sizes[0], scratch + sizes[0] + sizes[1], out,
               [this](const Listed& a, const Listed& b) { return comes_before(a, b); });
  }

  // The ranges of the leaves adjoin, but for the beginning of the first and the end of the last.
  Status fill_leaves(Chunk& chunk, Run keys) {
    for (std::size_t begin = 0; begin < keys.size() || chunk.filled < (chunk.reserved ? 1U : 0U);
         begin += kFill) {
      const Run own = keys.subspan(begin, std::min<std::size_t>(kFill, keys.size() - begin));
      const std::uint32_t number = chunk.first + chunk.filled++;
      leaves_.begin(number);
      LeafT& leaf = leaves_[number];
      for (std::size_t i = 0; i < own.size(); ++i) {
        leaf.words[i].store(own[i].word, std::memory_order_relaxed);
        leaf.nodes[i].store(own[i].node, std::memory_order_relaxed);
      }
      leaf.count.store(static_cast<std::uint32_t>(own.size()), std::memory_order_relaxed);
      Separator<P>* separator = nullptr;
      if (!own.empty()) {
        leaf.bound.store(own.back().word, std::memory_order_relaxed);
        if constexpr (kBytes) {
          separator = Separator<P>::make(key_of(own.back().node), 0);
          if (separator == nullptr) return StatusCode::out_of_memory;
        }
      }
      if constexpr (kBytes) leaf.separators.bound.store(separator, std::memory_order_relaxed);
      if (chunk.filled > 1) adjoin(leaves_[number - 1], number);
    }
    return {};
  }
  // The leaf follows this one.
  void adjoin(LeafT& left, std::uint32_t number) {
    LeafT& leaf = leaves_[number];
    const std::uint64_t bound = left.bound.load(std::memory_order_relaxed);
    leaf.low.store(kBytes ? bound : bound + 1, std::memory_order_relaxed);
    left.next.store(number, std::memory_order_relaxed);
    if constexpr (kBytes) {
      Separator<P>* separator = left.separators.bound.load(std::memory_order_relaxed);
      Inner::share(separator);
      leaf.separators.low.store(separator, std::memory_order_relaxed);
    }
  }

  // After an error: gives up the separators of leaves that no partition has. The destructor finds
  // the others.
  [[gnu::noinline]] void drop(Plan& plan) {
    if constexpr (kBytes) {
      for (const Chunk& chunk : plan.chunks) {
        if (inner_.first_leaf(chunk.partition) != kNoLeaf) continue;
        for (std::uint32_t n = chunk.first; n < chunk.first + chunk.filled; ++n) {
          inner_.release(leaves_[n].separators.low.load(std::memory_order_relaxed));
          inner_.release(leaves_[n].separators.bound.load(std::memory_order_relaxed));
        }
      }
    }
  }
  static Listed key_in(const LeafT& leaf, std::uint32_t i) {
    return {leaf.words[i].load(std::memory_order_relaxed),
            leaf.nodes[i].load(std::memory_order_relaxed)};
  }
  // Links the leaves of a partition, and builds its inner nodes.
  [[gnu::noinline]] Status link(std::uint32_t partition, std::span<Chunk> chunks,
                                FunctionRef<Status()> twice) {
    Array<std::uint32_t> numbers;
    for (Chunk& chunk : chunks) {
      for (std::uint32_t i = 0; i < chunk.reserved; ++i) {
        const std::uint32_t number = chunk.first + i;
        if (i >= chunk.filled) {
          leaves_.begin(number);
          leaves_[number].unlock_gone();
          leaves_.give(number);
          continue;
        }
        if (i == 0 && !numbers.empty()) {
          LeafT& left = leaves_[numbers.back()];
          // Else keys have changed since they were sorted.
          if (!comes_before(key_in(left, left.count.load(std::memory_order_relaxed) - 1),
                            key_in(leaves_[number], 0))) {
            if (Status s = twice(); !s.ok()) return s;
          }
          adjoin(left, number);
        }
        if (!numbers.push_back(number)) return StatusCode::out_of_memory;
      }
    }
    const ordered::Partitioning& partitioning = inner_.partitioning();
    LeafT& last = leaves_[numbers.back()];
    leaves_[numbers.front()].low.store(partitioning.low(partition), std::memory_order_relaxed);
    last.bound.store(partitioning.bound(partition), std::memory_order_relaxed);
    if constexpr (kBytes) {
      inner_.release(last.separators.bound.exchange(nullptr, std::memory_order_relaxed));
    }
    for (const std::uint32_t number : numbers) leaves_[number].unlock();
    return inner_.build(partition, numbers.begin(), numbers.size());
  }
};

}  // namespace perdure::pskiplist
