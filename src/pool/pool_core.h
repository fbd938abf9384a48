// PoolCore: the format of a pool over a Storage: headers, root directory, growth, trust, close.
//
// WHAT  Everything of a pool that must survive a crash, and nothing that asks the operating
//   system: files, locks and media are FileStorage and PoolImpl, so the crash explorer runs this
//   very code.
// LAYOUT  layout.h.
// INVARIANTS
//   I1  (after any crash) at least one header copy is valid; the valid one with the higher
//       sequence counts. Copies are written in turn, each durable before the other may be touched.
//   I2  (after any crash) file_bytes of the counting header <= bytes the medium backs; extents
//       beyond it are virgin.
//   I3  A root line is valid iff `root` is non-zero; it is stored last into its line (same-line
//       order).
//   I4  The header says `dirty`, durably and in every mode, before the first mutation of an open,
//       and again before the first store after it said `sealed`. `sealed` is written when all
//       content is durable.
// OPERATIONS
//   create      everything but copy A, fence, then copy A: the file is a pool from its last fence
//               on (G10).
//   open        header -> trust -> extent table -> write-back after a kill (X1) -> dirty header,
//               unless the pool is clean: then recovery only reads, and a pool found damaged stays
//               clean, so that its checksums count at the next open too. The caller opens the
//               maps, which mark their blocks, or are added to the open's sweep.
//   finish_open  dirty header, both copies, if not written yet -> free lists, at once or by the
//               sweep. serve() hands that to the background.
//   grow        space, then table words (virgin: zero already), then the header's file_bytes. The
//               space of the next growth is allocated in the background (growth_ahead.h).
//   add_root    line without `root`, then `root`: one line, 1 write-back, 1 fence.
//   drop_root   root := 0, then the rest of the line: one line, 1 write-back, 1 fence.
//   close       data fenced -> storage synced -> header clean|synced, both copies: that one of them
//               is lost takes nothing from the checksums of the other's content.
//   sync        data fenced -> storage synced; with nobody storing meanwhile -> header sealed,
//               both copies. The next store of anybody: dirty header, both copies, durable -> the
//               store.
// RECOVERY  a torn header copy loses to the other one; an unfinished grow leaves a longer file; an
//   unfinished add_root leaves a free slot; blocks of a half-made or dropped map are swept.
// PROGRESS  blocking; one latch for headers and roots.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>

#include "heap/heap.h"
#include "perdure/options.h"
#include "perdure/status.h"
#include "platform/platform.h"
#include "platform/storage.h"
#include "pool/after_kill.h"
#include "pool/background.h"
#include "pool/growth_ahead.h"
#include "pool/layout.h"
#include "pool/open_sweep.h"
#include "reclaim/epoch.h"
#include "util/crc32c.h"

