#include "mpi/comm.h"

#include <algorithm>
#include <limits>

#include "platform/nap.h"

namespace perdure::mpi::detail {

namespace {
constexpr int kTag = 0;
constexpr unsigned kPollsAwake = 200;
constexpr std::uint64_t kOk = std::numeric_limits<std::uint64_t>::max();
// The form in which agree() broadcasts an error.
struct Spoken {
  std::uint64_t code;
  char message[504];
};
char* at(void* bytes, std::uint64_t offset) noexcept { return static_cast<char*>(bytes) + offset; }
}  // namespace

Status Comm::checked(int result, const char* call) noexcept {
  if (result == MPI_SUCCESS) [[likely]]
    return {};
  lost_ = true;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  return Status::format(StatusCode::io, "rank %d of %d: %s failed: %.*s; start the run again",
                        rank_, size_, call, length, text);
}

Status Comm::usable() const noexcept {
  if (!lost_) [[likely]]
    return {};
  return Status::format(StatusCode::io,
                        "rank %d of %d: an earlier MPI call failed; start the run again", rank_,
                        size_);
}

Status Comm::duplicate(MPI_Comm comm, std::uint64_t max_message) noexcept {
  int ready = 0, over = 0;
  MPI_Initialized(&ready);
  MPI_Finalized(&over);
  if (ready == 0 || over != 0) {
    return Status::format(StatusCode::invalid_argument,
                          "MPI is not running: call MPI_Init before a store is opened");
  }
  max_message_ = max_message;
  if (Status s = checked(MPI_Comm_dup(comm, &comm_), "MPI_Comm_dup"); !s.ok()) return s;
  if (Status s =
          checked(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
      !s.ok()) {
    return s;
  }
  if (Status s = checked(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank"); !s.ok()) return s;
  return checked(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

// Frees nothing after an error: freeing is collective, and the other ranks may be gone.
void Comm::release() noexcept {
  int over = 0;
  if (comm_ == MPI_COMM_NULL) return;
  if (MPI_Finalized(&over) == MPI_SUCCESS && over == 0 && !lost_) MPI_Comm_free(&comm_);
  comm_ = MPI_COMM_NULL;
}

Status Comm::machines(std::uint64_t* by_rank) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  MPI_Comm machine = MPI_COMM_NULL;
  auto lowest = static_cast<std::uint64_t>(rank_);
  Status s =
      checked(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine),
              "MPI_Comm_split_type");
  if (s.ok()) {
    s = checked(MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_UINT64_T, MPI_MIN, machine),
                "MPI_Allreduce");
  }
  if (machine != MPI_COMM_NULL) MPI_Comm_free(&machine);
  return s.ok() ? all_gather(&lowest, sizeof(lowest), by_rank) : std::move(s);
}

Status Comm::broadcast(void* bytes, std::uint64_t count, int root) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t piece = std::min(count - done, max_message_);
    Status s = checked(MPI_Bcast(at(bytes, done), static_cast<int>(piece), MPI_BYTE, root, comm_),
                       "MPI_Bcast");
    if (!s.ok()) return s;
    done += piece;
  }
  return {};
}

Status Comm::reduce(std::uint64_t* words, std::uint64_t count, MPI_Op op) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t piece = std::min(count - done, max_message_ / sizeof(std::uint64_t));
    Status s = checked(
        MPI_Allreduce(MPI_IN_PLACE, words + done, static_cast<int>(piece), MPI_UINT64_T, op, comm_),
        "MPI_Allreduce");
    if (!s.ok()) return s;
    done += piece;
  }
  return {};
}

Status Comm::all_gather(const void* mine, int count, void* all) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  return checked(MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, comm_),
                 "MPI_Allgather");
}

Status Comm::all_to_all(const void* mine, int count, void* all) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  return checked(MPI_Alltoall(mine, count, MPI_BYTE, all, count, MPI_BYTE, comm_), "MPI_Alltoall");
}

// The n-th piece goes out and comes in in one call. A direction that has no n-th piece has no
// partner either, because both sides know the number of bytes.
Status Comm::exchange(const void* out, std::uint64_t out_bytes, int to, void* in,
                      std::uint64_t in_bytes, int from) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  const auto* source = static_cast<const char*>(out);
  for (std::uint64_t done = 0; done < std::max(out_bytes, in_bytes);) {
    const std::uint64_t sent = std::min(out_bytes - std::min(done, out_bytes), max_message_);
    const std::uint64_t got = std::min(in_bytes - std::min(done, in_bytes), max_message_);
    Status s =
        checked(MPI_Sendrecv(sent != 0 ? source + done : nullptr, static_cast<int>(sent), MPI_BYTE,
                             sent != 0 ? to : MPI_PROC_NULL, kTag,
                             got != 0 ? at(in, done) : nullptr, static_cast<int>(got), MPI_BYTE,
                             got != 0 ? from : MPI_PROC_NULL, kTag, comm_, MPI_STATUS_IGNORE),
                "MPI_Sendrecv");
    if (!s.ok()) return s;
    done += max_message_;
  }
  return {};
}

