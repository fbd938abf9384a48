// FileSystem: the calls of the operating system under what is written beside a pool's file: files
// that are read, written and synced by offset, and their names. RealFileSystem makes the calls;
// testing/disk simulates what a power failure leaves of them.
//
// DURABILITY  A power failure can lose, keep, reorder or tear into sectors of 512 bytes every write
//   since the last sync() of its file, and can undo every change of names in a folder since the
//   last sync_folder(). A name whose folder is durable does not make the content of its file
//   durable, nor the other way round. After a sync() that failed the kernel may drop what was
//   written before it, although read() may still return it: write it again, elsewhere, before the
//   next sync().
//
// NAMES  A path names what it leads to at the time of the call. After hold() names in that folder
//   are looked up in the folder that the path led to then, wherever it is moved, and whatever takes
//   its place.
//
// SITES  A sync names its site (site.h), and so does what a caller does or verifies between two
//   calls: a test can leave each one out. RealFileSystem ignores them.
//
// Errors: every message names the path. not_found, exists, pool_full (no space), invalid_argument
//   (a path that is too long), io.
// Thread safety: distinct files may be used from distinct threads. So may the base of a log for
//   write(), allocate(), punch(), sync() and size(), which RealFileSystem leaves to the kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "perdure/function_ref.h"
#include "perdure/status.h"
#include "platform/assert.h"
#include "platform/site.h"
#include "util/path.h"

namespace perdure {

class FileSystem {
 public:
  using File = int;  // open until close()
  enum class Open : std::uint8_t {
    existing,
    fresh,    // makes the file; its name must not exist
    reading,  // an existing one, which will not be written
  };

  enum class Lock : std::uint8_t { none, shared, exclusive };
  struct Facts {
    std::uint64_t device, inode;
    std::uint64_t names;  // 0: the file was removed
  };

  virtual ~FileSystem() = default;

  // Opens a regular file, for reading and writing unless `how` says otherwise. A symbolic link is
  // an error.
  virtual Expected<File> open(std::string_view path, Open how) noexcept = 0;
  virtual void close(File file) noexcept = 0;
  // Of a file that the caller goes on to have open as a descriptor, which this may return. Errors:
  // busy (another file has the name).
  virtual Expected<File> borrow(std::string_view path, int /*descriptor*/) noexcept {
    return open(path, Open::existing);
  }
  // Opens a file once more, if its name is still `path`: the kernel tells each open file once that
  // something could not be written. Where each call has its own errors, the same.
  virtual Expected<File> reopen(File file, std::string_view /*path*/) noexcept { return file; }
  // Reads until `n` bytes or the end of the file. Returns the number of bytes.
  virtual Expected<std::size_t> read(File file, void* buffer, std::size_t n,
                                     std::uint64_t offset) noexcept = 0;
  // Writes all bytes, or fails; then any of them may have been written.
  virtual Status write(File file, const void* bytes, std::size_t n,
                       std::uint64_t offset) noexcept = 0;
  // Gives [offset, offset+length) space of the disk. New space reads as zero; a shorter file
  // becomes longer. Without enough space (pool_full) it may become longer by what there was; that
  // has its space.
  virtual Status allocate(File file, std::uint64_t offset, std::uint64_t length) noexcept = 0;
  // Gives the space of [offset, offset+length) back. It reads as zero, and the size stays.
  // Errors: unsupported.
  virtual Status punch(File file, std::uint64_t offset, std::uint64_t length) noexcept = 0;
  // Makes the content and the size of the file durable.
  virtual Status sync(File file, AnySite site) noexcept = 0;
  virtual Expected<std::uint64_t> size(File file) noexcept = 0;
  virtual Expected<Facts> facts(File file) noexcept = 0;
  // A hint that the next read should ask the disk. What sync() has written need not stay in memory.
  virtual void forget(File file) noexcept = 0;
  // A lock between those that have opened a file, perhaps in other processes: one exclusive, or any
  // number of shared ones. It ends with close(). Returns false if it is refused; `none` never is.
  virtual bool lock(File file, Lock how) noexcept = 0;
  // A descriptor of the content of a file, to map it for reading, until close().
  virtual Expected<int> descriptor(File file) noexcept = 0;

