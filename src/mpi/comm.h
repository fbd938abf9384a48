// Comm: the MPI calls of the store. They return a Status, and cut messages into pieces whose size
// fits an int.
//
// It is a duplicate of the user's communicator and returns errors. After the first error it is
// lost(): the ranks may disagree on what has happened, so it sends nothing any more.
// Thread safety: one thread at a time, except lost(). If MPI has MPI_THREAD_MULTIPLE, any number
// may send(), await() and poll().
#pragma once

#include <cstdint>
#include <span>

#include "perdure/mpi_types.h"
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
  // By rank: the lowest rank on its machine.
  Status machines(std::uint64_t* by_rank) noexcept;

  Status broadcast(void* bytes, std::uint64_t count, int root) noexcept;
  // An all-reduce in place: every rank gets the result.
  Status reduce(std::uint64_t* words, std::uint64_t count, MPI_Op op) noexcept;
  Status all_gather(const void* mine, int count, void* all) noexcept;
  // The root gets the parts one after the other; rank r sends part[r] bytes.
  Status gather(const void* mine, void* all, std::span<const std::uint64_t> part,
                int root) noexcept;
  // Rank r gets the r-th `count` bytes of `mine`, and `all` has what the ranks sent, by rank.
  Status all_to_all(const void* mine, int count, void* all) noexcept;
  // Sends to one rank and receives from another, at once: every rank passes partners at one
  // distance.
  Status exchange(const void* out, std::uint64_t out_bytes, int to, void* in,
                  std::uint64_t in_bytes, int from) noexcept;
  // Calls exchange(to, from) for each distance between partners, up to the first error.
  template <class Exchange>
  Status with_all(Exchange&& exchange) noexcept {
    const auto ranks = static_cast<std::uint64_t>(size_), rank = static_cast<std::uint64_t>(rank_);
    for (std::uint64_t step = 1; step < ranks; ++step) {
      Status s = exchange((rank + step) % ranks, (rank + ranks - step) % ranks);
      if (!s.ok()) return s;
    }
    return {};
  }
  // Messages of one sender and one tag arrive in their order.
  Status send(const void* bytes, std::uint64_t count, int to, int tag = 0) noexcept;
  Status receive(void* bytes, std::uint64_t count, int from) noexcept;
  // Receives one message, of at most `count` bytes. Where threads may share MPI it is faster than
  // receive(), whose threads wake each other. The wait may be long: it sleeps between polls.
  Status await(void* bytes, int count, int from, int tag = 0) noexcept;
  // Receives one message, of at most `count` bytes, if one with this tag is there. Returns the rank
  // that sent it; -1 if there is none.
  Expected<int> poll(void* bytes, int count, int tag) noexcept;
  // Whether any number of threads may call MPI at once. MPI must be running.
  static bool threads_may_call() noexcept;

  // Returns ok if all ranks pass ok. Otherwise all ranks return the status of the lowest rank that
  // does not.
  Status agree(Status mine) noexcept;
  // The same, when other ranks still work. Calls of MPI wait by polling, so an idle rank sleeps
  // between polls and leaves its core to a rank that works. The rank that the others wait for is
  // not `idle`.
  Status agree_after_work(Status mine, bool idle) noexcept;

 private:
  Status wait(MPI_Request& request, bool sleeps) noexcept;
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
