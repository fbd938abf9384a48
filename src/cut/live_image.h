// LiveImage: what is mapped and changed while a `buffered` pool is open: the parts of the pool that
// were stored to (live_chunks.h), and the log of its dirty lines, in two files. A kill of the
// process leaves both, a power failure may take them.
//
// LAYOUT  The image has each part at its place in the pool, and a LiveHead where the base has its
//   first mark: the pool itself never stores there. Beside it, NAME-dirty is a DirtyLog.
// INVARIANTS
//   live.V1  Image and base together are the pool before the image has its name; NAME-dirty has its
//       name before that.
//   live.V2  The head is of an image, a log, a boot and a base file. A process goes on with an
//       image only if all four are those of the base's mark and of this machine, and if the base
//       has exactly the epochs that it had when this image was used with it (`folded`).
//   live.V3  durable() is an epoch that is on the disk; all that changed since is dirty.
//   live.V4  What is copied out of the image is used only if has_lost() is false after the copy. If
//       the kernel cannot write a page of a file, it takes the page for clean, and may read what
//       the disk has instead.
// RECOVERY  inherit(), of the next process; then image_check.h decides whether it can be trusted.
// Thread safety: one thread.
#pragma once

#include <atomic>  // memory orders
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "cut/live_chunks.h"
#include "cut/log_format.h"
#include "perdure/function_ref.h"
#include "platform/dirty_log.h"
#include "platform/file_storage.h"
#include "platform/file_system.h"
#include "platform/real_platform.h"
#include "util/path.h"

namespace perdure {

class LiveImage final : private GrowthWatch {
 public:
  using Dirty = DirtyLog<RealPlatform>;

  // `files`: for names. It holds the folder of the image from make() or inherit() on.
  LiveImage(FileStorage& image, RealFileSystem& files) noexcept : image_(image), files_(files) {}
  LiveImage(const LiveImage&) = delete;
  LiveImage& operator=(const LiveImage&) = delete;

  // The path of the image for this mark, of a base at `base`. Errors: invalid_argument (too long).
  static Status path_of(const layout::BaseMark& mark, std::string_view base,
                        PathText& out) noexcept;
  // The head of the image at `path`. Errors: not_found; corruption (it is none, or another user can
  // have put it beside `base`); io.
  static Status read_head(const RealFileSystem& files, std::string_view path, layout::LiveHead& out,
                          const FileStorage& base) noexcept;
  // Whether the head is of the image that the mark names, in its boot (live.V2).
  static bool fits(const layout::LiveHead& head, const layout::BaseMark& mark) noexcept;

  // The base, an open file that must stay open, and its size.
  struct Base {
    int file = -1;
    std::uint64_t bytes = 0;
  };
  // Makes the files of the image that the mark names, of a pool of `bytes` bytes, with the
  // permissions of `like`. `begun`: the last epoch that it will have. publish() gives them their
  // names. Errors: exists, busy, pool_full, out_of_memory, io.
  Status make(std::string_view path, const layout::BaseMark& mark, Base base, std::uint64_t bytes,
              const FileStorage& like, std::uint64_t begun) noexcept;
  Status publish() noexcept;
  void discard() noexcept;  // what make() made, before publish()
  // Opens the files that a process has left, and whose head fits. All lines that are not known to
  // be durable are dirty. `base`: the open file; as above. `like`: that file, too. Errors: busy,
  // corruption (also of files that another user may have put there), io and others of files.
  Status inherit(std::string_view path, const layout::BaseMark& mark, int base,
                 const FileStorage& like) noexcept;
  // Is asked, too, before the image grows, or a part of it gets space again.
  void watch_growth(GrowthWatch& other) noexcept { other_ = &other; }
  // Whether pages of one of the files could not be read or stored to, so that the mapping has zeros
  // of this process instead (FileStorage::report_lost_pages()).
  bool has_lost_pages() const noexcept { return image_.has_lost_pages() || file_.has_lost_pages(); }
  // Whether a write-back of one of the files has failed (live.V4). Then the head gets `flag`. One
  // thread at a time.
  bool has_lost(std::uint64_t flag) noexcept;
  // Removes the files. What is mapped stays until close().
  void remove() noexcept;
  void close() noexcept;
  void abandon() noexcept;  // in a child of fork

