#include "bench/workloads/work.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "bench/workloads/db_bench.h"
#include "bench/workloads/distributions.h"
#include "bench/workloads/ycsb.h"

namespace perdure::bench {
namespace {

using enum Workload;

constexpr std::array<std::pair<std::string_view, Workload>, 25> kWorkloads = {{
    {"load", load},
    {"insert", insert},
    {"read", read},
    {"read_batch", read_batch},
    {"read_missing", read_missing},
    {"update", update},
    {"modify", modify},
    {"delete", erase},
    {"insert_many", insert_many},
    {"update_many", update_many},
    {"delete_many", erase_many},
    {"batch", batch},
    {"scan", scan},
    {"scan_mixed", scan_mixed},
    {"churn", churn},
    {"tag", tag},
    {"read_version", read_version},
    {"history", history},
    {"snapshot", snapshot},
    {"ycsb_a", ycsb_a},
    {"ycsb_b", ycsb_b},
    {"ycsb_c", ycsb_c},
    {"ycsb_d", ycsb_d},
    {"ycsb_e", ycsb_e},
    {"ycsb_f", ycsb_f},
}};

constexpr std::array<std::pair<std::string_view, Distribution>, 5> kDistributions = {{
    {"uniform", Distribution::uniform},
    {"zipfian", Distribution::zipfian},
    {"latest", Distribution::latest},
    {"sequential", Distribution::sequential},
    {"clustered", Distribution::clustered},
}};

OpKind uniform_kind(Workload workload) noexcept {
  switch (workload) {
    case load:
    case insert:
      return OpKind::insert;
    case read_batch:
      return OpKind::read_batch;
    case read_missing:
      return OpKind::read_missing;
    case update:
      return OpKind::update;
    case modify:
      return OpKind::modify;
    case erase:
      return OpKind::erase;
    case insert_many:
      return OpKind::insert_many;
    case update_many:
      return OpKind::update_many;
    case erase_many:
      return OpKind::erase_many;
    case batch:
      return OpKind::batch;
    case scan:
      return OpKind::scan;
    case tag:
      return OpKind::tag;
    case read_version:
      return OpKind::read_version;
    case history:
      return OpKind::history;
    case snapshot:
      return OpKind::snapshot;
    default:
      return OpKind::read;
  }
}

char ycsb_letter(Workload workload) noexcept {
  return static_cast<char>('a' + (static_cast<int>(workload) - static_cast<int>(ycsb_a)));
}

OpKind op_kind(YcsbOperation operation) noexcept {
  switch (operation) {
    case YcsbOperation::update:
      return OpKind::update;
    case YcsbOperation::insert:
      return OpKind::insert;
    case YcsbOperation::scan:
      return OpKind::scan;
    case YcsbOperation::read_modify_write:
      return OpKind::read_modify_write;
    case YcsbOperation::read:
      break;
  }
  return OpKind::read;
}

bool writes_values(OpKind kind) noexcept {
  return kind == OpKind::update || kind == OpKind::update_many || kind == OpKind::batch ||
         kind == OpKind::modify || kind == OpKind::read_modify_write;
}

bool erases(Workload workload) noexcept { return workload == erase || workload == erase_many; }
bool updates(Workload workload) noexcept {
  return workload == update || workload == update_many || workload == batch || workload == modify;
}
bool inserts(Workload workload) noexcept {
  return workload == load || workload == insert || workload == insert_many || workload == tag;
}

// A random permutation of [0, n).
std::vector<std::uint32_t> permutation(std::uint64_t n, Random& random) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  for (std::uint64_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace

std::string_view workload_name(Workload workload) noexcept {
  return kWorkloads[static_cast<std::size_t>(workload)].first;
}

std::string_view distribution_name(Distribution distribution) noexcept {
  return kDistributions[static_cast<std::size_t>(distribution)].first;
}

bool is_ycsb(Workload workload) noexcept { return workload >= ycsb_a; }

bool needs_order(Workload workload) noexcept {
  return workload == scan || workload == scan_mixed || workload == ycsb_e;
}

bool needs_versions(Workload workload) noexcept {
  return workload == tag || workload == read_version || workload == history || workload == snapshot;
}

Result<std::vector<Workload>> parse_workloads(std::string_view list) {
  std::vector<Workload> workloads;
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view name = list.substr(0, comma);
    const auto* row = std::ranges::find(kWorkloads, name, &decltype(kWorkloads)::value_type::first);
    const auto alias = db_bench_workload(name);
    if (row == kWorkloads.end() && !alias) {
      std::string known;
      for (const auto& entry : kWorkloads) known += fmt::format(" {}", entry.first);
      return failure(kExitUsage,
                     fmt::format("unknown workload '{}'; known:{}; names of db_bench: {}", name,
                                 known, db_bench_names()));
    }
    workloads.push_back(alias ? *alias : row->second);
    if (comma == std::string_view::npos) return workloads;
    list.remove_prefix(comma + 1);
  }
}

Result<Distribution> parse_distribution(std::string_view name) {
  const auto* row =
      std::ranges::find(kDistributions, name, &decltype(kDistributions)::value_type::first);
  if (row != kDistributions.end()) return row->second;
  std::string known;
  for (const auto& entry : kDistributions) known += fmt::format(" {}", entry.first);
  return failure(kExitUsage, fmt::format("unknown distribution '{}'; known:{}", name, known));
}

KeyScheme key_scheme(Distribution distribution, std::span<const Workload> workloads) noexcept {
  if (std::ranges::any_of(workloads, is_ycsb)) return KeyScheme::ycsb;
  if (distribution == Distribution::sequential) return KeyScheme::sequential;
  if (distribution == Distribution::clustered) return KeyScheme::clustered;
  return KeyScheme::mixed;
}

std::uint64_t new_keys(const WorkOptions& options, std::span<const Workload> workloads) noexcept {
  std::uint64_t sum = 0;
  for (const Workload workload : workloads) {
    if (inserts(workload)) sum += workload == load ? options.records : options.operations;
    if (workload == churn) sum += (options.operations + 1) / 2;
    if (workload == scan_mixed) sum += options.operations / kInsertOneIn;
  }
  return sum;
}

Result<void> validate_work(const WorkOptions& options, std::span<const Workload> workloads) {
  if (options.records == 0) return failure(kExitUsage, "--records must be at least 1");
  if (options.operations == 0) return failure(kExitUsage, "--operations must be at least 1");
  if (options.together == 0 || options.together > kMostTogether) {
    return failure(kExitUsage, fmt::format("--batch must be 1 to {}", kMostTogether));
  }
  std::uint64_t present = 0;
  std::uint64_t used = 0;
  std::uint64_t generations = 0;
  bool gaps = false;
  bool tagged = false;
  for (const Workload workload : workloads) {
    const std::string_view name = workload_name(workload);
    const bool adds = inserts(workload);
    const std::uint64_t count = workload == load ? options.records : options.operations;
    if (!adds && present == 0) {
      return failure(kExitUsage,
                     fmt::format("workload '{}' finds no keys: start the list with load "
                                 "(each run starts with an empty pool)",
                                 name));
    }
    tagged |= workload == tag;
    if ((workload == read_version || workload == snapshot) && !tagged) {
      return failure(kExitUsage, fmt::format("workload '{}' finds no versions: put tag before it "
                                             "in the list",
                                             name));
    }
    if (is_ycsb(workload) && gaps) {
      return failure(kExitUsage,
                     fmt::format("workload '{}' needs all records: it cannot come after "
                                 "delete or churn",
                                 name));
    }
    if (erases(workload)) {
      if (options.operations > present) {
        return failure(
            kExitUsage,
            fmt::format("{} removes distinct keys: --operations {} exceeds the {} keys present at "
                        "that point of the list",
                        name, options.operations, present));
      }
      present -= options.operations;
      gaps = true;
    }
    if (workload == churn) {
      if (options.threads != 1) {
        return failure(kExitUsage,
                       "workload 'churn' deletes in order of insertion: use --threads 1");
      }
      gaps = true;
    }
    if (adds) present += count;
    if (workload == scan_mixed) present += count / kInsertOneIn;
    // The mixed workloads insert at most once per operation.
    if (adds || is_ycsb(workload) || workload == churn || workload == scan_mixed) used += count;
    generations += updates(workload) || is_ycsb(workload) ? 1 : 0;
  }
  if (used > std::numeric_limits<std::uint32_t>::max()) {
    return failure(kExitUsage, "more than 2^32 keys in one run: lower --records or --operations");
  }
  if (generations > Ledger::kGenerationMax) {
    return failure(kExitUsage, fmt::format("more than {} updating workloads in one run",
                                           Ledger::kGenerationMax));
  }
  return {};
}

Phase WorkMaker::make(Workload workload, const Ledger& ledger) {
  ++phase_;
  Phase phase{
      .workload = workload, .kind = uniform_kind(workload), .operations = options_.operations};
  phase.together = options_.together;
  phase.blocks.resize(options_.threads);
  if (updates(workload) || is_ycsb(workload)) phase.generation = ++generation_;
  if (workload == tag && !untagged_) untagged_ = ledger.used();
  phase.untagged = untagged_.value_or(0);
  if (inserts(workload)) {
    make_fresh(phase, ledger, workload == load ? options_.records : options_.operations);
  } else if (workload == churn) {
    make_churn(phase, ledger);
  } else if (workload == scan_mixed) {
    make_scan_mixed(phase, ledger);
  } else if (is_ycsb(workload)) {
    make_ycsb(phase, ledger);
  } else if (workload == snapshot) {
    make_snapshots(phase, ledger);
  } else {
    make_chosen(phase, ledger);
  }
  if (workload == read_version || workload == snapshot) draw_versions(phase);
  fill_keys(phase);
  return phase;
}

template <class F>
void WorkMaker::split(Phase& phase, std::uint64_t count, F&& index_at) {
  phase.operations = count;
  for (std::uint64_t t = 0; t < options_.threads; ++t) {
    const std::uint64_t begin = count * t / options_.threads;
    const std::uint64_t end = count * (t + 1) / options_.threads;
    std::vector<std::uint32_t>& indexes = phase.blocks[t].indexes;
    indexes.resize(end - begin);
    for (std::uint64_t i = begin; i < end; ++i) indexes[i - begin] = index_at(i);
  }
}

void WorkMaker::make_fresh(Phase& phase, const Ledger& ledger, std::uint64_t count) {
  if (!keys_.in_order()) {
    return split(phase, count,
                 [&](std::uint64_t i) { return static_cast<std::uint32_t>(ledger.used() + i); });
  }
  phase.operations = count;
  phase.in_turn = true;
  for (std::uint64_t t = 0; t < options_.threads; ++t) {
    for (std::uint64_t i = t; i < count; i += options_.threads) {
      phase.blocks[t].indexes.push_back(static_cast<std::uint32_t>(ledger.used() + i));
    }
  }
}

// Returns `count` present keys by the distribution. A uniform choice repeats permutations: no key
// occurs twice before all have occurred once. `distinct` guarantees that for every distribution.
std::vector<std::uint32_t> WorkMaker::choose(const Ledger& ledger, std::uint64_t count,
                                             bool distinct, std::uint64_t thread) const {
  const std::uint64_t present = ledger.present();
  std::vector<std::uint32_t> chosen(count);
  Random random(stream(thread));
  if (options_.distribution == Distribution::zipfian && !distinct) {
    const ScrambledZipfian zipfian(present);
    for (std::uint32_t& index : chosen) index = ledger.index_at(zipfian.next(random));
  } else if (options_.distribution == Distribution::latest && !distinct) {
    const Zipfian zipfian(present);
    for (std::uint32_t& index : chosen) {
      index = ledger.index_at(present - 1 - zipfian.next(random));
    }
  } else if (options_.distribution == Distribution::sequential) {
    for (std::uint64_t i = 0; i < count; ++i) chosen[i] = ledger.index_at(i % present);
  } else {
    std::vector<std::uint32_t> order;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (i % present == 0) order = permutation(present, random);
      chosen[i] = ledger.index_at(order[i % present]);
    }
  }
  return chosen;
}

void WorkMaker::make_chosen(Phase& phase, const Ledger& ledger) {
  if (options_.shared && !erases(phase.workload)) {
    for (std::uint64_t t = 0; t < options_.threads; ++t) {
      const std::uint64_t count = options_.operations * (t + 1) / options_.threads -
                                  options_.operations * t / options_.threads;
      phase.blocks[t].indexes = choose(ledger, count, false, t);
    }
    return;
  }
  const std::vector<std::uint32_t> chosen =
      choose(ledger, options_.operations, erases(phase.workload));
  split(phase, options_.operations, [&](std::uint64_t i) { return chosen[i]; });
}

// As in the paper, each thread takes one snapshot; the key is unused. Keys that are present and
// older than the first version are in every version.
void WorkMaker::make_snapshots(Phase& phase, const Ledger& ledger) {
  split(phase, options_.threads, [&](std::uint64_t) { return ledger.index_at(0); });
  for (std::uint64_t i = 0; i < ledger.present(); ++i) {
    phase.least_keys += ledger.index_at(i) < phase.untagged ? 1 : 0;
  }
  phase.most_keys = ledger.used();
}

void WorkMaker::draw_versions(Phase& phase) const {
  for (std::size_t t = 0; t < phase.blocks.size(); ++t) {
    WorkBlock& block = phase.blocks[t];
    Random random(mix64(stream(t)));
    block.draws.resize(block.indexes.size());
    for (std::uint32_t& draw : block.draws) draw = static_cast<std::uint32_t>(random.next() >> 32);
  }
}

// Inserts the next key and deletes the oldest one, in turn.
void WorkMaker::make_churn(Phase& phase, const Ledger& ledger) {
  const std::uint64_t present = ledger.present();
  phase.mixed = true;
  split(phase, options_.operations, [&](std::uint64_t i) -> std::uint32_t {
    const std::uint64_t pair = i / 2;
    if (i % 2 == 0) return static_cast<std::uint32_t>(ledger.used() + pair);
    if (pair < present) return ledger.index_at(pair);
    return static_cast<std::uint32_t>(ledger.used() + pair - present);
  });
  std::vector<OpKind>& kinds = phase.blocks[0].kinds;
  kinds.resize(phase.blocks[0].indexes.size());
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    kinds[i] = i % 2 == 0 ? OpKind::insert : OpKind::erase;
  }
}

