#include "pool/left_open.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "cut/live_image.h"
#include "format/header.h"
#include "platform/boot_evidence.h"
#include "platform/mounts.h"
#include "pool/with_path.h"
#include "util/path.h"

namespace perdure {

Status is_a_copy(std::string_view path) noexcept {
  return Status::format(
      StatusCode::untrusted,
      "is a copy of a pool that was open, without what its log and live image have; close the pool "
      "before you copy its file, or open the copy with its log beside it and accept what it has "
      "(perdure check %.*s --accept)",
      length(path), path.data());
}

bool is_dirty_file_in_memory(const RealFileSystem& files, std::string_view image) noexcept {
  PathText dirty;
  RealFileSystem::Place at{};
  return dirty.assign(image, "-dirty") && files.find(dirty.c_str(), at).ok() && is_in_memory(at);
}

// Kernels before 6.8 have no number of the mount.
bool stayed_mounted(const RealFileSystem& files, const layout::BaseMark& mark,
                    std::string_view image) noexcept {
  const std::uint64_t before = mark.live.mount_id;
  const std::uint64_t now = mount_of_folder(folder_of(image));
  return (now == before && now != 0) || is_dirty_file_in_memory(files, image);
}

bool in_this_boot(const layout::BaseMark& mark, const layout::Identity& here) noexcept {
  return layout::same_id(mark.live.boot_id, here.boot_id);
}

// After a restart the number of the file system may be another one.
bool of_this_file(const layout::BaseMark& mark, const layout::Identity& here) noexcept {
  return mark.live.inode == here.inode &&
         (mark.live.filesystem_id == here.filesystem_id || !in_this_boot(mark, here));
}

Status has_its_parts(const FileStorage& base, const char* path) noexcept {
  if (!is_mounted_alone(base.descriptor(), path)) return {};
  return Status::format(StatusCode::unsupported,
                        "was left open in durability `buffered`, and its file is mounted alone, "
                        "without the log and the live image that belong to it; mount its folder");
}

Status read_mark(const FileStorage& storage, layout::BaseMark& mark) noexcept {
  mark = {};
  std::unique_ptr<std::byte[]> pages(new (std::nothrow) std::byte[layout::kDirectoryOffset]);
  if (pages == nullptr) return StatusCode::out_of_memory;
  const std::int64_t n = storage.read(pages.get(), layout::kDirectoryOffset, 0);
  if (n < 0) return Status::format(StatusCode::io, "cannot read: %s", std::strerror(errno));
  // What is no pool has no mark. Its header says what it is.
  if (n < static_cast<std::int64_t>(layout::kDirectoryOffset)) return {};
  layout::BaseMark copies[2];
  for (std::uint64_t i = 0; i < 2; ++i) {
    std::memcpy(&copies[i], pages.get() + i * layout::kMarkStride + layout::kMarkOffset,
                sizeof(copies[i]));
  }
  int counts = -1;
  Status s = layout::choose_mark(copies, counts);
  if (counts >= 0) mark = copies[counts];
  layout::Header header;
  const bool damaged = s == StatusCode::corruption;
  if (damaged && !read_header(pages.get(), storage.size(), header).ok()) return {};
  const bool buffered = damaged && (header.incompatible & layout::kBuffered) != 0;
  return damaged && !buffered ? Status() : std::move(s);
}

Status may_read_log(const layout::BaseMark& mark, const layout::Identity& identity,
                    std::string_view path) noexcept {
  if (!layout::is_known(identity.boot_id) || !layout::is_known(mark.live.boot_id)) {
    return Status::format(StatusCode::live_missing,
                          "was left open, and the boot's id cannot be read, so a power failure "
                          "cannot be ruled out");
  }
  return of_this_file(mark, identity) ? Status() : is_a_copy(path);
}

Status observe_live(FileStorage& storage, FileStorage& base, const layout::BaseMark& mark,
                    std::string_view path, const layout::Identity& identity) noexcept {
  if (!in_this_boot(mark, identity)) {
    return Status::format(StatusCode::untrusted,
                          "was open when the machine went down; open it for writing once (perdure "
                          "check %.*s), so that it is restored from its log",
                          length(path), path.data());
  }
  if (!of_this_file(mark, identity)) return is_a_copy(path);
  PathText live;
  if (Status s = LiveImage::path_of(mark, path, live); !s.ok()) return s;
  layout::LiveHead head;
  Status s = LiveImage::read_head(RealFileSystem(), live.c_str(), head, storage);
  const bool doubtful = s.ok() && ((head.flags & layout::kFailed) != 0 ||
                                   !stayed_mounted(RealFileSystem(), mark, live.c_str()));
  if (doubtful) {
    return Status::format(StatusCode::live_missing,
                          "the disk may lack a part of its live image %s; open it for writing "
                          "(perdure check %.*s)",
                          live.c_str(), length(path), path.data());
  }
  if (s.ok() && !LiveImage::fits(head, mark)) {
    // The owner may have folded its log since the mark was read.
    layout::BaseMark now{};
    if (Status read = read_mark(storage, now); !read.ok()) return read;
    if (now.state != layout::BaseState::open) return {};  // closed: the base is the pool
    if (now.number != mark.number) return observe_live(storage, base, now, path, identity);
    s = StatusCode::corruption;
  }
  base.close();
  base.take(storage);
  if (s.ok()) s = storage.open(live.c_str(), FileStorage::Access::observer);
  if (s.ok()) return s;
  return Status::format(StatusCode::live_missing, "its live image %s cannot be read: %.*s",
                        live.c_str(), length(s.message()), s.message().data());
}

}  // namespace perdure
