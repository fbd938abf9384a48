// SimMemory: a persistent medium behind a cache, and every state that a power failure can leave.
//
// WHAT  Two views of one file: the program's (`base()`), and the content that is guaranteed to be
//   on the medium. Between them, each 64-byte line has a list of stores that are visible but not
//   yet guaranteed, in coherence order. A crash image takes a prefix of the list of each line,
//   independently (x86: stores to one line persist in order). Lines may be written back at any
//   time, flushed or not.
// MODEL
//   store, compare_exchange   one entry of 8 bytes
//   copy, zero                words of a line covered in part: ordinary stores in address order
//                             (with set_tear_partial_copies in any order: memcpy guarantees none).
//                             A line covered whole is one bulk group, whose words may tear in any
//                             subset.
//   flush                     marks the length of the line's list for the calling thread; on a page
//                             medium, of all lines of its pages
//   fence                     guarantees the stores below the calling thread's marks, and no other
//                             thread's. A locked read-modify-write is no fence. (Mutants: sites.h.)
//   sync, sync_file           guarantee everything in the range; sync_file (fdatasync), and on
//                             persistent memory both, also the file's size
//   size, punch               take effect at once and are guaranteed by sync as above: an image has
//                             either state. A store to space that was not allocated, or was punched
//                             since, counts in hole_stores(): on a full disk it would raise a
//                             signal.
//   link, sync_directory      page media: the file gets its name, and sync_directory guarantees it
// PAGE MEDIA  A page may be written back at any time. Each of its 512-byte sectors is then on the
//   medium, or not, as the page was at that time. The unit is therefore the sector. Its states are
//   the prefixes of its stores in program order: a subset of what independent lines give, and few
//   enough to try all. File size and name are states of their own.
// MODES  plain: only loads and stores, as fast as memory. recording: as above. frozen: stores are
//   ignored, because the process is dead while its destructors still run.
//
// Thread safety: one thread at a time (the scheduler's rule).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "perdure/status.h"
#include "platform/platform.h"
#include "testing/sim/sites.h"

namespace perdure::testing {

enum class SimMode : std::uint8_t { plain, recording, frozen };
enum class SimMedium : std::uint8_t {
  line,  // persistent memory: written back by cache line
  page,  // a page cache: written back by page, by msync
};
inline constexpr std::uint32_t kSectorLines = 512 / kLine;

// The content of one line.
struct LineBytes {
  std::uint64_t words[8];
};
// An image's hash is the exclusive or over its lines, in any order.
std::uint64_t line_hash(std::uint64_t line, const LineBytes& bytes);

// A possible state of a pending line after a power failure: the first `prefix` entries, and the
// entries in `torn` of the bulk group after them.
struct LineChoice {
  std::uint32_t prefix = 0;
  std::uint32_t torn = 0;
};
// A line, or on a page medium a sector, whose content on the medium is open. choices[0] is the
// guaranteed content, the last one the visible content.
struct PendingLine {
  std::uint32_t line = 0;  // of a sector: its first line
  bool recent = false;     // stored to since mark_recent()
  // The number of choices with every subset of a torn line; `choices` may be fewer.
  std::uint64_t states = 1;
  std::vector<LineChoice> choices;
  std::vector<std::uint64_t> order;  // global number of the last store of each choice
};

// The content of the medium after a power failure, as a difference from the guaranteed view.
struct CrashImage {
  std::uint64_t size = 0;
  bool punched = false;  // pending punches took effect
  bool named = true;     // the directory has the file's name
  std::vector<std::uint32_t> lines;
  std::vector<LineBytes> bytes;
  std::uint64_t content = 0;  // hash of the bytes
  std::uint64_t hash = 0;     // of bytes, size and name: equal for equal files
};

class SimMemory {
 public:
  // Makes an empty file. `capacity` bytes are mapped.
  explicit SimMemory(std::uint64_t capacity);
  ~SimMemory();
  SimMemory(const SimMemory&) = delete;
  SimMemory& operator=(const SimMemory&) = delete;

  std::byte* base() const { return visible_; }
  std::uint64_t size() const { return size_; }
  std::uint64_t capacity() const { return capacity_; }
  SimMode mode() const { return mode_; }
  void set_mode(SimMode mode) { mode_ = mode; }