// Every tenth operation inserts the next key.
void WorkMaker::make_scan_mixed(Phase& phase, const Ledger& ledger) {
  const auto inserts_at = [](std::uint64_t i) { return i % kInsertOneIn == kInsertOneIn - 1; };
  const std::vector<std::uint32_t> starts = choose(ledger, options_.operations, false);
  phase.mixed = true;
  split(phase, options_.operations, [&](std::uint64_t i) {
    return inserts_at(i) ? static_cast<std::uint32_t>(ledger.used() + i / kInsertOneIn) : starts[i];
  });
  std::uint64_t i = 0;
  for (WorkBlock& block : phase.blocks) {
    block.lengths.assign(block.indexes.size(), kScanLength);
    for (std::size_t n = 0; n < block.indexes.size(); ++n, ++i) {
      block.kinds.push_back(inserts_at(i) ? OpKind::insert : OpKind::scan);
    }
  }
  if (keys_.in_order()) deal_inserts(phase, ledger.used());
}

// Gives new keys to the threads' insertions in turn.
void WorkMaker::deal_inserts(Phase& phase, std::uint64_t next) {
  std::vector<std::size_t> at(phase.blocks.size());
  for (bool any = true; any;) {
    any = false;
    for (std::size_t t = 0; t < phase.blocks.size(); ++t) {
      WorkBlock& block = phase.blocks[t];
      while (at[t] < block.kinds.size() && block.kinds[at[t]] != OpKind::insert) ++at[t];
      if (at[t] == block.kinds.size()) continue;
      block.indexes[at[t]++] = static_cast<std::uint32_t>(next++);
      any = true;
    }
  }
}

