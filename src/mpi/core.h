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
//   rollback  It gets a number greater than that of the last one, by the clock and by chance: other
//             than that of any attempt that was discarded, and greater than that of an earlier run
//             that went on with other files. All pools record it as pending, then agree;
//             forget_above, roll back, no longer pending; agree. F is the highest number that a
//             pool has finished as open() finds it. If F is pending in others, all carry it out:
//             all have recorded it (D4). Otherwise, if all pools have recorded one behind F, all
//             carry that out. If one has not, none has begun it, and the others discard it: their
//             last is F again. A pool that has neither finished F nor recorded it, nor one behind
//             it, is older.
//   trim      All pools forget_below, then agree, then trim their data. A version that only some
//             pools still name is in no pool's range after open().
// COPIES  A copy takes part in every step as a pool does, so that it has the same versions. A tag
//   sends it what the version has changed (carrier.h), before all agree. When a store is opened,
//   the pools decide, and a copy only in place of a pool that is missing. A copy beside its pool
//   follows: it is in step, or one version behind and gets that, or is made again from its pool.
//   A file that was away, because the store went on without it, must not decide when it comes back:
//   its versions are not those of the others. So before a file that was made counts, all others
//   record a rollback to kMembers, which removes nothing: then the file that was away is older.
//   fill      Targets lose their manifest; get the versions; all others record the rollback to
//             kMembers, and finish it; targets get a manifest with its number. After each: agree.
// Thread safety: one thread, except owner(), usable() and the data of pools: any number.
#pragma once

#include <span>

#include "mpi/local_pool.h"
#include "mpi/router.h"
#include "platform/real_platform.h"

namespace perdure::mpi::detail {

class Core {
 public:
  Status open(MPI_Comm comm, std::string_view directory, const Options& options,
              Kinds kinds) noexcept;

  Comm& comm() noexcept { return comm_; }
  const Comm& comm() const noexcept { return comm_; }
  Router& router() noexcept { return router_; }
  bool has_bytes() const noexcept { return kinds_.bytes; }
  bool by_range() const noexcept { return partition_ == Partition::range; }
  // The threads of a merge that joins the parts of `joined` ranks. The other ranks among them are
  // idle.
  std::uint64_t merge_threads(std::uint64_t joined) const noexcept;

  // The pools that this rank serves, by their numbers.
  std::span<LocalPool> own_pools() noexcept {
    return {of(Role::pool).pools.begin(), of(Role::pool).pools.size()};
  }
  // The number of pools of the store, the one that has the key, and the rank that serves one.
  std::uint64_t pools() const noexcept { return of(Role::pool).places.size(); }
  std::uint64_t pool_of(const UntypedKey& key) const noexcept;
  int server(std::uint64_t pool) const noexcept { return server(Role::pool, pool); }
  int server(Role role, std::uint64_t pool) const noexcept { return of(role).places[pool].rank; }
  int owner(const UntypedKey& key) const noexcept { return server(pool_of(key)); }
  // Where a pool that this rank serves is in own_pools(); the one of a key that this rank owns.
  std::size_t place(std::uint64_t pool) const noexcept { return of(Role::pool).places[pool].own; }
  LocalPool& own(Role role, std::uint64_t pool) noexcept {
    return of(role).pools[of(role).places[pool].own];
  }
  std::size_t own_place(const UntypedKey& key) const noexcept {
    return of(Role::pool).pools.size() == 1 ? 0 : place(pool_of(key));
  }
  LocalPool& own_pool(const UntypedKey& key) noexcept {
    return of(Role::pool).pools[own_place(key)];
  }

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
  struct Place {
    int rank = 0;
    bool is_seen = false;   // by any rank
    std::uint32_t own = 0;  // where the pool is in Served::pools, if this rank serves it
  };
  struct Served {
    Array<LocalPool> pools;
    Array<Status> met;    // what look() has met at each of them
    Array<Place> places;  // of all, by number; equal on all ranks except `own`
  };

