// List: what the evaluation of the atomic skiplists asks of an ordered map of 16-byte keys, ours or
// one of its baselines. One thread.
#pragma once

#include <array>
#include <cstdint>

#include "index/findings.h"
#include "perdure/status.h"

namespace perdure::paper {

// Two words, which order as the bytes that they are the big-endian halves of.
using ListKey = std::array<std::uint64_t, 2>;

class List {
 public:
  List() = default;
  virtual ~List() = default;
  List(const List&) = delete;
  List& operator=(const List&) = delete;

  // True: inserted. False: the key exists, nothing changed.
  virtual Expected<bool> insert(const ListKey& key, std::uint64_t value) = 0;
  virtual Expected<bool> erase(const ListKey& key) = 0;
  virtual Expected<bool> find(const ListKey& key, std::uint64_t& value) = 0;
  virtual void check(Findings& report) = 0;
};

}  // namespace perdure::paper