void WorkMaker::make_ycsb(Phase& phase, const Ledger& ledger) {
  const std::uint64_t loaded = ledger.present();
  YcsbChooser chooser(ycsb_letter(phase.workload), loaded, options_.operations);
  phase.mixed = true;
  std::uint64_t next_fresh = ledger.used();
  for (std::uint64_t t = 0; t < options_.threads; ++t) {
    WorkBlock& block = phase.blocks[t];
    const std::uint64_t count = options_.operations * (t + 1) / options_.threads -
                                options_.operations * t / options_.threads;
    chooser.restart(stream(t));
    block.indexes.resize(count);
    block.kinds.resize(count);
    block.lengths.resize(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const YcsbRequest request = chooser.next();
      // Without gaps, a loaded record's position is its index.
      block.indexes[i] = static_cast<std::uint32_t>(
          request.position < loaded ? request.position : next_fresh + (request.position - loaded));
      block.kinds[i] = op_kind(request.operation);
      block.lengths[i] = static_cast<std::uint8_t>(request.scan_length);
    }
    next_fresh += chooser.inserted();
  }
}

void WorkMaker::fill_keys(Phase& phase) {
  for (WorkBlock& block : phase.blocks) {
    const std::size_t count = block.indexes.size();
    block.words.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      block.words[i] = phase.kind == OpKind::read_missing ? keys_.missing_word(block.indexes[i])
                                                          : keys_.word(block.indexes[i]);
    }
    if (!keys_.kind().is_string) continue;
    write_keys(block);
  }
}

