// FileStorage: a pool's file: opened, locked, mapped once for its whole capacity, grown by real
// allocation.
#pragma once

#include <cstdint>
#include <string_view>

#include "perdure/stats.h"
#include "perdure/status.h"
#include "platform/bus_errors.h"
#include "platform/identity.h"
#include "platform/real_platform.h"
#include "platform/storage.h"
#include "util/path.h"

namespace perdure {

// What the operating system says about the medium under a file.
struct MediumReport {
  Medium medium = Medium::page;
  const char* filesystem = "unknown";  // ends so if it is not in the list of known ones
  bool local_disk = false;             // the file system is known to be of one
  bool msync_is_ordered = false;       // page media on which `power` is accepted
  const char* msync_note = "";         // why not
};

class FileStorage final : public Storage {
 public:
  enum class Access : std::uint8_t {
    owner,     // exclusive lock, shared mapping
    reader,    // shared lock, where there are locks; private mapping: nothing reaches the file
    observer,  // as a reader, without the lock
  };

  FileStorage() = default;
  FileStorage(const FileStorage&) = delete;
  FileStorage& operator=(const FileStorage&) = delete;
  ~FileStorage() override;

  // Its names are looked up in this open folder, or, by default, where their paths lead. Then paths
  // are names in it, and lead over no symbolic link.
  void look_in(int folder) noexcept { folder_ = folder; }
  // Opens an existing regular file and takes the lock. Errors: not_found, busy (the file stays
  // readable), invalid_argument (not a regular file), io.
  Status open(std::string_view path, Access access) noexcept;
  // Makes a new, empty, locked file beside `path`. publish() gives it its name once it is a pool: a
  // kill in between leaves no half-made pool. Errors: exists, busy (being created), io.
  // `permissions`: as far as the umask leaves them.
  Status create(std::string_view path, unsigned permissions = 0644) noexcept;
  Status publish() noexcept;  // durably; if that fails the name is not there
  // Makes the file's name durable. An open for `power` calls it, too: the creator may have died
  // between the two steps of publish().
  Status sync_name() const noexcept;
  void discard_new() noexcept;  // removes what create() made and publish() did not name
  // Removes the file's name, unless it is another file's by now. What is mapped stays.
  void remove_name() noexcept;
  // Whether its path still leads to it. If not, `now` gets the path that does, as far as the system
  // knows it.
  bool has_name(PathText& now) const noexcept;
  // Removes the name that a create() leaves if it is killed within publish().
  void remove_second_name() noexcept;
  // Before map(): the pages of the file that do not exist yet will come from all memory nodes in
  // turn, if the file is in RAM. Logs what is not so.
  void interleave() noexcept { interleaves_ = true; }
  // Before map(): the file need not survive a power failure. sync() does nothing.
  void keep_until_power_failure() noexcept { synced_ = false; }
  // Before map(): SIGBUS in what is mapped is reported there (bus_errors.h), not the end of the
  // process, if the system lets. `state` must stay valid.
  void report_lost_pages(MappingState& state) noexcept { lost_pages_ = &state; }
  bool has_lost_pages() const noexcept {
    machine::loads_before();  // what was read before may be of a page that was lost
    return lost_pages_ != nullptr && lost_pages_->lost.load(std::memory_order_relaxed);
  }
  // It must stay valid. One call at a time.
  void watch_growth(GrowthWatch& watch) noexcept { watch_ = &watch; }
  // Maps `capacity` bytes of address space over the file.
  Status map(std::uint64_t capacity) noexcept;
  // Of a reader or an observer: maps as much memory of this process instead, with zeros. The file
  // stays open, and is not read by that. set_size() says how much of the memory is the pool.
  Status map_memory(std::uint64_t capacity) noexcept;
  void set_size(std::uint64_t bytes) noexcept { size_.store(bytes, std::memory_order_release); }
  // Ends the mapping; the file stays open and locked.
  void unmap() noexcept;
  // Lets the lock go; the file stays open.
  void unlock() noexcept;
  // Takes the file of another object, which has not mapped it, with its lock. This one has none.
  void take(FileStorage& other) noexcept;
  bool is_open() const noexcept { return fd_ >= 0; }
  void close() noexcept;
  // In a child of fork: forgets the mapping, which the child does not have, and leaves the lock
  // alone.
  void abandon() noexcept;
  // Reads the file's size anew: its owner may have grown it.
  void refresh_size() noexcept;

  // --- a mapping that shows parts of another file (cut/live_chunks.h) ---
  // A range is of whole pages. The kernel replaces a part of a mapping in one step, so threads may
  // read it meanwhile. Errors: io, out_of_memory (too many parts; RLIMIT_AS).
  // Makes the file longer, without space for that. Before threads use it.
  Status lengthen(std::uint64_t bytes) noexcept;
  // Gives a range of the file its space, which keeps its content. Without it a file system may find
  // out that there is none when it writes the range back, and tell it to no process. Errors:
  // pool_full, io.
  Status reserve(std::uint64_t offset, std::uint64_t n) noexcept;
  // Writes all bytes, or fails. Errors: pool_full; poisoned (this file became shorter); io.
  Status write(const void* bytes, std::size_t n, std::uint64_t offset) noexcept;
  // Shows [from, to) of the open file `other` instead. An owner must not store there.
  Status show(int other, std::uint64_t from, std::uint64_t to) noexcept;
  Status show_own(std::uint64_t from, std::uint64_t to) noexcept;
  // What is stored there from now on stays in this process. `other`: what is shown there, or -1.
  Status keep_private(int other, std::uint64_t from, std::uint64_t to) noexcept;
  // Maps the first bytes of the file once more, for stores that are always shared. Null: refused.
  std::byte* map_start(std::uint64_t bytes) noexcept;
  void unmap_start(std::byte* start, std::uint64_t bytes) noexcept;
  int descriptor() const noexcept { return fd_; }

