// AnswerChain: for `--dependent`, the operation that follows, computed from what the one before
// returned.
//
// Operations are numbered from 0 in the order of their block; a batch is one. Beside each stands a
// link: the number of the next one, combined (exclusive or) with the result that must come. So the
// next key is known when the result is, and not before; a wrong result leads elsewhere. The links
// exist before the clock starts.
//
// A result is the digest of the value, or 1 for yes and 0 for no. A processor predicts a yes or no
// and goes on; where nothing else is returned, wait_for_loads() makes it wait (see waits()).
#pragma once

#include <cstdint>
#include <vector>

#include "bench/harness/subject.h"
#include "bench/workloads/keys.h"
#include "bench/workloads/ledger.h"
#include "bench/workloads/work.h"

namespace perdure::bench {

// Loads the value line by line; the sum depends on each of the loads.
inline std::uint64_t digest(const ValueRef& value) noexcept {
  std::uint64_t sum = value.word;
  for (std::size_t at = 0; at < value.bytes.size(); at += 64) {
    sum += static_cast<unsigned char>(value.bytes[at]);
  }
  return sum;
}
inline std::uint64_t digest(Outcome outcome) noexcept { return outcome == Outcome::yes ? 1 : 0; }

class AnswerChain {
 public:
  // Of the operations of a block of `phase`, for keys as `ledger` has them.
  AnswerChain(const Phase& phase, const WorkBlock& block, const ValueCodec& values,
              const Ledger& ledger);

  // The number of the operation behind number `at`, whose result was this. After a wrong result it
  // may be beyond the last.
  std::uint32_t next(std::size_t at, std::uint64_t result) const noexcept {
    return links_[at] ^ fold(result);
  }
  // Whether results are a mere yes or no.
  bool waits() const noexcept { return waits_; }

 private:
  static std::uint32_t fold(std::uint64_t result) noexcept {
    return static_cast<std::uint32_t>(result ^ result >> 32);
  }

  std::vector<std::uint32_t> links_;
  bool waits_;
};

}  // namespace perdure::bench
