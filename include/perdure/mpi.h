// DistributedVersionedStore<K, V>: an ordered map with versions, spread over the ranks of an MPI
// communicator. Link perdure::mpi; MPI_Init comes first, MPI_Finalize after the last store is gone.
//
//   auto store = perdure::mpi::IntegerStore::open(MPI_COMM_WORLD, "layers");   // collective
//   if (store->owner(42) == store->rank()) auto put = store->put(42, 7);   // Found
//   auto v = store->tag();                                                     // collective
//   auto was = store->get(42, *v);                                             // collective
//   auto all = store->extract_snapshot(*v);                                    // collective
//
// WHAT  One pool per rank, `directory/rank-00000.perdure` and so on, and a key in the pool of the
//   rank that owns it: by a hash of the key, or by equal ranges of it (Partition). Reads of closed
//   versions go to all ranks; writes are of the owner alone and cost no message.
// LAYOUT  Each pool has three maps: `data` (engine pskiplist); `mpi.versions`, version of the store
//   -> version of `data`; `mpi.manifest`: the run's id, its number of ranks, this pool's rank, the
//   partition, what keys and values are, whether all pools are complete, the rollback under way.
//   The ranks of a directory may be on one file system or each on their own.
// INVARIANTS
//   D1  A version v of the store exists if every rank's `mpi.versions` names it. So a tag is there
//       on all ranks or on none, wherever the run is killed.
//   D2  While the store is open all ranks have the same versions, [first, last] without a gap. What
//       one rank alone has named is taken back before its number can be used again.
//   D3  No pool is complete before all have their manifest; nothing is written before all are
//       complete. So a run that is killed while it creates the directory leaves no data behind.
//   D4  A rollback is written down by all ranks before the first one does it. So the next open can
//       tell whether it has to be finished, on all, or was never begun.
// COLLECTIVES  open, tag, get, get_many, extract_snapshot, rollback, trim and close are called by
//   all ranks, in the same order, with the same version; the queries of rank 0 count. They answer
//   the same on every rank: an error of one is an error of all, and names the rank. To destroy a
//   store that is not closed is collective, too.
// VERSIONS  Version 0 is the empty store. open() agrees: a version that some ranks closed and
//   others did not (killed between the two) is dropped; what was written stays in the open one.
//   With Resume::last_version the writes behind the last version are rolled back instead, so that
//   the ranks begin with one state. For a tag to be a consistent cut no writes may be in flight on
//   any rank between its begin and its end; otherwise each falls on either side.
// FAILURE  of one rank's pool (no space, no memory, poisoned), answered by all ranks:
//     tag       no version is added; what was written stays in the open one. If a rank could not
//               take back what it has written down, the store is of no more use.
//     rollback  not begun, and nothing is lost; or begun, and the store is of no more use. The
//               next open finishes what all have written down.
//     trim      some of the versions are forgotten, and the store is of no more use; or all are,
//               and the space of some is not given back: trim to the same version tries again.
//     get, extract_snapshot  nothing has happened.
//   After such a failure every collective, write and get_own returns `io`, on all ranks, until the
//   store is opened again; the next open says what is done of the call that failed. versions()
//   means nothing until then.
//   An error of MPI is answered as `io` by the ranks that meet it, for which the store is of no
//   more use. Others may wait for these for ever: a program that has such an answer ends the run
//   (MPI_Abort).
//   A killed rank is no error of a call: in OpenMPI 4, which has no ULFM, the others are not told.
//   mpirun ends them, names the rank and the signal on stderr, and its exit status is not 0. The
//   next run of as many ranks opens every pool at the agreed version.
//   A pool that is missing, of another run, of another number of ranks or at another rank's place
//   is refused by all ranks, and nothing is changed.
// THREADS  Writes, get_own and owner: any number, beside collectives too, but for rollback and
//   close. Collectives and versions(): one thread of each rank at a time (MPI_THREAD_FUNNELED, if
//   it is the one that called MPI_Init).
// COST  n queries, P ranks: get: a broadcast and an all-reduce; byte strings: a broadcast of the
//   values, too. tag: an all-reduce. extract_snapshot: log2 P rounds (docs/design/mpi.md).
#pragma once

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1  // the C interface only
#endif
#include <mpi.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "perdure/perdure.h"

