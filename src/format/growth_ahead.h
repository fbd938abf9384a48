// GrowthAhead: gets the space of a pool's next growth before an operation needs it.
//
// WHAT  Getting space from the system takes a tenth of an insert's time (tmpfs zeroes it and makes
//   huge pages of it), all of it in the operation that reaches the end of the file. After every
//   growth of a pool of kFrom bytes or more, background work lengthens the file by the next growth,
//   or by what an engine expects to need (HeapHost::expect), in pieces of at most kPiece. grow()
//   then finds the space, and only names it in the header. What is not there in time, the thread
//   that needs a large run gets in the same pieces (HeapHost::prepare) before it calls grow().
// INVARIANTS  The file is longer than the header says, by at most one growth. pool.I2 allows that:
//   a crash inside grow() leaves the same. The space is neither read nor written before grow().
// PROGRESS  No latch of the pool or the heap is held while the system zeroes a piece, only the
//   storage's. A growth gets the space of its words in the table, and waits for the storage there,
//   at most for a piece. Two threads may get the same piece: the second one finds it there. A full
//   medium is no error here: the growth that needs the space fails.
#pragma once

#include <cstdint>

#include "background/background.h"

namespace perdure {

template <class Core, class P>
class GrowthAhead final : public BackgroundWork<P> {
 public:
  static constexpr std::uint64_t kFrom = std::uint64_t{64} << 20;
  static constexpr std::uint64_t kExpectedFrom = std::uint64_t{2} << 20;
  static constexpr std::uint64_t kPiece = std::uint64_t{8} << 20;  // huge pages of one call

  explicit GrowthAhead(Core& core) : core_(core) {}

  // After a growth to `bytes`; the pool's latch is held.
  void grown(Background<P>& background, std::uint64_t bytes) {
    if (bytes >= kFrom) prepare(background);
  }
  // Operations will need `bytes` more; likewise.
  void expected(Background<P>& background, std::uint64_t bytes) {
    if (bytes >= kExpectedFrom) prepare(background);
  }
  Step run_some() override { return core_.prepare_growth(kPiece) ? Step::more : Step::rest; }

 private:
  void prepare(Background<P>& background) {
    if (added_) return background.wake(*this);
    added_ = true;
    background.add(*this);
  }

  Core& core_;
  bool added_ = false;
};

}  // namespace perdure
