// What the phases of PhaST's evaluation share.
#pragma once

#include <cstdint>

#include "bench/workloads/random.h"
#include "evaluation/ordered/figures.h"
#include "evaluation/turns.h"
#include "perdure/pool.h"

namespace perdure::paper {

// Runs the operation for 0, 1, .., n - 1. Throws if it returns false.
template <class F>
Figure measure(std::uint64_t n, F operation) {
  bool all = true;
  const Counters before = thread_counters();
  const std::uint64_t begin = cpu_ns();
  for (std::uint64_t i = 0; i < n; ++i) all &= operation(i);
  const auto ns = static_cast<double>(cpu_ns() - begin);
  require(all, "an operation returned a wrong result");
  const auto count = static_cast<double>(n);
  return {count * 1e3 / ns, static_cast<double>(thread_counters().flushes - before.flushes) / count,
          static_cast<double>(thread_counters().fences - before.fences) / count};
}

// Keys and values are uniform. A value differs from that of every other key, as pointers do.
inline Word uniform_key(std::uint64_t n) noexcept { return bench::mix64(n + 1); }
inline Word value_of(Word key, std::uint64_t generation) noexcept { return key * 2 + generation; }
// Whether it is a value of the key: of generation 0 or 1.
inline bool is_of(Word value, Word key) noexcept { return value - key * 2 <= 1; }

// The operations on the n-th entry.
inline bool insert_entry(OrderedMap& map, std::uint64_t n) {
  const Word key = uniform_key(n);
  return must(map.insert(key, value_of(key, 0)));
}
inline bool read_entry(OrderedMap& map, std::uint64_t n) {
  const Word key = uniform_key(n);
  Word value = 0;
  return map.find(key, value) && is_of(value, key);
}
inline bool update_entry(OrderedMap& map, std::uint64_t n) {
  const Word key = uniform_key(n);
  return must(map.update(key, value_of(key, 1)));
}

// Opens a heap that `items` entries of every map fit in.
inline void open_for(bench::MemoryHeap& memory, std::uint64_t items) {
  constexpr std::uint64_t kBytesPerItem = 180;  // WORT takes the most
  must(memory.open(64_KiB, items * kBytesPerItem / 64_KiB + 1024));
  memory.platform().configure(FlushMode::cache_line, best_flush_instruction(), 0);
}

}  // namespace perdure::paper
