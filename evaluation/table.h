// Table: the interface of a hash table of integers in the evaluation of level hashing. Our engines
// and the baselines implement it. One thread uses it.
#pragma once

#include <cstdint>
#include <string>

#include "index/findings.h"
#include "perdure/function_ref.h"
#include "perdure/status.h"

namespace perdure::paper {

class Table {
 public:
  Table() = default;
  virtual ~Table() = default;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  // Returns false if the key exists; then nothing changes. Errors: pool_full if the table has no
  // place for the key; nothing changes.
  virtual Expected<bool> insert(std::uint64_t key, std::uint64_t value) = 0;
  // Returns false if the key is absent.
  virtual Expected<bool> update(std::uint64_t key, std::uint64_t value) = 0;
  virtual Expected<bool> erase(std::uint64_t key) = 0;
  virtual Expected<bool> find(std::uint64_t key, std::uint64_t& value) = 0;

  virtual std::uint64_t items() = 0;
  virtual std::uint64_t slots() = 0;
  // Visits every item once, in any order.
  virtual Status for_each(FunctionRef<void(std::uint64_t key, std::uint64_t value)> visit) = 0;
  virtual void check(Findings& report) = 0;
  // The number of items at the first growth that was not asked for; 0: there was none.
  virtual std::uint64_t grew_at() { return 0; }
  // Returns when no resize has work left.
  virtual void settle() {}
};

}  // namespace perdure::paper
