#include "pool/buffered.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "cut/image_check.h"
#include "format/header.h"
#include "platform/mounts.h"
#include "platform/nap.h"
#include "pool/left_open.h"
#include "pool/with_path.h"

namespace perdure {

namespace {

constexpr std::uint64_t kPatience = 5'000'000'000;  // nanoseconds
constexpr std::uint64_t kSayEvery = 1'000'000'000;
constexpr std::uint64_t kOften = 1 << 16;  // lines
constexpr std::uint8_t kNoBoot = 0xFF;     // each byte of a boot's id: of none

// For a part of the pool: `not_found` and `exists` are said of the pool itself only.
Status of_part(const char* part, std::string_view path, const Status& s) noexcept {
  const bool other = s == StatusCode::not_found || s == StatusCode::exists;
  return Status::format(other ? StatusCode::io : s.code(), "%s %.*s: %.*s", part, length(path),
                        path.data(), length(s.message()), s.message().data());
}

// Removes the image of `old` at `path`, which is not needed any more, or what was not finished of
// it; unless the next one lies there: make_way() decides about that.
void remove_elsewhere(RealFileSystem& files, const FileStorage& base, std::string_view path,
                      const layout::LivePlace& old, std::string_view next) noexcept {
  if (path == next) return;
  layout::LiveHead head;
  const Status found = LiveImage::read_head(files, path, head, base);
  const bool own = found.ok() && layout::same_id(head.live_id, old.live_id);
  const bool unfinished = found == StatusCode::not_found && old.memory_directory[0] != '\0';
  if (own || unfinished) remove_live(files, path);
}

constexpr std::uint64_t kLeastPiece = 16, kMostPiece = 2048;  // pages: 64 KiB to 8 MiB
constexpr std::uint64_t kLeastSegment = 4_MiB;
constexpr std::uint64_t kLeastLog = 8 * kLeastSegment;

// Segments of small pools, and of short logs, are small.
LogShape shape_for(std::uint64_t max_bytes, const BufferedOptions& options) noexcept {
  LogShape shape{.keep_bytes = options.keep_log_bytes};
  if (max_bytes < 64_MiB) shape.segment_bytes = kLeastSegment;
  if (options.log_bytes != 0) {
    const std::uint64_t part = options.log_bytes / 16 / kPage * kPage;
    shape.segment_bytes = std::clamp(part, kLeastSegment, shape.segment_bytes);
  }
  return shape;
}

}  // namespace

Buffered::~Buffered() {
  if (fold_thread_) fold_thread_->stop();
  if (stream_) stream_->stop();
  files_.let_go();
  real_files_.let_go();
}

Status Buffered::verify(const BufferedOptions& options) noexcept {
  if (options.interval_ms < 1 || options.interval_ms > 3'600'000) {
    return Status::format(StatusCode::invalid_argument,
                          "buffered.interval_ms %u; 1 to 3,600,000 are allowed",
                          options.interval_ms);
  }
  if (options.on_lag > OnLag::report || options.on_log_failure > OnLogFailure::serve) {
    return Status::format(StatusCode::invalid_argument,
                          "buffered.on_lag or on_log_failure is none");
  }
  if (options.log_bytes != 0 && options.log_bytes < kLeastLog) {
    return Status::format(StatusCode::invalid_argument, "buffered.log_bytes %lu; 0, or %lu or more",
                          options.log_bytes, kLeastLog);
  }
  const std::string_view folder = options.memory_directory;
  if (folder.size() >= sizeof(layout::LivePlace::memory_directory) ||
      folder.find('\0') != std::string_view::npos || (!folder.empty() && folder[0] != '/')) {
    return Status::format(StatusCode::invalid_argument,
                          "buffered.memory_directory: an absolute path of less than %zu bytes",
                          sizeof(layout::LivePlace::memory_directory));
  }
  return {};
}

Status Buffered::name_paths(std::string_view path) noexcept {
  if (path_.assign(path) && folder_.assign(path, "-log") && parent_.assign(folder_of(path)))
    return {};
  return Status::format(StatusCode::invalid_argument, "the path is too long for the log beside it");
}

Status Buffered::hold_folders() noexcept {
  if (Status s = files_.hold(parent_.c_str(), false); !s.ok()) return s;
  if (&files_ == &real_files_) return {};
  return real_files_.hold(parent_.c_str(), false);
}

// The path of the live image, in a folder that is held. Errors: invalid_argument, io.
Status Buffered::image_path(const layout::BaseMark& mark, PathText& path) noexcept {
  if (Status s = LiveImage::path_of(mark, path_.c_str(), path); !s.ok()) return s;
  Status held = real_files_.hold(folder_of(path.c_str()), false);
  return held == StatusCode::not_found ? Status() : std::move(held);
}

// Of the folder in which an image of this mark lies.
std::uint64_t Buffered::mount_of(const layout::BaseMark& mark) noexcept {
  PathText path;
  if (!image_path(mark, path).ok()) return 0;
  return mount_of_folder(folder_of(path.c_str()));
}

Status Buffered::look(std::string_view path, const BufferedOptions& options,
                      int descriptor) noexcept {
  if (Status s = name_paths(path); !s.ok()) return s;
  if (Status s = hold_folders(); !s.ok()) return s;
  auto base = files_.borrow(path_.c_str(), descriptor);
  if (!base) return std::move(base.error());
  base_ = *base;
  files_.resemble(base_);
  Status held = files_.hold(folder_.c_str(), true);
  if (!held.ok() && held != StatusCode::not_found) return held;
  BaseMarks marks(files_, base_);
  if (Status s = marks.read(); !s.ok()) return s;
  // The shape depends on the size of the pool, which begin() has from elsewhere.
  epochs_log_.emplace(files_, base_, folder_.c_str(), parent_.c_str(),
                      shape_for(marks.mark().live.max_bytes, options));
  return epochs_log_->read_marks();
}

layout::LivePlace Buffered::place(const Opening& opening, std::uint64_t max_bytes) noexcept {
  layout::LivePlace place{};
  fill_random(place.live_id);
  std::memcpy(place.boot_id, opening.identity.boot_id, sizeof(place.boot_id));
  place.inode = opening.identity.inode;
  place.filesystem_id = opening.identity.filesystem_id;
  place.max_bytes = max_bytes;
  opening.options.memory_directory.copy(place.memory_directory, sizeof(place.memory_directory) - 1);
  layout::BaseMark mark{};
  mark.live = place;
  place.mount_id = mount_of(mark);
  return place;
}

// --- begin ---------------------------------------------------------------------------------------

Status Buffered::write_headers(layout::Header header, int copy) noexcept {
  for (int i = 0; i < 2; ++i) {
    copy ^= 1;
    ++header.sequence;
    header.crc = header_crc(header);
    const std::uint64_t at = static_cast<std::uint64_t>(copy) * layout::kHeaderBytes;
    Status s = files_.write(base_, &header, sizeof(header), at);
    if (s.ok()) s = files_.sync(base_, kNoSite);
    if (!s.ok()) return s;
    // check.Y2: the image was made before
    if (std::byte* const image = live_.image().base(); image != nullptr)
      std::memcpy(image + at, &header, sizeof(header));
  }
  return {};
}

// Frees the name of a new live image. What lies there may be all that is left of another pool, or
// of this one before a copy was restored over it; unless the mark shows that it is not needed.
Status Buffered::make_way(std::string_view path, const Opening& opening) noexcept {
  layout::LiveHead head;
  Status found = LiveImage::read_head(real_files_, path, head, opening.base);
  const bool own = found.ok() && layout::same_id(head.live_id, mark().live.live_id);
  const bool over = own && (!left_open() || restarted_);
  // That of the mark may have lost its head in a power failure.
  PathText before;
  const bool ended = left_open() && !in_this_boot(mark(), opening.identity) &&
                     found == StatusCode::corruption && image_path(mark(), before).ok() &&
                     path == before.c_str();
  // A log of dirty lines without its image says nothing.
  if (found == StatusCode::not_found || over || ended || (found.ok() && !own && head.used == 0)) {
    remove_live(real_files_, path);
    return {};
  }
  std::uint64_t id = RealPlatform::random();
  if (found.ok()) std::memcpy(&id, head.live_id, sizeof(id));
  PathText aside;
  if (Status s = set_live_aside(real_files_, path, id, aside); !s.ok()) return s;
  // What is no image cannot be removed as one.
  log_.say(LogLevel::warning, "a live image that is not used lay there; it is %s now%s%s%s",
           aside.c_str(),
           found.ok() ? "; once the pool has what it must have, remove it (perdure remove " : "",
           found.ok() ? aside.c_str() : "", found.ok() ? ")" : "");
  return {};
}

Status Buffered::make_live(const layout::BaseMark& mark, const Opening& opening,
                           std::uint64_t bytes, std::uint64_t begun) noexcept {
  bytes = std::min(bytes, mark.live.max_bytes);
  auto size = files_.size(base_);
  if (!size) return std::move(size.error());
  PathText path;
  Status s = image_path(mark, path);
  if (s.ok()) s = make_way(path.c_str(), opening);
  if (!s.ok()) return of_part("live image", path.c_str(), s);
  auto base = files_.descriptor(base_);
  if (!base) return std::move(base.error());
  s = live_.make(path.c_str(), mark, {.file = *base, .bytes = *size}, bytes, opening.base, begun);
  return s.ok() ? Status() : of_part("live image", path.c_str(), s);
}

// Of a closed base. The name of an image in a folder of its own is in the mark only, so the mark is
// written first.
Status Buffered::clear_old(const layout::BaseMark& next, const Opening& opening) noexcept {
  PathText before, now;
  if (Status s = image_path(mark(), before); !s.ok()) return s;
  if (Status s = image_path(next, now); !s.ok()) return s;
  remove_elsewhere(real_files_, opening.base, before.c_str(), mark().live, now.c_str());
  const bool announces = next.live.memory_directory[0] != '\0';
  return announces ? epochs_log_->set_live(next.live) : Status();
}

Status Buffered::begin(const Opening& opening, layout::Header header, int copy,
                       bool trusted) noexcept {
  if (left_open()) {  // two reads of the marks differ
    return Status::format(StatusCode::busy, "its marks cannot be read reliably; try again");
  }
  if (!layout::is_known(opening.identity.boot_id)) {
    return Status::format(StatusCode::unsupported,
                          "durability `buffered` needs the id of the boot, which cannot be read; "
                          "use `process`");
  }
  if (Status s = epochs_log_->verify_folder(); !s.ok()) return s;
  // What a killed process or a copy has written is perhaps only in the page cache.
  if (Status s = files_.sync(base_, kNoSite); !s.ok()) return s;
  auto bytes = files_.size(base_);
  if (!bytes) return std::move(bytes.error());
  layout::BaseMark mark = this->mark();
  fill_random(mark.log_id);
  mark.live = place(opening, header.max_bytes);
  mark.live.unverified = trusted ? 0 : 1;
  epochs_log_.emplace(files_, base_, folder_.c_str(), parent_.c_str(),
                      shape_for(header.max_bytes, opening.options));
  Status s = epochs_log_->read_marks();
  if (s.ok()) s = clear_old(mark, opening);
  if (s.ok()) s = make_live(mark, opening, *bytes, 0);
  if (live_.has_lost_pages()) s = StatusCode::poisoned;
  if (s.ok()) s = live_.publish();
  if (!s.ok()) {
    live_.discard();
    return s;
  }
  published_ = true;
  const bool prepared = header.mode == static_cast<std::uint32_t>(Durability::buffered) &&
                        (header.incompatible & layout::kBuffered) != 0;
  if (!prepared) {
    // From here on older builds refuse the file, and this one looks for the marks.
    before_ = header;
    before_copy_ = copy;
    header.mode = static_cast<std::uint32_t>(Durability::buffered);
    header.incompatible |= layout::kBuffered;
    s = write_headers(header, copy);
  }
  if (live_.has_lost_pages()) s = StatusCode::poisoned;
  // After an error the mark may be on the disk all the same: then the next open needs the image.
  if (s.ok()) s = epochs_log_->begin(mark.log_id, mark.live, header.file_bytes);
  if (s.ok()) live_.set_used();
  return s;
}

Status Buffered::blame_image(Status why) const noexcept {
  return inherited_ ? missing(live_path_.c_str(), why) : std::move(why);
}

Status Buffered::set_verified() noexcept {
  if (mark().live.unverified == 0) return {};
  layout::LivePlace place = mark().live;
  place.unverified = 0;
  return epochs_log_->set_live(place);
}

// --- go on ---------------------------------------------------------------------------------------

Status Buffered::missing(std::string_view path, const Status& why) const noexcept {
  return Status::format(
      StatusCode::live_missing,
      "was left open, and what changed since its last durable cut is in its live image %.*s, which "
      "cannot be used: %.*s; %srun `perdure check %s --accept` to go on from the last durable cut",
      length(path), path.data(), length(why.message()), why.message().data(),
      why == StatusCode::not_found ? "bring it back, or " : "", path_.c_str());
}

// Of a killed process, which may still have its files.
Status Buffered::open_image(std::string_view path, const FileStorage& like) noexcept {
  const std::uint64_t began = RealPlatform::now_ns();
  for (;;) {
    auto base = files_.descriptor(base_);
    if (!base) return std::move(base.error());
    Status s = live_.inherit(path, mark(), *base, like);
    layout::Header header;
    if (s.ok()) s = read_header(live_.image().base(), live_.image().size(), header);
    if (live_.has_lost_pages()) s = StatusCode::poisoned;
    if (s.ok()) return s;
    live_.close();
    if (s == StatusCode::not_found || s == StatusCode::corruption) return missing(path, s);
    if (s != StatusCode::busy || RealPlatform::now_ns() - began > kPatience) {
      return of_part("live image", path, s);
    }
    nap();
  }
}

// After a kill. Until the image has passed its check nothing is changed.
Status Buffered::inherit(std::string_view path, const Opening& opening) noexcept {
  if (Status s = open_image(path, opening.base); !s.ok()) return s;
  LogReader reader(files_, folder_.c_str());
  Status s = reader.scan(mark());
  if (s == StatusCode::untrusted && reader.segments().empty())
    return inherit_without_log(reader, s, opening);
  if (s.ok()) s = verify_image(live_, reader, files_, base_);
  if (live_.has_lost_pages()) s = StatusCode::poisoned;
  if (!s.ok()) {
    live_.close();
    if (s == StatusCode::untrusted) return lacks_log(s, false);
    return s == StatusCode::corruption ? missing(path, s) : std::move(s);
  }
  inherited_ = true;
  live_.set_folded(mark().folded);
  live_.set_used();
  layout::LivePlace place = mark().live;
  place.mount_id = mount_of(mark());
  const bool moved = place.mount_id != mark().live.mount_id;
  if (live_.has_lost_pages()) return StatusCode::poisoned;
  return epochs_log_->go_on(reader, live_.durable(), moved ? &place : nullptr);
}

// The log lacks something that it must have after a power failure. Base and image together are the
// pool, until a restart takes the image. But without the log the image cannot be checked, so the
// rest of the log must be moved away first, which is not done by accident.
Status Buffered::lacks_log(const Status& why, bool gone) const noexcept {
  return Status::format(StatusCode::untrusted,
                        "%.*s; or, as long as the machine is not restarted, %saccept base and live "
                        "image, which together have everything unless a disk has failed (perdure "
                        "check %s --accept)",
                        length(why.message()), why.message().data(),
                        gone ? "" : "move the folder of the log away and ", path_.c_str());
}

Status Buffered::inherit_without_log(LogReader& reader, const Status& why,
                                     const Opening& opening) noexcept {
  if (!opening.accept_loss) {
    live_.close();
    return lacks_log(why, true);
  }
  if (live_.has_lost(layout::kDoubtful)) {
    live_.close();
    return of_part("log", folder_.c_str(), why);
  }
  const EpochId folded{.epoch = mark().folded, .seal = mark().folded_seal};
  inherited_ = true;
  live_.set_folded(mark().folded);
  live_.set_used();
  live_.begin_log_anew(folded, std::max(live_.durable().epoch, folded.epoch));
  if (live_.has_lost_pages()) return StatusCode::poisoned;
  log_.say(LogLevel::warning, "its log is missing: a new one is begun from base and live image");
  return epochs_log_->go_on(reader, folded);
}

Status Buffered::replay_into_live(LogReader& reader, std::uint64_t& lines) noexcept {
  if (Status s = live_.chunks().make_live(reader.pages()); !s.ok()) {
    PathText path;
    (void)LiveImage::path_of(mark(), path_.c_str(), path);
    return of_part("live image", path.c_str(), s);
  }
  std::uint64_t said = RealPlatform::now_ns();
  // Each line is somewhere else in memory, so the processor gets it some lines before it is stored.
  struct Next {
    std::uint64_t line;
    LineWords content;
  };
  constexpr std::uint64_t kAhead = 16;
  std::array<Next, kAhead> next;
  std::byte* const image = live_.image().base();
  const auto store = [&](const Next& at) {
    std::memcpy(image + at.line * kLine, at.content.words, kLine);
    live_.mark_dirty(at.line);
  };
  Status s = reader.replay([&](std::uint64_t line, const LineWords& content) {
    if (lines >= kAhead) store(next[lines % kAhead]);
    next[lines % kAhead] = {.line = line, .content = content};
    __builtin_prefetch(image + line * kLine, 1);
    if (++lines % kOften != 0 || RealPlatform::now_ns() - said < kSayEvery) return;
    said = RealPlatform::now_ns();
    log_.say(LogLevel::info, "is being restored from its log: %lu lines so far", lines);
  });
  for (std::uint64_t i = lines - std::min(lines, kAhead); i < lines; ++i) store(next[i % kAhead]);
  return s;
}

// After a power failure, or without the live image.
// `gives_up`: an image of this boot.
Status Buffered::restore(const Opening& opening, bool gives_up) noexcept {
  const bool copied = !of_this_file(mark(), opening.identity);
  if (copied && !opening.accept_loss) return is_a_copy(path_.c_str());
  const std::uint64_t began = RealPlatform::now_ns();
  LogReader reader(files_, folder_.c_str());
  if (Status s = reader.scan(mark()); !s.ok()) return s;
  auto bytes = files_.size(base_);
  if (!bytes) return std::move(bytes.error());
  if (*bytes < mark().folded_bytes) {
    return Status::format(StatusCode::corruption,
                          "the file was truncated: %lu bytes, its log says %lu; restore a copy",
                          *bytes, mark().folded_bytes);
  }
  if (gives_up) {
    if (Status s = give_up_image(); !s.ok()) return s;
  }
  layout::BaseMark next = mark();
  next.live = place(opening, mark().live.max_bytes);
  derive_live_id(mark(), next.live);
  next.live.unverified = copied ? 1 : mark().live.unverified;
  PathText before, now;
  Status s = image_path(mark(), before);
  if (s.ok()) s = image_path(next, now);
  if (!s.ok()) return s;
  s = make_live(next, opening, align_up(std::max(*bytes, reader.end().pool_bytes), kPage),
                reader.end().epoch);
  std::uint64_t lines = 0;
  if (s.ok()) s = replay_into_live(reader, lines);
  if (live_.has_lost_pages()) s = StatusCode::poisoned;
  if (s.ok()) s = live_.publish();
  if (!s.ok()) {
    live_.discard();
    return s;
  }
  const layout::LivePlace old = mark().live;
  const EpochId folded{.epoch = mark().folded, .seal = mark().folded_seal};
  if (s = epochs_log_->go_on(reader, folded, &next.live); !s.ok()) return s;
  live_.set_used();
  if (restarted_) remove_elsewhere(real_files_, opening.base, before.c_str(), old, now.c_str());
  log_.say(restarted_ ? LogLevel::info : LogLevel::warning,
           "restored from its log in %.1f ms: cut %lu, %lu lines; what changed after that cut is "
           "lost",
           milliseconds(RealPlatform::now_ns() - began), reader.end().epoch, lines);
  return {};
}

// An image that must not be used any more, also if this open is interrupted: as after a restart of
// the machine.
Status Buffered::give_up_image() noexcept {
  layout::LivePlace place = mark().live;
  std::memset(place.boot_id, kNoBoot, sizeof(place.boot_id));
  return epochs_log_->set_live(place);
}

// Of the boot in which the image with this head was used with that of now.
Boot Buffered::compare(const layout::LiveHead& head) const noexcept {
  const bool given_up = mark().live.boot_id[0] == kNoBoot;
  if (given_up || head.magic != layout::kLiveMagic) return Boot::unknown;
  return compare_boots(head.clocks, boot_clocks(), in_time_namespace());
}

// Whether the image with this head is of a process of this boot, and what that did is all in it, as
// far as can be told without its content (boot_evidence.h). `why`: why not.
bool Buffered::is_of_this_boot(const Opening& opening, std::string_view path,
                               const layout::LiveHead& head, const char*& why) noexcept {
  if (in_this_boot(mark(), opening.identity)) {
    why = "its file system was mounted anew, so the disk may lack a part of it";
    return stayed_mounted(real_files_, mark(), path);
  }
  return compare(head) == Boot::same && is_dirty_file_in_memory(real_files_, path);
}

// Goes on with the image of a killed process, if there is one that can be trusted. Errors:
// live_missing (why not), and others.
Status Buffered::go_on_with_image(const Opening& opening, std::string_view path,
                                  bool& told) noexcept {
  if (!of_this_file(mark(), opening.identity)) return is_a_copy(path_.c_str());
  layout::LiveHead head;
  Status found = LiveImage::read_head(real_files_, path, head, opening.base);
  const bool failed = found == StatusCode::not_found || found == StatusCode::corruption;
  if (!found.ok()) return failed ? missing(path, found) : of_part("live image", path, found);
  const char* why = "it is of another state of the pool";
  restarted_ = !in_this_boot(mark(), opening.identity) &&
               layout::same_id(head.live_id, mark().live.live_id) && compare(head) == Boot::another;
  const bool fits = LiveImage::fits(head, mark());
  told = fits && (head.flags & layout::kLost) != 0;
  if (fits && is_of_this_boot(opening, path, head, why)) {
    if ((head.flags & layout::kFailed) == 0) return inherit(path, opening);
    why = "the kernel could not write a part of it to the disk";
  }
  return missing(path, Status::format(StatusCode::corruption, "%s", why));
}

Status Buffered::go_on(const Opening& opening) noexcept {
  if (mark().live.unverified != 0 && !opening.accept_loss) {
    return refuse_untrusted(
        "the pool was not trusted, and its last process ended before a check had passed",
        path_.c_str());
  }
  PathText path;
  if (Status s = image_path(mark(), path); !s.ok()) return s;
  const bool unknown =
      !layout::is_known(opening.identity.boot_id) || !layout::is_known(mark().live.boot_id);
  if (unknown && !opening.accept_loss) {
    return missing(path.c_str(), Status::format(StatusCode::io,
                                                "the boot's id cannot be read, so a power failure "
                                                "cannot be ruled out"));
  }
  bool told = false;  // the last owner has seen the failure, and acknowledged nothing any more
  Status s = opening.ignores_image ? Status(StatusCode::live_missing)
                                   : go_on_with_image(opening, path.c_str(), told);
  const bool refused = s == StatusCode::live_missing || s == StatusCode::untrusted;
  if (!refused) return s;
  const bool here = in_this_boot(mark(), opening.identity);
  if (here && !told && !opening.accept_loss) return s;
  if (!here && !restarted_) {
    log_.say(LogLevel::warning,
             "is restored from its log, because a restart of the machine cannot be ruled out");
  }
  const bool own = of_this_file(mark(), opening.identity);
  Status restored = restore(opening, here && own);
  // If the log lacks something, the first error says what helps.
  const bool lacks = own && s == StatusCode::untrusted && restored == StatusCode::untrusted;
  return lacks ? std::move(s) : std::move(restored);
}

// --- in use --------------------------------------------------------------------------------------

Status Buffered::attach(RealPlatform& platform, Heap<RealPlatform>& heap,
                        EpochDomain<RealPlatform>& epochs,
                        const BufferedOptions& options) noexcept {
  if (Status s = LiveImage::path_of(mark(), path_.c_str(), live_path_); !s.ok()) return s;
  platform_ = &platform;
  heap_ = &heap;
  gate_ = &epochs.gate();
  gate_->set_brake(*this);
  live_.chunks().attach(platform);
  tracker_.emplace(live_.image().base(), live_.dirty(), CutLimits{}, &live_.chunks());
  if (!tracker_->make()) return StatusCode::out_of_memory;
  stream_.emplace(platform, *tracker_, *epochs_log_, live_.image(), static_cast<CutWatch&>(*this),
                  CutShape{.interval_ns = std::uint64_t{options.interval_ms} * 1'000'000,
                           .throttles = options.on_lag == OnLag::throttle,
                           .refuses = options.on_log_failure == OnLogFailure::refuse,
                           .behind = inherited_,
                           .log_bytes = options.log_bytes});
  const std::uint64_t pages = mark().live.max_bytes / 64 / kPage;
  folding_.emplace(files_, base_, path_.c_str(), folder_.c_str(), *epochs_log_,
                   static_cast<std::uint32_t>(std::clamp(pages, kLeastPiece, kMostPiece)));
  fold_thread_.emplace(*stream_, *folding_, *epochs_log_, static_cast<FoldWatch&>(*this));
  if (Status s = live_.dirty().cover(live_.image().size()); !s.ok()) return s;
  (void)before_growth(live_.image().size());  // a fold tries it again
  live_.watch_growth(*this);
  platform.track_stores(*tracker_);
  return {};
}

void Buffered::start(bool threads) noexcept {
  if (threads && stream_->start()) {
    if (fold_thread_->start()) return;
    stream_->stop();
  }
  stream_->serve_callers();
  if (!threads) return;
  log_.say(LogLevel::warning,
           "the system refused the threads that make the cuts; mutations and sync() make them");
}

// A mutation waits for the threads, or does their work that is due: a cut, and a piece of a fold.
void Buffered::wait() noexcept {
  if (fold_thread_->has_thread()) return stream_->wait_for_cut();
  const bool cut = stream_->run_due();
  if (fold_thread_->run_due() || cut) {
    stream_->put_off();
  } else if (!stream_->lets()) {
    nap();  // another thread does it
  }
}

// So that a fold needs no space. After any other error a fold tries it again.
Status Buffered::before_growth(std::uint64_t bytes) noexcept {
  auto size = files_.size(base_);
  if (!size || *size >= bytes) return {};
  Status s = files_.allocate(base_, *size, bytes - *size);
  return s == StatusCode::pool_full ? std::move(s) : Status();
}

Status Buffered::before_reuse(std::uint64_t offset, std::uint64_t length) noexcept {
  auto size = files_.size(base_);
  if (!size) return {};
  const std::uint64_t begin = std::min(offset, *size);  // no hole before it
  Status s = files_.allocate(base_, begin, offset + length - begin);
  return s == StatusCode::pool_full ? std::move(s) : Status();
}

// The base follows when a fold has told it that the range is free.
void Buffered::before_punch(std::uint64_t offset, std::uint64_t length) noexcept {
  holes_.note(offset, length);
  fold_thread_->ask();
}

void Buffered::after_fold() noexcept {
  holes_.take([this](std::uint64_t offset, std::uint64_t length) {
    if (!platform_->poisoned()) (void)punch_base(offset, length);
  });
}

Status Buffered::punch_base() noexcept {
  return fold_thread_->with_base([&] {
    if (platform_->poisoned()) return platform_->failure();
    Status s = punch_base(0, ~std::uint64_t{0});
    return s.ok() ? shrink() : std::move(s);
  });
}

// After a fold, and while no other begins (chunk.K3). A cut can come between two groups of chunks.
Status Buffered::shrink_image() noexcept {
  LiveChunks& chunks = live_.chunks();
  auto base = files_.size(base_);
  if (!base) return std::move(base.error());
  // Without space the chunks stay as they are.
  if (Status s = chunks.cover(std::min(*base, live_.image().size())); !s.ok())
    return s == StatusCode::pool_full ? Status() : std::move(s);
  const auto is_in_base = [this](std::uint64_t from, std::uint64_t to) {
    return live_.dirty().is_clean(from / kLine, align_up(to, kLine * 64) / kLine) &&
           !epochs_log_->has_pages(from / kPage, to / kPage);
  };
  const auto ends_stores = [this] { return stream_->end_stores(); };
  for (std::uint64_t at = 0; at < chunks.covered();) {
    auto next = stream_->with_log([&]() -> Expected<std::uint64_t> {
      if (!epochs_log_->failure().ok()) return chunks.covered();  // it may know less than it should
      return chunks.retire(at, ends_stores, is_in_base);
    });
    if (!next) return std::move(next.error());
    at = *next;
  }
  return chunks.give_back();
}

Status Buffered::shrink() noexcept {
  Status s = shrink_image();
  stream_->with_log([&] {
    epochs_log_->shrink();
    stream_->on_folded();
  });
  return s;
}

// Of the range, what is free and punched since before the last fold. What is free since before an
// epoch that the base has means nothing to it, nor to the epochs after it: they have each line that
// was stored since.
Status Buffered::punch_base(std::uint64_t offset, std::uint64_t length) noexcept {
  const auto base = [&](std::uint64_t at, std::uint64_t n) { return files_.punch(base_, at, n); };
  const auto punch = [&](std::uint64_t from, std::uint64_t bytes) {
    if (!holes_.is_new(from, bytes)) return live_.chunks().punch(from, bytes, base);
    before_punch(from, bytes);  // the base may have a part as it was before it was freed
    return Status();
  };
  // In pieces, because neither the base nor the heap's extents can change meanwhile.
  constexpr std::uint64_t kPunched = 4_MiB;
  const std::uint64_t size = live_.image().size();
  const std::uint64_t end = length < size && offset < size - length ? offset + length : size;
  Status s;
  for (; s.ok() && offset < end; offset += kPunched) {
    const std::uint64_t n = std::min(kPunched, end - offset);
    s = fold_thread_->alone([&] { return heap_->visit_punched(offset, n, punch); });
  }
  return s;
}

// Threads may change it. A read of a file needs no space if the page was given back.
Expected<bool> Buffered::copy_page(std::uint64_t page, std::byte* to) noexcept {
  if (platform_->poisoned()) return fail(platform_->failure());  // a lost page may read as zeros
  if (!live_.chunks().is_live(page * kPage)) {
    if (platform_->poisoned()) return fail(platform_->failure());  // then no chunk says to be live
    return false;
  }
  const std::int64_t got = live_.image().read(to, kPage, page * kPage);
  if (got == static_cast<std::int64_t>(kPage)) return true;
  return fail(StatusCode::io, "the live image cannot be read: %s",
              got < 0 ? std::strerror(errno) : "it is too short");
}

void Buffered::on_held_up(std::uint32_t slot) noexcept {
  log_.say(LogLevel::warning,
           "thread %d has been in one store for a second (is it stopped?), so no cut can be made: "
           "mutations go on, and a power failure takes all since the last cut",
           static_cast<int>(RealPlatform::thread_of(slot)));
}

// Base and image together are the pool, so nothing is lost. But a log is of use only beside the
// base's name: if that is gone, too, it would be one without a pool.
bool Buffered::begin_log_anew() noexcept {
  auto base = files_.reopen(base_, path_.c_str());
  if (!base) return false;
  if (*base != base_) files_.close(*base);
  if (!epochs_log_->begin_anew().ok()) return false;
  const EpochId folded{.epoch = mark().folded, .seal = mark().folded_seal};
  live_.begin_log_anew(folded, epochs_log_->next_end());
  log_.say(LogLevel::warning, "another process has removed its log; a new one is begun");
  return true;
}

// Nothing that was copied out of an image that lost something may reach log or base. The next open
// restores the pool from them.
Status Buffered::verify_copy() noexcept {
  if (live_.has_lost(layout::kLost) && !platform_->poisoned()) {
    platform_->mark_poisoned(
        "the kernel could not write a part of the live image to the disk, so what is read may be "
        "old, and nothing is acknowledged any more; close the pool, see to the disk, and open it "
        "again: it is restored from its log, up to the last durable cut");
    platform_->tell_poisoned();
  }
  return platform_->poisoned() ? platform_->failure() : Status();
}

Status Buffered::make_durable() noexcept {
  Status s = stream_->sync();
  return s.ok() ? std::move(s) : with_path(path_.c_str(), s);
}

Status Buffered::refusal() noexcept {
  Status s = stream_->refusal();
  if (s.ok()) return s;
  if (platform_->poisoned()) return platform_->failure();  // no call can mend that
  return Status::format(StatusCode::io,
                        "%s: no cut can be written any more, so nothing is changed (%.*s); see to "
                        "the disk: background threads, or resume_log(), try it again",
                        path_.c_str(), length(s.message()), s.message().data());
}

Status Buffered::close() noexcept {
  fold_thread_->stop();
  stream_->stop();
  (void)stream_->resume();  // the disk may be well again
  if (Status s = stream_->sync(); !s.ok()) return s;
  platform_->end_tracking();
  live_.set_folding(epochs_log_->durable().epoch);
  const auto content = [this](std::uint64_t page, std::byte* to) { return copy_page(page, to); };
  holes_.close();
  Status s = folding_->fold_all(content, [this] { return verify_copy(); });
  if (s.ok()) after_fold();
  if (s.ok()) s = epochs_log_->close();
  if (!s.ok()) return s;
  live_.remove();
  return {};
}

void Buffered::undo() noexcept {
  if (!epochs_log_->close().ok()) return;
  live_.remove();
  if (!before_) return;
  layout::Header header = *before_;
  header.sequence += 2;
  (void)write_headers(header, before_copy_);
}

Status Buffered::leave(bool cuts) noexcept {
  fold_thread_->stop();
  stream_->stop();
  if (!cuts) return {};
  (void)stream_->resume();
  return stream_->sync();
}

void Buffered::abandon() noexcept {
  if (fold_thread_) fold_thread_->abandon();
  if (stream_) stream_->abandon();
  live_.abandon();
  real_files_.abandon();
}

}  // namespace perdure