namespace perdure {

// The shape of a new pool.
struct PoolShape {
  std::uint64_t max_bytes = 64_GiB;
  std::uint64_t extent_bytes = 64_KiB;
  std::uint32_t root_slots = 256;
  std::uint32_t writer_slots = 1024;
  std::uint64_t initial_extents = 8;
};

// What an open wants to know and say.
struct OpenRequest {
  layout::Identity identity{};
  Durability mode = Durability::process;
  bool accept_untrusted = false;
  bool allow_damage = false;        // of the root directory: it is reported, for check()
  bool write_back_by_sync = false;  // page media: one sync instead of a write-back per line
  // Whether a map restarts at once: it settles what its answers rest on (AfterKill). If all maps
  // do, the write-back after a kill goes on in the background. Null: no map does.
  bool (*at_once)(const layout::Root& root) noexcept = nullptr;
  std::uint32_t threads = 1;  // for passes over the whole content, then and later
};

struct OpenReport {
  bool was_clean = false;
  bool was_synced = false;
  bool trusted = true;
  bool at_once = false;  // there are maps, and all of them restart at once
  bool directory_damaged = false;
};

inline std::uint32_t header_crc(const layout::Header& header) noexcept {
  return crc32c(0, &header, offsetof(layout::Header, crc));
}
inline std::uint32_t root_crc(const layout::Root& root) noexcept {
  layout::Root copy = root;
  copy.crc = 0;
  return crc32c(0, &copy, sizeof(copy));
}
// The counting header of a mapped or read pool of `bytes` bytes; explains what is wrong otherwise.
Status read_header(const std::byte* base, std::uint64_t bytes, layout::Header& out,
                   int* copy = nullptr, bool verify = true) noexcept;
// The header names another file than this one.
bool is_copy(const layout::Header& header, const layout::Identity& here) noexcept;
// Why an unclean or moved pool is not trusted; null if it is (a sealed copy: if its seal fits).
const char* distrust(const layout::Header& header, const layout::Identity& here) noexcept;
// The header of a new pool; fails if the shape is impossible.
Status shape_header(const PoolShape& shape, layout::Header& out) noexcept;

template <Platform P>
class PoolCore final : public HeapHost, private StoreWatch {
 public:
  PoolCore(P& platform, Storage& storage) noexcept
      : platform_(platform),
        storage_(storage),
        epochs_(platform),
        heap_(platform, storage, epochs_),
        after_kill_(platform, heap_),
        sweep_(heap_, after_kill_, background_) {
    heap_.set_space_watch(&background_,
                          [](void* work) { static_cast<Background<P>*>(work)->space_freed(); });
  }
  ~PoolCore() override {
    background_.stop();
    if (!abandoned_) epochs_.drain_all();
  }
  // A child of fork has inherited this object, not the pool: it must not touch the pool any more.
  void abandon() noexcept {
    abandoned_ = true;
    background_.abandon();
  }

  // Formats an empty storage. A crash before the end leaves a file that is not a pool.
  static Status create(P& platform, Storage& storage, const PoolShape& shape,
                       const layout::Identity& identity, const std::uint8_t (&uuid)[16],
                       Durability mode) noexcept;

  Status open(const OpenRequest& request, OpenReport& report) noexcept;
  // Ends recovery, or leaves its end to sweep(), where a map marks while it serves or what a killed
  // process left is not durable yet. `complete`: every other map could be enumerated.
  Status finish_open(bool complete) noexcept;
  // Hands what sweep() has left to do to the background. Nothing that must be refused follows.
  void serve() noexcept { sweep_.serve(); }
  // An untrusted pool has passed its check: from now on it counts as this file of this boot.
  Status accept(const layout::Identity& identity) noexcept;
  // The caller has stopped background work and closed its maps. Idempotent.
  Status close(bool sync) noexcept;
  // Makes everything acknowledged so far durable against power loss in every mode, and seals the
  // pool if nothing is stored meanwhile and background work comes to rest within about a second.
  // The caller is in no epoch guard; no map is made or dropped at the time.
  Status sync() noexcept;

  // --- roots ---
  std::uint32_t root_slots() const noexcept { return header_.root_slots; }
  // The map in a slot; false if free. corruption if the line is damaged.
  Expected<bool> read_root(std::uint32_t slot, layout::Root& out) const noexcept;
  // The slot of a name, or root_slots().
  Expected<std::uint32_t> find_root(std::string_view name) const noexcept;
  // The slot that add_root would take for this name. Errors as there.
  Expected<std::uint32_t> free_root(std::string_view name) const noexcept;
  // Durable when it returns. `root.crc` is computed here. Errors: exists, pool_full (no slot).
  Status add_root(layout::Root root) noexcept;
  Status drop_root(std::uint32_t slot) noexcept;

  // Headers, root directory and extent table against their checksums and against DRAM: bad(what)
  // for each thing that is wrong.
  template <class F>
  void verify(F&& bad) noexcept;

  Expected<std::uint64_t> grow(std::uint64_t extents) noexcept override;
  void expect(std::uint64_t extents) noexcept override;
  // Allocates up to `bytes` of what the next growth will need; false: it has all, or cannot.
  bool prepare_growth(std::uint64_t bytes) noexcept;

