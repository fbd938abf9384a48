// GrowingTable: the interface of a hash table of integers in the evaluation of clevel hashing. Our
// engines and the baselines implement it. Any number of threads may call it. Keys are not 0.
#pragma once

#include <cstdint>

#include "evaluation/in_heap.h"
#include "perdure/status.h"

namespace perdure::paper {

class GrowingTable {
 public:
  GrowingTable() = default;
  virtual ~GrowingTable() = default;
  GrowingTable(const GrowingTable&) = delete;
  GrowingTable& operator=(const GrowingTable&) = delete;

  // Returns false if the key exists; then nothing changes. Errors: pool_full.
  virtual Expected<bool> insert(Word key, Word value) = 0;
  // Returns false if the key is absent.
  virtual Expected<bool> update(Word key, Word value) = 0;
  virtual Expected<bool> erase(Word key) = 0;
  virtual bool find(Word key, Word& value) = 0;
  // No other call is in progress. 0: the table allocates each item, and is always full.
  virtual Word slots() { return 0; }
};

inline Word hash_of(Word key) noexcept {
  key = (key ^ (key >> 32)) * 0x9E3779B97F4A7C15ULL;
  return key ^ (key >> 29);
}

}  // namespace perdure::paper
