#include "cut/live_image.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "platform/boot_evidence.h"

namespace perdure {

namespace {

using layout::LiveHead;

constexpr std::string_view kDirtySuffix = "-dirty";
constexpr std::string_view kAside = ".unknown-";  // and the number of set_live_aside()
constexpr std::size_t kAsideDigits = 16;

Status too_long(std::string_view path) noexcept {
  return Status::format(StatusCode::invalid_argument, "%.*s: the path is too long",
                        static_cast<int>(path.size()), path.data());
}

}  // namespace

Status LiveImage::path_of(const layout::BaseMark& mark, std::string_view base,
                          PathText& out) noexcept {
  const std::string_view folder(
      mark.live.memory_directory,
      ::strnlen(mark.live.memory_directory, sizeof(mark.live.memory_directory)));
  if (folder.empty()) return out.assign(base, "-live") ? Status() : too_long(base);
  char name[64] = "/perdure-";
  std::size_t at = std::strlen(name);
  for (const std::uint8_t byte : mark.live.live_id) {
    at += static_cast<std::size_t>(std::snprintf(name + at, sizeof(name) - at, "%02x", byte));
  }
  return out.assign(folder, name) ? Status() : too_long(folder);
}

Status LiveImage::read_head(const RealFileSystem& files, std::string_view path, LiveHead& out,
                            const FileStorage& base) noexcept {
  RealFileSystem::Place at{};
  if (Status s = files.find(path, at); !s.ok()) return s;
  FileStorage file;
  if (at.folder >= 0) file.look_in(at.folder);
  if (Status s = file.open(at.name, FileStorage::Access::observer); !s.ok()) return s;
  const std::int64_t n = file.read(&out, sizeof(out), layout::kMarkOffset);
  if (n == sizeof(out) && layout::is_live_head(out) && file.is_of_user_of(base)) return {};
  return Status::format(StatusCode::corruption, "is no live image of this user");
}

bool LiveImage::fits(const LiveHead& head, const layout::BaseMark& mark) noexcept {
  const layout::LivePlace& live = mark.live;
  return layout::same_id(head.live_id, live.live_id) && layout::same_id(head.log_id, mark.log_id) &&
         layout::same_id(head.boot_id, live.boot_id) && layout::is_known(head.boot_id) &&
         head.inode == live.inode && head.filesystem_id == live.filesystem_id &&
         (head.folded == mark.folded || head.folding == mark.folded);
}

Status LiveImage::name_files(std::string_view path, RealFileSystem::Place& image,
                             PathText& dirty) noexcept {
  if (Status s = files_.find(path, image); !s.ok()) return s;
  if (!dirty.assign(image.name, kDirtySuffix)) return too_long(path);
  for (FileStorage* file : {&image_, &file_}) {
    if (image.folder >= 0) file->look_in(image.folder);
    file->keep_until_power_failure();
  }
  return {};
}

// No other user may open them in between.
Status LiveImage::make_files(std::string_view path, std::uint64_t max_bytes,
                             const FileStorage& like) noexcept {
  constexpr unsigned kOwnerOnly = 0600;
  RealFileSystem::Place name{};
  PathText dirty;
  Status s = name_files(path, name, dirty);
  if (s.ok()) s = image_.create(name.name, kOwnerOnly);
  if (s.ok()) s = file_.create(dirty.c_str(), kOwnerOnly);
  if (!s.ok()) return s;
  image_.set_mode_of(like);
  file_.set_mode_of(like);
  if (s = image_.map(max_bytes); !s.ok()) return s;
  return file_.map(Dirty::bytes_for(max_bytes));
}

Status LiveImage::make(std::string_view path, const layout::BaseMark& mark, Base base,
                       std::uint64_t bytes, const FileStorage& like, std::uint64_t begun) noexcept {
  chunks_.emplace(image_, base.file);
  const std::uint64_t max_bytes = mark.live.max_bytes;
  if (Status s = make_files(path, max_bytes, like); !s.ok()) return s;
  dirty_.emplace(file_, max_bytes);
  if (Status s = dirty_->create(); !s.ok()) return s;
  image_.watch_growth(*this);
  if (Status s = image_.lengthen(align_up(bytes, kPage)); !s.ok()) return s;
  if (Status s = dirty_->cover(image_.size()); !s.ok()) return s;
  const std::uint64_t covered = align_up(std::min(base.bytes, bytes), kPage);
  // No chunk brings the space of what the base does not have.
  if (image_.size() > covered) {
    if (Status s = image_.allocate(covered, image_.size() - covered); !s.ok()) return s;
  }
  layout::LiveHead head{};
  std::memcpy(head.live_id, mark.live.live_id, sizeof(head.live_id));
  std::memcpy(head.log_id, mark.log_id, sizeof(head.log_id));
  std::memcpy(head.boot_id, mark.live.boot_id, sizeof(head.boot_id));
  head.inode = mark.live.inode;
  head.filesystem_id = mark.live.filesystem_id;
  head.folded = head.folding = mark.folded;
  head.durable[0] = {.epoch = mark.folded, .seal = mark.folded_seal};
  head.durable_unix_ns = RealPlatform::unix_ns();
  head.clocks = boot_clocks();
  head.begun = std::max(begun, mark.folded);
  return chunks_->begin(std::min(base.bytes, bytes), head);
}

Status LiveImage::publish() noexcept {
  Status s = file_.publish();
  return s.ok() ? image_.publish() : std::move(s);
}

void LiveImage::discard() noexcept {
  image_.discard_new();
  file_.discard_new();
  close();
}

Status LiveImage::inherit(std::string_view path, const layout::BaseMark& mark, int base,
                          const FileStorage& like) noexcept {
  chunks_.emplace(image_, base);
  const std::uint64_t max_bytes = mark.live.max_bytes;
  RealFileSystem::Place name{};
  PathText dirty;
  Status s = name_files(path, name, dirty);
  if (s.ok()) s = image_.open(name.name, FileStorage::Access::owner);
  if (s.ok()) s = file_.open(dirty.c_str(), FileStorage::Access::owner);
  if (s.ok() && !(image_.is_of_user_of(like) && file_.is_of_user_of(like))) {
    s = Status::format(StatusCode::corruption, "another user may have put it there");
  }
  if (s.ok()) s = image_.map(max_bytes);
  if (s.ok()) s = file_.map(Dirty::bytes_for(max_bytes));
  if (!s.ok()) return s;
  dirty_.emplace(file_, max_bytes);
  image_.watch_growth(*this);
  if (image_.size() < 2 * kPage) return StatusCode::corruption;
  if (s = dirty_->inherit(); !s.ok()) return s;
  if (s = chunks_->go_on(); s.ok()) set_rests(false);
  return s;
}

void LiveImage::remove() noexcept {
  image_.remove_name();
  file_.remove_name();
}

void LiveImage::close() noexcept {
  dirty_.reset();
  file_.close();
  image_.close();
  chunks_.reset();
}

void LiveImage::abandon() noexcept {
  file_.abandon();
  image_.abandon();
  if (chunks_) chunks_->abandon();
}

// In this order: a kill in between makes more lines dirty than needed.
void LiveImage::begin_log_anew(EpochId folded, std::uint64_t begun) noexcept {
  constexpr std::uint64_t kLines = 8;
  static_assert(layout::kMarkOffset % (kLines * kLine) == 0 &&
                sizeof(layout::BaseMark) % (kLines * kLine) == 0);
  std::uint64_t at = 0;
  for (std::uint64_t line = 0; line < image_.size() / kLine; line += kLines) {
    if (chunks_->is_live(line * kLine) && !layout::is_of_mark(line))
      dirty_->note(nullptr, at, line, kLines);
  }
  set_begun(begun);
  set_durable(folded, 0);
}

std::uint64_t LiveImage::durable_unix_ns() const noexcept {
  const std::uint64_t now = RealPlatform::unix_ns();
  const std::uint64_t at = word(head().durable_unix_ns).load(std::memory_order_relaxed);
  return (at & layout::kNothingSince) != 0 ? now : at;
}

void LiveImage::set_rests(bool rests) noexcept {
  Word& at = word(head().durable_unix_ns);
  if (rests) {
    at.fetch_or(layout::kNothingSince, std::memory_order_release);
  } else {
    at.fetch_and(~layout::kNothingSince, std::memory_order_seq_cst);
  }
}

void LiveImage::set_durable(EpochId id, std::uint64_t unix_ns) noexcept {
  LiveHead& live = head();
  const std::uint64_t changes = word(live.changes).load(std::memory_order_relaxed) + 1;
  live.durable[changes % 2] = id;
  set(live.changes, changes);
  if (unix_ns == 0) return;
  set(live.durable_unix_ns, unix_ns);
  set_clocks();
}

void LiveImage::set_clocks() noexcept { set(head().clocks, boot_clocks()); }

bool LiveImage::has_lost(std::uint64_t flag) noexcept {
  const bool image = image_.lost_writes();
  const bool lost = file_.lost_writes() || image;
  if (lost) set_flag(flag);
  return lost;
}

Status set_live_aside(FileSystem& files, std::string_view path, std::uint64_t id,
                      PathText& to) noexcept {
  PathText from, aside;
  char suffix[40];
  const std::size_t at = kAside.copy(suffix, sizeof(suffix));
  std::snprintf(suffix + at, sizeof(suffix) - at, "%016lx", id);
  if (!to.assign(path, suffix) || !from.assign(path, kDirtySuffix) ||
      !aside.assign(to.c_str(), kDirtySuffix)) {
    return too_long(path);
  }
  Status other = files.rename(from.c_str(), aside.c_str());
  Status moved = files.rename(path, to.c_str());
  if (!other.ok() && other != StatusCode::not_found) return other;
  return moved == StatusCode::not_found ? Status() : std::move(moved);
}

bool is_aside(std::string_view path) noexcept {
  if (path.size() < kAside.size() + kAsideDigits) return false;
  const std::string_view end = path.substr(path.size() - kAside.size() - kAsideDigits);
  return end.starts_with(kAside) &&
         end.find_first_not_of("0123456789abcdef", kAside.size()) == std::string_view::npos;
}

Status list_aside(FileSystem& files, std::string_view path,
                  FunctionRef<void(std::string_view name)> visit) noexcept {
  const std::string_view image = path.substr(path.rfind('/') + 1);
  return files.list(folder_of(path), [&](std::string_view name) {
    std::string_view given = name;
    if (given.ends_with(kDirtySuffix)) given.remove_suffix(kDirtySuffix.size());
    const bool long_as = given.size() == image.size() + kAside.size() + kAsideDigits;
    if (long_as && given.starts_with(image) && is_aside(given)) visit(name);
  });
}

void remove_live(FileSystem& files, std::string_view path) noexcept {
  for (const char* suffix : {"-dirty", "-dirty.creating", ".creating", ""}) {
    PathText part;
    if (part.assign(path, suffix)) (void)files.remove(part.c_str());
  }
}

}  // namespace perdure
