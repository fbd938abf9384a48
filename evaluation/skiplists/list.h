// List: the interface of an ordered map of 16-byte keys in the evaluation of the atomic skiplists.
// Our engines and the baselines implement it. One thread uses it.
#pragma once

#include <array>
#include <cstdint>

#include "index/findings.h"
#include "perdure/status.h"

namespace perdure::paper {

// The two big-endian halves of 16 bytes. They order as the bytes do.
using ListKey = std::array<std::uint64_t, 2>;

class List {
 public:
  List() = default;
  virtual ~List() = default;
  List(const List&) = delete;
  List& operator=(const List&) = delete;

  // Returns false if the key exists; then nothing changes.
  virtual Expected<bool> insert(const ListKey& key, std::uint64_t value) = 0;
  virtual Expected<bool> erase(const ListKey& key) = 0;
  virtual Expected<bool> find(const ListKey& key, std::uint64_t& value) = 0;
  virtual void check(Findings& report) = 0;
};

}  // namespace perdure::paper