  P& platform() noexcept { return platform_; }
  Storage& storage() noexcept { return storage_; }
  EpochDomain<P>& epochs() noexcept { return epochs_; }
  Heap<P>& heap() noexcept { return heap_; }
  Background<P>& background() noexcept { return background_; }
  OpenSweep<P>& sweep() noexcept { return sweep_; }
  AfterKill<P>& after_kill() noexcept { return after_kill_; }
  // A copy: growth changes it.
  layout::Header header() const noexcept {
    LatchGuard guard(latch_);
    return header_;
  }

 private:
  layout::Root* root_line(std::uint32_t slot) const noexcept {
    return reinterpret_cast<layout::Root*>(storage_.base() + layout::kDirectoryOffset) + slot;
  }
  std::uint64_t extents_in(std::uint64_t bytes) const noexcept {
    return (bytes - header_.data_offset) / header_.extent_bytes;
  }
  // By how many extents a pool of so many grows: an eighth more than there is, so that growth is
  // amortised; bounded, so that a step stays short.
  std::uint64_t growth_of(std::uint64_t extents) const noexcept {
    return std::min(extents / 8 + 1, 64_MiB / header_.extent_bytes + 1);
  }
  // `sync`: durable against power loss in every mode; otherwise in those that promise it.
  Status write_header(bool sync) noexcept;
  template <FixedString Second>
  Status write_headers(Site<Second> second) noexcept;
  Status write_dirty() noexcept;
  Status sync_storage(std::uint64_t offset, std::uint64_t length) noexcept;
  Status make_virgin(std::uint64_t first, std::uint64_t count) noexcept;
  bool write_back_all() noexcept;
  Status write_back(const OpenRequest& request, OpenReport& report) noexcept;
  Status begin_serving() noexcept;
  bool all_at_once(const OpenRequest& request) const noexcept;
  static std::uint64_t directory_crc(const P& platform, const std::byte* base,
                                     std::uint32_t slots) noexcept;
  std::uint64_t directory_crc() const noexcept {
    return directory_crc(platform_, storage_.base(), header_.root_slots);
  }
  Status refuse(const char* reason) const noexcept;

  // --- seal; pool_sync.inl.h ---
  enum class Seal : std::uint8_t {
    none,
    watching,  // the next store says that the seal under way is void
    set,       // the header says sealed; the next store makes it dirty first
  };
  void before_store() noexcept override;
  void unseal() noexcept;  // latch held
  bool watching() const noexcept { return seal_.load(std::memory_order_acquire) == Seal::watching; }
  Expected<bool> begin_seal() noexcept;
  bool come_to_rest() noexcept;
  Status end_seal(std::uint64_t content) noexcept;
  bool quiesce() noexcept;
  std::uint64_t content_checksum(bool live) noexcept;
  template <class F>
  void for_each_piece(std::size_t worker, F&& visit) noexcept;
  static constexpr int kSealAttempts = 4;
  static constexpr unsigned kPatience = 100'000;  // pauses: a reader that stays is not waited for
  static constexpr std::uint64_t kSealPatienceNs = 1'000'000'000;  // for background work

