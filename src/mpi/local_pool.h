// LocalPool: what one rank has on its medium, and the steps of the protocol that it does alone.
//
// WHAT  The pool with its three maps (perdure/mpi.h, LAYOUT), in DRAM the versions of the store.
//   Every step is durable when it returns, and one store commits it: each can be cut off before or
//   after, and be done again.
// INVARIANTS (of one rank; the store's are in perdure/mpi.h)
//   mpi.L1  `mpi.versions` holds [first, last] without a gap. name() appends; forget_above()
//       removes from the end, forget_below() from the beginning, one by one.
//   mpi.L2  A version that is named is closed in `data`, and readable there: data is trimmed only
//       below what forget_below() has left, rolled back only to what forget_above() has left.
// Thread safety: one thread; `data` any number.
#pragma once

#include <optional>

#include "mpi/comm.h"
#include "util/containers.h"
#include "util/path.h"

namespace perdure::mpi::detail {

// What kind of run a pool belongs to. The same on all its ranks, but for `rank`.
struct Manifest {
  std::uint64_t run = 0;
  std::uint64_t ranks = 0;
  std::uint64_t rank = 0;
  std::uint64_t partition = 0;
  std::uint64_t kinds = 0;
  bool complete = false;  // all pools of the run are there

  static constexpr std::uint64_t kIntegers = 1, kBytes = 2;  // kinds; on media
};

class LocalPool {
 public:
  // The rank's file. Creates nothing; `present` says whether there is one.
  Status look(std::string_view directory, int rank, const PoolOptions& options,
              bool& present) noexcept;
  // Makes what is missing, with a manifest that is not complete, and version 0. Repeats what an
  // earlier run may have begun.
  Status create(std::string_view directory, const PoolOptions& options,
                const Manifest& manifest) noexcept;
  Status open_data(Kinds kinds) noexcept;
  Status complete() noexcept { return put(kComplete, 1); }

  // Nothing if the pool has none, or not all of it.
  const std::optional<Manifest>& manifest() const noexcept { return manifest_; }
  const char* path() const noexcept { return path_.c_str(); }
  UntypedMap& data() noexcept { return *data_; }

  VersionRange versions() const noexcept { return range_; }
  // Of a version that versions() holds.
  Version local(Version version) const noexcept { return local_[version - base_]; }

  // A version that could not be named may be on the medium none the less; forget_above() erases it.
  Status name(Version version, Version local) noexcept;
  Status forget_above(Version version) noexcept;
  Status forget_below(Version version) noexcept;
  // The last rollback that this rank has written down: `pending` until it has done it.
  struct Rollback {
    std::uint64_t number = 0;
    bool pending = false;
    Version version = 0;  // of a pending one
  };
  Expected<Rollback> last_rollback() noexcept;
  Status begin_rollback(std::uint64_t number, Version version) noexcept;
  Status end_rollback(std::uint64_t number) noexcept { return put(kRollback, 2 * number); }
  Status roll_back(Version version) noexcept { return data().rollback(local(version)); }

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
  Status put(Field field, std::uint64_t value) noexcept;
  Status read_manifest() noexcept;
  Status read_versions() noexcept;

  PathText path_;
  std::optional<Pool> pool_;
  std::optional<Words> fields_;
  std::optional<OrderedWords> names_;
  std::optional<UntypedMap> data_;  // keeps versions
  std::optional<Manifest> manifest_;
  VersionRange range_ = {.first = 1, .last = 0};
  Array<Version> local_;  // of base_, base_ + 1, ..; those outside range_ mean nothing
  Version base_ = 0;
};

}  // namespace perdure::mpi::detail