  // --- the program's side ---
  void store(std::uint64_t* word, std::uint64_t value) {
    if (mode_ == SimMode::plain) [[likely]] {
      touch(word);
      *word = value;
    } else {
      store_slow(word, value);
    }
  }
  void copy(void* dst, const void* src, std::size_t n);
  void zero(void* dst, std::size_t n);
  void flush(const void* p, std::size_t n, std::uint32_t thread, SiteInfo& site);
  void fence(std::uint32_t thread, SiteInfo& site);
  // Ends the thread. Its write-backs without a fence are not guaranteed.
  void end_thread(std::uint32_t thread);
  // `site`: the caller, for SiteInfo::settled_by.
  void sync(std::uint64_t offset, std::uint64_t n, const char* site);
  void sync_file(std::uint64_t offset, std::uint64_t n, const char* site);
  void link();
  void sync_directory();
  Status allocate(std::uint64_t offset, std::uint64_t length);
  Status punch(std::uint64_t offset, std::uint64_t length);
  // Called before a fence or sync takes effect, while recording.
  std::function<void(const SiteInfo&)> before_fence;
  // Called after a store of a word or a change of the file's size, space or name, while recording.
  // Not after copies: they go to memory that is not reachable yet.
  std::function<void()> after_store;
  // The sites that have started write-backs without a fence after them.
  const std::vector<const SiteInfo*>& awaited_sites() const { return awaited_sites_; }
  // Call it while the file is empty.
  void set_medium(SimMedium medium) {
    medium_ = medium;
    named_ = durable_named_ = medium == SimMedium::line;
  }
  SimMedium medium() const { return medium_; }
  bool named() const { return named_; }
  void set_tear_partial_copies(bool tear) { tear_partial_copies_ = tear; }
  // The file cannot grow beyond this size: a full disk.
  void set_disk_limit(std::uint64_t bytes) { disk_limit_ = bytes; }

  // --- the power failure's side ---
  // Every line or sector whose content is open, in the order of the lines. A bulk line of more than
  // three words is torn into prefixes, each word alone, and all but one; with `every_subset` into
  // any subset.
  std::vector<PendingLine> pending(bool every_subset = false) const;
  // Whether every word that [p, p + n) touches is on the medium as it is visible.
  bool guaranteed(const void* p, std::size_t n) const;
  std::size_t pending_lines() const { return active_.size(); }
  bool size_pending() const { return size_ != durable_size_; }
  bool punch_pending() const { return !punches_.empty(); }
  bool name_pending() const { return named_ != durable_named_; }
  // Lines stored to from now on are `recent` in pending().
  void mark_recent() { recent_from_ = next_order_; }
  // Grows with every store, write-back and fence that can change the set of images.
  std::uint64_t changes() const { return changes_; }

  // The image that takes choice[i] of pending[i].
  CrashImage image(const std::vector<PendingLine>& pending,
                   const std::vector<std::uint32_t>& choice, bool new_size, bool punched,
                   bool new_name = true) const;

  // Becomes the medium after the crash, with everything on it guaranteed, in plain mode. Repeated
  // calls with the same source are cheap.
  void load_image(SimMemory& source, const CrashImage& image);
  // Becomes an exact copy with the pending stores, without write-backs in flight: the process was
  // killed, and the machine goes on.
  void load_killed(const SimMemory& source);
  // Declares everything visible guaranteed. Recording starts from here.
  void settle();

  // Lines whose visible content no recorded store explains: some code wrote past the platform.
  std::uint64_t unexplained_lines() const;
  // Stores to pages without space, since the last load.
  std::uint64_t hole_stores() const { return hole_stores_; }

