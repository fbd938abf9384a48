// DistributedVersionedStore<K, V>: an ordered map with versions, spread over the ranks of an MPI
// communicator. Link perdure::mpi. Call MPI_Init before the first open (MPI_Init_thread for
// Options::route), and MPI_Finalize after the last store is destroyed.
//
//   auto store = perdure::mpi::IntegerStore::open(MPI_COMM_WORLD, "layers");   // collective
//   if (store->owner(42) == store->rank()) auto put = store->put(42, 7);       // Found
//   auto done = store->write_many(mutations);                                  // collective
//   auto v = store->tag();                                                     // collective
//   auto was = store->get(42, *v);                                             // collective
//   auto all = store->extract_snapshot(*v);                                    // collective
//
// WHAT  The distributed part of Nicolae (IPDPS 2022, section IV.A). A store has as many pools as
//   ranks created it: `directory/rank-00000.perdure` and so on. A key lives in one of them, by a
//   hash of the key or by equal ranges of the keys (Partition). The rank that serves the pool owns
//   the key. Reads of closed versions involve all ranks. A write of one key is a call of its owner,
//   and sends no message. write_many() takes keys of any owner from any rank. With Options::route
//   writes of one key and get_open() do so, too: the owner is asked, and a thread of it answers.
// RANKS  Any number of ranks can open the store. Each open gives the pools to the ranks in order,
//   in even blocks. With more ranks than pools some ranks serve none, and own no key. They take
//   part in collectives as the others do. The number of pools never changes. A store is created
//   with more pools than ranks only where a creation by more ranks was killed and left their files.
//   The ranks may share a file system or have one each. A pool whose file the rank of its block
//   does not see goes to the lowest rank that sees it.
// LAYOUT  Each pool has three maps. `data` (engine pskiplist) has its keys. `mpi.versions` maps
//   each version of the store to the version of `data`. `mpi.manifest` holds the id of the run that
//   created the store, the number of pools, that of this pool, the partition, the types of keys and
//   values, whether all pools are complete, whether they have copies, and a rollback under way. A
//   copy, `copy-00000.perdure`, has the same maps.
// COPIES  With Options::copies each pool has a copy at another rank: on another machine, if there
//   is one. A copy has the closed versions of its pool. So if a node is lost, with its pools and
//   the copies that it had, no version is lost whose tag has returned. The next open is told so by
//   Options::restore_lost, because the files may also only be elsewhere, and not to be used again.
//   It makes each pool that is missing from its copy, on the rank that serves it then. What was
//   written to a lost pool after the last version is lost; Resume::last_version makes the others
//   begin there, too. history() lacks entries that wrote the value that the key had. Copies that
//   are missing are made again by every open.
//   Whether a store has copies is kept in it: later opens need not say so. If a file comes back
//   that was away while the store went on without it, a copy is made again, and a pool is refused
//   as an older one (`corruption`): remove it, or the newer one. With one rank both lie together.
// INVARIANTS
//   D1  A version v of the store exists if `mpi.versions` of every pool names it, or that of its
//       copy if the pool is lost. So a tag exists in all pools or in none, wherever the run is
//       killed.
//   D2  While the store is open, all pools have the same versions, first to last without a gap. A
//       version that only some pools have named is taken back before its number is used again.
//   D3  No pool is complete before all pools have their manifest, and nothing is written before all
//       pools are complete. So a run that is killed while it creates the directory leaves no data.
//   D4  All pools record a rollback before the first one performs it. So the next open knows
//       whether it must be finished in all pools or was never begun.
//   D5  No rank acts on, and no collective returns, what a failure could take back from another
//       pool, as far as its durability goes.
// COLLECTIVES  All ranks must call open, write_many, tag, get, get_many, history, scan_at, diff,
//   extract_snapshot, rollback, trim and close, in the same order. Each rank passes mutations of
//   its own to write_many. All ranks pass the same version to extract_snapshot, rollback and trim.
//   get, get_many, history, scan_at, diff and extract_snapshot have a `root`, rank 0 by default.
//   All ranks must pass the same one: that is not checked, as in MPI. Of the first five only the
//   other arguments of the root count. All ranks return the same result: an error of one rank is
//   returned by all and names that rank. Destroying a store that is not closed is also collective.
// VERSIONS  Version 0 is the empty store. open() drops a version that some ranks closed and others
//   did not, because the run was killed in between; the writes of that version stay in the open
//   one. With Resume::last_version, open() also rolls back the writes after the last version, so
//   that all ranks begin with one state. A tag is a consistent cut if no rank writes between its
//   begin and its end; otherwise each write falls on either side. What a rank wrote before it calls
//   tag() is in the version, whichever rank owns the key.
// DURABILITY  That of the pools; ranks may differ in it. Writes of one key promise what the pool's
//   mode promises. In `buffered` open() and a collective that changes the store end with a cut of
//   every pool: they return when what all ranks did before it, writes of one key too, survives a
//   power failure. So if the power of any machines fails and all ranks are killed, the next open
//   finds every version, rollback and trim that has returned. Ranks whose machine went down lack
//   only writes after that; the others lack nothing. A version that not all ranks had in a cut is
//   dropped as after a kill, and PoolOptions::log says so. An open whose pool lost its live image
//   without a power failure needs accept_untrusted (Pool::open), and then does the same.
// FAILURE  The pool of one rank fails (no space, no memory, poisoned). All ranks return the error:
//     tag       No version is added, also if a copy has failed; the writes stay in the open
//               version. If a rank cannot take back what it has recorded, the store must be
//               reopened.
//     rollback  Either it was not begun and nothing is lost, or it was begun. If it was begun, or
//               if a rank cannot take back what it has recorded, the store must be reopened. The
//               next open finishes a rollback that all ranks have recorded.
//     trim      Either some of the versions are forgotten, and the store must be reopened. Or all
//               are forgotten, and some space is not freed; trim to the same version tries again.
//     write_many  Either its callback was called for every mutation, on all ranks. The results say
//               which were applied; one that failed did not keep others from being tried. Or it was
//               called on no rank, and nothing was applied, unless MPI failed. The store continues.
//               With an error of the log of a `buffered` pool, what was applied may be lost with
//               the machine.
//     get, get_many, history, scan_at, diff, extract_snapshot  Nothing has changed. `visit` may
//               have been called.
//     If the store must be reopened, every later collective, write, get_open and get_own returns
//     `io` on all ranks until they have opened it again, and versions() has no meaning. The next
//     open decides the outcome of the call that failed.
//     The owner of a key fails in a call of another rank (Options::route). That call returns the
//     error as a call of the owner would, with the owner's name. Nothing else has happened.
//     If an MPI call fails, the rank where it failed returns `io` from then on. Its write at
//     another rank may have been done. Other ranks may wait for it forever. So a program that gets
//     such an error must end the run (MPI_Abort).
//     A killed rank is no error of a call: OpenMPI 4 has no ULFM and does not tell the others.
//     mpirun ends them, names the rank and the signal on stderr, and its exit status is not 0. The
//     next run, of any number of ranks, opens every pool at the agreed version.
//     All ranks refuse a store with a pool that is missing (but see COPIES), that has another
//     pool's name, or that belongs to another run. Nothing is changed then.
// THREADS  Any number of threads may call writes of one key, get_open, get_own and owner, also
//   beside a collective, except rollback and close. One thread of each rank at a time may call
//   collectives and versions(). With MPI_THREAD_FUNNELED this is the thread that called MPI_Init.
//   Options::route needs MPI_THREAD_MULTIPLE. Each rank with pools then has one more thread, and 64
//   threads of a rank can ask other ranks at once; others wait. A rank need not call anything to
//   answer, until it closes or destroys the store, which waits for all ranks to do so.
// COST  n queries, P ranks with a pool each. get, get_many: a broadcast and an all-reduce; for byte
//   strings also a broadcast of the values. write_many: an all-to-all of sizes, two messages for
//   each pair of ranks, three all-reduces. history: a broadcast of the key; for each 48 KiB of
//   entries a broadcast and an all-reduce. scan_at, diff: a broadcast of the range, three messages
//   for each 48 KiB of a rank, two all-reduces. tag: an all-reduce; with copies each pool reads all
//   its keys, and each 48 KiB of what has changed take an all-to-all of sizes, a message and an
//   all-reduce. extract_snapshot: log2 P rounds
//   (docs/design/mpi.md). In `buffered` also one write of the log, on all ranks at once: tag, trim
//   and write_many one each, rollback two; one more for the first tag of a run and one in 4,096.
//   A rank with several pools does the work of each, and writes their logs one after the other.
//   With Options::route a call for a key of another rank is two messages, and one more for each 64
//   KiB of a value. One thread of the owner does these calls one after the other. The first one
//   after a pause waits until that thread has napped, for up to 1 ms. It takes a few percent of a
//   core while nothing comes, because calls of MPI wait by polling. tag, trim and history have one
//   more all-reduce.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "perdure/mpi_types.h"

