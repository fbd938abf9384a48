// OrderedMap: the interface of a map of integers in the evaluation of PhaST. Our engines and the
// baselines implement it. One thread uses it, but for those of shared_schemes().
#pragma once

#include <cstdint>

#include "evaluation/in_heap.h"
#include "perdure/function_ref.h"
#include "perdure/status.h"

namespace perdure::paper {

class OrderedMap {
 public:
  OrderedMap() = default;
  virtual ~OrderedMap() = default;
  OrderedMap(const OrderedMap&) = delete;
  OrderedMap& operator=(const OrderedMap&) = delete;

  // Returns false if the key exists; then nothing changes. Errors: pool_full.
  virtual Expected<bool> insert(Word key, Word value) = 0;
  // Returns false if the key is absent.
  virtual Expected<bool> update(Word key, Word value) = 0;
  virtual Expected<bool> erase(Word key) = 0;
  virtual bool find(Word key, Word& value) = 0;
  // Visits up to `limit` entries from the key on, in order.
  virtual void scan(Word from, std::uint64_t limit, FunctionRef<void(Word, Word)> visit) = 0;
  // Throws if the map finds a fault in itself.
  virtual void must_be_sound() {}
};

}  // namespace perdure::paper
