// KillChild: a process that opens the store, changes it and is killed meanwhile.
//
// The fork happens before the benchmark starts any thread, because a process forked from one with
// threads may do very little. The child then waits. It inserts keys that no phase uses, and erases
// them again. Therefore all keys of the ledger must be present when the store is opened after it.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "bench/harness/subject.h"
#include "bench/workloads/keys.h"

namespace perdure::bench {

class KillChild {
 public:
  KillChild() = default;
  ~KillChild();  // ends an unused child
  KillChild(const KillChild&) = delete;
  KillChild& operator=(const KillChild&) = delete;

  Result<void> start(Subject& subject, const KeySpace& keys, const ValueCodec& values);
  // Lets the child open the store, which must be closed here. Kills it with SIGKILL while it works
  // on keys from index `first` up, and waits until it is dead.
  Result<void> dirty_and_kill(std::uint64_t first);

 private:
  pid_t pid_ = -1;
  int command_ = -1;  // write end: the first index
  int report_ = -1;   // read end: an error message, or one 'k' once the store is dirty
};

}  // namespace perdure::bench