namespace perdure::mpi {

// K and V are both std::uint64_t or both std::string_view.
template <class K, class V>
  requires(std::same_as<K, V> &&
           (std::same_as<K, std::uint64_t> || std::same_as<K, std::string_view>))
class DistributedVersionedStore {
 public:
  // What a read returns: std::uint64_t or std::string.
  using Owned = perdure::Owned<V>;
  // A key and the version in which get_many() looks it up.
  struct Query {
    K key;
    Version version;
  };
  // A mutation of write_many().
  using Mutation = perdure::Mutation<K, V>;

  // Collective. Opens or creates the store in `directory`, which is created if it is absent.
  // Recovers and agrees on the versions, see VERSIONS. All ranks must pass the same partition,
  // mode, resume, max_message, route, copies and restore_lost.
  // Errors: those of Pool::open(); not_found (a pool is missing); invalid_argument (the options
  // differ; the directory has another partition or other types; its pools do not belong together;
  // MPI is not running; `route` without MPI_THREAD_MULTIPLE); corruption (also: the pools have no
  // state in common, because one is an older copy); io (MPI failed).
  static Expected<DistributedVersionedStore> open(MPI_Comm comm, std::string_view directory,
                                                  const Options& options = {}) {
    auto core = detail::open_core(comm, directory, options, {std::same_as<K, std::string_view>});
    if (!core) return fail(std::move(core.error()));
    return DistributedVersionedStore(std::move(*core));
  }

