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

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "cut/log_format.h"
#include "platform/file_system.h"

namespace perdure {

// For an id.
template <class P, std::size_t N>
void fill_random(std::uint8_t (&to)[N]) noexcept {
  static_assert(N % 8 == 0);
  for (std::size_t i = 0; i < N; i += 8) {
    const std::uint64_t word = P::random();
    std::memcpy(to + i, &word, sizeof(word));
  }
}

template <class P>
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
  Status write(layout::BaseMark mark) noexcept;
  // Makes the mark that counts durable, in both copies: a process before this one may not have come
  // to that, and what it wrote to the other copy may yet reach the disk.
  Status settle() noexcept {
    Status own = put(mark_, copy_);
    const bool other = own.ok() && P::runs("log.start.other"_site);
    return other ? write(mark_) : std::move(own);
  }
  // The same as write() with both copies.
  Status write_both(const layout::BaseMark& mark) noexcept {
    Status first = write(mark);
    return first.ok() ? write(mark) : std::move(first);
  }

 private:
  static std::uint64_t place(std::uint64_t copy) noexcept {
    return copy * layout::kMarkStride + layout::kMarkOffset;
  }

  Status put(const layout::BaseMark& mark, std::uint64_t copy) noexcept;

  FileSystem& files_;
  FileSystem::File base_;
  layout::BaseMark mark_{};
  std::uint64_t copy_ = 1;    // that counts
  std::uint64_t number_ = 0;  // the greatest that was used, also by a write that failed
};

template <class P>
Status BaseMarks<P>::read() noexcept {
  layout::BaseMark copies[2] = {};
  for (std::uint64_t i = 0; i < 2; ++i) {
    auto got = files_.read(base_, &copies[i], sizeof(copies[i]), place(i));
    if (!got) return std::move(got.error());
    if (*got != sizeof(copies[i])) copies[i] = {};  // a file that is shorter has none
  }
  int counts = -1;
  Status s = layout::choose_mark(copies, counts);
  if (counts >= 0) {
    mark_ = copies[counts];
    copy_ = static_cast<std::uint64_t>(counts);
  }
  number_ = mark_.number;
  return s;
}

template <class P>
Status BaseMarks<P>::write(layout::BaseMark mark) noexcept {
  // A number is used once: a write that failed may yet reach the disk.
  mark.magic = layout::kMarkMagic;
  mark.number = ++number_;
  mark.crc = layout::mark_crc(mark);
  if (Status s = put(mark, 1 - copy_); !s.ok()) return s;
  mark_ = mark;
  copy_ = 1 - copy_;
  return {};
}

template <class P>
Status BaseMarks<P>::put(const layout::BaseMark& mark, std::uint64_t copy) noexcept {
  if (Status s = files_.write(base_, &mark, sizeof(mark), place(copy)); !s.ok()) return s;
  return P::runs("log.mark.sync"_site) ? files_.sync(base_) : Status();
}

}  // namespace perdure