namespace perdure::mpi {

// Who owns a key. On media: never renumber.
enum class Partition : std::uint8_t {
  hash = 1,   // evenly, whatever the keys
  range = 2,  // equal ranges of the integer, or of a string's first 8 bytes: neighbours together
};
// What open() does with writes behind the last version.
enum class Resume : std::uint8_t { keep_writes, last_version };
enum class Merge : std::uint8_t {
  recursive_doubling,  // the paper's OptMerge: log2 P rounds of merges of two, by all threads
  naive,               // gather, then one merge of P at rank 0
};

struct Options {
  Partition partition = Partition::hash;  // must match if the directory exists
  Resume resume = Resume::keep_writes;
  // Of a pairwise merge. 0: the cores of the machine, shared among those of its ranks that merge.
  std::uint32_t merge_threads = 0;
  // Larger messages are cut into pieces of so many bytes; 64 bytes to 1 GiB.
  std::uint64_t max_message = 1_GiB;
  // Of every rank's pool. `mode` is the store's: `existing` fails with not_found if no rank has a
  // store, create_new with exists if one has; read_only is refused with invalid_argument.
  PoolOptions pool = {};
};

// What an extract_snapshot took at this rank.
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
struct Answer {
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
// `head`: the first 8 bytes of the key, big-endian. Key and value lie at `begin` of `bytes`.
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
int owner_of(const Core& core, const UntypedKey& key) noexcept;
// Of a write or read of this rank alone.
Status refused(const Core& core, const UntypedKey& key) noexcept;
UntypedMap& data_of(Core& core) noexcept;
VersionRange versions_of(const Core& core) noexcept;
Expected<Version> tag(Core& core);
Expected<std::uint64_t> get_many(Core& core, std::span<const Query> queries,
                                 FunctionRef<void(const Answer&)> visit);
Status extract(Core& core, Version version, Merge merge, SnapshotData& out);
Status roll_back(Core& core, Version version);
Status trim(Core& core, Version version);
Status close(Core& core);

}  // namespace detail

// The entries of a version in key order: at rank 0 all of them, at the others none.
template <class K, class V>
class Snapshot {
 public:
  explicit Snapshot(detail::SnapshotData data) noexcept : data_(std::move(data)) {}
  std::uint64_t size() const noexcept { return data_.size; }
  std::uint64_t total() const noexcept { return data_.total; }  // on every rank
  const SnapshotTimes& times() const noexcept { return data_.times; }
  std::pair<K, V> operator[](std::uint64_t i) const noexcept {
    if constexpr (std::same_as<K, std::string_view>) {
      const detail::BytesItem& item = data_.items[i];
      const char* key = data_.bytes.get() + item.begin;
      return {K(key, item.key_bytes), V(key + item.key_bytes, item.value_bytes)};
    } else {
      return {data_.words[i].key, data_.words[i].value};
    }
  }
  // Calls visit(key, value) in order.
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

// K and V: both std::uint64_t, or both std::string_view.
template <class K, class V>
  requires(std::same_as<K, V> &&
           (std::same_as<K, std::uint64_t> || std::same_as<K, std::string_view>))
class DistributedVersionedStore {
 public:
  using Owned = perdure::Owned<V>;
  struct Query {
    K key;
    Version version;
  };

  // Collective. Opens or creates. Errors: those of Pool::open; not_found: a pool is missing;
  // invalid_argument: the directory is of another number of ranks, or its pools do not belong
  // together, or to this partition; io: MPI.
  static Expected<DistributedVersionedStore> open(MPI_Comm comm, std::string_view directory,
                                                  const Options& options = {}) {
    auto core = detail::open_core(comm, directory, options, {std::same_as<K, std::string_view>});
    if (!core) return fail(std::move(core.error()));
    return DistributedVersionedStore(std::move(*core));
  }

  int rank() const noexcept { return detail::rank_of(*core_); }
  int ranks() const noexcept { return detail::ranks_of(*core_); }
  int owner(const K& key) const noexcept {
    return detail::owner_of(*core_, perdure::detail::to_key(key));
  }

