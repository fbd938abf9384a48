// SimFileSystem: a file system in memory that knows what a power failure can leave of it.
//
// MODEL  A file has sectors of 512 bytes. After a power failure each sector, independently of all
//   others, is as at the last sync() of its file or as after any write to it since then; so writes
//   are lost, kept, reordered and torn between sectors. The size of a file, too, is any that it
//   had since its last sync(); a write that makes a file longer does so sector by sector. The names
//   in a folder are as after any prefix of the changes since its last sync_folder(), or after all
//   of them but one, independently of other folders and of the content of files.
//   punch() is a write of zeros. hold() locks nothing.
//   A write() that fails has written the first half. A sync() that fails may or may not have
//   written. What was written before it is never made durable by a later sync(), unless it is
//   written again; read() returns it, or no longer. The size of a file is in the journal of the
//   file system, and the next sync() makes it durable.
//
// MUTANTS  With `skip_step` at its site (testing/sim/sites.h) a sync does nothing and returns ok,
//   and does() returns false.
//
// One thread. A file that is open when its name goes stays readable, as in Linux.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "platform/file_system.h"

namespace perdure::disk {

inline constexpr std::size_t kSector = 512;

class SimFileSystem final : public FileSystem {
 public:
  SimFileSystem() : nodes_(1) { nodes_[0].is_folder = true; }

  Expected<File> open(std::string_view path, Open how) noexcept override;
  void close(File) noexcept override {}
  Expected<std::size_t> read(File file, void* buffer, std::size_t n,
                             std::uint64_t offset) noexcept override;
  Status write(File file, const void* bytes, std::size_t n, std::uint64_t offset) noexcept override;
  Status allocate(File file, std::uint64_t offset, std::uint64_t length) noexcept override;
  Status punch(File file, std::uint64_t offset, std::uint64_t length) noexcept override;
  Status sync(File file, AnySite site) noexcept override;
  Expected<std::uint64_t> size(File file) noexcept override;
  Expected<Facts> facts(File file) noexcept override;
  void forget(File) noexcept override {}
  bool lock(File file, Lock how) noexcept override;
  // Of a copy of the content, which follows it, until the next call.
  Expected<int> descriptor(File file) noexcept override;
  Status hold(std::string_view path, bool alone) noexcept override;
  void let_go() noexcept override { held_.clear(); }
  void resemble(File) noexcept override {}
  Status rename(std::string_view from, std::string_view to) noexcept override;
  Status remove(std::string_view path) noexcept override;
  Status make_folder(std::string_view path) noexcept override;
  Status remove_folder(std::string_view path) noexcept override;
  Status sync_folder(std::string_view path, AnySite site) noexcept override;
  Status list(std::string_view path, FunctionRef<void(std::string_view)> visit) noexcept override;
  bool does(AnySite site) noexcept override;
  void violated(const Assertion& assertion) noexcept override;

  // Called before each call that changes what a power failure can leave.
  void before_change(std::function<void()> call) { observer_.call = std::move(call); }
  // The n-th such call from now on fails with io, 1 being the next; 0: none. If it is a sync(),
  // `forgets` says that read() then returns what is durable.
  void fail_call(std::uint64_t n, bool forgets = false) noexcept {
    failing_ = n;
    forgets_ = forgets;
  }
  // The process is killed before the n-th such call: it and all that follow fail, and do nothing,
  // until the next process begins.
  void kill_at(std::uint64_t n) noexcept { killing_ = n; }
  bool killed() const noexcept { return killed_; }
  void next_process() noexcept {
    killed_ = false;
    held_.clear();
  }
  std::uint64_t changes() const noexcept { return changes_; }

  // The numbers of states, at least 2 each, of what may or may not have reached the disk. State 0
  // is what is durable, the last one what was written last.
  std::vector<std::uint32_t> undecided() const;
  // What a power failure leaves if these are the states; everything in it is durable.
  SimFileSystem after_power_failure(std::span<const std::uint32_t> states) const;
  std::uint64_t fingerprint() const;  // of what read() and list() return

 private:
  using Sector = std::array<std::byte, kSector>;
  struct SectorWrite {
    std::uint64_t sector;
    Sector after;
    bool dropped;  // by a sync() that failed
  };
  struct Rename {  // of `from` to `to`; a new name has no `from`, a removed one no `to`
    std::string from;
    std::string to;
    int node;
  };
  struct Node {
    bool is_folder = false;
    bool is_gone = false;  // the folder was removed; it may be held
    // A file.
    std::map<std::uint64_t, Sector> durable;  // a sector that is absent is zero
    std::map<std::uint64_t, Sector> now;
    std::vector<SectorWrite> writes;
    std::uint64_t durable_size = 0;
    std::uint64_t size = 0;
    std::vector<std::uint64_t> resizes;  // since the last sync()
    std::shared_ptr<const int> copy;     // of the last descriptor()
    int shared = 0;                      // locks
    bool claimed = false;
    // A folder.
    std::map<std::string, int> durable_names;
    std::map<std::string, int> names;
    std::vector<Rename> renames;
  };

  // A copy of the files is no longer observed.
  struct Observer {
    std::function<void()> call;
    Observer() = default;
    Observer(const Observer&) {}
    Observer& operator=(const Observer&) { return *this; }
  };

  struct Place {
    Node* folder;
    std::string name;
  };
  Place place_of(std::string_view path);  // folder is null if there is none
  int node_at(std::string_view path);     // -1 if there is none
  int named(std::string_view path);
  Status change(Node& folder, Rename rename);  // in memory; returns ok
  Status begin_change();
  static void apply(std::map<std::string, int>& names, const Rename& rename);
  static void put(Node& node, const void* bytes, std::size_t n, std::uint64_t offset);
  void drop_pending(Node& node) const;
  std::vector<bool> reachable() const;  // by node: it can still have a name
  template <class Visit>
  void visit_undecided(Visit visit) const;

  std::map<std::string, int, std::less<>> held_;  // folders by path
  std::vector<Node> nodes_;  // 0: the folder of paths without a folder. A File is an index
  Observer observer_;
  std::uint64_t failing_ = 0;
  bool forgets_ = false;
  std::uint64_t killing_ = 0;
  bool killed_ = false;
  std::uint64_t changes_ = 0;
};

}  // namespace perdure::disk
