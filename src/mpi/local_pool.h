// LocalPool: one pool of the store, or the copy of one, and the steps of the protocol that its rank
// does alone.
//
// WHAT  The pool with its three maps (LAYOUT in perdure/mpi.h), and the versions of the store in
//   DRAM. A copy has the same maps. One store commits a step: it may be cut short before or after
//   that store, and repeated. A step that has returned survives a kill, and what the pool's
//   durability names; in `buffered` it survives a power failure once make_durable() has returned. A
//   pool that is being filled has no manifest: begin_fill() removes it first, and end_fill() writes
//   it last. So after a kill the pool is one that is missing, and is filled anew.
// INVARIANTS (of one pool; those of the store are in perdure/mpi.h)
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

// What a file of the store is.
enum class Role : std::uint8_t { pool, copy };
// Its name, without the directory.
Text<32> file_name(Role role, std::uint64_t number) noexcept;

// The run that made a pool. Equal in all its pools, except `number`.
struct Manifest {
  std::uint64_t run = 0;
  std::uint64_t pools = 0;   // of the store
  std::uint64_t number = 0;  // of this pool
  std::uint64_t partition = 0;
  std::uint64_t kinds = 0;
  bool copies = false;    // each pool has a copy, which takes part in every step
  bool complete = false;  // all pools of the run have their manifest

  static constexpr std::uint64_t kIntegers = 1, kBytes = 2;  // kinds; on media
};

class LocalPool {
 public:
  // Appends the numbers of the pools, and of the copies, whose files are in the directory.
  static Status list(std::string_view directory, Array<std::uint64_t>& pools,
                     Array<std::uint64_t>& copies) noexcept;

  // Opens the file of the pool with this number if it exists, and reads its manifest. Creates
  // nothing.
  Status look(std::string_view directory, Role role, std::uint64_t number,
              const PoolOptions& options) noexcept;
  // Creates what is missing: the file, the maps, a manifest that is not complete, and version 0.
  // Redoes what an earlier run may have begun.
  Status create(std::string_view directory, const PoolOptions& options,
                const Manifest& manifest) noexcept;
  Status open_data(Kinds kinds) noexcept;
  Status complete() noexcept { return put(kComplete, 1); }
  // A fill: removes what is there, after which versions are closed in order, from any first one.
  // The end makes the pool a complete one, whose last rollback has this number.
  Status begin_fill(std::string_view directory, const PoolOptions& options, Kinds kinds) noexcept;
  Status end_fill(const Manifest& manifest, std::uint64_t rollback) noexcept {
    return put(manifest, rollback);
  }
  Status set_copies(bool on) noexcept;

  // Whether it is one of those that must agree.
  bool takes_part() const noexcept { return takes_part_; }
  void set_part(bool takes_part) noexcept { takes_part_ = takes_part; }

  Role role() const noexcept { return role_; }
  std::uint64_t number() const noexcept { return number_; }
  bool is_complete() const noexcept { return manifest_ && manifest_->complete; }
  // Empty if the pool has no manifest, or only a part of it.
  const std::optional<Manifest>& manifest() const noexcept { return manifest_; }
  const char* path() const noexcept { return path_.c_str(); }
  UntypedMap& data() noexcept { return *data_; }

  VersionRange versions() const noexcept { return range_; }
  bool has_version(Version version) const noexcept {
    return version >= range_.first && version <= range_.last;
  }
  // The version of `data` of a version that versions() contains.
  Version local(Version version) const noexcept { return local_[version - base_]; }
  // The version of the store that has what was written in this version of `data`: the first one
  // whose own is not lower. Behind versions() if the next tag will be the first to have it.
  Version containing(Version local) const noexcept;

  // Names a version. After an error the name may be on the medium nevertheless; forget_above()
  // erases it.
  Status name(Version version, Version local) noexcept;
  // Closes the open version of `data` and names it.
  Status close_version(Version version) noexcept;
  Status forget_above(Version version) noexcept;
  Status forget_below(Version version) noexcept;
  // The last rollback that the open has found recorded. It is `pending` if it was not performed.
  struct Rollback {
    std::uint64_t number = 0;
    bool pending = false;
    // Of a pending rollback: the one that was finished before it, and where it goes.
    std::uint64_t before = 0;
    Version version = 0;

    std::uint64_t finished() const noexcept { return pending ? before : number; }
    bool has(std::uint64_t wanted) const noexcept {
      return finished() == wanted || number == wanted;
    }
  };
  const Rollback& found_rollback() const noexcept { return rollback_; }
  Status begin_rollback(std::uint64_t before, std::uint64_t number, Version version) noexcept;
  Status end_rollback(std::uint64_t number) noexcept { return put(kRollback, 2 * number); }
  // Forgets the versions above this one, and their data.
  Status roll_back(Version version) noexcept;
  // Forgets the versions above this one, which is in range. What has come to a copy since is gone,
  // because it comes again; what was written to a pool stays in its open version.
  Status take_back(Version version) noexcept;

  // Returns when all that was done to the pool, and what its open has found, survives the failures
  // that the pool's durability names. Without a pool, and except in `buffered`, it does at once.
  Status make_durable() noexcept;
  Status close() noexcept;

 private:
  using Words = Map<std::uint64_t, std::uint64_t>;
  using OrderedWords = OrderedMap<std::uint64_t, std::uint64_t>;
  // Keys of `mpi.manifest`. On media: never renumber.
  using Field = std::uint64_t;
  static constexpr Field kFormat = 1, kRun = 2, kPools = 3, kNumber = 4, kPartition = 5, kKinds = 6,
                         kComplete = 7, kRollback = 8, kRollbackVersion = 9, kCopies = 10,
                         kRollbackBefore = 11;
  static constexpr std::uint64_t kFormatVersion = 0;

  Status make_file(std::string_view directory, const PoolOptions& options) noexcept;
  Status drop_versions() noexcept;
  Status make_fields() noexcept;
  Status open_versions(Kinds kinds, OpenMode mode) noexcept;
  void take(Pool pool) noexcept;
  Status put(const Manifest& manifest, std::uint64_t rollback) noexcept;
  Status put(Field field, std::uint64_t value) noexcept;
  Status read_manifest() noexcept;
  Status read_versions() noexcept;
  Status read_rollback() noexcept;

  Role role_ = Role::pool;
  std::uint64_t number_ = 0;
  bool takes_part_ = false;
  PathText path_;
  std::optional<Pool> pool_;
  bool cuts_ = false;  // the pool's durability is `buffered`
  std::optional<Words> fields_;
  std::optional<OrderedWords> names_;
  std::optional<UntypedMap> data_;  // an engine with versions
  std::optional<Manifest> manifest_;
  Rollback rollback_;
  VersionRange range_ = {.first = 1, .last = 0};
  Array<Version> local_;  // of base_, base_ + 1, ..; only those in range_ count
  Version base_ = 0;
};

}  // namespace perdure::mpi::detail
