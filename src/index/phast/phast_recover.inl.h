// Phast: creation, recovery, close. Included by phast.h only.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <new>

#include "index/engine_report.h"
#include "index/phast/phast.h"

namespace perdure::phast {

template <Platform P, class Codec, class G>
Phast<P, Codec, G>::Phast(const EngineContext<P>& context, std::uint64_t root) noexcept
    : Base(context),
      root_offset_(root),
      root_(context.heap.template at<layout::Root>(root)),
      inner_(table_, context_.epochs) {}

template <Platform P, class Codec, class G>
Phast<P, Codec, G>::~Phast() {
  context_.epochs.drain_all();  // reclaimers point here
  if constexpr (Codec::kBytes) {
    if (table_.descriptor_count() == 0) return;
    for_each_leaf([this](std::uint32_t number) {
      auto& separators = table_[number].separators;
      inner_.release(separators.bound.load(std::memory_order_relaxed));
      inner_.release(separators.low.load(std::memory_order_relaxed));
    });
    context_.epochs.drain_all();
  }
}

template <Platform P, class Codec, class G>
Expected<std::uint64_t> Phast<P, Codec, G>::create(const EngineContext<P>& context,
                                                   const MapKinds& kinds,
                                                   const PhastOptions& options) {
  const std::uint32_t bits = options.partition_bits == PhastOptions::kAuto ? partition_bits_for(0)
                                                                           : options.partition_bits;
  if (bits > 16) {
    return fail(StatusCode::invalid_argument, "partition_bits %u; at most 16 are allowed", bits);
  }
  const std::uint32_t shift = options.partition_shift == ~0U ? 64 - bits : options.partition_shift;
  if (bits > 0 && (shift > 64 - bits)) {
    return fail(StatusCode::invalid_argument,
                "partition_shift %u leaves fewer than %u bits above it", shift, bits);
  }
  P& platform = context.platform;
  const ordered::Partitioning partitioning{.bits = bits, .shift = bits == 0 ? 0 : shift};
  const std::uint32_t count = partitioning.count();
  const std::size_t bytes = sizeof(layout::Root) + count * 8ULL;
  // Rounded up to lines: blocks of such classes lie on line boundaries, which the zero slot needs.
  auto block = context.heap.allocate((bytes + kLine - 1) / kLine * kLine, BlockKind::plain);
  if (!block) return block;
  auto* root = context.heap.template at<layout::Root>(*block);
  auto* master = reinterpret_cast<std::uint64_t*>(root + 1);
  std::uint32_t made = 0;
  Status s;
  for (; made < count; ++made) {
    auto head = context.heap.allocate(sizeof(Leaf), BlockKind::plain);
    if (!head) {
      s = std::move(head.error());
      break;
    }
    alignas(64) Leaf image{};
    image.bound = Codec::kBytes ? 0 : partitioning.bound(made);
    Leaf* leaf = context.heap.template at<Leaf>(*head);
    platform.copy(leaf, &image, sizeof(image));
    platform.flush(leaf, sizeof(*leaf), "phast.create.leaf"_site);
    platform.store(master[made], *head);
  }
  if (!s.ok()) {
    while (made > 0) context.heap.free(platform.load(master[--made]));
    context.heap.free(*block);
    return fail(std::move(s));
  }
  layout::Root image{};
  image.magic = layout::kRootMagic;
  image.geometry = kEntries;
  image.partition_bits = bits;
  image.partition_shift = partitioning.shift;
  image.flags = (Codec::kBytes ? layout::kBytesKeys : 0) |
                (!Codec::kBytes && kinds.value == ValueKind::bytes ? layout::kRecordValues : 0) |
                (Codec::kBytes && kinds.value == ValueKind::word ? layout::kWordRecords : 0);
  image.fixed_crc =
      crc32c(crc32c(0, &image, offsetof(layout::Root, fixed_crc)), master, count * 8ULL);
  platform.copy(root, &image, sizeof(image));
  platform.flush(root, bytes, "phast.create.root"_site);
  if (!platform.fence("phast.create.root"_site)) return fail(StatusCode::poisoned);
  return block;
}

template <Platform P, class Codec, class G>
Expected<std::unique_ptr<EngineInstance>> Phast<P, Codec, G>::open(const EngineContext<P>& context,
                                                                   std::uint64_t root) {
  if (Status s = root_may_lie_at(root, sizeof(layout::Root), context.heap); !s.ok())
    return fail(std::move(s));
  std::unique_ptr<EngineInstance> map(new (std::nothrow) Phast(context, root));
  if (map == nullptr) return fail(StatusCode::out_of_memory);
  return map;
}

// With the master array behind it.
template <Platform P, class Codec, class G>
bool Phast<P, Codec, G>::root_intact(const layout::Root& image,
                                     std::size_t partitions) const noexcept {
  const std::uint32_t crc =
      crc32c(crc32c(0, &image, offsetof(layout::Root, fixed_crc)), master(), partitions * 8);
  return image.fixed_crc == crc || !P::verifies("phast.root.crc"_site);
}

// The root block is checked whole before anything in it is believed.
template <Platform P, class Codec, class G>
Status Phast<P, Codec, G>::read_root() noexcept {
  if (P::runs("phast.recover.mark_root"_site)) {
    if (Status s = context_.heap.mark(root_offset_); !s.ok()) return s;
  }
  const layout::Root image = *root_;
  if (image.magic != layout::kRootMagic) return bad_root("magic");
  if (image.geometry != kEntries || image.partition_bits > 16 ||
      image.partition_shift > 64 - image.partition_bits) {
    return bad_root("geometry");
  }
  const std::size_t master_bytes = (1ULL << image.partition_bits) * 8;
  if (context_.heap.block_bytes(root_offset_) < sizeof(image) + master_bytes)
    return bad_root("size");
  if (!root_intact(image, master_bytes / 8)) return bad_root("checksum");
  if (((image.flags & layout::kBytesKeys) != 0) != Codec::kBytes) return bad_root("key kind");
  record_values_ = (image.flags & layout::kRecordValues) != 0;
  word_records_ = (image.flags & layout::kWordRecords) != 0;
  const std::uint64_t max_leaves =
      context_.heap.max_data_bytes() / sizeof(Leaf) + (1ULL << image.partition_bits);
  if (Status s = table_.reserve(max_leaves); !s.ok()) return s;
  return inner_.reserve({.bits = image.partition_bits, .shift = image.partition_shift}, max_leaves);
}

template <Platform P, class Codec, class G>
Expected<Recovered> Phast<P, Codec, G>::recover(bool clean) {
  if (Status s = read_root(); !s.ok()) return fail(std::move(s));
  Status zero;
  if (clean && root_->close_crc != zero_crc() && P::verifies("phast.zero.crc"_site)) {
    zero = Status::format(StatusCode::corruption, "the entry of key 0 is damaged");
  } else if (!Codec::kBytes && record_values_ && context_.platform.load(root_->zero_present) != 0) {
    const std::uint64_t record = context_.platform.load(root_->zero_value);
    zero = check_record(record, false);
    if (zero.ok() && P::runs("phast.recover.mark_zero"_site)) zero = context_.heap.mark(record);
  }
  if (!zero.ok()) zero = pass_over(std::move(zero));
  if (!zero.ok()) return fail(std::move(zero));
  const std::uint32_t count = inner_.partitioning().count();
  typename P::Latch latch;
  Status first_error;
  const std::size_t workers = std::min<std::size_t>(std::max(context_.threads, 1U), count);
  typename P::template Atomic<std::uint32_t> next{0};
  P::parallel(workers, [&](std::size_t) {
    for (;;) {
      const std::uint32_t p = next.fetch_add(1, std::memory_order_relaxed);
      if (p >= count) return;
      Status s = recover_partition(p, clean);
      if (s.ok()) continue;
      LatchGuard guard(latch);
      if (first_error.ok()) first_error = std::move(s);
    }
  });
  if (!first_error.ok()) return fail(std::move(first_error));
  return Recovered::done;
}

// Numbers of leaves, in the order of their chain.
template <Platform P, class Codec, class G>
class Phast<P, Codec, G>::LeafList {
 public:
  LeafList() = default;
  LeafList(const LeafList&) = delete;
  LeafList& operator=(const LeafList&) = delete;
  ~LeafList() { std::free(numbers_); }
  bool push(std::uint32_t number) noexcept {
    if (size_ == capacity_) {
      const std::size_t capacity = std::max<std::size_t>(2 * capacity_, 64);
      auto* more =
          static_cast<std::uint32_t*>(std::realloc(numbers_, capacity * sizeof(std::uint32_t)));
      if (more == nullptr) return false;
      numbers_ = more;
      capacity_ = capacity;
    }
    numbers_[size_++] = number;
    return true;
  }
  std::uint32_t operator[](std::size_t i) const noexcept { return numbers_[i]; }
  const std::uint32_t* data() const noexcept { return numbers_; }
  std::size_t size() const noexcept { return size_; }