  Status same_arguments(const Options& options) noexcept;
  Status assign(std::string_view directory) noexcept;
  Status give_out(Role role, const Array<std::uint64_t>& seen,
                  FunctionRef<std::uint64_t(std::uint64_t)> preferred) noexcept;
  Status look(std::string_view directory, Role role, const Options& options) noexcept;
  Expected<Manifest> describe(Role role) noexcept;
  Status settle(std::string_view directory, const Options& options) noexcept;
  Status fits(std::string_view directory, const Options& options) noexcept;
  Manifest manifest_of(std::uint64_t number, bool complete) const noexcept;
  Status keep_pools(std::uint64_t count) noexcept;
  Status belongs(const LocalPool& pool) const noexcept;
  Status choose_members(const Options& options) noexcept;
  Status look_who_is_there() noexcept;
  std::uint64_t index_of(Role role, std::uint64_t pool) const noexcept {
    return pool + (role == Role::copy ? pools() : 0);
  }
  bool is_there(Role role, std::uint64_t pool) const noexcept {
    return there_[index_of(role, pool)] != kAway;
  }
  // Whether its versions count. Otherwise it is a copy that follows its pool.
  bool decides(const LocalPool& pool) const noexcept {
    return pool.role() == Role::pool || !is_there(Role::pool, pool.number());
  }
  // Does a step on the pools and copies of this rank that take part, up to the first error.
  template <class Step>
  Status each(Step&& step) noexcept {
    for (Served& served : served_) {
      for (LocalPool& pool : served.pools) {
        if (!pool.takes_part()) continue;
        if (Status s = step(pool); !s.ok()) return s;
      }
    }
    return {};
  }
  // The least word of all that take part or, with MPI_MAX, the greatest one, and the name of the
  // first file with it.
  struct Extreme {
    std::uint64_t word = 0;
    Role role = Role::pool;
    Text<32> name;
  };
  using WordOf = FunctionRef<std::uint64_t(const LocalPool& pool)>;
  Expected<Extreme> extreme(MPI_Op op, WordOf word_of) noexcept;
  Status agree_on_versions(const Options& options) noexcept;
  Status fill_missing(std::string_view directory, const Options& options) noexcept;
  Status catch_up() noexcept;
  Status fill(std::string_view directory, const Options& options, bool copies) noexcept;
  Status keep_copies(bool keeps) noexcept;
  Status close_copies(bool keeps) noexcept;
  Status send_version(Version version, std::uint64_t most_there, Status mine) noexcept;
  Status finish_rollback() noexcept;
  Status record_and_roll_back(Version version) noexcept;
  Status carry_out_rollback(std::uint64_t number, Version version) noexcept;
  Status finish_open(const Options& options) noexcept;

  static constexpr Version kMembers = ~std::uint64_t{0} - 1;  // on media

  Served& of(Role role) noexcept { return served_[static_cast<std::size_t>(role)]; }
  const Served& of(Role role) const noexcept { return served_[static_cast<std::size_t>(role)]; }

  Comm comm_;
  Served served_[2];  // by role
  Manifest whole_;    // of the store; `number` means nothing
  // By index_of(), whether a file takes part: not at all, without the last version, with it. Equal
  // on all ranks.
  static constexpr std::uint64_t kAway = 0, kBehind = 1, kInStep = 2;
  Array<std::uint64_t> there_;
  bool keeps_copies_ = false;
  VersionRange range_ = {.first = 1, .last = 0};  // of all pools; equal on all ranks
  Kinds kinds_;
  Partition partition_ = Partition::hash;
  std::uint64_t merge_threads_ = 0;  // 0: neighbours_ ranks share cores_
  std::uint64_t cores_ = 1;
  std::uint64_t neighbours_ = 1;
  std::uint64_t rollback_ = 0;  // the number of the last one; the same on all ranks
  // A number that this open gives is greater than these; see above.
  std::uint64_t least_number_ = 0, salt_ = 0;
  // True if the pools may differ until the next open. Writes are refused then, because the
  // next open may carry out a rollback, which would remove them.
  RealPlatform::Atomic<bool> broken_{false};
  RealPlatform::Atomic<bool> closed_{false};
  Router router_;  // the last member: it stops before the others end
};

// The map of the pool that has the key. An error if the store is not usable, or this rank does not
// own the key. Any number of threads.
Expected<UntypedMap*> own_data(Core& core, const UntypedKey& key) noexcept;

}  // namespace perdure::mpi::detail
