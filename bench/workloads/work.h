// WorkMaker: makes all operations of a phase, with their keys, before the clock starts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/workloads/data.h"
#include "bench/workloads/keys.h"
#include "bench/workloads/ledger.h"
#include "bench/workloads/random.h"

namespace perdure::bench {

enum class Workload : std::uint8_t {
  load,
  insert,
  read,
  read_batch,
  read_missing,
  update,
  modify,
  erase,  // named "delete"
  insert_many,
  update_many,
  erase_many,  // named "delete_many"
  batch,
  scan,
  scan_mixed,
  churn,
  tag,
  read_version,
  history,
  snapshot,
  ycsb_a,
  ycsb_b,
  ycsb_c,
  ycsb_d,
  ycsb_e,
  ycsb_f,
};
std::string_view workload_name(Workload workload) noexcept;
// Parses a comma-separated list of names, which may be those of db_bench.
Result<std::vector<Workload>> parse_workloads(std::string_view list);
bool is_ycsb(Workload workload) noexcept;
// Whether it needs an engine that keeps order.
bool needs_order(Workload workload) noexcept;
// Whether it needs an engine that keeps versions.
bool needs_versions(Workload workload) noexcept;

enum class Distribution : std::uint8_t { uniform, zipfian, latest, sequential, clustered };
std::string_view distribution_name(Distribution distribution) noexcept;
Result<Distribution> parse_distribution(std::string_view name);

enum class OpKind : std::uint8_t {
  insert,
  read,
  read_batch,
  read_missing,
  update,
  modify,
  erase,
  insert_many,
  update_many,
  erase_many,
  batch,  // updates
  scan,
  read_modify_write,
  tag,  // an insert, then a tag
  read_version,
  history,
  snapshot,
};

inline constexpr std::uint64_t kScanLength = 50;
inline constexpr std::uint64_t kInsertOneIn = 10;  // of scan_mixed
inline constexpr std::uint64_t kBatchLength = 16;  // of read_batch
inline constexpr std::uint64_t kMostTogether = 4096;

// One thread's operations, in order. `bytes` is empty if keys are integers. `kinds` and `lengths`
// are empty if all operations have the phase's kind and length.
struct WorkBlock {
  std::vector<std::uint32_t> indexes;
  std::vector<std::uint64_t> words;
  std::vector<std::string_view> bytes;
  std::vector<OpKind> kinds;
  std::vector<std::uint8_t> lengths;
  std::vector<std::uint32_t> draws;  // chosen versions, as fractions of the range in 2^-32
  std::vector<char> arena;           // holds the memory of `bytes`

  std::size_t size() const noexcept { return words.size(); }
  KeyRef key(std::size_t i) const noexcept {
    return {.word = words[i], .bytes = bytes.empty() ? std::string_view{} : bytes[i]};
  }
};

struct Phase {
  Workload workload = Workload::load;
  OpKind kind = OpKind::read;  // unless the blocks have `kinds`
  bool mixed = false;
  std::uint64_t operations = 0;
  bool in_turn = false;          // new key number k is key k / t of block k % t, of t blocks
  std::uint64_t together = 1;    // operations of one call: of .._many, batch
  std::uint8_t generation = 0;   // of the values that it writes
  std::uint64_t untagged = 0;    // keys with lower indexes were present before the first tag
  std::uint64_t least_keys = 0;  // the fewest keys that a version can have, for snapshots
  std::uint64_t most_keys = 0;
  std::vector<WorkBlock> blocks;
};

struct WorkOptions {
  std::uint64_t records = 0;
  std::uint64_t operations = 0;
  std::uint32_t threads = 1;
  std::uint64_t together = 64;
  Distribution distribution = Distribution::uniform;
  // Each thread chooses from all keys that are present, not from a part of its own. New keys and
  // deletes stay distinct.
  bool shared = false;
  std::uint64_t seed = 0;
};

// The key scheme for a distribution and a list of workloads.
KeyScheme key_scheme(Distribution distribution, std::span<const Workload> workloads) noexcept;

class WorkMaker {
 public:
  WorkMaker(const WorkOptions& options, const KeySpace& keys) : options_(options), keys_(keys) {}

  // Makes the phase after all committed ones. It depends only on the seed and the phases before.
  Phase make(Workload workload, const Ledger& ledger);
  // Enters the effects of the phase into the ledger.
  static void commit(const Phase& phase, Ledger& ledger);

 private:
  void make_fresh(Phase& phase, const Ledger& ledger, std::uint64_t count);
  void make_chosen(Phase& phase, const Ledger& ledger);
  void make_churn(Phase& phase, const Ledger& ledger);
  void make_scan_mixed(Phase& phase, const Ledger& ledger);
  static void deal_inserts(Phase& phase, std::uint64_t next);
  void make_snapshots(Phase& phase, const Ledger& ledger);
  void draw_versions(Phase& phase) const;
  void make_ycsb(Phase& phase, const Ledger& ledger);
  std::vector<std::uint32_t> choose(const Ledger& ledger, std::uint64_t count, bool distinct,
                                    std::uint64_t thread = 0) const;
  // Splits positions [0, count) among the threads in contiguous blocks.
  template <class F>
  void split(Phase& phase, std::uint64_t count, F&& index_at);
  void fill_keys(Phase& phase);
  void write_keys(WorkBlock& block) const;
  std::uint64_t stream(std::uint64_t thread) const noexcept {
    return mix64(options_.seed + mix64((phase_ << 16) + thread));
  }

  WorkOptions options_;
  const KeySpace& keys_;
  std::uint64_t phase_ = 0;
  std::uint8_t generation_ = 0;
  std::optional<std::uint64_t> untagged_;  // set once there is a tag
};

// The keys that the phases insert.
std::uint64_t new_keys(const WorkOptions& options, std::span<const Workload> workloads) noexcept;

// Fails for lists that no pool can serve, such as reading before a load.
Result<void> validate_work(const WorkOptions& options, std::span<const Workload> workloads);

}  // namespace perdure::bench
