#include "testing/flip_scenarios.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "pool/layout.h"
#include "testing/sim_memory.h"
#include "testing/sim_platform.h"

namespace perdure::testing {

namespace {

constexpr std::uint64_t kCapacity = 2 << 20;
constexpr std::uint64_t kBoot = 1;

// A pool that has seen operations of every kind, closed.
std::string fill(SimMemory& memory, const SubjectFactory& factory, const OpSource& source,
                 Model& model) {
  auto subject = factory();
  if (!subject->create(memory).ok() || !(subject = factory())->open(memory, kBoot).ok()) {
    return "create";
  }
  Random random(1);
  for (int i = 0; i < 150; ++i) {
    const Op op = source(random);
    if (op.kind > OpKind::find) continue;
    apply_to(model, op);
    if (!subject->apply(op)) return "an operation failed";
  }
  if (!subject->close().ok()) return "close";
  return {};
}

enum class Found : std::uint8_t { reported, right, wrong };

Found judge(SimMemory& memory, const SubjectFactory& factory, const Model& model,
            std::string& what) {
  const auto subject = factory();
  if (!subject->open(memory, kBoot).ok()) return Found::reported;
  std::vector<std::string> violations;
  subject->check(violations);
  if (violations.empty()) what = compare(*subject, model);
  memory.set_mode(SimMode::frozen);
  return !violations.empty() ? Found::reported : what.empty() ? Found::right : Found::wrong;
}

}  // namespace

std::string flipped_bits(const SubjectFactory& factory, const OpSource& source,
                         FindCovered covered) {
  SimMemory memory(kCapacity);
  Model model;
  if (std::string wrong = fill(memory, factory, source, model); !wrong.empty()) return wrong;
  memory.settle();
  layout::Header header;
  std::memcpy(&header, memory.base(), sizeof(header));
  const std::uint64_t table_end =
      header.table_offset + (header.file_bytes - header.data_offset) / header.extent_bytes * 8;
  Covered exact_ranges = covered != nullptr ? covered(memory) : Covered{};
  exact_ranges.emplace_back(header.table_offset, table_end);
  SimMemory scratch(kCapacity);
  Random random(2);
  for (std::uint64_t at = 0; at < memory.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, memory.base() + at, 8);
    if (word == 0) continue;
    const bool exact = std::ranges::any_of(
        exact_ranges, [at](const auto& range) { return at >= range.first && at < range.second; });
    for (int k = 0; k < (exact ? 64 : 2); ++k) {
      const std::uint64_t bit = exact ? static_cast<std::uint64_t>(k) : random.below(64);
      const auto line = static_cast<std::uint32_t>(at / kLine);
      LineBytes bytes;
      std::memcpy(&bytes, memory.base() + std::uint64_t{line} * kLine, kLine);
      bytes.words[at % kLine / 8] ^= 1ULL << bit;
      scratch.load_image(memory, {.size = memory.size(), .lines = {line}, .bytes = {bytes}});
      std::string what;
      const Found found = judge(scratch, factory, model, what);
      if (found == Found::reported || (found == Found::right && !exact)) continue;
      return "bit " + std::to_string(bit) + " of the word at " + std::to_string(at) +
             " is not missed by anything; " + what;
    }
  }
  return {};
}

}  // namespace perdure::testing