  P& platform_;
  Storage& storage_;
  EpochDomain<P> epochs_;
  Heap<P> heap_;
  std::uint64_t expected_ = 0;  // extents, by expect(); under latch_
  GrowthAhead<PoolCore, P> growth_ahead_{*this};
  Background<P> background_;
  AfterKill<P> after_kill_;
  OpenSweep<P> sweep_;
  layout::Header header_{};
  std::uint32_t threads_ = 1;
  int next_copy_ = 0;  // where the next header goes: never over the counting one
  bool open_ = false;
  bool abandoned_ = false;
  typename P::template Atomic<Seal> seal_{Seal::none};
  // The thread that writes a header: that store is the pool's own.
  typename P::template Atomic<std::uint32_t> header_writer_{~0U};
  mutable typename P::Latch latch_;
};

// Sizes are multiples of the system page so that every part can be synced and punched on its own.
inline std::uint64_t align_up(std::uint64_t n, std::uint64_t to) noexcept {
  return (n + to - 1) / to * to;
}

template <Platform P>
Status PoolCore<P>::create(P& platform, Storage& storage, const PoolShape& shape,
                           const layout::Identity& identity, const std::uint8_t (&uuid)[16],
                           Durability mode) noexcept {
  layout::Header header{};
  if (Status s = shape_header(shape, header); !s.ok()) return s;
  std::memcpy(header.uuid, uuid, sizeof(uuid));
  header.identity = identity;
  header.mode = header.weakest = static_cast<std::uint32_t>(mode);
  header.close_state = layout::CloseState::synced;
  header.sequence = 1;
  const std::uint64_t extents =
      std::min(std::max<std::uint64_t>(shape.initial_extents, 1),
               (header.max_bytes - header.data_offset) / header.extent_bytes);
  header.file_bytes = header.data_offset + extents * header.extent_bytes;
  // The directory and the used part of the extent table; the rest of the table is backed as it is
  // needed.
  const std::uint64_t table_end = align_up(header.table_offset + extents * 8, kPage);
  if (Status s = storage.allocate(0, table_end); !s.ok()) return s;
  if (Status s = storage.allocate(header.data_offset, extents * header.extent_bytes); !s.ok()) {
    return s;
  }
  std::byte* base = storage.base();
  platform.zero(base + layout::kDirectoryOffset, table_end - layout::kDirectoryOffset);
  platform.zero(base, layout::kDirectoryOffset);
  if (Status s = storage.sync(0, header.file_bytes); !s.ok()) return s;
  header.directory_crc = directory_crc(platform, base, header.root_slots);
  // Commit: the magic is in this copy and nowhere else.
  header.crc = header_crc(header);
  platform.copy(base, &header, sizeof(header));
  if (!platform.sync(base, sizeof(header), "pool.create.header"_site)) return StatusCode::poisoned;
  return {};
}

template <Platform P>
Status PoolCore<P>::write_header(bool sync) noexcept {
  ++header_.sequence;
  header_.crc = header_crc(header_);
  std::byte* copy = storage_.base() + static_cast<std::uint64_t>(next_copy_) * layout::kHeaderBytes;
  header_writer_.store(P::thread_slot(), std::memory_order_relaxed);
  platform_.copy(copy, &header_, sizeof(header_));
  header_writer_.store(~0U, std::memory_order_relaxed);
  if ((sync || platform_.durable()) &&
      !platform_.sync(copy, sizeof(header_), "pool.header.write"_site)) {
    return StatusCode::poisoned;
  }
  next_copy_ ^= 1;
  return {};
}

// Durably in both copies, so that the loss of either changes nothing that the header says.
template <Platform P>
template <FixedString Second>
Status PoolCore<P>::write_headers(Site<Second> second) noexcept {
  Status s = write_header(true);
  return s.ok() && P::runs(second) ? write_header(true) : s;
}

// The dirty header, in both copies: a later header that tears must not revive one that says
// `synced`. What a killed process left visible but not durable is made durable before either copy
// is overwritten.
template <Platform P>
Status PoolCore<P>::write_dirty() noexcept {
  if (!P::runs("pool.open.dirty"_site)) return {};
  if (!platform_.sync(storage_.base(), 2 * layout::kHeaderBytes, "pool.open.headers"_site)) {
    return StatusCode::poisoned;
  }
  return write_headers("pool.open.second_copy"_site);
}

// A failed write-back leaves pages that the system calls clean: nothing may be acknowledged after
// it.
template <Platform P>
Status PoolCore<P>::sync_storage(std::uint64_t offset, std::uint64_t length) noexcept {
  Status s = storage_.sync(offset, length);
  if (!s.ok()) platform_.poison();
  return s;
}

// X1: after a kill the stores of the dead process are visible but not durable, and recovery must
// not act on what a power loss would take away. Each worker fences what it wrote back: a fence
// waits for its own thread's write-backs only.
template <Platform P>
bool PoolCore<P>::write_back_all() noexcept {
  typename P::template Atomic<bool> durable{true};
  const auto share = [&](std::size_t worker) {
    if (worker == 0) {
      platform_.flush(storage_.base(), layout::kDirectoryOffset, "pool.open.write_back"_site);
    }
    for_each_piece(worker, [&](std::uint64_t offset, std::uint64_t length) {
      platform_.flush(storage_.base() + offset, length, "pool.open.write_back"_site);
    });
    if (!platform_.fence("pool.open.write_back"_site)) {
      durable.store(false, std::memory_order_relaxed);
    }
  };
  P::parallel(threads_, share);
  return durable.load(std::memory_order_relaxed);
}

// X1 in the way that page media and the maps allow. Where no map reads before it settles, only what
// the pool itself rests on comes first.
template <Platform P>
Status PoolCore<P>::write_back(const OpenRequest& request, OpenReport& report) noexcept {
  if (request.write_back_by_sync) {
    return sync_storage(0, header_.file_bytes);
  }
  report.at_once = report.trusted && all_at_once(request);
  if (!report.at_once) {
    return write_back_all() ? Status() : StatusCode::poisoned;
  }
  platform_.flush(storage_.base(),
                  layout::kDirectoryOffset + header_.root_slots * sizeof(layout::Root),
                  "pool.settle.directory"_site);
  platform_.flush(storage_.base() + header_.table_offset, extents_in(header_.file_bytes) * 8,
                  "pool.settle.table"_site);
  if (!platform_.fence("pool.settle.table"_site)) return StatusCode::poisoned;
  return after_kill_.begin();
}

template <Platform P>
bool PoolCore<P>::all_at_once(const OpenRequest& request) const noexcept {
  bool any = false;
  for (std::uint32_t slot = 0; request.at_once != nullptr && slot < header_.root_slots; ++slot) {
    layout::Root root;
    const auto used = read_root(slot, root);
    if (!used || (*used && !request.at_once(root))) return false;
    any = any || *used;
  }
  return any;
}

template <Platform P>
Status PoolCore<P>::refuse(const char* reason) const noexcept {
  return Status::format(StatusCode::untrusted,
                        "%s; restore a copy, or run `perdure check --accept` to verify what is "
                        "there and serve it",
                        reason);
}

template <Platform P>
Status PoolCore<P>::open(const OpenRequest& request, OpenReport& report) noexcept {
  int copy = 0;
  if (Status s = read_header(storage_.base(), storage_.size(), header_, &copy,
                             P::verifies("pool.header.crc"_site));
      !s.ok()) {
    return s;
  }
  next_copy_ = copy ^ 1;
  threads_ = std::max(request.threads, 1U);
  const bool sealed = header_.close_state == layout::CloseState::sealed;
  report.was_clean = !sealed && header_.close_state != layout::CloseState::dirty;
  report.was_synced = header_.close_state >= layout::CloseState::synced;
  if (const char* reason = distrust(header_, request.identity);
      reason != nullptr && P::verifies("pool.open.trust"_site)) {
    report.trusted = false;
    if (!request.accept_untrusted) return refuse(reason);
  }
  if (header_.close_state != layout::CloseState::dirty && P::verifies("pool.directory.crc"_site) &&
      header_.directory_crc != directory_crc()) {
    report.directory_damaged = true;
    if (!request.allow_damage)
      return Status::format(
          StatusCode::corruption,
          "the root directory is damaged, so a map may be missing; restore a copy");
  }
  const HeapGeometry geometry{
      .extent_bytes = header_.extent_bytes,
      .table_offset = header_.table_offset,
      .data_offset = header_.data_offset,
      .max_extents = (header_.max_bytes - header_.data_offset) / header_.extent_bytes};
  if (Status s = heap_.attach(geometry, extents_in(header_.file_bytes), *this); !s.ok()) return s;
  if (Status s = heap_.begin_sweep(); !s.ok()) return s;
  if (sealed && is_copy(header_, request.identity) && P::verifies("pool.seal.crc"_site) &&
      content_checksum(false) != header_.seal) {
    report.trusted = report.was_synced = false;
    if (!request.accept_untrusted) {
      return refuse("the file is a copy that was still being made when the pool was changed again");
    }
  }
  if (platform_.durable() && !report.was_synced && P::runs("pool.open.write_back"_site)) {
    if (Status s = write_back(request, report); !s.ok()) return s;
  } else {
    report.at_once = all_at_once(request);
  }
  // Entering `power` over stores that no flush followed: the whole file goes back first.
  const auto weakest = static_cast<Durability>(header_.weakest);
  if (request.mode == Durability::power && weakest != Durability::power && !report.was_synced &&
      P::runs("pool.open.sync"_site)) {
    if (Status s = sync_storage(0, header_.file_bytes); !s.ok()) return s;
  }
  const bool all_durable = report.was_synced || request.mode == Durability::power;
  header_.mode = static_cast<std::uint32_t>(request.mode);
  header_.close_state = layout::CloseState::dirty;
  // An untrusted pool keeps its old identity and weakest mode, so that it stays untrusted if its
  // check fails.
  if (report.trusted) {
    header_.identity = request.identity;
    if (all_durable || weakest == Durability::power) header_.weakest = header_.mode;
  }
  if (report.was_clean) return {};
  open_ = true;
  return write_dirty();
}

template <Platform P>
Status PoolCore<P>::begin_serving() noexcept {
  if (open_) return {};
  if (Status s = write_dirty(); !s.ok()) return s;
  open_ = true;
  return {};
}

template <Platform P>
Status PoolCore<P>::finish_open(bool complete) noexcept {
  if (Status s = begin_serving(); !s.ok()) return s;
  if (!sweep_.has_maps() && after_kill_.done()) return heap_.end_sweep(complete);
  sweep_.begin(complete);
  return {};
}

template <Platform P>
Status PoolCore<P>::accept(const layout::Identity& identity) noexcept {
  if (Status s = sync_storage(0, header_.file_bytes); !s.ok()) return s;
  LatchGuard guard(latch_);
  header_.identity = identity;
  header_.weakest = header_.mode;
  return write_header(true);
}

template <Platform P>
Status PoolCore<P>::close(bool sync) noexcept {
  if (!open_) return {};
  epochs_.drain_all();
  if (!after_kill_.settle_all()) return StatusCode::poisoned;
  if (!platform_.fence("pool.close.data"_site)) return StatusCode::poisoned;
  LatchGuard guard(latch_);
  unseal();
  if (sync) {
    if (Status s = sync_storage(0, header_.file_bytes); !s.ok()) return s;
  }
  header_.directory_crc = directory_crc();
  header_.close_state = sync ? layout::CloseState::synced : layout::CloseState::clean;
  if (sync) header_.weakest = static_cast<std::uint32_t>(Durability::power);
  Status s = write_headers("pool.close.second_copy"_site);
  if (s.ok()) open_ = false;
  return s;
}

template <Platform P>
Expected<std::uint64_t> PoolCore<P>::grow(std::uint64_t extents) noexcept {
  LatchGuard guard(latch_);
  unseal();
  const std::uint64_t now = extents_in(header_.file_bytes);
  const std::uint64_t max = extents_in(header_.max_bytes);
  if (extents > max - now) {
    return fail(StatusCode::pool_full,
                "the pool is full: %llu of %llu bytes; erase entries, or load into a pool with a "
                "larger max_size",
                static_cast<unsigned long long>(header_.file_bytes),
                static_cast<unsigned long long>(header_.max_bytes));
  }
  std::uint64_t want = std::min(std::max(extents, growth_of(now)), max - now);
  for (;;) {
    const std::uint64_t table_begin = header_.table_offset + now * 8;
    Status s =
        storage_.allocate(table_begin / kPage * kPage,
                          align_up(table_begin + want * 8, kPage) - table_begin / kPage * kPage);
    if (s.ok()) s = storage_.allocate(header_.file_bytes, want * header_.extent_bytes);
    if (s.ok()) break;
    if (s == StatusCode::poisoned) platform_.poison();  // the file lacks what the pool has
    if (want == extents || s != StatusCode::pool_full) return fail(std::move(s));
    want = extents;  // the medium is nearly full: ask for no more than is needed
  }
  const std::uint64_t bytes = header_.file_bytes + want * header_.extent_bytes;
  if (platform_.durable()) {  // the new length must not be lost after the header names it
    if (Status s = sync_storage(header_.file_bytes, bytes - header_.file_bytes); !s.ok()) {
      return fail(std::move(s));
    }
  }
  if (Status s = make_virgin(now, want); !s.ok()) return fail(std::move(s));
  header_.file_bytes = bytes;
  expected_ -= std::min(expected_, want);
  if (Status s = write_header(false); !s.ok()) return fail(std::move(s));
  growth_ahead_.grown(background_, bytes);
  return extents_in(bytes);
}

// I2. No open looks at the words of extents that never were, and each after this growth will: a bit
// that has flipped in one would be the end of a pool that lacks nothing.
template <Platform P>
Status PoolCore<P>::make_virgin(std::uint64_t first, std::uint64_t count) noexcept {
  const std::uint64_t offset = header_.table_offset + first * 8;
  auto* words = reinterpret_cast<std::uint64_t*>(storage_.base() + offset);
  bool damaged = false;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (platform_.load(words[i]) == 0) continue;
    platform_.store(words[i], 0);
    damaged = true;
  }
  if (!damaged || !platform_.durable()) return {};
  const std::uint64_t begin = offset / kPage * kPage;
  return sync_storage(begin, align_up(offset + count * 8, kPage) - begin);
}