 private:
  std::uint32_t* numbers_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

// Marks the partition's leaves, gives each a descriptor, and ends a split that was cut short.
template <Platform P, class Codec, class G>
Status Phast<P, Codec, G>::follow_chain(std::uint32_t partition, bool clean,
                                        LeafList& leaves) noexcept {
  const P& platform = context_.platform;
  Leaf* previous = nullptr;
  for (std::uint64_t offset = platform.load(master()[partition]);;) {
    // A chain that runs in a circle is reached twice.
    if (P::runs("phast.recover.mark_leaf"_site)) {
      if (Status s = context_.heap.mark(offset); !s.ok()) return s;
    }
    if (context_.heap.block_bytes(offset) < sizeof(Leaf) || offset % sizeof(Leaf) != 0) {
      return Status::format(StatusCode::corruption, "offset %llu is not a leaf",
                            static_cast<unsigned long long>(offset));
    }
    Leaf& leaf = *context_.heap.template at<Leaf>(offset);
    const std::uint64_t next = platform.load(leaf.next);
    if (next != 0 && context_.heap.contains(next, sizeof(Leaf))) {
      __builtin_prefetch(context_.heap.template at<Leaf>(next));
    }
    if (clean && leaf.crc != leaf_crc(leaf) && P::verifies("phast.leaf.crc"_site)) {
      Status s = pass_over(Status::format(StatusCode::corruption,
                                          "the leaf at offset %llu is damaged (checksum)",
                                          static_cast<unsigned long long>(offset)));
      if (!s.ok()) return s;
    }
    const std::uint32_t number = table_.take();
    if (number == kNoLeaf || !leaves.push(number)) return StatusCode::out_of_memory;
    table_.set_leaf(number, static_cast<std::uint32_t>(offset / sizeof(Leaf)));
    // A half-done split shows in two neighbours with one bound; finish it before bounds are read.
    // A clean pool has none, and is not stored to: there it is damage, which set_bounds() sees.
    if (!clean && previous != nullptr &&
        platform.load(previous->bound) == platform.load(leaf.bound) &&
        P::runs("phast.recover.split"_site)) {
      if (Status s = finish_split(*previous, leaf); !s.ok()) return s;
    }
    if (next == 0) return {};
    previous = &leaf;
    offset = next;
  }
}

template <Platform P, class Codec, class G>
Status Phast<P, Codec, G>::recover_partition(std::uint32_t partition, bool clean) noexcept {
  LeafList leaves;
  Status s = follow_chain(partition, clean, leaves);
  // Where damage may be passed over, the chain ends before it.
  if (!s.ok()) s = pass_over(std::move(s));
  bool wrote = false;
  std::size_t loaded = 0;
  for (; loaded < leaves.size() && s.ok(); ++loaded) {
    Desc& desc = table_[leaves[loaded]];
    Desc* left = loaded == 0 ? nullptr : &table_[leaves[loaded - 1]];
    s = set_bounds(desc, leaf_of(desc), left, partition);
    if (s.ok()) s = load_slots(desc, leaf_of(desc), clean, wrote);
    if (!s.ok()) break;
    if (left != nullptr) left->next.store(leaves[loaded], std::memory_order_relaxed);
  }
  if (!s.ok()) s = pass_over(std::move(s));
  if (s.ok() && wrote && !context_.platform.fence("phast.recover.zero"_site)) {
    s = StatusCode::poisoned;
  }
  if (s.ok() && loaded > 0) s = inner_.build(partition, leaves.data(), loaded);
  if constexpr (Codec::kBytes) {
    for (std::size_t i = s.ok() ? loaded : 0; i < leaves.size(); ++i) {
      auto& separators = table_[leaves[i]].separators;  // the destructor finds the others
      inner_.release(separators.bound.exchange(nullptr, std::memory_order_relaxed));
      inner_.release(separators.low.exchange(nullptr, std::memory_order_relaxed));
    }
  }
  return s;
}

// The new leaf's immutable low is the bound that the old one was about to get.
template <Platform P, class Codec, class G>
Status Phast<P, Codec, G>::finish_split(Leaf& left, Leaf& right) noexcept {
  context_.platform.store(left.bound, context_.platform.load(right.low));
  context_.platform.flush(&left, kLine, "phast.recover.split"_site);
  if (!context_.platform.fence("phast.recover.split"_site)) return StatusCode::poisoned;
  return {};
}

// Range of a recovered leaf: from its left neighbour's bound to its own. Marks the separator.
template <Platform P, class Codec, class G>
Status Phast<P, Codec, G>::set_bounds(Desc& desc, const Leaf& leaf, const Desc* left,
                                      std::uint32_t partition) noexcept {
  const auto bad = [&](const char* what) {
    return Status::format(StatusCode::corruption, "the leaf at offset %llu is damaged (%s)",
                          static_cast<unsigned long long>(leaf_offset(desc)), what);
  };
  const ordered::Partitioning& partitioning = inner_.partitioning();
  const std::uint64_t bound = context_.platform.load(leaf.bound);
  const bool last = context_.platform.load(leaf.next) == 0;
  std::uint64_t word = bound;
  if constexpr (Codec::kBytes) {
    if (last != (bound == 0)) return bad("bound");
    word = partitioning.bound(partition);
    if (bound != 0) {
      if (Status s = check_record(bound, true); !s.ok()) return s;
      if (P::runs("phast.recover.mark_separator"_site)) {
        if (Status s = context_.heap.mark(bound); !s.ok()) return s;
      }
      const auto key = RecordView::read(context_.platform, record_at(bound)).key();
      word = head_word(key);
      Separator<P>* separator = Separator<P>::make(key, bound);
      if (separator == nullptr) return StatusCode::out_of_memory;
      desc.separators.bound.store(separator, std::memory_order_relaxed);
    }
    if (left != nullptr) {
      Separator<P>* low = left->separators.bound.load(std::memory_order_relaxed);
      Inner::share(low);
      desc.separators.low.store(low, std::memory_order_relaxed);
    }
  }
  if (last && word != partitioning.bound(partition)) return bad("last bound");
  const std::uint64_t low =
      left == nullptr ? partitioning.low(partition)
                      : left->bound.load(std::memory_order_relaxed) + (Codec::kBytes ? 0 : 1);
  if (word < low || partitioning.of(word) != partition) return bad("order of bounds");
  desc.low.store(low, std::memory_order_relaxed);
  desc.bound.store(word, std::memory_order_relaxed);
  if constexpr (Codec::kBytes) {
    const Separator<P>* s = desc.separators.bound.load(std::memory_order_relaxed);
    if (s != nullptr && left != nullptr && desc.below({.word = word, .bytes = s->view()})) {
      return bad("order of bounds");
    }
  }
  return {};
}

// What check() alone goes on behind is no entry.
template <Platform P, class Codec, class G>
Expected<bool> Phast<P, Codec, G>::skip(Status why) noexcept {
  if (Status s = pass_over(std::move(why)); !s.ok()) return fail(std::move(s));
  return false;
}

// Whether an entry of a byte string counts: it does if it is in the leaf's range. One that is not
// is zeroed, so that it never names a record that is freed and used again; `wrote`: to be fenced.
template <Platform P, class Codec, class G>
Expected<bool> Phast<P, Codec, G>::admit_bytes(Desc& desc, Entry& entry, bool clean, Probe& probe,
                                               bool& wrote) noexcept {
  P& platform = context_.platform;
  const std::uint64_t word = platform.load(entry.value);
  probe.fingerprint = static_cast<std::uint8_t>(word >> 56);
  if (probe.fingerprint == 0) return skip(damaged_record(word));  // no writer makes that
  // The record itself is read only where words cannot decide.
  if (probe.word == desc.low.load(std::memory_order_relaxed) ||
      probe.word == desc.bound.load(std::memory_order_relaxed)) {
    if (Status s = check_record(word, true); !s.ok()) return skip(std::move(s));
    probe.bytes = RecordView::read(platform, record_at(word)).key();
  }
  if (desc.below(probe) || desc.above(probe)) {
    if (clean) {
      return fail(StatusCode::corruption,
                  "the leaf at offset %llu is damaged (an entry outside its range)",
                  static_cast<unsigned long long>(leaf_offset(desc)));
    }
    if (!P::runs("phast.recover.zero"_site)) return false;
    platform.store(entry.value, 0);
    platform.flush(&entry, sizeof(entry), "phast.recover.zero"_site);
    wrote = true;
    return false;
  }
  Status s = check_record(word, false);
  if (clean && word_records_ && s.ok()) __builtin_prefetch(record_at(word));  // for its checksum
  if (s.ok() && P::runs("phast.recover.mark_record"_site)) {
    s = context_.heap.mark(word & kOffsetMask);
  }
  if (!s.ok()) return skip(std::move(s));
  return true;
}

// The same of an integer. What is out of range is garbage (phast.I2), and stays.
template <Platform P, class Codec, class G>
Expected<bool> Phast<P, Codec, G>::admit_word(Desc& desc, const Entry& entry,
                                              Probe& probe) noexcept {
  probe = Codec::probe({.word = probe.word});
  if ((desc.below(probe) || desc.above(probe)) && P::runs("phast.recover.range"_site)) return false;
  if (!record_values_) return true;
  const std::uint64_t word = context_.platform.load(entry.value);
  Status s = check_record(word, false);
  if (s.ok() && P::runs("phast.recover.mark_record"_site)) s = context_.heap.mark(word);
  if (!s.ok()) return skip(std::move(s));
  return true;
}

// Entries that count become visible slots.
template <Platform P, class Codec, class G>
Status Phast<P, Codec, G>::load_slots(Desc& desc, Leaf& leaf, bool clean, bool& wrote) noexcept {
  const P& platform = context_.platform;
  for (std::uint32_t slot = 0; slot < kEntries; ++slot) {
    Entry& entry = leaf.entries[slot];
    if (platform.load(Codec::commit(entry)) == 0) continue;
    Probe probe{.word = platform.load(entry.key)};
    Expected<bool> counts = false;
    if constexpr (Codec::kBytes) {
      counts = admit_bytes(desc, entry, clean, probe, wrote);
    } else {
      counts = admit_word(desc, entry, probe);
    }
    if (!counts) return std::move(counts.error());
    if (*counts) desc.set_fingerprint(slot, probe.fingerprint);
  }
  if (clean && word_records_ && leaf.values_crc != values_crc(leaf, desc.visible()) &&
      P::verifies("phast.values.crc"_site)) {
    Status s = pass_over(Status::format(StatusCode::corruption,
                                        "a value of the leaf at offset %llu is damaged (checksum)",
                                        static_cast<unsigned long long>(leaf_offset(desc))));
    if (!s.ok()) return s;
  }
  desc.version.store(2, std::memory_order_release);
  return {};
}

template <Platform P, class Codec, class G>
template <class F>
void Phast<P, Codec, G>::for_each_leaf(F&& visit) const {
  for (std::uint32_t p = 0; p < inner_.partitioning().count(); ++p) {
    for (std::uint32_t n = inner_.first_leaf(p); n != kNoLeaf;
         n = table_[n].next.load(std::memory_order_acquire)) {
      visit(n);
    }
  }
}

// --- close ---

template <Platform P, class Codec, class G>
std::uint64_t Phast<P, Codec, G>::leaf_crc(const Leaf& leaf) const noexcept {
  const std::uint32_t head = crc32c(0, &leaf, offsetof(Leaf, crc));
  const auto* rest = reinterpret_cast<const std::byte*>(&leaf) + offsetof(Leaf, values_crc);
  return crc32c(head, rest, sizeof(Leaf) - offsetof(Leaf, values_crc));
}

// The word values that no record's own checksum covers, since they are updated in place.
template <Platform P, class Codec, class G>
std::uint64_t Phast<P, Codec, G>::values_crc(const Leaf& leaf,
                                             std::uint64_t visible) const noexcept {
  const RecordPrefix* named[64];
  std::size_t count = 0;
  for (std::uint64_t v = visible; v != 0; v &= v - 1) {
    named[count] = record_at(context_.platform.load(leaf.entries[__builtin_ctzll(v)].value));
    __builtin_prefetch(named[count++]);
  }
  std::uint64_t words[64];
  for (std::size_t i = 0; i < count; ++i) words[i] = context_.platform.load(named[i]->value);
  return crc32c(0, words, count * sizeof(std::uint64_t));
}

template <Platform P, class Codec, class G>
std::uint64_t Phast<P, Codec, G>::zero_crc() const noexcept {
  return crc32c(0, &root_->zero_value, 16);
}

template <Platform P, class Codec, class G>
Status Phast<P, Codec, G>::close() {
  P& platform = context_.platform;
  const std::uint32_t count = inner_.partitioning().count();
  const std::size_t workers = std::min<std::size_t>(std::max(context_.threads, 1U), count);
  typename P::template Atomic<std::uint32_t> next{0};
  typename P::template Atomic<bool> durable{true};
  P::parallel(workers, [&](std::size_t) {
    for (;;) {
      const std::uint32_t p = next.fetch_add(1, std::memory_order_relaxed);
      if (p >= count) break;
      for (std::uint32_t n = inner_.first_leaf(p); n != kNoLeaf;
           n = table_[n].next.load(std::memory_order_acquire)) {
        const Desc& desc = table_[n];
        Leaf& leaf = leaf_of(desc);
        if (word_records_) {
          const std::uint64_t visible = desc.visible();
          const std::uint64_t values = values_crc(leaf, visible);
          // The crc covers it, so if this changes that does, and the line is written back.
          if (leaf.values_crc != values) platform.store(leaf.values_crc, values);
        }
        const std::uint64_t crc = leaf_crc(leaf);
        if (leaf.crc == crc) continue;
        platform.store(leaf.crc, crc);
        platform.flush(&leaf, kLine, "phast.close.leaf"_site);
      }
    }
    // Each worker fences its own write-backs.
    if (!platform.fence("phast.close.leaf"_site)) durable.store(false, std::memory_order_relaxed);
  });
  platform.store(root_->close_crc, zero_crc());
  platform.flush(root_, sizeof(*root_), "phast.close.root"_site);
  return durable.load(std::memory_order_relaxed) ? Status() : StatusCode::poisoned;
}

}  // namespace perdure::phast