  // This rank, the number of ranks and of pools, and the rank that owns a key in this run. No
  // communication.
  int rank() const noexcept { return detail::rank_of(*core_); }
  int ranks() const noexcept { return detail::ranks_of(*core_); }
  std::uint64_t pools() const noexcept { return detail::pools_of(*core_); }
  int owner(const K& key) const noexcept {
    return detail::owner_of(*core_, perdure::detail::to_key(key));
  }

  // Writes, get_open() and get_own() take a key that this rank owns, communicate nothing, and fail
  // with invalid_argument on others. With Options::route all but get_own() take any key: for that
  // of another rank they ask its owner, and wait. They are those of VersionedMap, as durable when
  // they return.
  // Errors: also io if the store must be reopened (FAILURE).
  Found put(const K& key, const V& value) { return write(MutationKind::put, key, value); }
  Found insert(const K& key, const V& value) { return write(MutationKind::insert, key, value); }
  Found update(const K& key, const V& value) { return write(MutationKind::update, key, value); }
  Found erase(const K& key) { return write(MutationKind::erase, key, {}); }
  // Returns a copy of the value that the key has in the open version, or nothing if it is absent.
  Expected<std::optional<Owned>> get_open(const K& key) { return get_by(detail::read_one, key); }
  // The same of a key that this rank owns. Never sends a message.
  Expected<std::optional<Owned>> get_own(const K& key) { return get_by(detail::read_own, key); }