template <Platform P>
void PoolCore<P>::expect(std::uint64_t extents) noexcept {
  LatchGuard guard(latch_);
  expected_ = std::max(expected_, extents);
  growth_ahead_.expected(background_, expected_ * header_.extent_bytes);
}

template <Platform P>
bool PoolCore<P>::prepare_growth(std::uint64_t bytes) noexcept {
  LatchGuard guard(latch_);
  if (!open_ || platform_.poisoned()) return false;
  const std::uint64_t now = extents_in(header_.file_bytes);
  const std::uint64_t want =
      std::min(std::max(growth_of(now), expected_), extents_in(header_.max_bytes) - now);
  const std::uint64_t begin = std::max(storage_.size(), header_.file_bytes);
  const std::uint64_t end = header_.file_bytes + want * header_.extent_bytes;
  if (begin >= end) return false;
  // Pieces end at multiples, so that each is huge pages where the system has them.
  const std::uint64_t piece = std::min(end, (begin / bytes + 1) * bytes) - begin;
  return storage_.allocate(begin, piece).ok();
}

// A line whose commit word is lost looks free: only the whole directory can tell.
template <Platform P>
std::uint64_t PoolCore<P>::directory_crc(const P& platform, const std::byte* base,
                                         std::uint32_t slots) noexcept {
  std::uint32_t crc = 0;
  const auto* words = reinterpret_cast<const std::uint64_t*>(base + layout::kDirectoryOffset);
  for (std::uint64_t w = 0; w < slots * sizeof(layout::Root) / 8; ++w) {
    const std::uint64_t word = platform.load(words[w]);
    crc = crc32c(crc, &word, sizeof(word));
  }
  return crc;
}

