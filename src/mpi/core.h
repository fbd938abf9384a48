// Core: the collectives of a distributed store. perdure/mpi.h states their guarantees.
//
// POOLS  The protocol is one of pools. A rank does each step for all pools that it serves, one
//   after the other, and then agrees. So what holds for pools of different ranks holds for pools of
//   one rank, too, and it does not matter which rank serves a pool, or whether a rank serves any.
// ORDERING  Ranks synchronize only through agree(): when it returns, every rank has finished,
//   durably, all that it does before its own agree(). So after a power failure, as after a kill, a
//   pool is at most one step ahead of another. open() agrees in this way before a rank says in what
//   state its pools are: what a kill has left may be in no cut yet.
//   tag       All pools name(v), then agree. On an error: all pools forget_above(v - 1), then
//             agree, before v is used again (D2). If that fails, the store must be reopened.
//   rollback  The n-th one: all pools record it as pending, then agree; forget_above, roll back, no
//             longer pending; agree. open() takes the highest n that a pool has recorded. If all
//             pools have recorded n, finished or not, all of them carry it out. If one pool has
//             not, none has begun it (D4), and the others discard it: their last is n - 1 again.
//             If a pool has finished n, every pool has recorded it; another one is an older copy.
//   trim      All pools forget_below, then agree, then trim their data. A version that only some
//             pools still name is in no pool's range after open().
// Thread safety: one thread, except owner(), usable() and the data of pools: any number.
#pragma once

#include <span>

#include "mpi/local_pool.h"
#include "platform/real_platform.h"

namespace perdure::mpi::detail {

class Core {
 public:
  Status open(MPI_Comm comm, std::string_view directory, const Options& options,
              Kinds kinds) noexcept;

  Comm& comm() noexcept { return comm_; }
  const Comm& comm() const noexcept { return comm_; }
  bool has_bytes() const noexcept { return kinds_.bytes; }
  bool by_range() const noexcept { return partition_ == Partition::range; }
  // The threads of a merge that joins the parts of `joined` ranks. The other ranks among them are
  // idle.
  std::uint64_t merge_threads(std::uint64_t joined) const noexcept;

  // The pools that this rank serves, by their numbers.
  std::span<LocalPool> own_pools() noexcept { return {pools_.begin(), pools_.size()}; }
  // The number of pools of the store, the one that has the key, and the rank that serves one.
  std::uint64_t pools() const noexcept { return places_.size(); }
  std::uint64_t pool_of(const UntypedKey& key) const noexcept;
  int server(std::uint64_t pool) const noexcept { return places_[pool].rank; }
  int owner(const UntypedKey& key) const noexcept { return server(pool_of(key)); }
  // Where a pool that this rank serves is in own_pools(); the one of a key that this rank owns.
  std::size_t place(std::uint64_t pool) const noexcept { return places_[pool].own; }
  std::size_t own_place(const UntypedKey& key) const noexcept {
    return pools_.size() == 1 ? 0 : place(pool_of(key));
  }
  LocalPool& own_pool(const UntypedKey& key) noexcept { return pools_[own_place(key)]; }

  // Makes durable what was done to the pools of this rank. Returns the first error.
  Status make_durable() noexcept;
  // Returns ok if all ranks pass ok, and what each has done is durable on it; otherwise as
  // Comm::agree().
  Status agree(Status mine) noexcept;

  VersionRange versions() const noexcept { return range_; }
  // invalid_argument unless all ranks have that version. The same on all ranks.
  Status readable(Version version) const noexcept;
  // ok unless the store is closed or must be reopened.
  Status usable() const noexcept;
  // The same for a collective with a root: invalid_argument if it is no rank.
  Status usable(int root) const noexcept;

  Expected<Version> tag() noexcept;
  Status roll_back(Version version) noexcept;
  Status trim(Version version) noexcept;
  Status close() noexcept;

 private:
  Status same_arguments(const Options& options) noexcept;
  Status assign(std::string_view directory) noexcept;
  Status look(std::string_view directory, const Options& options) noexcept;
  Status settle(std::string_view directory, const Options& options) noexcept;
  Status fits(const Manifest& whole, std::string_view directory, OpenMode mode) noexcept;
  Status keep_pools(std::uint64_t count) noexcept;
  Status belongs(const LocalPool& pool) const noexcept;
  // Does a step on the pools of this rank, up to the first error.
  template <class Step>
  Status each(Step&& step) noexcept {
    for (LocalPool& pool : pools_) {
      if (Status s = step(pool); !s.ok()) return s;
    }
    return {};
  }
  // The least word of all pools or, with MPI_MAX, the greatest one, and the lowest pool with it.
  struct Extreme {
    std::uint64_t word = 0;
    std::uint64_t pool = 0;
  };
  using WordOf = FunctionRef<std::uint64_t(const LocalPool& pool)>;
  Expected<Extreme> extreme(MPI_Op op, WordOf word_of) noexcept;
  Status agree_on_versions(const Options& options) noexcept;
  Status finish_rollback() noexcept;
  Status carry_out_rollback(std::uint64_t number, Version version) noexcept;
  Status finish_open(const Options& options) noexcept;

  struct Place {
    int rank = 0;
    std::uint32_t own = 0;  // where the pool is in pools_, if this rank serves it
  };

  Comm comm_;
  Array<LocalPool> pools_;
  Array<Status> met_;    // what look() has met at each of them
  Array<Place> places_;  // of all pools, by number; equal on all ranks except `own`
  VersionRange range_ = {.first = 1, .last = 0};  // of all pools; equal on all ranks
  Kinds kinds_;
  Partition partition_ = Partition::hash;
  std::uint64_t merge_threads_ = 0;  // 0: neighbours_ ranks share cores_
  std::uint64_t cores_ = 1;
  std::uint64_t neighbours_ = 1;
  std::uint64_t rollbacks_ = 0;  // the number of rollbacks begun; the same on all ranks
  // True if the pools may differ until the next open. Writes are refused then, because the
  // next open may carry out a rollback, which would remove them.
  RealPlatform::Atomic<bool> broken_{false};
  RealPlatform::Atomic<bool> closed_{false};
};

}  // namespace perdure::mpi::detail
