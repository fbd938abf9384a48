// Comm: the few MPI calls that the store makes, as Status, in pieces that fit an int.
//
// A communicator of our own, whose errors are returned. After the first one it is lost(): the ranks
// may disagree on what has happened, so nothing is sent any more.
// Thread safety: one thread at a time, but lost().
#pragma once

#include <cstdint>
#include <span>

#include "perdure/mpi.h"
#include "platform/real_platform.h"

namespace perdure::mpi::detail {

class Comm {
 public:
  Comm() noexcept = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm() { release(); }

  Status duplicate(MPI_Comm comm, std::uint64_t max_message) noexcept;
  void release() noexcept;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  bool lost() const noexcept { return lost_; }
  // How many ranks are on this machine, this one included.
  Expected<int> neighbours() noexcept;

  Status broadcast(void* bytes, std::uint64_t count, int root) noexcept;
  // Every rank gets the result, in place.
  Status reduce(std::uint64_t* words, std::uint64_t count, MPI_Op op) noexcept;
  Status all_gather(const void* mine, int count, void* all) noexcept;
  // Rank 0 gets the parts one behind the other; part[r] bytes of rank r.
  Status gather(const void* mine, void* all, std::span<const std::uint64_t> part) noexcept;
  Status send(const void* bytes, std::uint64_t count, int to) noexcept;
  Status receive(void* bytes, std::uint64_t count, int from) noexcept;

  // ok if all ranks say ok; otherwise what the lowest rank says that does not, on all of them.
  Status agree(Status mine) noexcept;
  // The same, for ranks that wait for others' work: MPI's own calls spin, and here who has nothing
  // to do leaves its core to who has. The rank that is waited for is not `idle`.
  Status agree_after_work(Status mine, bool idle) noexcept;

 private:
  Status speak(Status mine, std::uint64_t speaker) noexcept;
  Status checked(int result, const char* call) noexcept;
  Status usable() const noexcept;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::uint64_t max_message_ = 0;
  RealPlatform::Atomic<bool> lost_{false};
};

}  // namespace perdure::mpi::detail