template <Platform P>
template <class F>
void PoolCore<P>::verify(F&& bad) noexcept {
  {
    LatchGuard guard(latch_);
    layout::Header found;
    const Status s = read_header(storage_.base(), storage_.size(), found, nullptr,
                                 P::verifies("pool.header.crc"_site));
    if (!s.ok() || found.sequence != header_.sequence) bad("the header in force is damaged");
    layout::Root root;
    for (std::uint32_t slot = 0; slot < header_.root_slots; ++slot) {
      if (!read_root(slot, root)) bad("a line of the root directory is damaged");
    }
  }
  heap_.verify_table(bad);
}

template <Platform P>
Expected<bool> PoolCore<P>::read_root(std::uint32_t slot, layout::Root& out) const noexcept {
  const auto* words = reinterpret_cast<const std::uint64_t*>(root_line(slot));
  std::uint64_t copy[sizeof(layout::Root) / 8];
  for (std::size_t i = 0; i < std::size(copy); ++i) copy[i] = platform_.load(words[i]);
  std::memcpy(&out, copy, sizeof(out));
  if (out.root == 0) return false;
  if ((out.crc != root_crc(out) && P::verifies("pool.root.crc"_site)) || out.name[0] == '\0' ||
      out.name[sizeof(out.name) - 1] != '\0') {
    return fail(StatusCode::corruption, "root directory: slot %u is damaged", slot);
  }
  return true;
}

