// Level: a persistent hash table of two levels, which grows and shrinks in place.
//
// WHAT  Level hashing (Zuo, Hua, Wu, 2018). There are two levels, and the top one is twice the
//   bottom one. Two hash functions give a key four candidate buckets. An insert moves at most one
//   item, also from bottom to top. A resize rehashes one level of three. WHEN: point access, and a
//   table that is full before it grows. WHEN NOT: order, or no wait for a rehash (clevel).
//   docs/design/level.md gives the deviations from the paper and their reasons: a line holds its
//   own tokens, so an insert is one write-back and one fence; version locks and fingerprints per
//   bucket are in DRAM; movements are recorded; a resize is one store.
// LAYOUT  layout.h and line.h (media), tier.h (DRAM). A bucket is two lines of {tokens, 3 slots,
//   crc}. In maps of arrays, a line has 2 slots of 31 bytes and their tokens.
// READING PATH  (lines) Core: layout.h 142, line.h 106, codec.h 99, tier.h 235, locks.h 97,
//   state.h 113, lookup.h 541, movement.h 724, write.h 721, recovery.h 529. Optional parts end two
//   of them: write_many() and plans of batches end write.h; check, audit and statistics end
//   recovery.h. Each class derives from the one before it: ../map_engine.h -> state.h ->
//   lookup.h -> movement.h -> write.h -> recovery.h -> this.
// INVARIANTS  (C: after any crash; D: in DRAM)
//   level.I1 C  A slot counts iff its token is set. Its key lies in one of the two buckets that its
//         hashes name in that level.
//   level.I2 C  A key counts once. It counts twice, with one value, only where a Move line names
//         both lines, or where one of the two is in the level that is being drained. An array
//         counts twice, with two values, only in the two lines of one bucket. Recovery drops either
//         one.
//   level.I3 C  Levels, records and descriptors are durable before the word that names them. A new
//         level is durably zero. A level leaves the table when none of its tokens is set, durably.
//   level.I4 D  Everything that a returned operation has seen is durable. A bucket's lock is held
//         from before the first store into it until after the last fence of it, and a reader of the
//         bucket loads its version again after it has read.
//   level.I5 D  A thread that adds an item holds the locks of all candidate buckets of its key when
//         it finds the key absent, and that of the item's bucket until the item is durable. It
//         acquires them in the order of the levels, the largest first, then of buckets. A thread
//         that changes or removes an item holds the lock of its bucket. It acquires that lock only
//         if the bucket has the version at which the item was seen. A thread that holds a lock
//         waits only for later ones in that order, or for none (try_lock): no deadlock.
//   level.I6 D  A thread that has acquired locks to add an item checks then, also after a try_lock,
//         that the view is still the current one, before it stores. So no item is added to a level
//         that has been drained: a drain under a view locks each bucket after that view was
//         published. A bucket that has an item is not drained yet, and is not drained while it is
//         locked.
//   level.I7 D  Two copies of a key exist only while the buckets of both are locked.
// OPERATIONS  (LP linearization, PP persist point; F write-backs, S fences; k lines of a record)
//   insert  (absent? -> record, F*k, S) -> lock -> view -> absent? -> value, key, token in one
//           line -> F S (PP) -> fingerprint -> unlock (LP). 1F 1S; with a record (k+1)F 2S.
//   .. with movement: Move line, F S -> the victim's copy with its token, F S -> victim's token
//           off, value, key, token on, in one line, F S (PP). 3F 3S.
//   update  as find -> lock of its bucket, at the version seen -> value word -> F S (PP) -> unlock
//           (LP) -> retire. 1F 1S; by a record (k+1)F 2S. Absent: as find. After kRetries it takes
//           the locks of an insert; a put that finds nothing is an insert.
//   .. of an array's two words (write.h): the other slot of the line and both tokens, in one
//           line -> F S (PP). 1F 1S. If that slot is taken: a free slot of the bucket, F S -> the
//           old token off, F S (PP). 2F 2S. If the bucket is full: Update line, F S (PP) -> both
//           words, F S -> no Update, F S. 3F 3S.
//   erase   as update -> token -> F S (PP) -> fingerprint -> unlock (LP). 1F 1S.
//   update_if, erase_if  as update and erase, after a look at the value under the lock.
//   many    of values of one word or a record, up to 16: records, F*k each, one S -> all locks, all
//           stores, F each, one S (PP of all) -> fingerprints and unlocks (LP of each).
//   find    versions -> fingerprints -> slots -> version of the bucket that has the key, or of all,
//           and the view (LP: the moment between). 0F 0S. It waits while a candidate is locked, so
//           it sees nothing that is not fenced. After kRetries it takes the locks.
//   resize  level (zero) -> descriptor, F S -> root word, F S (PP) -> view (LP). 2F 2S. Then
//           batches of source buckets: copies with tokens, F each, S -> source tokens, F each, S.
//           When all are done: descriptor without the level, F S -> root word, F S -> view ->
//           retire.
//   close     checksums of lines, F each; the root's word that binds them and the descriptor (E21,
//             E27), F; the pool fences.
//   for_each  prevents movements (`scans_`), bucket after bucket; it is not one operation.
// ORDERING
//   slot      value, key, tokens: one line, so a crash keeps a prefix. The stores are release and
//             find's loads acquire, so a find that has seen a store sees the version odd or raised.
//   version   odd (seq_cst) before the first store, raised (release) after the last fence.
//   view      stored (release) after the root word's fence: no thread stores into a level that the
//             medium does not name. Writers load it after their locks, find loads it last.
//   scans     a scan raises it (seq_cst), then loads versions; a mover locks, then loads it: one of
//             the two sees the other.
//   inside, closed  of a view: an undo sets closed (seq_cst), then waits until inside is 0; a batch
//             raises inside, then loads closed.
//   cursor    stored (release) when a round begins anew, after `done` and `failed`. A thread takes
//             a batch with acquire, so its changes of those two come after.
//   helped    (E19) during a drain, an insert that would move an item drains a batch first; while
//             the drain lags behind, one insert of 64 drains some. So inserts fill the levels that
//             take the drained items no faster than the drain does.
//   counts    (E20) an erase lowers the count, then loads the view; the end of a drain stores the
//             view, then sums the counts. Each has a locked instruction in between, so one of the
//             two sees that the table is too large.
// RECOVERY  O(buckets), in parallel. Update lines: their values are stored again, then they are
//   cleared (E25). Move lines, one after the other, each with a new look at both lines: a key in
//   both lines loses its slot in `from`. Then every level: fingerprints, counts, marks; an array
//   that has two slots of a bucket loses the second (E30). The level that is being drained comes
//   last, and an item that is already in another level loses its slot there. Idempotent: beside the
//   Updates, recovery only clears tokens, each of one of two copies. start() continues the resize
//   from its first bucket. Non-authoritative pointers: Move lines; slots without a token.
// RECLAMATION  levels, records, descriptors, tiers and views through epochs, after the fence of
//   their unlink.
// PROGRESS  blocking. A find waits for a writer of one of its buckets, at most for its fences. An
//   insert that finds no place waits for the end of a resize and helps with it, or makes room. A
//   thread that sets a drain back ensures that the background is due or blocked (E22).
//   pool_full: inserts that find no place fail, all other operations go on. hash_overflow: for keys
//   of one hash after 2 kSlots of them, and for inserts without a place below a load of
//   1 / kLeastLoad; the table does not grow for them.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "index/engine.h"
#include "index/level/recovery.h"
#include "perdure/options.h"

