// LiveChunks: the parts of a pool that are in its live image. The others are still in the base
// only.
//
// WHAT  The memory of a `buffered` pool shows the base, but for chunks that have been stored to.
//   The first store to a chunk copies it into the live image, which is shown there from then on.
//   So an open copies one chunk, and a chunk that is never stored to costs nothing.
// LAYOUT  In the live image, at kMarkOffset of its first page: LiveHead, with the size of the
//   chunks, the bytes of the base that they cover, and a bit for each; at that place of the
//   second page the bits for which the head has no room. What lies behind the covered bytes is
//   always in the image. The chunks that are not live are holes there.
// INVARIANTS
//   chunk.K1  A chunk has its bit before a store to it, and its content in the image before its
//       bit.
//   chunk.K2  Until a chunk has its bit, the base does not change there: folds leave such pages
//       out. Chunk 0 has the headers and marks, and is live from the start. Only what is free, and
//       means nothing, can be punched: in a chunk that is live the image first, and no chunk
//       becomes live meanwhile. So the image has zeros where only the base was punched.
//   chunk.K3  A chunk that is live stays so until retire(), or the end of the image. It loses its
//       bit while no store to it is under way, nothing in it is dirty, and the log has no line of
//       it that the base lacks: so the base has it as the image has. Its space is given back after
//       the head without the bit is on the disk.
//   chunk.K4  The chunks cover more of the base by one write(2) within a page, with the checksum of
//       the head: a kill comes before or after. The new ones have their bits before that.
// OPERATIONS
//   begin      of a new image: head, chunk 0.
//   go_on      of an image that a process has left: shows what the bits say.
//   make_live  copy into the file; bit in the head; the image is shown in its place. Readers see
//              the same content before and after.
//   cover      what the pool has grown by becomes chunks, which are live.
//   retire     not ready; stores end; the base is shown; the bit goes. If a store came since, or
//              the base lacks something, the chunk stays live. Later give_back() punches the image.
//              Then the pool takes as much space as after a close and an open.
// FAILURE  If pages of the mapping are lost (SIGBUS), all later stores are private in the same way.
//   A store cannot fail. So if its chunk cannot be made live (there is no space, or the
//   base cannot be read), the pool is poisoned, and from then on all stores stay in the memory
//   of this process (freeze): the files are as if it had been killed then. Each thread has at
//   most one store that FirstStores has allowed when the bits go, and all that follow
//   are private. So what the files have of each thread is a beginning of what it stored. If the
//   kernel does not allow that, either, the process ends, which loses no more.
//   The space of a chunk that was retired is not reserved: as of one that never was live.
// RECOVERY  go_on(), of the next process.
// ORDERING  The bit in the head is set with release order, and so is the one in FirstStores,
//   after the kernel has replaced the mapping.
// PROGRESS  Threads that store to one chunk for the first time wait for each other, and for the
//   copy.
// Thread safety: begin(), go_on() and close() are of one thread. cover(), retire(), give_back():
//   one thread beside others. make_live() and make_ready(): any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "cut/log_format.h"
#include "cut/page_set.h"
#include "perdure/function_ref.h"
#include "platform/file_storage.h"
#include "platform/first_stores.h"
#include "platform/real_platform.h"
#include "util/crc32c.h"

namespace perdure {

namespace layout {

// In the live image, at kMarkOffset. A head with kOldLiveMagic ends before `flags`.
struct LiveHead {
  std::uint64_t magic;
  std::uint8_t live_id[16];
  std::uint8_t log_id[16];
  std::uint8_t boot_id[16];
  std::uint64_t inode, filesystem_id;  // of the base
  std::uint64_t covered;               // bytes of the base that the chunks cover; whole pages
  std::uint64_t chunk_bytes;           // a power of two
  std::uint64_t crc;                   // CRC32C of all before it
  // These change.
  std::uint64_t folded;   // epoch that the base has
  std::uint64_t folding;  // or may have soon
  std::uint64_t used;     // 1: a mark of the base names this image
  std::uint64_t changes;  // of `durable`: durable[changes % 2] counts
  EpochId durable[2];
  std::uint64_t durable_unix_ns;  // what had been acknowledged then is on the disk; kNothingSince
  std::uint64_t live[40];         // a bit for each chunk
  std::uint64_t flags;            // kLost, kDoubtful, kPunched
  std::uint64_t begun;            // no later epoch has been written to the log
  std::uint64_t clocks;           // boot_clocks() when `durable` changed last
};
static_assert(sizeof(LiveHead) == sizeof(BaseMark) && std::is_trivially_copyable_v<LiveHead>);

// In `durable_unix_ns`: and nothing has changed later.
inline constexpr std::uint64_t kNothingSince = std::uint64_t{1} << 63;

inline constexpr std::uint64_t kLost = 1;      // its owner has seen that a write-back had failed
inline constexpr std::uint64_t kDoubtful = 2;  // a process that opened it has
inline constexpr std::uint64_t kFailed = kLost | kDoubtful;
inline constexpr std::uint64_t kPunched = 4;  // space of the pool may have been given back

inline std::uint64_t live_head_crc(const LiveHead& head) {
  return crc32c(4, &head, offsetof(LiveHead, crc));
}
inline bool is_live_head(const LiveHead& head) {
  const bool known = head.magic == kLiveMagic || head.magic == kOldLiveMagic;
  return known && head.crc == live_head_crc(head);
}

// At kMarkStride + kMarkOffset: the bits of more chunks.
struct LiveBits {
  std::uint64_t live[64];
};
static_assert(sizeof(LiveBits) == sizeof(BaseMark));

}  // namespace layout

class LiveChunks final : public FirstStores<RealPlatform> {
 public:
  // `image` and `base`, the open file, must stay valid. `image` is mapped when it is used.
  LiveChunks(FileStorage& image, int base) noexcept : image_(image), base_(base) {}
  LiveChunks(const LiveChunks&) = delete;
  LiveChunks& operator=(const LiveChunks&) = delete;
  ~LiveChunks() { close(); }

