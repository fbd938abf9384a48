// PSkipList: creation, recovery, close. Included by pskiplist.h only.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <new>

#include "index/engine_report.h"
#include "index/pskiplist/pskiplist.h"
#include "util/merge_sort.h"

namespace perdure::pskiplist {

template <Platform P, class Codec, class G>
PSkipList<P, Codec, G>::PSkipList(const EngineContext<P>& context, std::uint64_t root) noexcept
    : Base(context),
      root_offset_(root),
      root_(context.heap.template at<layout::Root>(root)),
      directory_(context.platform, context.heap, nodes_, context.epochs),
      chain_(context.platform, context.heap),
      reserve_(context.heap) {}

template <Platform P, class Codec, class G>
PSkipList<P, Codec, G>::~PSkipList() {
  context_.epochs.drain_all();  // reclaimers point here
}

template <Platform P, class Codec, class G>
Expected<std::uint64_t> PSkipList<P, Codec, G>::create(const EngineContext<P>& context,
                                                       const MapKinds& kinds) {
  P& platform = context.platform;
  auto block = context.heap.allocate(sizeof(layout::Root), BlockKind::plain);
  if (!block) return block;
  layout::Root head{};
  head.magic = layout::kRootMagic;
  head.geometry = G::kBlockSlots;
  head.flags = (Codec::kBytes ? layout::kBytesKeys : 0) |
               (kinds.value == ValueKind::bytes ? layout::kRecordValues : 0);
  head.fixed_crc = crc32c(0, &head, offsetof(layout::Root, fixed_crc));
  head.horizon = 1;
  auto* root = context.heap.template at<layout::Root>(*block);
  platform.copy(root, &head, sizeof(head));
  platform.flush(root, sizeof(head), "pskiplist.create.root"_site);
  if (!platform.fence("pskiplist.create.root"_site)) return fail(StatusCode::poisoned);
  return block;
}

template <Platform P, class Codec, class G>
Expected<std::unique_ptr<EngineInstance>> PSkipList<P, Codec, G>::open(
    const EngineContext<P>& context, std::uint64_t root) {
  if (Status s = root_may_lie_at(root, sizeof(layout::Root), context.heap); !s.ok())
    return fail(std::move(s));
  std::unique_ptr<EngineInstance> map(new (std::nothrow) PSkipList(context, root));
  if (map == nullptr) return fail(StatusCode::out_of_memory);
  return map;
}

template <Platform P, class Codec, class G>
bool PSkipList<P, Codec, G>::root_intact(const layout::Root& image) const noexcept {
  return image.fixed_crc == crc32c(0, &image, offsetof(layout::Root, fixed_crc)) ||
         !P::verifies("pskiplist.root.crc"_site);
}

template <Platform P, class Codec, class G>
std::uint64_t PSkipList<P, Codec, G>::root_crc() const noexcept {
  constexpr std::size_t kBegin = offsetof(layout::Root, chain);
  return crc32c(crc32c(0, &root_offset_, sizeof(root_offset_)),
                reinterpret_cast<const std::byte*>(root_) + kBegin,
                offsetof(layout::Root, close_crc) - kBegin);
}

// The root block is checked before anything in it is believed.
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::read_root() noexcept {
  if (P::runs("pskiplist.recover.mark_root"_site)) {
    if (Status s = context_.heap.mark(root_offset_); !s.ok()) return s;
  }
  const layout::Root& image = *root_;
  if (context_.heap.block_bytes(root_offset_) < sizeof(image)) return bad_root("size");
  if (image.magic != layout::kRootMagic) return bad_root("magic");
  if (!root_intact(image)) return bad_root("checksum");
  if (image.geometry != G::kBlockSlots) return bad_root("geometry");
  if (((image.flags & layout::kBytesKeys) != 0) != Codec::kBytes) return bad_root("key kind");
  record_values_ = (image.flags & layout::kRecordValues) != 0;
  return {};
}

template <Platform P, class Codec, class G>
Expected<Recovered> PSkipList<P, Codec, G>::recover(bool clean) {
  const P& platform = context_.platform;
  const std::uint64_t most = context_.heap.max_data_bytes();
  Status s = read_root();
  if (s.ok()) s = nodes_.reserve(most / sizeof(Slot));
  if (s.ok()) s = directory_.reserve(most / sizeof(Slot) / 4 + (2ULL << G::kPartitionBits));
  if (s.ok()) s = chain_.reserve(root_, most / Chain::kBlockBytes);
  if (!s.ok()) return fail(std::move(s));
  if (clean && platform.load(root_->close_crc) != root_crc() &&
      P::verifies("pskiplist.root.crc"_site)) {
    s = pass_over(bad_root("checksum of what changes"));
    if (!s.ok()) return fail(std::move(s));
  }
  if (s = read_versions(); s.ok()) s = load_chain(clean);
  if (!s.ok()) return fail(std::move(s));
  return Recovered::done;
}

// No checksum covers these words in an unclean pool. The clock begins above the limit, the horizon
// tells trim what may go, and a rollback voids entries: nobody has stored anything else in them.
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::read_versions() noexcept {
  const P& platform = context_.platform;
  // The limit last: it rises before what it bounds, also while an owner is looked at.
  const std::uint64_t horizon = platform.load(root_->horizon);
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  do {  // `from` means something only beside its `to`
    to = platform.load(root_->rollback_to);
    from = platform.load(root_->rollback_from);
  } while (platform.load(root_->rollback_to) != to);
  const std::uint64_t limit = platform.load(root_->limit);
  const bool sane = limit <= kLastVersion && horizon >= 1 && horizon <= limit + 1 &&
                    (to == 0 || (horizon <= from && from < to && to <= limit));
  limit_.store(sane ? limit : kLastVersion, std::memory_order_relaxed);
  horizon_.store(sane ? horizon : 1, std::memory_order_relaxed);
  if (sane && to != 0) void_ = {from, to};
  if (sane) return {};
  return pass_over(Status::format(
      StatusCode::corruption,
      "the map's root block is damaged (versions: limit %llu, horizon %llu, rollback of %llu to "
      "%llu)",
      static_cast<unsigned long long>(limit), static_cast<unsigned long long>(horizon),
      static_cast<unsigned long long>(from), static_cast<unsigned long long>(to)));
}

// Block i is thread i mod T's (hazard V13).
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::load_chain(bool clean) noexcept {
  P& platform = context_.platform;
  std::uint32_t blocks = 0;
  for (std::uint64_t offset = platform.load(root_->chain); offset != 0;) {
    Status s;
    if (!context_.heap.contains(offset, Chain::kBlockBytes) || offset % kLine != 0 ||
        !context_.heap.is_block(offset) || context_.heap.is_plain(offset) ||
        context_.heap.block_bytes(offset) < Chain::kBlockBytes) {
      s = Status::format(StatusCode::corruption, "no block of the key chain can lie at offset %llu",
                         static_cast<unsigned long long>(offset));
    } else if (P::runs("pskiplist.recover.mark_block"_site)) {
      s = context_.heap.mark(offset);
    }
    // Where damage may be passed over, the chain ends before it.
    if (!s.ok()) {
      if (Status p = pass_over(std::move(s)); !p.ok()) return p;
      break;
    }
    const std::uint32_t number = chain_.append(offset);
    if (number == 0) return StatusCode::out_of_memory;
    blocks = number;
    offset = platform.load(context_.heap.template at<layout::Block>(offset)->next);
  }
  const std::size_t threads = std::max<std::size_t>(std::min(context_.threads, blocks), 1);
  std::unique_ptr<Loader[]> loaders(new (std::nothrow) Loader[threads]);
  if (loaders == nullptr) return StatusCode::out_of_memory;
  P::parallel(threads, [&](std::size_t t) {
    Loader& loader = loaders[t];
    for (std::uint32_t n = 1 + static_cast<std::uint32_t>(t); n <= blocks && loader.status.ok();
         n += static_cast<std::uint32_t>(threads)) {
      loader.status = load_block(n, clean, loader);
    }
    if (loader.status.ok()) loader.status = sort_keys(loader.keys);
  });
  const std::uint64_t open = limit_.load(std::memory_order_relaxed) + 1;
  for (std::size_t t = 0; t < threads; ++t) {
    if (!loaders[t].status.ok()) return std::move(loaders[t].status);
    if (loaders[t].max_version <= open) continue;
    Status s = pass_over(Status::format(StatusCode::corruption,
                                        "an entry has version %llu, which was never open",
                                        static_cast<unsigned long long>(loaders[t].max_version)));
    if (!s.ok()) return s;
  }
  chain_.settle();
  clock_.store(open, std::memory_order_relaxed);  // pskiplist.I8
  // A crash may also have left only `from`.
  const bool begun = platform.load(root_->rollback_to) != 0 ||
                     (!clean && platform.load(root_->rollback_from) != 0);
  if (begun && !context_.read_only) {
    if (Status s = set_rollback(0, 0); !s.ok()) return s;
  }
  return build_directory(loaders.get(), threads);
}

template <Platform P, class Codec, class G>
bool PSkipList<P, Codec, G>::comes_before(const Listed& a, const Listed& b) const noexcept {
  if (!Codec::kBytes || a.word != b.word) return a.word < b.word;
  return directory_.key_of(a.node) < directory_.key_of(b.node);
}

// Byte strings are compared where they lie: under who looks at a pool in use they change, and pages
// that are lost read as zeros. What comes out of it then is not in order, which build_directory()
// finds; std::sort() would leave the array.
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::sort_keys(Array<Listed>& keys) const noexcept {
  if constexpr (Codec::kBytes) {
    const bool done =
        merge_sort(keys.begin(), keys.size(),
                   [this](const Listed& a, const Listed& b) { return comes_before(a, b); });
    return done ? Status() : StatusCode::out_of_memory;
  } else {
    std::sort(keys.begin(), keys.end(),
              [](const Listed& a, const Listed& b) { return a.word < b.word; });
    return {};
  }
}

template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::load_block(std::uint32_t number, bool clean,
                                          Loader& loader) noexcept {
  P& platform = context_.platform;
  const std::uint64_t offset = chain_.offset_of(number);
  const auto& block = *context_.heap.template at<layout::Block>(offset);
  if (clean && platform.load(block.crc) != block_crc(offset) &&
      P::verifies("pskiplist.block.crc"_site)) {
    Status s = pass_over(Status::format(
        StatusCode::corruption, "the block of the key chain at offset %llu is damaged (checksum)",
        static_cast<unsigned long long>(offset)));
    if (!s.ok()) return s;
  }
  bool wrote = false;
  for (std::uint32_t i = 0; i < Chain::kSlots; ++i) {
    loader.row += platform.load(slot_at(Chain::slot_in(offset, i)).first.stamp) != 0 ? 1 : 0;
  }
  if (loader.row != 0) loader.node = nodes_.take_row(loader.row);
  if (loader.node == 0) loader.row = 0;
  for (std::uint32_t i = 0; i < Chain::kSlots; ++i) {
    Slot& slot = slot_at(Chain::slot_in(offset, i));
    // pskiplist.I7, before anything is read. The segments are this key's, as far as the heap knows,
    // before anything is stored in them; those of a key that goes are nobody's.
    Status s = check_segments(slot);
    if (s.ok() && outlives(slot, void_)) s = mark_segments(slot);
    if (s.ok() && void_.to != 0 && P::runs("pskiplist.recover.rollback"_site)) {
      wrote |= void_entries(slot, void_, false);
    }
    if (s.ok()) s = load_slot(number, i, clean, loader);
    if (!s.ok()) s = pass_over(std::move(s));
    if (!s.ok()) return s;
  }
  // A rollback has made slots free; or an owner has, who is looked at.
  for (; loader.row != 0; --loader.row) nodes_.give(loader.node++);
  return !wrote || platform.fence("pskiplist.recover.void"_site) ? Status() : StatusCode::poisoned;
}

// Blocks of another kind are another engine's, or records.
template <Platform P, class Codec, class G>
bool PSkipList<P, Codec, G>::is_segment(std::uint64_t offset) const noexcept {
  const Heap<P>& heap = context_.heap;
  return offset % 16 == 0 && heap.is_block(offset) && !heap.is_plain(offset) &&
         heap.block_bytes(offset) >= sizeof(Segment) + sizeof(Entry) &&
         heap.contains(offset, heap.block_bytes(offset));
}

// The segment that the link names, or 0. Loaded once, and looked at before anybody goes there: an
// owner may store another link at any time under who only looks.
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::follow(const std::uint64_t& link, Steps& steps,
                                      std::uint64_t& segment) const noexcept {
  segment = context_.platform.load(link);
  if (segment == 0 || (steps.left-- != 0 && is_segment(segment))) return {};
  return Status::format(StatusCode::corruption, "no segment of a history can lie at offset %llu",
                        static_cast<unsigned long long>(segment));
}

// What the slot leads to lies in the pool, and comes to an end.
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::check_segments(const Slot& slot) const noexcept {
  if (context_.platform.load(slot.first.stamp) == 0) return {};
  Steps steps;
  std::uint64_t at = 0;
  Status s = follow(slot.more, steps, at);
  while (s.ok() && at != 0) s = follow(segment_at(at).next, steps, at);
  return s;
}

template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::mark_segments(const Slot& slot) const noexcept {
  if (context_.platform.load(slot.first.stamp) == 0) return {};
  Steps steps;
  std::uint64_t at = 0;
  Status s = follow(slot.more, steps, at);
  while (s.ok() && at != 0) {
    if (P::runs("pskiplist.recover.mark_segment"_site)) s = context_.heap.mark(at);
    if (s.ok()) s = follow(segment_at(at).next, steps, at);
  }
  return s;
}

template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::load_slot(std::uint32_t number, std::uint32_t i, bool clean,
                                         Loader& loader) noexcept {
  const P& platform = context_.platform;
  const std::uint64_t offset = Chain::slot_in(chain_.offset_of(number), i);
  const Slot& slot = slot_at(offset);
  if (platform.load(slot.first.stamp) == 0) return {};
  const std::uint32_t mine = loader.row != 0 ? loader.node++ : nodes_.take();
  if (loader.row != 0) --loader.row;
  if (mine == 0) return StatusCode::out_of_memory;
  Node& node = nodes_[mine];
  Listed listed{0, mine};
  Status s = load_key(slot, mine, listed.word);
  if (s.ok()) s = load_history(slot, clean, loader);
  if (!s.ok()) {
    nodes_.give(mine);
    return s;
  }
  nodes_.set_slot(mine, offset);
  node.block = number;
  place_end(node, slot);
  node.set(State::of(Phase::idle, 0));
  chain_.take(number, i);
  return loader.keys.push_back(listed) ? Status() : StatusCode::out_of_memory;
}

template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::load_key(const Slot& slot, std::uint32_t node,
                                        std::uint64_t& word) noexcept {
  word = context_.platform.load(slot.key);
  nodes_[node].key = word;
  if constexpr (Codec::kBytes) {
    if (Status s = check_record(word, true); !s.ok()) return s;
    if (P::runs("pskiplist.recover.mark_key"_site)) {
      if (Status s = context_.heap.mark(word); !s.ok()) return s;
    }
    word = ordered::head_word(directory_.key_of(node));
  }
  return {};
}

// Entries in order, rising, and nothing behind the first empty one (pskiplist.I1).
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::load_history(const Slot& slot, bool clean, Loader& loader) noexcept {
  const P& platform = context_.platform;
  const auto bad = [&](const char* what) {
    return Status::format(StatusCode::corruption, "the history of the key at slot value %llu: %s",
                          static_cast<unsigned long long>(platform.load(slot.key)), what);
  };
  std::uint64_t before = 0;
  if (platform.load(slot.first.stamp) != layout::kDropped) {
    const auto* first = reinterpret_cast<const std::byte*>(&slot.first);
    const auto offset = static_cast<std::uint64_t>(first - context_.heap.template at<std::byte>(0));
    if (Status s = load_entry(offset, before, loader); !s.ok()) return s;
  }
  bool ended = false;
  Steps steps;
  std::uint64_t s = 0;
  Status link = follow(slot.more, steps, s);
  for (; link.ok() && s != 0; link = follow(segment_at(s).next, steps, s)) {
    if (clean && platform.load(segment_at(s).crc) != segment_crc(s) &&
        P::verifies("pskiplist.segment.crc"_site)) {
      return bad("a segment's checksum is wrong");
    }
    const std::uint32_t capacity = capacity_of(s);
    for (std::uint32_t i = 0; i < capacity; ++i) {
      const bool empty = platform.load(entry_at(entry_offset(s, i)).stamp) == 0;
      if (!empty && ended) return bad("an entry behind an empty one");
      ended = ended || empty;
      if (ended) continue;
      if (Status e = load_entry(entry_offset(s, i), before, loader); !e.ok()) return e;
    }
  }
  if (!link.ok()) return link;
  return before != 0 ? Status() : bad("it has no entry");
}

template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::load_entry(std::uint64_t offset, std::uint64_t& before,
                                          Loader& loader) noexcept {
  const P& platform = context_.platform;
  const std::uint64_t stamp = platform.load(entry_at(offset).stamp);
  const std::uint64_t version = version_of(stamp);
  if (version <= before || version > layout::kMaxVersion || (stamp & layout::kDropped) != 0) {
    return Status::format(StatusCode::corruption, "the entry at offset %llu is damaged (version)",
                          static_cast<unsigned long long>(offset));
  }
  before = version;
  loader.max_version = std::max(loader.max_version, version);
  if (!record_values_ || (stamp & layout::kRemoved) != 0) return {};
  const std::uint64_t record = platform.load(entry_at(offset).value);
  Status s = check_record(record, false);
  if (s.ok() && P::runs("pskiplist.recover.mark_record"_site)) s = context_.heap.mark(record);
  return s;
}

// Merges what the threads have sorted.
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::build_directory(Loader* loaders, std::size_t threads) noexcept {
  const auto order = [this](const Listed& a, const Listed& b) { return comes_before(a, b); };
  Array<Listed> keys = std::move(loaders[0].keys);
  for (std::size_t t = 1; t < threads; ++t) {
    Array<Listed>& others = loaders[t].keys;
    Array<Listed> merged;
    std::size_t i = 0;
    for (const Listed& key : keys) {
      for (; i < others.size() && order(others[i], key); ++i) {
        if (!merged.push_back(others[i])) return StatusCode::out_of_memory;
      }
      if (!merged.push_back(key)) return StatusCode::out_of_memory;
    }
    for (; i < others.size(); ++i) {
      if (!merged.push_back(others[i])) return StatusCode::out_of_memory;
    }
    keys = std::move(merged);
    others = {};
  }
  for (std::size_t i = 1; i < keys.size(); ++i) {
    if (order(keys[i - 1], keys[i])) continue;
    Status s = pass_over(Status::format(StatusCode::corruption, "two slots hold one key"));
    if (!s.ok()) return s;
    return directory_.build(nullptr, 0, 1);
  }
  return directory_.build(keys.begin(), keys.size(), threads);
}

// --- close ---

// Of the place as well: blocks that have changed places are damage, too. So are key records: their
// states, with the checksums of their keys, belong to the slots that name them.
template <Platform P, class Codec, class G>
std::uint64_t PSkipList<P, Codec, G>::block_crc(std::uint64_t offset) const noexcept {
  const P& platform = context_.platform;
  const auto& block = *context_.heap.template at<layout::Block>(offset);
  std::uint32_t crc = crc32c(0, &offset, sizeof(offset));
  crc = crc32c(crc, &block.next, sizeof(block.next));
  crc = crc32c(crc, &block + 1, Chain::kSlots * sizeof(Slot));
  for (std::uint32_t i = 0; Codec::kBytes && i < Chain::kSlots; ++i) {
    const Slot& slot = slot_at(Chain::slot_in(offset, i));
    const std::uint64_t key = platform.load(slot.key);
    if (platform.load(slot.first.stamp) == 0 || !check_record(key, false).ok()) continue;
    const std::uint64_t state = platform.load(records_.at(key)->state);
    crc = crc32c(crc, &state, sizeof(state));
  }
  return crc;
}

template <Platform P, class Codec, class G>
std::uint64_t PSkipList<P, Codec, G>::segment_crc(std::uint64_t offset) const noexcept {
  const Segment& segment = segment_at(offset);
  std::uint32_t crc = crc32c(0, &offset, sizeof(offset));
  crc = crc32c(crc, &segment.next, sizeof(segment.next));
  return crc32c(crc, &segment + 1, capacity_of(offset) * sizeof(Entry));
}

template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::set_crc(std::uint64_t& word, std::uint64_t crc) noexcept {
  if (context_.platform.load(word) == crc) return;
  context_.platform.store(word, crc);
  context_.platform.flush(&word, 8, "pskiplist.close.crc"_site);
}

template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::close() {
  P& platform = context_.platform;
  // The exact clock, so that the next process goes on where this one ends; of a rollback that the
  // medium refused and the next process ends, not less than it takes away.
  platform.store(root_->limit, std::max(clock() - 1, platform.load(root_->rollback_to)));
  platform.flush(&root_->limit, 8, "pskiplist.close.crc"_site);
  // By what is in DRAM, or checked: links may have been damaged since they were followed.
  for (std::uint32_t number = 1; number <= chain_.numbers(); ++number) {
    const std::uint64_t offset = chain_.offset_of(number);
    if (offset == 0) continue;
    for (std::uint32_t i = 0; i < Chain::kSlots; ++i) {
      const Slot& slot = slot_at(Chain::slot_in(offset, i));
      if (platform.load(slot.first.stamp) == 0) continue;
      Steps steps{.wary = true};
      for (std::uint64_t s = linked(slot.more, steps); s != 0;
           s = linked(segment_at(s).next, steps)) {
        set_crc(segment_at(s).crc, segment_crc(s));
      }
    }
    set_crc(context_.heap.template at<layout::Block>(offset)->crc, block_crc(offset));
  }
  set_crc(root_->close_crc, root_crc());
  return {};
}

}  // namespace perdure::pskiplist