namespace perdure::level {

template <class T>
class LevelMap final : public Recovery<T> {
  using Base = Recovery<T>;
  using P = typename T::Platform;
  using Codec = typename T::Codec;
  using Form = typename Codec::Form;
  using Base::context_, Base::current, Base::kRootBytes, Base::work_;
  friend struct Peek;  // tests plant with it what no operation does

 public:
  using Base::Base;
  using Base::kSlots;
  ~LevelMap() override {
    context_.background.remove(work_);
    context_.epochs.drain_all();  // reclaimers have the address of this map
    View<T>* view = current();
    if (view == nullptr) return;
    for (Tier<T>* tier : view->all()) delete tier;
    delete view;
  }

  // Returns the buckets of the top level that hold so many items at a load of 0.9. The hint may be
  // wrong, so both levels leave three quarters of what the pool may grow to.
  static std::uint64_t buckets_for(const Heap<P>& heap, std::uint64_t items) {
    const std::uint64_t most = heap.max_data_bytes() / 4 / Tier<T>::line_bytes(0);
    std::uint32_t log = T::Geometry::kFirstLog;
    while (log < kMaxLog && (kSlots * 27ULL << log) / 20 < items && (3ULL << log) <= most) ++log;
    return 1ULL << log;
  }

  static Expected<std::uint64_t> create(const EngineContext<P>& context, const MapKinds& kinds,
                                        const LevelOptions& options) {
    std::uint32_t log = T::Geometry::kFirstLog;
    if (options.buckets != 0) {
      if (options.buckets < 2 || (options.buckets & (options.buckets - 1)) != 0 ||
          options.buckets > 1ULL << kMaxLog) {
        return fail(StatusCode::invalid_argument,
                    "%lu buckets; the top level has a power of two of them, at least 2",
                    options.buckets);
      }
      log = static_cast<std::uint32_t>(__builtin_ctzll(options.buckets));
    }
    P& platform = context.platform;
    std::uint64_t blocks[4] = {};
    const std::size_t sizes[4] = {kRootBytes, sizeof(layout::Descriptor), Tier<T>::bytes_of(log),
                                  Tier<T>::bytes_of(log - 1)};
    for (std::uint32_t i = 0; i < 4; ++i) {
      auto block =
          context.heap.allocate(sizes[i], i == 1 ? BlockKind::plain : BlockKind::zero_on_free);
      if (!block) {
        while (i > 0) context.heap.discard(blocks[--i]);
        return block;
      }
      blocks[i] = *block;
    }
    layout::Descriptor image{};
    image.top_log = static_cast<std::uint8_t>(log);
    image.levels = 2;
    image.generation = 1;
    image.offsets[0] = blocks[2];
    image.offsets[1] = blocks[3];
    image.crc = Base::descriptor_crc(image);
    auto* descriptor = context.heap.template at<layout::Descriptor>(blocks[1]);
    platform.copy(descriptor, &image, sizeof(image));
    platform.flush(descriptor, sizeof(image), "level.create.descriptor"_site);
    layout::Root head = head_of(kinds, options, log);
    head.descriptor = blocks[1];
    auto* root = context.heap.template at<layout::Root>(blocks[0]);
    // The Moves and Updates behind the head are zero already.
    constexpr std::size_t kHead = offsetof(layout::Root, moves);
    platform.copy(root, &head, kHead);
    platform.flush(root, kHead, "level.create.root"_site);
    if (!platform.fence("level.create.root"_site)) return fail(StatusCode::poisoned);
    return blocks[0];
  }

