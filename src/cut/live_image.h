// LiveImage: what is mapped and changed while a `buffered` pool is open: a copy of the pool, and
// the log of its dirty lines, in two files. A kill of the process leaves both, a power failure may
// take them.
//
// LAYOUT  The image is the pool, with a LiveHead where the base has its first mark: the pool itself
//   never stores there. Beside it, NAME-dirty is a DirtyLog.
// INVARIANTS
//   live.V1  An image has its name only once it is whole, and NAME-dirty before that.
//   live.V2  The head is of an image, a log, a boot and a base file. A process goes on with an
//       image only if all four are those of the base's mark and of this machine, and if the base
//       has exactly the epochs that it had when this image was used with it (`folded`).
//   live.V3  durable() is an epoch that is on the disk; all that changed since is dirty.
// RECOVERY  inherit(), of the next process.
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "cut/log_format.h"
#include "platform/dirty_log.h"
#include "platform/file_storage.h"
#include "platform/real_platform.h"
#include "util/path.h"

namespace perdure {

namespace layout {

inline constexpr std::uint64_t kLiveMagic = 0x314556494C524550;  // "PERLIVE1"

// In the image, at kMarkOffset.
struct LiveHead {
  std::uint64_t magic;
  std::uint8_t live_id[16];
  std::uint8_t log_id[16];
  std::uint8_t boot_id[16];
  std::uint64_t inode, filesystem_id;  // of the base
  std::uint64_t crc;                   // CRC32C of all before it
  // These change.
  std::uint64_t folded;   // epoch that the base has
  std::uint64_t folding;  // or may have soon
  std::uint64_t used;     // 1: a mark of the base names this image
  std::uint64_t changes;  // of `durable`: durable[changes % 2] counts
  EpochId durable[2];
};
static_assert(sizeof(LiveHead) == 144 && std::is_trivially_copyable_v<LiveHead>);
static_assert(sizeof(LiveHead) <= sizeof(BaseMark));

}  // namespace layout

class LiveImage final : private GrowthWatch {
 public:
  using Dirty = DirtyLog<RealPlatform>;

  explicit LiveImage(FileStorage& image) noexcept : image_(image) {}
  LiveImage(const LiveImage&) = delete;
  LiveImage& operator=(const LiveImage&) = delete;

  // The path of the image for this mark, of a base at `base`. Errors: invalid_argument (too long).
  static Status path_of(const layout::BaseMark& mark, std::string_view base,
                        PathText& out) noexcept;
  // The head of the image at `path`. Errors: not_found; corruption (it is none, or not of this
  // user, the superuser or `owner`); io.
  static Status read_head(std::string_view path, layout::LiveHead& out,
                          std::uint32_t owner = ~std::uint32_t{0}) noexcept;
  // Whether the head is of the image that the mark names, in its boot (live.V2).
  static bool fits(const layout::LiveHead& head, const layout::BaseMark& mark) noexcept;

  // Makes the files of the image that the mark names, with room for `bytes` bytes, and with the
  // permissions of `base`. publish() gives them their names. Errors: exists, busy, pool_full,
  // out_of_memory, io.
  Status make(std::string_view path, const layout::BaseMark& mark, std::uint64_t bytes,
              const FileStorage& base) noexcept;
  // Writes the head over what the content has there.
  Status publish() noexcept;
  void discard() noexcept;  // what make() made, before publish()
  // Opens the files that a process has left, and whose head fits. All lines that are not known to
  // be durable are dirty. Errors: busy, corruption, io and others of files.
  Status inherit(std::string_view path, const layout::BaseMark& mark) noexcept;
  // Is asked, too, before the image grows.
  void watch_growth(GrowthWatch& other) noexcept { other_ = &other; }
  // Removes the files. What is mapped stays until close().
  void remove() noexcept;
  void close() noexcept;
  void abandon() noexcept;  // in a child of fork

  FileStorage& image() noexcept { return image_; }
  FileStorage& dirty_file() noexcept { return file_; }
  Dirty& dirty() noexcept { return *dirty_; }
  void mark_dirty(std::uint64_t line) noexcept {
    std::uint64_t at = 0;
    dirty_->note(nullptr, at, line, 1);
  }

  EpochId durable() const noexcept;
  void set_durable(EpochId id) noexcept;
  // Before and after the base gets the epochs up to this one.
  void set_folding(std::uint64_t epoch) noexcept;
  void set_folded(std::uint64_t epoch) noexcept;
  void set_used() noexcept;

 private:
  Status before_growth(std::uint64_t bytes) noexcept override {
    Status s = other_ != nullptr ? other_->before_growth(bytes) : Status();
    return s.ok() ? dirty_->cover(bytes) : std::move(s);
  }
  layout::LiveHead& head() const noexcept {
    return *reinterpret_cast<layout::LiveHead*>(image_.base() + layout::kMarkOffset);
  }
  void fill_head(const layout::BaseMark& mark) noexcept;

  FileStorage& image_;
  FileStorage file_;  // of dirty_
  layout::LiveHead made_{};
  std::optional<Dirty> dirty_;
  GrowthWatch* other_ = nullptr;
};

// Renames the image at `path` and its log of dirty lines to NAME.unknown-ID: they may be all that
// is left of something. `to` gets the new path. Errors: io.
Status set_live_aside(std::string_view path, std::uint64_t id, PathText& to) noexcept;
// Removes both, and what was not finished of them.
void remove_live(std::string_view path) noexcept;

}  // namespace perdure