 private:
  struct Entry {
    std::uint64_t order;
    std::uint64_t value;
    std::uint32_t group;  // 0: a single store; otherwise the bulk group
    std::uint32_t word;
  };
  struct Line {
    std::uint32_t line = 0;
    std::uint32_t position = 0;   // in active_
    std::uint64_t first = 0;      // number of the first pending entry; never repeats
    SiteInfo* owed_by = nullptr;  // the site whose mutant left the line pending
    std::vector<Entry> entries;
  };
  struct Mark {
    std::uint32_t line;
    std::uint64_t until;
  };
  // A write-back that a mutant delays.
  struct Delayed {
    LineRange lines;
    const SiteInfo* site;
  };
  struct Punch {
    std::uint64_t offset;
    std::uint64_t length;
  };

  std::uint64_t offset_of(const void* p, std::size_t n) const;
  void touch(const void* p) {
    const std::size_t page =
        static_cast<std::size_t>(static_cast<const std::byte*>(p) - visible_) / kPage;
    if (!dirty_[page]) set_dirty(page);
    if (!backed_[page]) hole(page);
  }
  void hole(std::size_t page);
  void set_dirty(std::size_t page);
  void touch_range(std::uint64_t offset, std::uint64_t n);
  void store_slow(std::uint64_t* word, std::uint64_t value);
  void record(std::uint64_t offset, std::uint64_t value, std::uint32_t group);
  void bulk(std::uint64_t offset, const std::uint64_t* source, std::size_t n);
  Line& line_of(std::uint32_t number);
  void drop_line(std::uint32_t number);
  void mark(LineRange lines, std::uint32_t thread, const SiteInfo& site);
  void start_delayed(std::uint32_t thread, const SiteInfo& fence);
  void lose_order(LineRange lines, SiteInfo& site);
  // `by`: the fence or sync, for SiteInfo::settled_by.
  void promote(std::uint32_t line, std::uint64_t until, const char* by);
  void owe(LineRange lines, SiteInfo& site);
  void set_durable(std::uint64_t offset, std::uint64_t value);
  void set_changed(std::size_t page);
  void apply_punches();
  void forget_pending();
  std::vector<LineChoice> choices_of(const Line& line, bool every_subset) const;
  static std::uint64_t states_of(const Line& line);
  std::vector<PendingLine> pending_sectors() const;
  LineChoice until(const Line& line, std::uint64_t order) const;
  std::uint64_t content_hash() const;
  void guarantee_metadata();
  LineBytes content(const Line& line, const LineChoice& choice) const;
  LineBytes durable_line(std::uint32_t line) const;

  std::uint64_t capacity_;
  std::uint64_t disk_limit_;
  std::byte* visible_;
  std::byte* durable_;
  std::uint32_t* slot_of_line_;  // index into lines_ + 1; 0: nothing pending
  std::uint64_t size_ = 0;
  std::uint64_t durable_size_ = 0;
  SimMode mode_ = SimMode::recording;
  SimMedium medium_ = SimMedium::line;
  bool named_ = true;
  bool durable_named_ = true;
  bool tear_partial_copies_ = false;

  std::vector<Line> lines_;
  std::vector<std::uint32_t> free_slots_;
  std::vector<std::uint32_t> active_;           // slots in use
  std::vector<std::uint16_t> pending_in_page_;  // pending lines: flush skips pages without any
  std::vector<std::vector<Mark>> marks_;        // by thread
  std::vector<std::vector<Delayed>> delayed_;   // by thread
  std::vector<const SiteInfo*> awaited_sites_;
  std::vector<Punch> punches_;
  std::uint64_t punched_hash_ = 0;  // their change of the content's hash
  std::uint64_t next_order_ = 1;
  std::uint64_t recent_from_ = 0;
  std::uint64_t entry_count_ = 0;
  std::uint32_t next_group_ = 1;
  std::uint64_t changes_ = 0;
  std::uint64_t durable_hash_ = 0;

  std::vector<bool> backed_;  // by page: whether there is space
  std::uint64_t hole_stores_ = 0;
  // Pages that differ from the source of the last load_image.
  std::vector<bool> dirty_;
  std::vector<std::uint32_t> dirty_pages_;
  const SimMemory* loaded_from_ = nullptr;
  std::uint64_t loaded_version_ = 0;
  // Pages of durable_ that changed since a loader received `version_`.
  std::vector<bool> changed_;
  std::vector<std::uint32_t> changed_pages_;
  std::uint64_t version_ = 1;
};

}  // namespace perdure::testing