  // --- names: nothing to do where a process has the files alone ---
  // Keeps the folder open until this object ends, or until the next call with this path. `alone`:
  // and locks it. Four at most. Errors: busy (another process has it locked); untrusted (see
  // resemble()).
  virtual Status hold(std::string_view /*path*/, bool /*alone*/) noexcept { return {}; }
  // Of all folders, with their locks; also if a child of fork has them.
  virtual void let_go() noexcept {}
  // From here on new files and folders get the owner, the group and the permissions of this file,
  // as far as this process may give them. Those that exist are refused with `untrusted` if another
  // user could have put them there.
  virtual void resemble(File /*file*/) noexcept {}
  // An existing file of the name `to` is replaced in one step.
  virtual Status rename(std::string_view from, std::string_view to) noexcept = 0;
  virtual Status remove(std::string_view path) noexcept = 0;
  virtual Status make_folder(std::string_view path) noexcept = 0;
  virtual Status remove_folder(std::string_view path) noexcept = 0;  // it must be empty
  // Makes the changes of names in a folder durable.
  virtual Status sync_folder(std::string_view path, AnySite site) noexcept = 0;
  // Visits the names in a folder, in no particular order.
  virtual Status list(std::string_view path,
                      FunctionRef<void(std::string_view)> visit) noexcept = 0;

  // --- for tests ---
  // Whether a step of the caller takes place, or a check of it counts.
  virtual bool does(AnySite /*site*/) noexcept { return true; }
  // PERDURE_ASSERT_BY. RealFileSystem does as RealPlatform.
  virtual void violated(const Assertion& /*assertion*/) noexcept {}
};

class RealFileSystem final : public FileSystem {
 public:
  RealFileSystem() = default;
  RealFileSystem(const RealFileSystem&) = delete;
  RealFileSystem& operator=(const RealFileSystem&) = delete;
  ~RealFileSystem() override;

  Expected<File> open(std::string_view path, Open how) noexcept override;
  void close(File file) noexcept override;
  Expected<File> borrow(std::string_view path, int descriptor) noexcept override;
  Expected<File> reopen(File file, std::string_view path) noexcept override;
  Expected<std::size_t> read(File file, void* buffer, std::size_t n,
                             std::uint64_t offset) noexcept override;
  Status write(File file, const void* bytes, std::size_t n, std::uint64_t offset) noexcept override;
  Status allocate(File file, std::uint64_t offset, std::uint64_t length) noexcept override;
  Status punch(File file, std::uint64_t offset, std::uint64_t length) noexcept override;
  Status sync(File file, AnySite site) noexcept override;
  Expected<std::uint64_t> size(File file) noexcept override;
  Expected<Facts> facts(File file) noexcept override;
  void forget(File file) noexcept override;
  bool lock(File file, Lock how) noexcept override;
  Expected<int> descriptor(File file) noexcept override { return file; }
  Status hold(std::string_view path, bool alone) noexcept override;
  void let_go() noexcept override;
  void resemble(File file) noexcept override;
  Status rename(std::string_view from, std::string_view to) noexcept override;
  Status remove(std::string_view path) noexcept override;
  Status make_folder(std::string_view path) noexcept override;
  Status remove_folder(std::string_view path) noexcept override;
  Status sync_folder(std::string_view path, AnySite site) noexcept override;
  Status list(std::string_view path, FunctionRef<void(std::string_view)> visit) noexcept override;
  void violated(const Assertion& assertion) noexcept override;

  // Where a name is looked up: the folder, and the rest of the path.
  struct Place {
    int folder;  // or AT_FDCWD
    const char* name;
    PathText path;
  };
  // Errors: invalid_argument (the path is too long, or has a NUL).
  Status find(std::string_view path, Place& place) const noexcept;
  // The same as hold(path, false) with this open folder, which the caller goes on to have.
  Status hold_open(std::string_view path, int folder) noexcept;
  void abandon() noexcept;  // in a child of fork

 private:
  struct Held {
    PathText path;
    int folder = -1;
    bool alone = false;
  };
  struct Model {
    std::uint32_t user, group, mode;
  };

  const Held* held(std::string_view path) const noexcept;
  Held* room_for(std::string_view path) noexcept;
  static Status keep(Held& place, std::string_view path, int folder, bool alone) noexcept;
  Expected<int> open_folder(std::string_view path) const noexcept;
  Status verify(std::string_view path, int file) const noexcept;
  void apply_model(int file, bool folder) const noexcept;
  template <class Call>
  Status on_name(const char* what, std::string_view path, Call call) const noexcept;

  std::array<Held, 4> held_;  // a folder that is replaced keeps its descriptor's number
  std::optional<Model> model_;
};

}  // namespace perdure