  // Of a new image, as long as the pool, of a base with `bytes` bytes. `head`: the rest of it.
  // Errors: pool_full, out_of_memory, io.
  Status begin(std::uint64_t bytes, layout::LiveHead head) noexcept;
  // Errors: corruption (the head is none; the base is too short), out_of_memory, io.
  Status go_on() noexcept;
  void close() noexcept;
  void abandon() noexcept;  // in a child of fork

  // Makes the chunk with this byte of the pool live. Errors: pool_full, out_of_memory, io;
  // corruption (the base cannot be read).
  Status make_live(std::uint64_t offset) noexcept;
  // The same of all chunks with these pages, in their order: the disk reads the base ahead.
  Status make_live(const PageSet& pages) noexcept;
  // Gives back space that is free: of the image, and in pieces by base(offset, length) of the base.
  // A chunk that became live since the image gave it back has a copy of what the base had.
  using PunchBase = FunctionRef<Status(std::uint64_t offset, std::uint64_t length)>;
  Status punch(std::uint64_t offset, std::uint64_t length, PunchBase base) noexcept;
  // The first bytes of the pool, which the base has, are in chunks from now on, as far as there are
  // numbers for them. Errors: those of make_live().
  Status cover(std::uint64_t bytes) noexcept;
  // Of the chunk with this byte and those behind it, kRetired of them, retires those that are live
  // and of which is_in_base(from, to) is true, after ends_stores(). Returns where the next ones
  // begin. Errors: poisoned; io, out_of_memory.
  static constexpr std::uint64_t kRetired = 16;
  using IsInBase = FunctionRef<bool(std::uint64_t from, std::uint64_t to)>;
  using EndStores = FunctionRef<bool()>;
  Expected<std::uint64_t> retire(std::uint64_t offset, EndStores ends_stores,
                                 IsInBase is_in_base) noexcept;
  // The image gives back the space of chunks that are not live. Errors: io.
  Status give_back() noexcept;
  std::uint64_t covered() const noexcept { return parts() << shift(); }
  bool is_live(std::uint64_t offset) const noexcept { return is_ready(part_of(offset)); }
  // Which a chunk that cannot be made live poisons. It must stay valid.
  void attach(RealPlatform& platform) noexcept;
  static constexpr std::uint64_t kStart = 2 * kPage;  // of the image, mapped once more

  layout::LiveHead& head() const noexcept {
    return *reinterpret_cast<layout::LiveHead*>(start_ + layout::kMarkOffset);
  }
  // The bytes of the chunks that are live, and of what lies behind all chunks.
  std::uint64_t live_bytes() const noexcept;

 private:
  using Word = RealPlatform::Atomic<std::uint64_t>;

  bool make_ready(std::uint64_t offset) noexcept override;
  void lock_all() noexcept {
    for (auto& latch : latches_) latch.lock();
  }
  void unlock_all() noexcept {
    for (auto& latch : latches_) latch.unlock();
  }
  bool is_poisoned() const noexcept { return platform_ != nullptr && platform_->poisoned(); }
  // After set_ready(), which a poisoned pool must not keep.
  void see_poison() noexcept {
    if (is_poisoned()) set_none_ready();
  }
  Status show_base(std::uint64_t chunk) noexcept;
  Status open() noexcept;
  void set_chunks(std::uint64_t covered, std::uint64_t chunk_bytes) noexcept;
  Word& word(std::uint64_t chunk) const noexcept;
  bool has_bit(std::uint64_t chunk) const noexcept {
    return (word(chunk).load(std::memory_order_acquire) >> chunk % 64 & 1) != 0;
  }
  std::uint64_t begin_of(std::uint64_t chunk) const noexcept { return chunk << shift(); }
  // Calls show(from, to, live) for each run of chunks that are live, and of those that are not.
  template <class F>
  Status for_each_run(F&& show) noexcept;
  Status make(std::uint64_t chunk) noexcept;
  Status copy(std::uint64_t from, std::uint64_t n, std::byte* buffer) noexcept;
  void freeze(const Status& why) noexcept;
  void mark_poisoned(const Status& why) noexcept;
  void keep_all_private() noexcept;

  FileStorage& image_;
  const int base_;
  RealPlatform* platform_ = nullptr;
  // A mapping of its own: what is written there stays shared after freeze().
  std::byte* start_ = nullptr;
  std::uint64_t covered_ = 0;
  RealPlatform::Atomic<std::uint64_t> made_{0};  // chunks that are live
  RealPlatform::Atomic<bool> frozen_{false};
  static constexpr std::uint64_t kBuffer = 64_KiB;
  std::array<RealPlatform::Latch, 16> latches_;  // of chunk i: i % 16
  std::unique_ptr<std::byte[]> buffers_;         // one for each latch
};

}  // namespace perdure