// Keys lie one after the other. Only a sample tells how long they are together, so the arena may
// grow, and the views are made last.
void WorkMaker::write_keys(WorkBlock& block) const {
  const std::size_t count = block.words.size();
  const std::size_t most = keys_.max_length();
  const double likely = std::min(static_cast<double>(most), 1.02 * keys_.mean_length(count));
  block.arena.resize(static_cast<std::size_t>(likely * static_cast<double>(count)) + most);
  std::vector<std::uint32_t> lengths(count);
  std::size_t end = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (block.arena.size() - end < most) block.arena.resize(2 * end + most);
    lengths[i] = static_cast<std::uint32_t>(keys_.write(block.words[i], block.arena.data() + end));
    end += lengths[i];
  }
  block.bytes.resize(count);
  const char* at = block.arena.data();
  for (std::size_t i = 0; i < count; at += lengths[i++]) {
    block.bytes[i] = std::string_view(at, lengths[i]);
  }
}

void WorkMaker::commit(const Phase& phase, Ledger& ledger) {
  std::uint64_t added = 0;
  std::vector<std::uint32_t> updated;
  std::vector<std::uint32_t> erased;
  for (const WorkBlock& block : phase.blocks) {
    for (std::size_t i = 0; i < block.indexes.size(); ++i) {
      const OpKind kind = phase.mixed ? block.kinds[i] : phase.kind;
      if (kind == OpKind::insert || kind == OpKind::insert_many || kind == OpKind::tag) ++added;
      if (kind == OpKind::erase || kind == OpKind::erase_many) erased.push_back(block.indexes[i]);
      if (writes_values(kind)) updated.push_back(block.indexes[i]);
    }
  }
  ledger.add(added);
  ledger.update(updated, phase.generation);
  ledger.erase(erased);
}

}  // namespace perdure::bench
