// Router: calls of one key at the rank that owns it, from any rank (Options::route).
//
// WHAT  Each rank that serves pools has a service thread from the end of open() to close(). It gets
//   the calls of other ranks, one after the other, does each as the rank itself would, and answers.
//   The thread that calls waits for the answer. Calls for keys of the same rank send nothing.
// PROTOCOL  On a communicator of its own, so that no message meets those of a collective:
//   request   {Head, key, value} to the owner. An erase and a read have no value.
//   answer    {Head, value} of a read that has found one; {Head, text} of an error; {Head}.
//   A message of more than a piece (64 KiB, or max_message) goes as several. MPI holds a piece back
//   until its receiver is there (those of TCP and of shared memory do), so a long request takes no
//   memory of the owner before its turn. A receiver without memory for it receives the pieces
//   nevertheless, one over the other, and the call returns out_of_memory.
//   A call has one of 64 slots of its rank. A first piece of a request has tag 0; the others have a
//   tag of the slot, and those of the answer another one. So calls of several threads do not mix.
// ORDERING  An answer is sent after the call at the owner has returned, so what the caller learns
//   is as durable as in a call of the owner. meet() is an agreement of all ranks: what has
//   returned before a rank enters it has been done at its owner when any rank leaves it. tag, trim
//   and history begin with one, so they see it. rollback and write_many have an agreement before
//   they change data, and cut after it. stop() begins with one too: no rank has a call under way
//   then.
// DEADLOCK  There is none. A service thread waits for another rank only while it receives the rest
//   of a request, whose sender is sending it, and while it sends an answer, whose receiver waits
//   for nothing else. It calls no collective, and no latch of a pool is held while a thread waits
//   for a rank. A caller waits for one service thread, which comes to it after others; Open MPI
//   takes the senders in turn.
// IDLE  Calls of MPI wait by polling. After a request the service thread polls 2,000 times, then
//   naps between polls: a sixteenth of how long it has been idle, 50 us to 1 ms.
// FAILURE  An error of the owner is the answer, with its text. After an error of MPI the rank is
//   lost(): its service thread ends, and calls of its keys wait forever, as collectives do.
// Thread safety: write() and read(): 64 threads at once; more wait. The others: one thread, without
//   calls of this rank under way, except meet().
#pragma once

#include "mpi/buffer.h"
#include "mpi/comm.h"

namespace perdure::mpi::detail {

class Router {
 public:
  Router() noexcept = default;
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;
  ~Router() { stop(); }

  // Collective. The core must stay where it is, and usable until stop().
  Status start(Core& core, MPI_Comm comm, std::uint64_t max_message) noexcept;
  // Collective, if it was started. Nothing is routed afterwards.
  void stop() noexcept;
  // Collective, if it was started; otherwise ok.
  Status meet() noexcept;

  bool started() const noexcept { return core_ != nullptr; }
  bool lost() const noexcept { return links_.lost(); }
  // Done by the owner of the key, which is another rank.
  Found write(const UntypedMutation& mutation) noexcept;
  Found read(const UntypedKey& key, FunctionRef<void(const UntypedValue&)> visit) noexcept;

 private:
  struct Head;
  static Head head_of(const char* message) noexcept;
  // Sends a message: its first piece with one tag, the rest with another.
  Status send(const char* message, std::uint64_t size, int to, int first_tag, int tag) noexcept;
  // Receives what follows a first piece. Returns the body, which is in `first` or in `whole`; null
  // if there is no memory for it.
  Expected<const char*> rest(char* first, Grown<char>& whole, int from, int tag) noexcept;

  Found call(const UntypedMutation& mutation, std::uint8_t what,
             FunctionRef<void(const UntypedValue&)> visit) noexcept;
  Found exchange(Grown<char>& message, int owner, unsigned slot,
                 FunctionRef<void(const UntypedValue&)> visit) noexcept;
  unsigned take_slot() noexcept;
  void give_back(unsigned slot) noexcept { free_slots_.fetch_or(std::uint64_t{1} << slot); }

  void serve() noexcept;
  Status answer(int from) noexcept;
  Found perform(const Head& head, const char* body, Grown<char>& value) noexcept;
  void end() noexcept;

  struct Service {
    Router& router;
    void operator()() const noexcept { router.serve(); }
  };

  Core* core_ = nullptr;
  Comm links_;
  std::uint64_t piece_ = 0;  // the most bytes of a message of MPI
  Grown<char> first_;        // of the service thread: the first piece of a request
  RealPlatform::Atomic<std::uint64_t> free_slots_{~std::uint64_t{0}};
  RealPlatform::Atomic<bool> stopping_{false};
  Service service_{*this};
  RealPlatform::Thread thread_;
};

}  // namespace perdure::mpi::detail
