#include "testing/crash/flip_scenarios.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "format/layout.h"
#include "testing/sim/sim_memory.h"
#include "testing/sim/sim_platform.h"

namespace perdure::testing {

namespace {

constexpr std::uint64_t kCapacity = 2 << 20;
constexpr std::uint64_t kBoot = 1;

// Makes a pool with operations of every kind, and closes it.
std::string fill(SimMemory& memory, const SubjectFactory& factory, const OpSource& source,
                 Model& model) {
  auto subject = factory();
  if (!subject->create(memory).ok() || !(subject = factory())->open(memory, kBoot).ok()) {
    return "create";
  }
  Random random(1);
  for (int i = 0; i < 150; ++i) {
    const Op op = source(random);
    const bool of_versions = op.kind >= OpKind::tag && op.kind <= OpKind::rollback;
    if (op.kind > OpKind::find && !of_versions) continue;
    apply_to(model, op);
    if (!subject->apply(op)) return "an operation failed";
  }
  if (!subject->close().ok()) return "close";
  return {};
}

enum class Found : std::uint8_t { reported, right, wrong };

Found judge(SimMemory& memory, const SubjectFactory& factory, const Model& model, std::string& what,
            std::uint64_t boot = kBoot) {
  const auto subject = factory();
  if (!subject->open(memory, boot).ok()) {
    memory.set_mode(SimMode::frozen);
    return Found::reported;
  }
  std::vector<std::string> violations;
  subject->check(violations);
  if (violations.empty()) what = compare(*subject, model);
  memory.set_mode(SimMode::frozen);
  return !violations.empty() ? Found::reported : what.empty() ? Found::right : Found::wrong;
}

LineBytes line_of(const SimMemory& memory, std::uint32_t line) {
  LineBytes bytes;
  std::memcpy(&bytes, memory.base() + std::uint64_t{line} * kLine, kLine);
  return bytes;
}

// Judges the closed pool with these lines replaced. If the loss is found, the power then fails, and
// it judges the result of that, too.
std::string judge_loss(SimMemory& closed, const CrashImage& image, const SubjectFactory& factory,
                       const Model& model, SimMemory& scratch, SimMemory& after) {
  scratch.load_image(closed, image);
  scratch.settle();
  scratch.set_mode(SimMode::recording);
  std::string what;
  const Found found = judge(scratch, factory, model, what);
  if (found == Found::wrong) return what;
  if (found == Found::right) return {};
  const std::vector<PendingLine> pending = scratch.pending();
  const std::vector<std::uint32_t> guaranteed(pending.size(), 0);
  after.load_image(scratch, scratch.image(pending, guaranteed, true, false));
  if (judge(after, factory, model, what, kBoot + 1) != Found::wrong) return {};
  return "reported once only; " + what;
}

}  // namespace

std::string lost_lines(const SubjectFactory& factory, const OpSource& source, bool exchanged) {
  SimMemory memory(kCapacity);
  Model model;
  if (std::string wrong = fill(memory, factory, source, model); !wrong.empty()) return wrong;
  memory.settle();
  std::vector<std::uint32_t> used;
  const LineBytes zero{};
  for (std::uint32_t line = 0; line < memory.size() / kLine; ++line) {
    const LineBytes bytes = line_of(memory, line);
    if (std::memcmp(&bytes, &zero, kLine) != 0) used.push_back(line);
  }
  SimMemory scratch(kCapacity);
  SimMemory after(kCapacity);
  for (std::size_t i = 0; i < used.size(); ++i) {
    const CrashImage lost{.size = memory.size(), .lines = {used[i]}, .bytes = {zero}};
    std::string wrong = judge_loss(memory, lost, factory, model, scratch, after);
    if (!wrong.empty()) {
      return "line " + std::to_string(used[i]) + " is not missed by anything; " + wrong;
    }
    if (i == 0 || !exchanged) continue;
    const CrashImage swapped{.size = memory.size(),
                             .lines = {used[i - 1], used[i]},
                             .bytes = {line_of(memory, used[i]), line_of(memory, used[i - 1])}};
    wrong = judge_loss(memory, swapped, factory, model, scratch, after);
    if (!wrong.empty()) {
      return "lines " + std::to_string(used[i - 1]) + " and " + std::to_string(used[i]) +
             " have changed places, and nothing says so; " + wrong;
    }
  }
  return {};
}

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
      LineBytes bytes = line_of(memory, line);
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