  FileStorage& image() noexcept { return image_; }
  FileStorage& dirty_file() noexcept { return file_; }
  Dirty& dirty() noexcept { return *dirty_; }
  LiveChunks& chunks() noexcept { return *chunks_; }
  const LiveChunks& chunks() const noexcept { return *chunks_; }
  void mark_dirty(std::uint64_t line) noexcept {
    std::uint64_t at = 0;
    dirty_->note(nullptr, at, line, 1);
  }

  // Every line that the base need not have is dirty, and nothing is durable but what it has. Before
  // an epoch of a new log.
  void begin_log_anew(EpochId folded, std::uint64_t begun) noexcept;
  EpochId durable() const noexcept {
    return head().durable[word(head().changes).load(std::memory_order_acquire) % 2];
  }
  // The last epoch that the log may have; no limit is known if an older build made the image.
  std::uint64_t begun() const noexcept { return is_old() ? ~std::uint64_t{0} : head().begun; }
  void set_begun(std::uint64_t epoch) noexcept { set(head().begun, epoch); }
  bool is_old() const noexcept { return head().magic == layout::kOldLiveMagic; }
  bool may_be_punched() const noexcept {
    return is_old() || (head().flags & layout::kPunched) != 0;
  }
  // `unix_ns`: what had been acknowledged then is durable; 0: as before.
  void set_durable(EpochId id, std::uint64_t unix_ns) noexcept;
  std::uint64_t durable_unix_ns() const noexcept;
  // Whether nothing has changed since the last cut.
  void set_rests(bool rests) noexcept;
  // As set_durable() does.
  void set_clocks() noexcept;
  // Before and after the base gets the epochs up to this one.
  void set_folding(std::uint64_t epoch) noexcept { set(head().folding, epoch); }
  void set_folded(std::uint64_t epoch) noexcept { set(head().folded, epoch); }
  void set_used() noexcept { set(head().used, 1); }

 private:
  Status before_growth(std::uint64_t bytes) noexcept override {
    Status s = other_ != nullptr ? other_->before_growth(bytes) : Status();
    return s.ok() ? dirty_->cover(bytes) : std::move(s);
  }
  void before_punch(std::uint64_t offset, std::uint64_t length) noexcept override {
    set_flag(layout::kPunched);
    if (other_ != nullptr) other_->before_punch(offset, length);
  }
  Status before_reuse(std::uint64_t offset, std::uint64_t length) noexcept override {
    return other_ != nullptr ? other_->before_reuse(offset, length) : Status();
  }
  layout::LiveHead& head() const noexcept { return chunks_->head(); }
  // The next process reads them after a kill: each store is whole, in the order of the program.
  using Word = RealPlatform::Atomic<std::uint64_t>;
  static Word& word(std::uint64_t& of_head) noexcept { return reinterpret_cast<Word&>(of_head); }
  static void set(std::uint64_t& of_head, std::uint64_t value) noexcept {
    word(of_head).store(value, std::memory_order_release);
  }
  void set_flag(std::uint64_t flag) noexcept {
    word(head().flags).fetch_or(flag, std::memory_order_release);
  }
  Status name_files(std::string_view path, RealFileSystem::Place& image, PathText& dirty) noexcept;
  Status make_files(std::string_view path, std::uint64_t max_bytes,
                    const FileStorage& like) noexcept;

  FileStorage& image_;
  RealFileSystem& files_;
  FileStorage file_;  // of dirty_
  std::optional<LiveChunks> chunks_;
  std::optional<Dirty> dirty_;
  GrowthWatch* other_ = nullptr;
};

// Renames the image at `path` and its log of dirty lines to NAME.unknown-ID: they may be all that
// is left of something. `to` gets the new path. Errors: io.
Status set_live_aside(FileSystem& files, std::string_view path, std::uint64_t id,
                      PathText& to) noexcept;
// Whether a path ends as set_live_aside() makes it, for an image.
bool is_aside(std::string_view path) noexcept;
// Visits the names that set_live_aside() has given, of an image at the absolute `path`, and of its
// log of dirty lines. Errors: those of FileSystem::list().
Status list_aside(FileSystem& files, std::string_view path,
                  FunctionRef<void(std::string_view name)> visit) noexcept;
// Removes both, and what was not finished of them.
void remove_live(FileSystem& files, std::string_view path) noexcept;

}  // namespace perdure