  static Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<P>& context,
                                                        std::uint64_t root) {
    return make_instance<LevelMap>(context, root, kRootBytes);
  }

  void start() noexcept override { context_.background.add(work_, BackgroundWork<P>::kMaxWidth); }
  void release_blocks() override {
    context_.background.remove(work_);
    Base::release_blocks();
  }

 private:
  // Returns a new root block without its descriptor.
  static layout::Root head_of(const MapKinds& kinds, const LevelOptions& options,
                              std::uint32_t log) {
    layout::Root head{};
    head.magic = layout::kRootMagic;
    head.geometry = T::Geometry::kBucketLines;
    head.flags = (Codec::kBytes ? layout::kBytesKeys : 0) |
                 (!Codec::kBytes && kinds.value == ValueKind::bytes ? layout::kRecordValues : 0) |
                 (Codec::kBytes && kinds.value == ValueKind::word ? layout::kWordRecords : 0) |
                 (options.auto_shrink ? layout::kMayShrink : 0) |
                 (Form::kArrays ? layout::kArrayLines : 0);
    head.first_log = log;
    if constexpr (Form::kArrays) {
      head.key_bytes = kinds.key == KeyKind::array ? kinds.key_bytes : 0;
      head.value_bytes = kinds.value == ValueKind::array ? kinds.value_bytes : 0;
    }
    head.seeds[0] = P::random();
    head.seeds[1] = P::random();
    head.fixed_crc = fixed_crc_of(head);
    return head;
  }
};

template <Platform P, class Codec, class G = DefaultGeometry>
using Level = LevelMap<Traits<P, Codec, G>>;

}  // namespace perdure::level