  // Collective. Does the mutations of all ranks, of any keys. Each rank passes its own, or none.
  // The owners apply them: by rank, and those of one rank in their order. So of two ranks that put
  // one key, the higher rank's value stays. When it returns, on any rank, what succeeded is durable
  // on all. Calls done(i, found) in order on the rank that passed them, where `found` is what the
  // single call would have returned at the owner; an error has no message.
  // Returns ok if the mutations of all ranks succeeded, otherwise an error, see FAILURE. Needs
  // memory for the mutations of this rank and for those that it gets.
  template <class F>
  Status write_many(std::span<const Mutation> mutations, F&& done) {
    const auto at = [&](std::size_t i) {
      const Mutation& m = mutations[i];
      return UntypedMutation{m.kind, perdure::detail::to_key(m.key),
                             perdure::detail::to_value(m.value)};
    };
    return detail::write_many(*core_, mutations.size(), at, done);
  }
  Status write_many(std::span<const Mutation> mutations) {
    return write_many(mutations, [](std::size_t, const Found&) {});
  }

  // The closed versions, the same on every rank. A new store has version 0, which is empty. After
  // close(): the versions that the store had.
  VersionRange versions() const noexcept { return detail::versions_of(*core_); }

  // Collective. Closes the open version on all ranks and returns its number. With an error it is
  // closed on none.
  Expected<Version> tag() { return detail::tag(*core_); }

  // Collective. Returns the value that the key of the root had in the version of the root, on all
  // ranks. These arguments of other ranks are ignored.
  // Errors: invalid_argument if the version cannot be read, or the root is not a rank.
  Expected<std::optional<Owned>> get(const K& key, Version version, int root = 0) {
    const detail::Query query{perdure::detail::to_key(key), version};
    std::optional<Owned> out;
    auto found = detail::get_many(*core_, root, std::span(&query, 1),
                                  [&](const detail::Result& result) { assign(out, result.value); });
    if (!found) return fail(std::move(found.error()));
    return out;
  }
  // Collective. As get() for many queries of the root, in one broadcast and one reduction. Returns
  // the values in the order of the queries, on all ranks.
  Expected<std::vector<std::optional<Owned>>> get_many(std::span<const Query> queries,
                                                       int root = 0) {
    std::vector<detail::Query> raw;
    std::vector<std::optional<Owned>> out;
    if (rank() == root) {
      for (const Query& q : queries) raw.push_back({perdure::detail::to_key(q.key), q.version});
    }
    auto count = detail::get_many(*core_, root, raw, [&](const detail::Result& result) {
      if (out.size() <= result.query) out.resize(result.query + 1);
      assign(out[result.query], result.value);
    });
    if (!count) return fail(std::move(count.error()));
    out.resize(*count);
    return out;
  }

  // Collective. Calls visit(version, value) on all ranks for every version in which the key of the
  // root was written, the oldest first. `value` is a const std::optional<V>&, empty where the key
  // was removed; a removal of a key that the version before did not have is left out. The open
  // version is included: its number is the one that the next tag() returns, one above
  // versions().last. What trim() has forgotten is left out: the entry of versions().first is what
  // the key had there, whenever it was written. `visit` returns void, or bool where false ends the
  // calls on this rank. Views end with the callback. Every rank needs memory for the largest entry.
  template <class F>
  Expected<void> history(const K& key, F&& visit, int root = 0) {
    return expected(detail::history(*core_, root, perdure::detail::to_key(key),
                                    [&](Version version, const std::optional<UntypedValue>& value) {
                                      return perdure::detail::goes_on(
                                          visit, version, perdure::detail::typed<V>(value));
                                    }));
  }

