// Table: what the evaluation of level hashing asks of a hash table of integers, ours or one of its
// baselines. One thread.
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

  // True: inserted. False: the key exists, nothing changed. Errors: pool_full, the table has no
  // place for it, nothing changed.
  virtual Expected<bool> insert(std::uint64_t key, std::uint64_t value) = 0;
  // True: replaced. False: the key is absent.
  virtual Expected<bool> update(std::uint64_t key, std::uint64_t value) = 0;
  virtual Expected<bool> erase(std::uint64_t key) = 0;
  virtual Expected<bool> find(std::uint64_t key, std::uint64_t& value) = 0;

  virtual std::uint64_t items() = 0;
  virtual std::uint64_t slots() = 0;
  // Every item once, in no order.
  virtual Status for_each(FunctionRef<void(std::uint64_t key, std::uint64_t value)> visit) = 0;
  virtual void check(Findings& report) = 0;
  // How many items it held when it first grew by itself; 0: it has not.
  virtual std::uint64_t grew_at() { return 0; }
  // Returns when no resize has anything left to do.
  virtual void settle() {}
};

}  // namespace perdure::paper
