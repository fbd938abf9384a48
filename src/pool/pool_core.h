// PoolCore: the format of a pool over a Storage: headers, root directory, growth, trust, close.
//
// WHAT  Everything of a pool that must survive a crash, and nothing that asks the operating
//   system: files, locks and media are FileStorage and PoolImpl, so the crash explorer runs this
//   very code.
// LAYOUT  layout.h.
// INVARIANTS
//   pool.I1  (after any crash) at least one header copy is valid; the valid one with the higher
//       sequence counts. Copies are written in turn, each durable before the other may be touched.
//   pool.I2  (after any crash) file_bytes of the counting header <= bytes the medium backs; extents
//       beyond it are virgin.
//   pool.I3  A root line is valid iff `root` is non-zero; it is stored last into its line
//       (same-line order).
//   pool.I4  The header says `dirty`, durably and in every mode, before the first mutation of an
//       open, and again before the first store after it said `sealed`. `sealed` is written when all
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
//   grow        space, then table words (virgin: zero already; else claim_words()), then the
//               header's file_bytes. The space of the next growth is allocated in the background
//               (growth_ahead.h).
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
  const char* distrust = nullptr;  // why not
  bool at_once = false;            // there are maps, and all of them restart at once
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
  // For assertions, with the latch held: the pool may be stored to.
  bool is_dirty() const noexcept {
    return open_ && header_.close_state == layout::CloseState::dirty &&
           platform_.persisted(storage_.base(), layout::kDirectoryOffset);
  }
  Status sync_storage(std::uint64_t offset, std::uint64_t length) noexcept;
  std::unexpected<Status> refuse_growth(Status why) noexcept;
  Status claim_words(std::uint64_t first, std::uint64_t count) noexcept;
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
  bool growth_refused_ = false;   // and told; under latch_
  std::uint64_t expected_ = 0;    // extents, by expect(); under latch_
  std::uint64_t used_until_ = 0;  // extent, by a lost header, see claim_words(); under latch_
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
  PERDURE_ASSERT(P, "pool.I1",
                 platform_.persisted(storage_.base() + (next_copy_ ^ 1) * layout::kHeaderBytes,
                                     sizeof(header_)));
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

}  // namespace perdure

#include "pool/pool_growth.inl.h"  // IWYU pragma: keep
#include "pool/pool_open.inl.h"    // IWYU pragma: keep
#include "pool/pool_roots.inl.h"   // IWYU pragma: keep
#include "pool/pool_sync.inl.h"    // IWYU pragma: keep