  // Collective. Calls visit(key, value) on the root for every entry of the range in the version, in
  // key order. The arguments of the root count, and `options` are those of VersionedMap::scan_at().
  // `visit` returns void, or bool where false ends the scan on all ranks; it must not call this
  // store's collectives. Returns how many entries were visited, on all ranks. The root needs 64 KiB
  // for each pool, or the size of its largest entry. With Partition::range it needs this once, and
  // asks only the ranks whose keys it visits. Every rank needs as much for each pool that it
  // serves.
  // Errors: invalid_argument if the version cannot be read; out_of_memory.
  template <class F>
  Expected<std::uint64_t> scan_at(Version version, const ScanOptions<K>& options, F&& visit,
                                  int root = 0) {
    return detail::scan_at(*core_, root, version, detail::untyped(options),
                           [&](const UntypedKey& key, const UntypedValue& value) {
                             return perdure::detail::goes_on(visit,
                                                             perdure::detail::from_key<K>(key),
                                                             perdure::detail::from_value<V>(value));
                           });
  }
  // Collective. Calls visit(key, before, after) on the root for every key of the range whose value
  // differs between the two versions, in key order. Both are const std::optional<V>&, empty where
  // the key was absent. As scan_at().
  template <class F>
  Expected<void> diff(Version from, Version to, const ScanOptions<K>& options, F&& visit,
                      int root = 0) {
    auto done =
        detail::diff(*core_, root, from, to, detail::untyped(options),
                     [&](const UntypedKey& key, const std::optional<UntypedValue>& before,
                         const std::optional<UntypedValue>& after) {
                       return perdure::detail::goes_on(visit, perdure::detail::from_key<K>(key),
                                                       perdure::detail::typed<V>(before),
                                                       perdure::detail::typed<V>(after));
                     });
    return expected(done ? Status() : std::move(done.error()));
  }

  // Collective. Returns the entries of a version, merged at the root; the paper's extract_snapshot.
  // The root needs memory for twice the entries.
  // Errors: invalid_argument if the version cannot be read; out_of_memory.
  Expected<Snapshot<K, V>> extract_snapshot(Version version,
                                            Merge merge = Merge::recursive_doubling, int root = 0) {
    detail::SnapshotData data;
    if (Status s = detail::extract(*core_, root, version, merge, data); !s.ok())
      return fail(std::move(s));
    return Snapshot<K, V>(std::move(data));
  }

  // Collective. Makes the state of `version` the present one, and `version` the last one. Later
  // versions and later writes are lost. No write may be in flight.
  // Errors: invalid_argument if the version cannot be read.
  Status rollback(Version version) { return detail::roll_back(*core_, version); }
  // Collective. Forgets the versions below `version` and frees the space that only they needed. If
  // it is interrupted after one rank has begun it, the next open finishes it.
  // Errors: invalid_argument if the version cannot be read.
  Status trim(Version version) { return detail::trim(*core_, version); }
  // Collective. Closes the pools. Afterwards the store may only be destroyed. The destructor closes
  // too, but cannot report an error.
  Status close() { return detail::close(*core_); }

 private:
  explicit DistributedVersionedStore(detail::CorePointer core) noexcept : core_(std::move(core)) {}

  Found write(MutationKind kind, const K& key, const V& value) {
    return detail::write_one(
        *core_, {kind, perdure::detail::to_key(key), perdure::detail::to_value(value)});
  }
  template <class Read>
  Expected<std::optional<Owned>> get_by(Read read, const K& key) {
    std::optional<Owned> out;
    auto found = read(*core_, perdure::detail::to_key(key),
                      [&](const UntypedValue& value) { assign(out, value); });
    if (!found.ok()) return fail(std::move(found).status());
    return out;
  }
  static Expected<void> expected(Status status) {
    if (!status.ok()) return fail(std::move(status));
    return {};
  }
  static void assign(std::optional<Owned>& out, const UntypedValue& value) {
    out.emplace(perdure::detail::from_value<V>(value));
  }

  detail::CorePointer core_;
};

// The two stores that there are: of integers, and of byte strings.
using IntegerStore = DistributedVersionedStore<std::uint64_t, std::uint64_t>;
using BytesStore = DistributedVersionedStore<std::string_view, std::string_view>;

}  // namespace perdure::mpi
