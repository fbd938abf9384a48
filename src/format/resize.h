// Resize: raises the maximum of a pool that no process has open.
//
// WHAT  A resize writes the header and nothing else. If the last extent table has no room for the
//   words of the new extents, the header gets one more table (heap/geometry.h). It lies behind the
//   old maximum, and its words get space when the file grows by their extents. Nothing moves, and
//   nothing is recovered: the next open finds the pool as its last owner left it, with another
//   maximum.
// CRASHES  The commit is the first header copy, which is whole or loses to the other one. The next
//   open writes both copies before it stores anything else. So both name the new table before the
//   file can grow over it.
#pragma once

#include "format/recovery.h"

namespace perdure::format {

template <Platform P>
class Resize : public Recovery<P> {
  using Base = Recovery<P>;

 public:
  using Base::Base;

  // Instead of an opening, and the only call. Refuses what the first phase of an opening refuses.
  // Durable when it returns, in every mode. O(extents).
  [[gnu::noinline]] Status resize(const OpenRequest& request, std::uint64_t max_bytes) {
    OpenReport report;
    OpenRequest whole = request;
    whole.at_once = nullptr;  // nothing is read later
    if (Status s = this->examine(whole, report); !s.ok()) return s;
    if (Status s = raise_max(max_bytes, header_); !s.ok()) return s;
    // The counting copy may be of a killed process, and not durable yet. If a power failure tore it
    // while the other one is torn, no header would be left.
    if (!platform_.sync(this->storage_.base(), 2 * layout::kHeaderBytes,
                        "pool.resize.headers"_site)) {
      return StatusCode::poisoned;
    }
    return this->write_headers("pool.resize.second_copy"_site);
  }

 protected:
  using Base::header_, Base::platform_;
};

}  // namespace perdure::format
