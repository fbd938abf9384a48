// ResultChain, for `--dependent`: computes the next operation from the result of the last one.
//
// Operations are numbered from 0 in the order of their block; a batch counts as one. Each has a
// link: the number of the next operation, xored with the expected result. The next key is therefore
// unknown until the result is known, and a wrong result leads to another operation. The links exist
// before the clock starts.
//
// A result is the digest of the value, or 1 for yes and 0 for no. A processor predicts a yes or no
// and goes on. If an operation returns nothing else, wait_for_loads() makes it wait (see waits()).
#pragma once

#include <cstdint>
#include <vector>

#include "bench/harness/subject.h"
#include "bench/workloads/keys.h"
#include "bench/workloads/ledger.h"
#include "bench/workloads/work.h"

namespace perdure::bench {

// Loads the value line by line. The sum depends on every load.
inline std::uint64_t digest(const ValueRef& value) noexcept {
  std::uint64_t sum = value.word;
  for (std::size_t at = 0; at < value.bytes.size(); at += 64) {
    sum += static_cast<unsigned char>(value.bytes[at]);
  }
  return sum;
}
inline std::uint64_t digest(Outcome outcome) noexcept { return outcome == Outcome::yes ? 1 : 0; }

class ResultChain {
 public:
  // For the operations of a block of `phase`. `ledger` has the state of the keys.
  ResultChain(const Phase& phase, const WorkBlock& block, const ValueCodec& values,
              const Ledger& ledger);

  // Returns the number of the operation after number `at`, whose result was `result`. After a wrong
  // result the number may be beyond the last.
  std::uint32_t next(std::size_t at, std::uint64_t result) const noexcept {
    return links_[at] ^ fold(result);
  }
  // Whether every result is only a yes or no.
  bool waits() const noexcept { return waits_; }

 private:
  static std::uint32_t fold(std::uint64_t result) noexcept {
    return static_cast<std::uint32_t>(result ^ result >> 32);
  }

  std::vector<std::uint32_t> links_;
  bool waits_;
};

}  // namespace perdure::bench
