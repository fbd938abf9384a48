// Folding: brings the epochs of a log into the base, from the pool in memory, while threads change
// it and epochs are written.
//
// WHAT  A fold takes the pages that the epochs up to one, its end, have changed. It copies them in
//   pieces from the memory of the pool. A copy has stores that are in no epoch yet. So a piece is
//   written to the base only once a cut that began after the copy is durable.
// INVARIANTS
//   fold.F1  Before the base gets a piece, every store that may be in it is in an epoch that
//       counts, every part of the log was read back, and the mark of the base says "folding" up to
//       that epoch. So base and log together are the pool at that epoch, whatever part of the piece
//       is written: what differs from it was stored to since the epoch `folded`, and the log has
//       its line.
//       A page that was stored to in an epoch that does not count may be in the set, too. If its
//       content is only in the base, it is left out.
//   fold.F2  The mark says "folded" up to the end once every page that an epoch up to the end has
//       changed was copied after that epoch was durable, and is durable in the base.
//   fold.F3  The sectors of the marks are not written.
// OPERATIONS  begin; for each piece: copy, then a cut (the caller's), then read_back, allow, write;
//   then end. Or cancel, from where the fold is: then the next one writes all pages again.
// DURABILITY  write() makes its piece durable, so that the sync of a mark has little to wait for.
// FAILURE  If the log fails meanwhile, the fold must be cancelled: the base may have caused it.
// Thread safety: one thread. begin(), unread(), allow(), end() and cancel() use the log: nothing
//   else may use it meanwhile. In copy(), read_back() and write() another thread may, but
//   EpochLog::fold_durable() must not run beside write().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "cut/epoch_log.h"
#include "perdure/function_ref.h"

namespace perdure {

// Copies the content of a page of the pool. False: no store since the epoch `folded` changed it, so
// the base has it. An error ends the folding.
using PageContent = FunctionRef<Expected<bool>(std::uint64_t page, std::byte* to)>;
// Whether what was copied before can be used.
using VerifyCopy = FunctionRef<Status()>;

class Folding {
 public:
  // Everything must stay valid. `path` of `base`. `pages` of a piece.
  Folding(FileSystem& files, FileSystem::File base, std::string_view path, std::string_view folder,
          EpochLog& log, std::uint32_t pages) noexcept
      : files_(files), base_(base), path_(path), folder_(folder), log_(log), most_(pages) {}
  Folding(const Folding&) = delete;
  Folding& operator=(const Folding&) = delete;
  ~Folding() { release(); }

  bool active() const noexcept { return active_; }
  // The log has failed since begin(): the fold must be cancelled, whatever its last error is.
  bool stale() const noexcept { return active_ && log_.failures() != end_.failures; }
  // Up to the last epoch that is durable. `alone`: nothing else uses the base. Errors: those of
  // EpochLog::begin_fold(), out_of_memory.
  Status begin(bool alone = false) noexcept;
  // Whether the fold has the open file of the marks, because it could not open the base once more.
  // The kernel tells each open file once that something could not be written, so write() must not
  // run beside the write of a mark then.
  bool shares_base() const noexcept { return file_ == base_; }
  std::uint64_t end_epoch() const noexcept { return end_.epoch.epoch; }
  // Copies the next piece, of at most so many pages. False: there is none.
  Expected<bool> copy(PageContent content, std::uint32_t most = UINT32_MAX) noexcept;
  // What read_back() has to read. The cut after the copy is durable. Errors: out_of_memory.
  Status unread() noexcept;
  // Errors: untrusted (a part is damaged), io.
  Status read_back() noexcept;
  // Errors: busy (the log has failed since begin(): cancel), and those of the log.
  Status allow() noexcept;
  // Errors: busy, as above; those of the disk.
  Status write() noexcept;
  Status end() noexcept;
  void cancel() noexcept;

  // Of a pool that no thread changes and whose last epoch is durable: all of it.
  Status fold_all(PageContent content, VerifyCopy verify) noexcept;
  Status fold_all(PageContent content) noexcept {
    return fold_all(content, [] { return Status(); });
  }
  std::uint64_t written() const noexcept { return written_; }  // bytes

 private:
  Status write_run(std::uint32_t first, std::uint32_t count) noexcept;
  Status make(bool alone) noexcept;
  void release() noexcept;  // what make() has made, and the pages

  FileSystem& files_;
  const FileSystem::File base_;
  std::string_view path_, folder_;
  EpochLog& log_;
  const std::uint32_t most_;

  FileSystem::File file_ = -1;  // of the base
  bool active_ = false;
  bool cancelled_ = false;  // the fold before this one
  PageSet pages_;
  EpochLog::FoldEnd end_;
  std::uint64_t next_ = 0;    // page
  std::uint32_t copied_ = 0;  // pages in the buffer
  bool allowed_ = false;      // to write them
  bool whole_ = false;        // all pages of the fold were written
  EpochId upto_;              // was durable when unread_ was taken
  layout::BaseMark mark_{};   // at that time
  std::uint64_t written_ = 0;
  std::unique_ptr<std::byte[]> buffer_;
  std::unique_ptr<std::uint64_t[]> numbers_;
  Array<SegmentFiles::Range> unread_;
};

}  // namespace perdure