template <Platform P>
Expected<std::uint32_t> PoolCore<P>::find_root(std::string_view name) const noexcept {
  layout::Root root;
  for (std::uint32_t slot = 0; slot < header_.root_slots; ++slot) {
    auto used = read_root(slot, root);
    if (!used) return fail(std::move(used.error()));
    if (*used && name == root.name) return slot;
  }
  return header_.root_slots;
}

template <Platform P>
Expected<std::uint32_t> PoolCore<P>::free_root(std::string_view name) const noexcept {
  layout::Root other;
  std::uint32_t free_slot = header_.root_slots;
  for (std::uint32_t slot = 0; slot < header_.root_slots; ++slot) {
    auto used = read_root(slot, other);
    if (!used) return fail(std::move(used.error()));
    if (*used && other.name == name) return fail(StatusCode::exists);
    if (!*used && free_slot == header_.root_slots) free_slot = slot;
  }
  if (free_slot == header_.root_slots) {
    return fail(StatusCode::pool_full, "the pool holds %u maps already; drop one",
                header_.root_slots);
  }
  return free_slot;
}

template <Platform P>
Status PoolCore<P>::add_root(layout::Root root) noexcept {
  root.crc = root_crc(root);
  LatchGuard guard(latch_);
  unseal();
  auto free_slot = free_root(root.name);
  if (!free_slot) return std::move(free_slot.error());
  layout::Root* line = root_line(*free_slot);
  std::uint64_t words[sizeof(root) / 8];
  std::memcpy(words, &root, sizeof(root));
  auto* target = reinterpret_cast<std::uint64_t*>(line);
  for (std::size_t i = 0; i < std::size(words); ++i) {  // `root` is the last word: the commit
    platform_.store(target[i], words[i]);
  }
  platform_.flush(line, sizeof(*line), "pool.root.add"_site);
  if (!platform_.fence("pool.root.add"_site)) return StatusCode::poisoned;
  return {};
}

template <Platform P>
Status PoolCore<P>::drop_root(std::uint32_t slot) noexcept {
  LatchGuard guard(latch_);
  unseal();
  layout::Root* line = root_line(slot);
  auto* words = reinterpret_cast<std::uint64_t*>(line);
  platform_.store(line->root, 0);  // first into the line: what follows is of a free slot
  for (std::size_t i = 0; i + 1 < sizeof(*line) / 8; ++i) platform_.store(words[i], 0);
  platform_.flush(line, sizeof(*line), "pool.root.drop"_site);
  if (!platform_.fence("pool.root.drop"_site)) return StatusCode::poisoned;
  return {};
}

}  // namespace perdure

#include "pool/pool_sync.inl.h"  // IWYU pragma: keep