Status Comm::gather(const void* mine, void* all, std::span<const std::uint64_t> part,
                    int root) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  std::uint64_t total = 0;
  for (const std::uint64_t bytes : part) total += bytes;
  const auto ranks = static_cast<std::size_t>(size_);
  std::unique_ptr<int[]> counts(total <= max_message_ ? new (std::nothrow) int[2 * ranks]
                                                      : nullptr);
  // All ranks must take the same way, also if one has no memory for the counts.
  std::uint64_t whole = counts != nullptr ? 1 : 0;
  if (Status s = reduce(&whole, 1, MPI_MIN); !s.ok()) return s;
  if (whole != 0) {
    int begin = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      counts[r] = static_cast<int>(part[r]);
      counts[ranks + r] = begin;
      begin += counts[r];
    }
    return checked(MPI_Gatherv(mine, counts[static_cast<std::size_t>(rank_)], MPI_BYTE, all,
                               counts.get(), counts.get() + ranks, MPI_BYTE, root, comm_),
                   "MPI_Gatherv");
  }
  if (rank_ != root) return send(mine, part[static_cast<std::size_t>(rank_)], root);
  std::uint64_t begin = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const int from = static_cast<int>(r);
    if (from == root) {
      if (part[r] != 0) std::copy_n(static_cast<const char*>(mine), part[r], at(all, begin));
    } else if (Status s = receive(at(all, begin), part[r], from); !s.ok()) {
      return s;
    }
    begin += part[r];
  }
  return {};
}

Status Comm::send(const void* bytes, std::uint64_t count, int to, int tag) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  const auto* from = static_cast<const char*>(bytes);
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t piece = std::min(count - done, max_message_);
    Status s = checked(MPI_Send(from + done, static_cast<int>(piece), MPI_BYTE, to, tag, comm_),
                       "MPI_Send");
    if (!s.ok()) return s;
    done += piece;
  }
  return {};
}

Status Comm::receive(void* bytes, std::uint64_t count, int from) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t piece = std::min(count - done, max_message_);
    Status s = checked(MPI_Recv(at(bytes, done), static_cast<int>(piece), MPI_BYTE, from, kTag,
                                comm_, MPI_STATUS_IGNORE),
                       "MPI_Recv");
    if (!s.ok()) return s;
    done += piece;
  }
  return {};
}

Status Comm::await(void* bytes, int count, int from, int tag) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  MPI_Request request = MPI_REQUEST_NULL;
  Status s = checked(MPI_Irecv(bytes, count, MPI_BYTE, from, tag, comm_, &request), "MPI_Irecv");
  return s.ok() ? wait(request, true) : std::move(s);
}

Expected<int> Comm::poll(void* bytes, int count, int tag) noexcept {
  if (Status s = usable(); !s.ok()) return fail(std::move(s));
  int there = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status{};
  Status s =
      checked(MPI_Improbe(MPI_ANY_SOURCE, tag, comm_, &there, &message, &status), "MPI_Improbe");
  if (s.ok() && there == 0) return -1;
  if (s.ok()) {
    s = checked(MPI_Mrecv(bytes, count, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
  }
  if (!s.ok()) return fail(std::move(s));
  return status.MPI_SOURCE;
}

bool Comm::threads_may_call() noexcept {
  int level = MPI_THREAD_SINGLE;
  return MPI_Query_thread(&level) == MPI_SUCCESS && level == MPI_THREAD_MULTIPLE;
}

// Waits by polling. A short wait ends without a sleep.
Status Comm::wait(MPI_Request& request, bool sleeps) noexcept {
  for (unsigned polls = 1;; ++polls) {
    int done = 0;
    if (Status s = checked(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test"); !s.ok()) {
      return s;
    }
    if (done != 0) return {};
    if (!sleeps) continue;
    polls < kPollsAwake ? RealPlatform::pause(polls) : nap();
  }
}

Status Comm::agree(Status mine) noexcept {
  if (lost_) return mine.ok() ? usable() : std::move(mine);
  std::uint64_t speaker = mine.ok() ? kOk : static_cast<std::uint64_t>(rank_);
  if (Status s = reduce(&speaker, 1, MPI_MIN); !s.ok()) return s;
  return speak(std::move(mine), speaker);
}

Status Comm::agree_after_work(Status mine, bool idle) noexcept {
  if (lost_) return mine.ok() ? usable() : std::move(mine);
  std::uint64_t speaker = mine.ok() ? kOk : static_cast<std::uint64_t>(rank_);
  MPI_Request request = MPI_REQUEST_NULL;
  Status s =
      checked(MPI_Iallreduce(MPI_IN_PLACE, &speaker, 1, MPI_UINT64_T, MPI_MIN, comm_, &request),
              "MPI_Iallreduce");
  if (s.ok()) s = wait(request, idle);
  return s.ok() ? speak(std::move(mine), speaker) : std::move(s);
}

// The rank `speaker` broadcasts its status.
Status Comm::speak(Status mine, std::uint64_t speaker) noexcept {
  if (speaker == kOk) return {};
  Spoken spoken{};
  if (speaker == static_cast<std::uint64_t>(rank_)) {
    spoken.code = static_cast<std::uint64_t>(mine.code());
    mine.message().copy(spoken.message, sizeof(spoken.message) - 1);
  }
  if (Status s = broadcast(&spoken, sizeof(spoken), static_cast<int>(speaker)); !s.ok()) return s;
  return Status::format(static_cast<StatusCode>(spoken.code), "rank %d of %d: %s",
                        static_cast<int>(speaker), size_, spoken.message);
}

}  // namespace perdure::mpi::detail
