// LocalPool: the pool of one rank, and the steps of the protocol that the rank does alone.
//
// WHAT  The pool with its three maps (LAYOUT in perdure/mpi.h), and the versions of the store in
//   DRAM. One store commits a step: it may be cut short before or after that store, and repeated. A
//   step that has returned survives a kill, and what the pool's durability names; in `buffered` it
//   survives a power failure once make_durable() has returned.
// INVARIANTS (of one rank; those of the store are in perdure/mpi.h)
//   mpi.L1  `mpi.versions` holds [first, last] without a gap. name() appends; forget_above()
//       removes from the end and forget_below() from the beginning, one by one.
//   mpi.L2  A version that is named is closed in `data` and readable there: data is trimmed only
//       below what forget_below() has left, and rolled back only to what forget_above() has left.
// Thread safety: one thread, except `data`: any number.
#pragma once

#include <optional>

#include "mpi/comm.h"
#include "util/containers.h"
#include "util/path.h"

namespace perdure::mpi::detail {

// The run that a pool belongs to. Equal on all its ranks, except `rank`.
struct Manifest {
  std::uint64_t run = 0;
  std::uint64_t ranks = 0;
  std::uint64_t rank = 0;
  std::uint64_t partition = 0;
  std::uint64_t kinds = 0;
  bool complete = false;  // all pools of the run have their manifest

  static constexpr std::uint64_t kIntegers = 1, kBytes = 2;  // kinds; on media
};

class LocalPool {
 public:
  // Opens the rank's file if it exists, and reads its manifest. Creates nothing. `present`: it
  // exists.
  Status look(std::string_view directory, int rank, const PoolOptions& options,
              bool& present) noexcept;
  // Creates what is missing: the file, the maps, a manifest that is not complete, and version 0.
  // Redoes what an earlier run may have begun.
  Status create(std::string_view directory, const PoolOptions& options,
                const Manifest& manifest) noexcept;
  Status open_data(Kinds kinds) noexcept;
  Status complete() noexcept { return put(kComplete, 1); }

  // Empty if the pool has no manifest, or only a part of it.
  const std::optional<Manifest>& manifest() const noexcept { return manifest_; }
  const char* path() const noexcept { return path_.c_str(); }
  UntypedMap& data() noexcept { return *data_; }

  VersionRange versions() const noexcept { return range_; }
  // The version of `data` of a version that versions() contains.
  Version local(Version version) const noexcept { return local_[version - base_]; }
  // The version of the store that has what was written in this version of `data`: the first one
  // whose own is not lower. Behind versions() if the next tag will be the first to have it.
  Version containing(Version local) const noexcept;

  // Names a version. After an error the name may be on the medium nevertheless; forget_above()
  // erases it.
  Status name(Version version, Version local) noexcept;
  Status forget_above(Version version) noexcept;
  Status forget_below(Version version) noexcept;
  // The last rollback that this rank has recorded. It is `pending` until the rank has performed it.
  struct Rollback {
    std::uint64_t number = 0;
    bool pending = false;
    Version version = 0;  // of a pending rollback
  };
  Expected<Rollback> last_rollback() noexcept;
  Status begin_rollback(std::uint64_t number, Version version) noexcept;
  Status end_rollback(std::uint64_t number) noexcept { return put(kRollback, 2 * number); }
  Status roll_back(Version version) noexcept { return data().rollback(local(version)); }

  // Returns when all that this rank has done, and what its open has found, survives the failures
  // that the pool's durability names. Without a pool, and except in `buffered`, it does at once.
  Status make_durable() noexcept;
  Status close() noexcept;

 private:
  using Words = Map<std::uint64_t, std::uint64_t>;
  using OrderedWords = OrderedMap<std::uint64_t, std::uint64_t>;
  // Keys of `mpi.manifest`. On media: never renumber.
  using Field = std::uint64_t;
  static constexpr Field kFormat = 1, kRun = 2, kRanks = 3, kRank = 4, kPartition = 5, kKinds = 6,
                         kComplete = 7, kRollback = 8, kRollbackVersion = 9;
  static constexpr std::uint64_t kFormatVersion = 0;

  Status set_path(std::string_view directory, int rank) noexcept;
  void take(Pool pool) noexcept;
  Status put(Field field, std::uint64_t value) noexcept;
  Status read_manifest() noexcept;
  Status read_versions() noexcept;

  PathText path_;
  std::optional<Pool> pool_;
  bool cuts_ = false;  // the pool's durability is `buffered`
  std::optional<Words> fields_;
  std::optional<OrderedWords> names_;
  std::optional<UntypedMap> data_;  // an engine with versions
  std::optional<Manifest> manifest_;
  VersionRange range_ = {.first = 1, .last = 0};
  Array<Version> local_;  // of base_, base_ + 1, ..; only those in range_ count
  Version base_ = 0;
};

}  // namespace perdure::mpi::detail
