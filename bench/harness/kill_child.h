// KillChild: a process that opens the store, changes it and is killed in the middle of that.
//
// It is forked before the benchmark starts any thread, as a fork of a process with threads may do
// very little, and waits. It adds keys that nobody else uses and takes them out again, so that all
// keys of the ledger must still be there when the store is opened after it.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "bench/harness/subject.h"
#include "bench/workloads/keys.h"

namespace perdure::bench {

class KillChild {
 public:
  KillChild() = default;
  ~KillChild();  // an unused child ends
  KillChild(const KillChild&) = delete;
  KillChild& operator=(const KillChild&) = delete;

  Result<void> start(Subject& subject, const KeySpace& keys, const ValueCodec& values);
  // Lets it open the store, which must be closed here, and kills it with SIGKILL while it works on
  // keys from index `first` up. Returns when it is dead.
  Result<void> dirty_and_kill(std::uint64_t first);

 private:
  pid_t pid_ = -1;
  int command_ = -1;  // write end: the first index
  int answer_ = -1;   // read end: a message, or one 'k' once the store is dirty
};

}  // namespace perdure::bench