  std::byte* base() const noexcept override { return base_; }
  std::uint64_t size() const noexcept override { return size_.load(std::memory_order_acquire); }
  std::uint64_t capacity() const noexcept override { return capacity_; }
  Status allocate(std::uint64_t offset, std::uint64_t length) noexcept override;
  Status punch(std::uint64_t offset, std::uint64_t length) noexcept override;
  // Of a range that punch() has had: the watch knows it.
  Status punch_again(std::uint64_t offset, std::uint64_t length) noexcept;
  Status sync(std::uint64_t offset, std::uint64_t length) noexcept override;
  void will_read(std::uint64_t offset, std::uint64_t length) noexcept override;
  void read_alone(bool alone) noexcept override;

  // The space that the file takes on its file system, without its holes; 0 if that is unknown.
  std::uint64_t disk_bytes() const noexcept;
  // The number of its names (hard links); 0 if that is unknown.
  std::uint64_t names() const noexcept;
  // Gives the file the permissions and the group of another one; if the group cannot be had, those
  // of the owner only.
  void set_mode_of(const FileStorage& other) noexcept;
  // Whether no user can have put the file there but this one, the superuser and the owner of the
  // other one, and no more users may write it than that one.
  bool is_of_user_of(const FileStorage& other) const noexcept;
  // The file has at least so many bytes now.
  bool backs(std::uint64_t bytes) const noexcept;
  const MediumReport& medium() const noexcept { return medium_; }
  // The log for one message each, if the system gives no huge pages or does not interleave. It must
  // stay valid.
  void set_log(const Log& log) noexcept { log_ = &log; }
  // Device, inode, file system, boot, process and host, as of now. Fails with io instead of
  // returning a part of it, which would look like another place.
  Status identity(layout::Identity& out) const noexcept;
  // Whether the kernel could not write something back that was stored to the file: since it was
  // opened, or before, if no other open file was told. Then memory that shows the file may become
  // what it was before. Waits for nothing. One thread at a time.
  bool lost_writes() noexcept;
  // Reads the start of the file without mapping it.
  std::int64_t read(void* buffer, std::size_t n, std::uint64_t offset) const noexcept;
  // Pid of the owner that has the lock, -1 if the system does not say which; 0 if there is none.
  std::int64_t lock_holder() const noexcept;
  // Whether readers have the lock.
  bool has_readers() const noexcept;
  // Brings [offset, offset+length) into the page tables: recovery then does not fault page by page.
  void populate(std::uint64_t offset, std::uint64_t length) noexcept;

 private:
  int folder() const noexcept;  // for calls on names
  bool is_named(const char* path) const noexcept;
  void remove_own(const char* path) const noexcept;  // only a name of the open file
  Status adopt(int fd, Access access) noexcept;
  Status lock() noexcept;
  Status map_file(int fd, std::uint64_t capacity) noexcept;
  std::int64_t in_the_way(short lock) const noexcept;
  void detect_medium() noexcept;
  void report_lost_pages_of(const void* begin, std::uint64_t bytes) noexcept;
  void place_pages() noexcept;
  void make_huge(std::uint64_t from, std::uint64_t to) noexcept;
  bool collapse(std::uint64_t from, std::uint64_t to) noexcept;
  int ask_for_errors() const noexcept;
  Status full(const char* what,
              const char* advice = "free space on its file system") const noexcept;
  Status beyond_the_limit() const noexcept;
  bool has_space(std::uint64_t offset, std::uint64_t end) const noexcept;
  Status beyond_memory(std::uint64_t limit) const noexcept;
  Status shortened() const noexcept;
  bool take_back(std::uint64_t before, std::uint64_t end) noexcept;
  Status map_part(int fd, std::uint64_t from, std::uint64_t to, int protection, int flags) noexcept;

  PathText path_;
  PathText new_path_;  // until publish()
  int folder_ = -1;    // look_in()
  int fd_ = -1;
  Access access_ = Access::owner;
  std::byte* base_ = nullptr;
  RealPlatform::Atomic<std::uint64_t> size_{0};  // changes with the latch held
  RealPlatform::Latch latch_;                    // of allocate()
  std::uint64_t capacity_ = 0;
  MediumReport medium_;
  const Log* log_ = &kSilent;
  bool huge_refused_ = false;  // and logged; under latch_
  bool interleaves_ = false;
  bool synced_ = true;      // sync() syncs
  bool lost_ = false;       // lost_writes()
  bool in_memory_ = false;  // map_memory()
  MappingState* lost_pages_ = nullptr;
  GrowthWatch* watch_ = nullptr;
  std::uint32_t nodes_ = 1;  // over which the file is interleaved
};

// This boot's id; zero if the system has none. False: it cannot be read now.
bool read_boot_id(std::uint8_t (&id)[16]) noexcept;

}  // namespace perdure
