#include "cut/base_mark.h"

#include <cstring>
#include <utility>

#include "platform/real_platform.h"
#include "util/hash.h"

namespace perdure {

namespace {

std::uint64_t place(std::uint64_t copy) noexcept {
  return copy * layout::kMarkStride + layout::kMarkOffset;
}

}  // namespace

void fill_random(std::uint8_t (&id)[16]) noexcept {
  for (std::size_t i = 0; i < sizeof(id); i += 8) {
    const std::uint64_t word = RealPlatform::random();
    std::memcpy(id + i, &word, sizeof(word));
  }
}

void derive_live_id(const layout::BaseMark& before, layout::LivePlace& place) noexcept {
  std::uint64_t words[2], log[2];
  std::memcpy(words, before.live.live_id, sizeof(words));
  std::memcpy(log, before.log_id, sizeof(log));
  const std::uint64_t file[2] = {place.inode, place.filesystem_id};
  for (int i = 0; i < 2; ++i)
    words[i] = mix(words[i] ^ mix(log[1 - i] + mix(file[i]) + words[1 - i]));
  std::memcpy(place.live_id, words, sizeof(words));
}

Status BaseMarks::read() noexcept {
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

Status BaseMarks::write(layout::BaseMark mark, AnySite site) noexcept {
  if (!files_.does(site)) return {};
  // A number is used once: a write that failed may yet reach the disk.
  mark.magic = layout::kMarkMagic;
  mark.number = ++number_;
  mark.crc = layout::mark_crc(mark);
  if (Status s = put(mark, 1 - copy_); !s.ok()) return s;
  mark_ = mark;
  copy_ = 1 - copy_;
  return {};
}

Status BaseMarks::write_both(const layout::BaseMark& mark, AnySite first, AnySite second) noexcept {
  Status s = write(mark, first);
  return s.ok() ? write(mark, second) : std::move(s);
}

Status BaseMarks::settle() noexcept {
  if (!files_.does("log.start.mark"_site) || none()) return {};
  Status s = put(mark_, copy_);
  return s.ok() ? write(mark_, "log.start.other"_site) : std::move(s);
}

Status BaseMarks::put(const layout::BaseMark& mark, std::uint64_t copy) noexcept {
  if (Status s = files_.write(base_, &mark, sizeof(mark), place(copy)); !s.ok()) return s;
  return files_.sync(base_, "log.mark.sync"_site);
}

}  // namespace perdure
