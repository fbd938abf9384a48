// Core: the collectives of a distributed store (perdure/mpi.h says what they promise).
//
// ORDERING  Between two ranks there is one tool, agree(): who has its answer knows that every rank
//   has done what it does before it, durably.
//   tag       name(v) everywhere; agree. On an error: forget_above(v - 1) everywhere; agree, before
//             v is used again (D2). If that fails the store is of no more use.
//   rollback  the n-th: written down as pending everywhere; agree; forget_above, roll back, no
//             longer pending; agree. open() finds n, the highest, pending on some rank: if all have
//             written down n, done or not, it is carried out by all. If one has not, nobody can
//             have begun (D4), and it is struck out: their last is n - 1 again.
//   trim      forget_below everywhere, agree, then trim of the data: a version that one rank
//             still names and another one does not is in no rank's range after open().
// Thread safety: one thread, but owner(), usable() and data().
#pragma once

#include "mpi/local_pool.h"
#include "platform/real_platform.h"

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
  // Of a merge whose result is of `joined` ranks: the others of them have nothing to do.
  std::uint64_t merge_threads(std::uint64_t joined) const noexcept;
  int owner(const UntypedKey& key) const noexcept;

  // invalid_argument unless all ranks have that version; the same on all.
  Status readable(Version version) const noexcept;
  // Neither closed nor of no more use.
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
  Status agree_on_versions() noexcept;
  Status finish_rollback() noexcept;
  Status carry_out_rollback(std::uint64_t number, Version version) noexcept;
  Status finish_open(const Options& options) noexcept;

  Comm comm_;
  LocalPool pool_;
  Kinds kinds_;
  Partition partition_ = Partition::hash;
  std::uint64_t merge_threads_ = 0;  // 0: cores_ for neighbours_
  std::uint64_t cores_ = 1;
  std::uint64_t neighbours_ = 1;
  std::uint64_t rollbacks_ = 0;  // so many were begun; the same on all ranks
  // What the ranks have on their media may differ until the next open. A write is refused then: the
  // next open may carry out a rollback, and would take it away.
  RealPlatform::Atomic<bool> broken_{false};
  RealPlatform::Atomic<bool> closed_{false};
};

}  // namespace perdure::mpi::detail
