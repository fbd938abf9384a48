// The options and results of the distributed store (perdure/mpi.h), and what its templates call.
#pragma once

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // the C interface only
#endif
#include <mpi.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "perdure/perdure.h"

namespace perdure::mpi {

// How keys are assigned to pools. On media: never renumber.
enum class Partition : std::uint8_t {
  hash = 1,   // by a hash: even for any keys
  range = 2,  // by equal ranges of the integer, or of a string's first 8 bytes
};
// What open() does with the writes after the last version: it keeps them in the open version, or
// rolls back to the last version.
enum class Resume : std::uint8_t { keep_writes, last_version };
// How extract_snapshot() merges.
enum class Merge : std::uint8_t {
  recursive_doubling,  // the paper's OptMerge: log2 P rounds of pairwise merges by all threads
  naive,               // the paper's NaiveMerge: a gather, then one merge of P runs at the root
};

// The options of DistributedVersionedStore::open().
struct Options {
  Partition partition = Partition::hash;  // must match if the directory exists
  Resume resume = Resume::keep_writes;
  // Threads of a pairwise merge. 0: the cores of the machine, shared among those of its ranks that
  // merge.
  std::uint32_t merge_threads = 0;
  // Whether each pool has a copy at another rank (COPIES in mpi.h). Empty: as the store has it; a
  // new one has none. `true` makes the copies of a store that has none, `false` gives them up.
  std::optional<bool> copies = {};
  // A pool that is missing is made from its copy. Its writes after the last version are lost.
  bool restore_lost = false;
  // The most bytes in one message; longer ones are sent in pieces. 64 bytes to 1 GiB; equal on all
  // ranks.
  std::uint64_t max_message = 1_GiB;
  // Writes of one key and get_open() take keys of any rank, not only of their own: a thread of the
  // owner answers. Needs MPI_Init_thread with MPI_THREAD_MULTIPLE. Equal on all ranks.
  bool route = false;
  // Options of each pool. `mode` applies to the store: `existing` fails with not_found if no
  // rank has a store, create_new fails with exists if one has; read_only fails with
  // invalid_argument.
  PoolOptions pool = {};
};

// The durations, in nanoseconds, of the parts of an extract_snapshot() at this rank.
struct SnapshotTimes {
  std::uint64_t extract_ns = 0, transfer_ns = 0, merge_ns = 0;
};

namespace detail {

struct Kinds {
  bool bytes = false;  // keys and values are byte strings; otherwise 64-bit integers
};
struct Query {
  UntypedKey key;
  Version version = 0;
};
struct Result {
  std::size_t query = 0;
  UntypedValue value;
};
struct FreeBuffer {
  void operator()(void* buffer) const noexcept;
};
template <class T>
using Buffer = std::unique_ptr<T[], FreeBuffer>;

struct WordItem {
  std::uint64_t key, value;
};
// `head`: the first 8 bytes of the key, big-endian. The key is at `begin` of `bytes`, the value
// after it.
struct BytesItem {
  std::uint64_t head, begin;
  std::uint32_t key_bytes, value_bytes;
};
struct SnapshotData {
  Buffer<WordItem> words;
  Buffer<BytesItem> items;
  Buffer<char> bytes;
  std::uint64_t size = 0;   // at this rank
  std::uint64_t total = 0;  // in the store
  SnapshotTimes times;
};

class Core;
struct CloseCore {
  void operator()(Core* core) const noexcept;
};
using CorePointer = std::unique_ptr<Core, CloseCore>;

Expected<CorePointer> open_core(MPI_Comm comm, std::string_view directory, const Options& options,
                                Kinds kinds);
int rank_of(const Core& core) noexcept;
int ranks_of(const Core& core) noexcept;
std::uint64_t pools_of(const Core& core) noexcept;
int owner_of(const Core& core, const UntypedKey& key) noexcept;
// Calls of one rank. read_own() never sends a message.
Found write_one(Core& core, const UntypedMutation& mutation);
Found read_one(Core& core, const UntypedKey& key, FunctionRef<void(const UntypedValue&)> visit);
Found read_own(Core& core, const UntypedKey& key, FunctionRef<void(const UntypedValue&)> visit);
VersionRange versions_of(const Core& core) noexcept;
Expected<Version> tag(Core& core);
// The i-th mutation of this rank.
using MutationAt = FunctionRef<UntypedMutation(std::size_t i)>;
Status write_many(Core& core, std::size_t count, MutationAt at,
                  FunctionRef<void(std::size_t, const Found&)> done);
Expected<std::uint64_t> get_many(Core& core, int root, std::span<const Query> queries,
                                 FunctionRef<void(const Result&)> visit);
Status history(Core& core, int root, const UntypedKey& key, VisitUntypedVersion visit);
// How many entries the root has visited.
Expected<std::uint64_t> scan_at(Core& core, int root, Version version,
                                const UntypedScanOptions& options, VisitUntyped visit);
Expected<std::uint64_t> diff(Core& core, int root, Version from, Version to,
                             const UntypedScanOptions& options, VisitUntypedDifference visit);
template <class K>
UntypedScanOptions untyped(const ScanOptions<K>& options) noexcept {
  UntypedScanOptions out{.limit = options.limit, .reverse = options.reverse};
  if (options.from) out.from = perdure::detail::to_key(*options.from);
  if (options.to) out.to = perdure::detail::to_key(*options.to);
  if constexpr (std::same_as<K, std::string_view>) out.prefix = options.prefix;
  return out;
}
Status extract(Core& core, int root, Version version, Merge merge, SnapshotData& out);
Status roll_back(Core& core, Version version);
Status trim(Core& core, Version version);
Status close(Core& core);

}  // namespace detail

// The result of extract_snapshot(): the entries of a version in key order. The root has all of
// them, the other ranks have none. A copy in memory; views are valid as long as this object.
template <class K, class V>
class Snapshot {
 public:
  // DistributedVersionedStore::extract_snapshot() makes it.
  explicit Snapshot(detail::SnapshotData data) noexcept : data_(std::move(data)) {}
  // The number of entries at this rank.
  std::uint64_t size() const noexcept { return data_.size; }
  std::uint64_t total() const noexcept { return data_.total; }  // of the version, on every rank
  // How long its parts took at this rank.
  const SnapshotTimes& times() const noexcept { return data_.times; }
  // The i-th entry; i must be below size().
  std::pair<K, V> operator[](std::uint64_t i) const noexcept {
    if constexpr (std::same_as<K, std::string_view>) {
      const detail::BytesItem& item = data_.items[i];
      const char* key = data_.bytes.get() + item.begin;
      return {K(key, item.key_bytes), V(key + item.key_bytes, item.value_bytes)};
    } else {
      return {data_.words[i].key, data_.words[i].value};
    }
  }
  // Calls visit(key, value) for each entry at this rank, in key order.
  template <class F>
  void for_each(F&& visit) const {
    for (std::uint64_t i = 0; i < size(); ++i) {
      const auto [key, value] = (*this)[i];
      visit(key, value);
    }
  }

 private:
  detail::SnapshotData data_;
};

}  // namespace perdure::mpi
