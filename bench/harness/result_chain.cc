#include "bench/harness/result_chain.h"

#include <algorithm>
#include <string>

namespace perdure::bench {

ResultChain::ResultChain(const Phase& phase, const WorkBlock& block, const ValueCodec& values,
                         const Ledger& ledger)
    : waits_(phase.kind != OpKind::read && phase.kind != OpKind::read_batch) {
  std::string scratch = values.scratch();
  const auto value_of = [&](std::size_t i) {
    const std::uint8_t generation = ledger.generation(block.indexes[i]);
    return digest(values.make(block.words[i], generation, scratch));
  };
  const std::size_t length = phase.kind == OpKind::read_batch ? kBatchLength : 1;
  const std::size_t operations = (block.size() + length - 1) / length;
  links_.resize(operations);
  for (std::size_t number = 0; number < operations; ++number) {
    std::uint64_t result =
        phase.kind == OpKind::read_missing ? digest(Outcome::no) : digest(Outcome::yes);
    if (!waits_) {
      result = 0;
      const std::size_t end = std::min(block.size(), (number + 1) * length);
      for (std::size_t i = number * length; i < end; ++i) result += value_of(i);
    }
    // The last operation leads back to the first.
    links_[number] = static_cast<std::uint32_t>((number + 1) % operations) ^ fold(result);
  }
}

}  // namespace perdure::bench
