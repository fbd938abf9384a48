// BaseMarks: what the file of a pool says of the log beside it.
//
// WHAT  A base that is open must not be taken for the whole pool: its log may have epochs that it
//   does not have. A mark says so, in a sector that the pool itself does not use.
// INVARIANTS
//   log.B1  A mark is durable before what it allows: "open" before the first epoch, "folding"
//       before the first line that the base gets, "folded" and "closed" after the last one.
//   log.B2  The mark that counts is overwritten by itself only: a write that fails leaves a
//       half.
//   log.B3  Both copies say "closed" before the log is removed. Otherwise the damage of one copy
//       would leave a base that asks for its log.
// Thread safety: one thread.
#pragma once

#include <cstdint>

#include "cut/log_format.h"
#include "platform/file_system.h"

namespace perdure {

void fill_random(std::uint8_t (&id)[16]) noexcept;
// Names the live image of a restore: the same for each attempt with this file until a mark names
// one, so that the next one finds what another that was killed has left. A copy of the pool gets
// another one. `before`: the mark that counts.
void derive_live_id(const layout::BaseMark& before, layout::LivePlace& place) noexcept;

class BaseMarks {
 public:
  BaseMarks(FileSystem& files, FileSystem::File base) noexcept : files_(files), base_(base) {}

  // Reads the mark that counts. A pool that never had a log has none: then the mark is all zero.
  // Errors: corruption (both copies are damaged), io.
  Status read() noexcept;
  const layout::BaseMark& mark() const noexcept { return mark_; }
  bool none() const noexcept { return mark_.magic == 0; }

  // Writes a mark durably over the copy that does not count. After an error either mark may count;
  // mark() is the one before. Try it again only as a part of a new attempt of the whole operation.
  Status write(layout::BaseMark mark, AnySite site) noexcept;
  // The same with both copies.
  Status write_both(const layout::BaseMark& mark, AnySite first, AnySite second) noexcept;
  // Makes the mark that counts durable, in both copies: a process before this one may not have come
  // to that, and what it wrote to the other copy may yet reach the disk.
  Status settle() noexcept;

 private:
  Status put(const layout::BaseMark& mark, std::uint64_t copy) noexcept;

  FileSystem& files_;
  FileSystem::File base_;
  layout::BaseMark mark_{};
  std::uint64_t copy_ = 1;    // that counts
  std::uint64_t number_ = 0;  // the greatest that was used, also by a write that failed
};

}  // namespace perdure
