// Core: the collectives of a distributed store. perdure/mpi.h states their guarantees.
//
// ORDERING  Ranks synchronize only through agree(): when it returns, every rank has finished,
//   durably, all that it does before its own agree(). So after a power failure, as after a kill, a
//   rank is at most one step ahead of another. open() agrees in this way before a rank says in what
//   state its pool is: what a kill has left may be in no cut yet.
//   tag       All ranks name(v), then agree. On an error: all ranks forget_above(v - 1), then
//             agree, before v is used again (D2). If that fails, the store must be reopened.
//   rollback  The n-th one: all ranks record it as pending, then agree; forget_above, roll back, no
//             longer pending; agree. open() takes the highest n that a rank has recorded. If all
//             ranks have recorded n, finished or not, all of them carry it out. If one rank has
//             not, no rank has begun it (D4), and the others discard it: their last is n - 1 again.
//             If a rank has finished n, every rank has recorded it; another pool is an older copy.
//   trim      All ranks forget_below, then agree, then trim their data. A version that only some
//             ranks still name is in no rank's range after open().
// Thread safety: one thread, except owner(), usable() and data().
#pragma once

#include "mpi/local_pool.h"
#include "platform/real_platform.h"
#include "util/log.h"

namespace perdure::mpi::detail {

class Core {
 public:
  Status open(MPI_Comm comm, std::string_view directory, const Options& options,
              Kinds kinds) noexcept;
  ~Core() { (void)pool_.close(); }

  Comm& comm() noexcept { return comm_; }
  const Comm& comm() const noexcept { return comm_; }
  LocalPool& pool() noexcept { return pool_; }
  const LocalPool& pool() const noexcept { return pool_; }
  bool has_bytes() const noexcept { return kinds_.bytes; }
  bool by_range() const noexcept { return partition_ == Partition::range; }
  // The threads of a merge that joins the parts of `joined` ranks. The other ranks among them are
  // idle.
  std::uint64_t merge_threads(std::uint64_t joined) const noexcept;
  int owner(const UntypedKey& key) const noexcept;

  // Returns ok if all ranks pass ok, and what each has done is durable on it; otherwise as
  // Comm::agree().
  Status agree(Status mine) noexcept;

  // invalid_argument unless all ranks have that version. The same on all ranks.
  Status readable(Version version) const noexcept;
  // ok unless the store is closed or must be reopened.
  Status usable() const noexcept;

  Expected<Version> tag() noexcept;
  Status roll_back(Version version) noexcept;
  Status trim(Version version) noexcept;
  Status close() noexcept;

 private:
  Status same_arguments(const Options& options) noexcept;
  Status look(std::string_view directory, const Options& options) noexcept;
  Status settle(std::string_view directory, const Options& options) noexcept;
  Status belongs() const noexcept;
  // The lowest rank whose word is the least or, with MPI_MAX, the greatest one.
  struct Extreme {
    std::uint64_t word = 0;
    int rank = 0;
  };
  Expected<Extreme> extreme(std::uint64_t word, MPI_Op op) noexcept;
  Status agree_on_versions(const Log& log) noexcept;
  Status finish_rollback() noexcept;
  Status carry_out_rollback(std::uint64_t number, Version version) noexcept;
  Status finish_open(const Options& options) noexcept;

  Comm comm_;
  LocalPool pool_;
  Kinds kinds_;
  Partition partition_ = Partition::hash;
  std::uint64_t merge_threads_ = 0;  // 0: neighbours_ ranks share cores_
  std::uint64_t cores_ = 1;
  std::uint64_t neighbours_ = 1;
  std::uint64_t rollbacks_ = 0;  // the number of rollbacks begun; the same on all ranks
  // True if the ranks' media may differ until the next open. Writes are refused then, because the
  // next open may carry out a rollback, which would remove them.
  RealPlatform::Atomic<bool> broken_{false};
  RealPlatform::Atomic<bool> closed_{false};
};

}  // namespace perdure::mpi::detail