  // Of keys that this rank owns; with others they fail with invalid_argument. As those of
  // VersionedMap, and `io` after a failure that needs the store to be opened again (FAILURE).
  Found put(const K& key, const V& value) {
    return own(key, [&](UntypedMap& data, const UntypedKey& k) {
      return data.put(k, perdure::detail::to_value(value));
    });
  }
  Found insert(const K& key, const V& value) {
    return own(key, [&](UntypedMap& data, const UntypedKey& k) {
      return data.insert(k, perdure::detail::to_value(value));
    });
  }
  Found update(const K& key, const V& value) {
    return own(key, [&](UntypedMap& data, const UntypedKey& k) {
      return data.update(k, perdure::detail::to_value(value));
    });
  }
  Found erase(const K& key) {
    return own(key, [&](UntypedMap& data, const UntypedKey& k) { return data.erase(k); });
  }
  // A copy of the value that the key has in the open version, or nothing.
  Expected<std::optional<Owned>> get_own(const K& key) {
    std::optional<Owned> out;
    auto found = own(key, [&](UntypedMap& data, const UntypedKey& k) {
      return data.read(k, [&](const UntypedValue& value) { assign(out, value); });
    });
    if (!found.ok()) return fail(std::move(found).status());
    return out;
  }

  // The closed versions, the same on every rank. A new store has version 0, which is empty. After
  // close() those that it had.
  VersionRange versions() const noexcept { return detail::versions_of(*core_); }

  // Collective. Closes the open version on all ranks or, with an error, on none.
  Expected<Version> tag() { return detail::tag(*core_); }

  // Collective: rank 0 asks, all are told. What the others pass is not looked at.
  Expected<std::optional<Owned>> get(const K& key, Version version) {
    const detail::Query query{perdure::detail::to_key(key), version};
    std::optional<Owned> out;
    auto found = detail::get_many(*core_, std::span(&query, 1),
                                  [&](const detail::Answer& answer) { assign(out, answer.value); });
    if (!found) return fail(std::move(found.error()));
    return out;
  }
  // Collective: many queries in one broadcast and one reduction. Answers in the order of rank 0's
  // queries, on every rank.
  Expected<std::vector<std::optional<Owned>>> get_many(std::span<const Query> queries) {
    std::vector<detail::Query> raw;
    std::vector<std::optional<Owned>> out;
    if (rank() == 0) {
      for (const Query& q : queries) raw.push_back({perdure::detail::to_key(q.key), q.version});
    }
    auto asked = detail::get_many(*core_, raw, [&](const detail::Answer& answer) {
      if (out.size() <= answer.query) out.resize(answer.query + 1);
      assign(out[answer.query], answer.value);
    });
    if (!asked) return fail(std::move(asked.error()));
    out.resize(*asked);
    return out;
  }

  // Collective. The entries of a version, merged, at rank 0.
  Expected<Snapshot<K, V>> extract_snapshot(Version version,
                                            Merge merge = Merge::recursive_doubling) {
    detail::SnapshotData data;
    if (Status s = detail::extract(*core_, version, merge, data); !s.ok())
      return fail(std::move(s));
    return Snapshot<K, V>(std::move(data));
  }

  // Collective. Makes the state of that version the present one and the last; later versions and
  // what was written since are lost. No write in flight.
  Status rollback(Version version) { return detail::roll_back(*core_, version); }
  // Collective. Forgets the versions below this one. Cut short, it is finished by the next open as
  // soon as one rank has begun it.
  Status trim(Version version) { return detail::trim(*core_, version); }
  // Collective. Closes the pools; afterwards only destruction is allowed. The destructor does it
  // too, but says nothing of errors.
  Status close() { return detail::close(*core_); }

 private:
  explicit DistributedVersionedStore(detail::CorePointer core) noexcept : core_(std::move(core)) {}

  template <class F>
  Found own(const K& key, F&& call) {
    const UntypedKey k = perdure::detail::to_key(key);
    if (Status s = detail::refused(*core_, k); !s.ok()) return s;
    return call(detail::data_of(*core_), k);
  }
  static void assign(std::optional<Owned>& out, const UntypedValue& value) {
    out.emplace(perdure::detail::from_value<V>(value));
  }

  detail::CorePointer core_;
};

using IntegerStore = DistributedVersionedStore<std::uint64_t, std::uint64_t>;
using BytesStore = DistributedVersionedStore<std::string_view, std::string_view>;

}  // namespace perdure::mpi
