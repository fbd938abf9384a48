// Level: creation, recovery, close. Included by level.h only.
#pragma once

#include <algorithm>
#include <new>

#include "index/engine_report.h"
#include "index/level/level.h"

namespace perdure::level {

template <Platform P, class Codec, class G>
Level<P, Codec, G>::Level(const EngineContext<P>& context, std::uint64_t root) noexcept
    : Base(context), root_offset_(root), root_(context.heap.template at<layout::Root>(root)) {}

template <Platform P, class Codec, class G>
Level<P, Codec, G>::~Level() {
  context_.background.remove(work_);
  context_.epochs.drain_all();  // reclaimers point here
  ViewT* view = current();
  if (view == nullptr) return;
  for (std::uint32_t i = 0; i < view->levels; ++i) delete view->tiers[i];
  delete view;
}

template <Platform P, class Codec, class G>
std::uint32_t Level<P, Codec, G>::descriptor_crc(const layout::Descriptor& d) noexcept {
  return crc32c(0, reinterpret_cast<const std::byte*>(&d) + sizeof(d.crc),
                sizeof(d) - sizeof(d.crc));
}

template <Platform P, class Codec, class G>
std::uint32_t Level<P, Codec, G>::closed_crc(std::uint64_t descriptor,
                                             std::uint64_t generation) noexcept {
  const std::uint64_t words[2] = {descriptor, generation};
  return crc32c(0, words, sizeof(words));
}

template <Platform P, class Codec, class G>
std::uint64_t Level<P, Codec, G>::buckets_for(const Heap<P>& heap, std::uint64_t items) noexcept {
  const std::uint64_t most = heap.max_data_bytes() / 4 / TierT::line_bytes(0);
  std::uint32_t log = G::kFirstLog;
  while (log < kMaxLog && (kSlots * 27ULL << log) / 20 < items && (3ULL << log) <= most) ++log;
  return 1ULL << log;
}

template <Platform P, class Codec, class G>
Expected<std::uint64_t> Level<P, Codec, G>::create(const EngineContext<P>& context,
                                                   const MapKinds& kinds,
                                                   const LevelOptions& options) {
  std::uint32_t log = G::kFirstLog;
  if (options.buckets != 0) {
    if (options.buckets < 2 || (options.buckets & (options.buckets - 1)) != 0 ||
        options.buckets > 1ULL << kMaxLog) {
      return fail(StatusCode::invalid_argument,
                  "%llu buckets; the top level has a power of two of them, at least 2",
                  static_cast<unsigned long long>(options.buckets));
    }
    log = static_cast<std::uint32_t>(__builtin_ctzll(options.buckets));
  }
  P& platform = context.platform;
  std::uint64_t blocks[4] = {};
  const std::size_t sizes[4] = {kRootBytes, sizeof(layout::Descriptor), TierT::bytes_of(log),
                                TierT::bytes_of(log - 1)};
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
  image.crc = descriptor_crc(image);
  auto* descriptor = context.heap.template at<layout::Descriptor>(blocks[1]);
  platform.copy(descriptor, &image, sizeof(image));
  platform.flush(descriptor, sizeof(image), "level.create.descriptor"_site);
  layout::Root head{};
  head.magic = layout::kRootMagic;
  head.geometry = G::kBucketLines;
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
  head.fixed_crc = crc32c(0, &head, offsetof(layout::Root, fixed_crc));
  head.descriptor = blocks[1];
  auto* root = context.heap.template at<layout::Root>(blocks[0]);
  // The Moves behind it are zero already, and so are the Updates.
  constexpr std::size_t kHead = offsetof(layout::Root, moves);
  platform.copy(root, &head, kHead);
  platform.flush(root, kHead, "level.create.root"_site);
  if (!platform.fence("level.create.root"_site)) return fail(StatusCode::poisoned);
  return blocks[0];
}

template <Platform P, class Codec, class G>
Expected<std::unique_ptr<EngineInstance>> Level<P, Codec, G>::open(const EngineContext<P>& context,
                                                                   std::uint64_t root) {
  if (Status s = root_may_lie_at(root, kRootBytes, context.heap); !s.ok())
    return fail(std::move(s));
  std::unique_ptr<EngineInstance> map(new (std::nothrow) Level(context, root));
  if (map == nullptr) return fail(StatusCode::out_of_memory);
  return map;
}

template <Platform P, class Codec, class G>
bool Level<P, Codec, G>::root_intact(const layout::Root& image) const noexcept {
  return image.fixed_crc == crc32c(0, &image, offsetof(layout::Root, fixed_crc)) ||
         !P::verifies("level.root.crc"_site);
}

template <Platform P, class Codec, class G>
bool Level<P, Codec, G>::descriptor_intact(const layout::Descriptor& image) const noexcept {
  return image.crc == descriptor_crc(image) || !P::verifies("level.descriptor.crc"_site);
}

// The root block is checked before anything in it is believed.
template <Platform P, class Codec, class G>
Status Level<P, Codec, G>::read_root() noexcept {
  if (P::runs("level.recover.mark_root"_site)) {
    if (Status s = context_.heap.mark(root_offset_); !s.ok()) return s;
  }
  const layout::Root& image = *root_;
  if (context_.heap.block_bytes(root_offset_) < kRootBytes) return bad_root("size");
  if (image.magic != layout::kRootMagic) return bad_root("magic");
  if (!root_intact(image)) return bad_root("checksum");
  if (image.geometry != G::kBucketLines || image.first_log == 0 || image.first_log > kMaxLog) {
    return bad_root("geometry");
  }
  if (((image.flags & layout::kBytesKeys) != 0) != Codec::kBytes ||
      ((image.flags & layout::kArrayLines) != 0) != Form::kArrays) {
    return bad_root("key kind");
  }
  if (image.key_bytes > kMaxArrayKeyBytes || image.value_bytes > kMaxArrayValueBytes) {
    return bad_root("sizes of arrays");
  }
  key_bytes_ = image.key_bytes;
  value_bytes_ = image.value_bytes;
  record_values_ = (image.flags & layout::kRecordValues) != 0;
  word_records_ = (image.flags & layout::kWordRecords) != 0;
  may_shrink_ = (image.flags & layout::kMayShrink) != 0;
  seeds_ = {{image.seeds[0], image.seeds[1]}};
  return {};
}

// Makes the view of the current levels, without what they hold.
template <Platform P, class Codec, class G>
Status Level<P, Codec, G>::read_descriptor(bool clean) noexcept {
  const auto bad = [](const char* what) {
    return Status::format(StatusCode::corruption, "the map's list of levels is damaged (%s)", what);
  };
  const Heap<P>& heap = context_.heap;
  const std::uint64_t offset = context_.platform.load(root_->descriptor);
  if (!heap.contains(offset, sizeof(layout::Descriptor)) || offset % kLine != 0) {
    return bad("place");
  }
  if (P::runs("level.recover.mark_descriptor"_site)) {
    if (Status s = context_.heap.mark(offset); !s.ok()) return s;
  }
  const layout::Descriptor image = *heap.template at<layout::Descriptor>(offset);
  if (heap.block_bytes(offset) < sizeof(image)) return bad("size");
  if (!descriptor_intact(image)) return bad("checksum");
  const auto closed = static_cast<std::uint32_t>(context_.platform.load(root_->closed));
  if (clean && closed != closed_crc(offset, image.generation) &&
      P::verifies("level.root.closed_crc"_site)) {
    return bad("not the one that was closed");
  }
  const auto drain = static_cast<Drain>(image.drain);
  const bool settled = drain == Drain::none ? image.levels == 2 : image.levels > 2;
  if (image.levels < 2 || image.levels > kMaxLevels || image.drain > 2 || !settled ||
      (drain == Drain::top && image.levels != 3) || image.top_log > kMaxLog ||
      image.top_log + 1U < image.levels) {
    return bad("shape");
  }
  auto* view = new (std::nothrow) ViewT;
  if (view == nullptr) return StatusCode::out_of_memory;
  view->descriptor = offset;
  view->generation = image.generation;
  view->drain = drain;
  view_.store(view, std::memory_order_release);  // the destructor's, from here on
  for (std::uint32_t i = 0; i < image.levels; ++i) {
    const std::uint64_t at = image.offsets[i];
    const std::uint32_t log = image.top_log - i;
    if (!heap.contains(at, TierT::bytes_of(log)) || at % kLine != 0) return bad("place of a level");
    if (P::runs("level.recover.mark_level"_site)) {
      if (Status s = context_.heap.mark(at); !s.ok()) return s;
    }
    if (heap.block_bytes(at) < TierT::bytes_of(log)) return bad("size of a level");
    TierT* tier = TierT::make(at, log, heap.template at<Line>(at));
    if (tier == nullptr) return StatusCode::out_of_memory;
    view->tiers[view->levels++] = tier;
  }
  return {};
}

template <Platform P, class Codec, class G>
Expected<Recovered> Level<P, Codec, G>::recover(bool clean) {
  if (Status s = read_root(); !s.ok()) return fail(std::move(s));
  if (Status s = read_descriptor(clean); !s.ok()) return fail(std::move(s));
  if (!clean) {
    if constexpr (Form::kArrays) {
      if (Status s = finish_updates(); !s.ok()) return fail(std::move(s));
    }
    if (Status s = finish_moves(); !s.ok()) return fail(std::move(s));
  }
  ViewT& view = *current();
  // The level that is being drained comes last: what is in the others already is dropped there,
  // before it is marked a second time.
  const TierT* source = view.drain == Drain::none ? nullptr : &view.source();
  std::uint64_t sum = 0;
  for (const bool drained : {false, true}) {
    for (std::uint32_t i = 0; i < view.levels; ++i) {
      TierT& tier = *view.tiers[i];
      if ((&tier == source) != drained) continue;
      Status s = for_each_bucket(tier, sum, [&](std::uint64_t bucket, std::uint64_t& share) {
        if (clean) share += sum_of(tier, bucket);
        return recover_bucket(tier, bucket, clean, drained && !clean);
      });
      if (!s.ok()) return fail(std::move(s));
    }
  }
  // E27.
  if (clean && context_.platform.load(root_->closed) >> 32 != short_sum(sum) &&
      P::verifies("level.close.sum"_site)) {
    Status s = pass_over(Status::format(
        StatusCode::corruption, "the map's buckets are not those that were closed; some are lost"));
    if (!s.ok()) return fail(std::move(s));
  }
  turn_search(view);
  expect_growth(view);
  for (std::uint32_t i = 2; i < view.levels; ++i) {
    resize_begins(view, view, view.drain == Drain::top);  // goes on
  }
  return Recovered::done;
}

// Calls visit(bucket, share) for all, in parallel; the first error ends it. Each worker fences what
// it has written back. The shares are added to `sum`.
template <Platform P, class Codec, class G>
template <class F>
Status Level<P, Codec, G>::for_each_bucket(const TierT& tier, std::uint64_t& sum,
                                           F&& visit) noexcept {
  constexpr std::uint64_t kPiece = 4096;
  typename P::Latch latch;
  Status first_error;
  const std::uint64_t pieces = (tier.buckets() + kPiece - 1) / kPiece;
  const std::size_t workers = std::min<std::uint64_t>(std::max(context_.threads, 1U), pieces);
  typename P::template Atomic<std::uint64_t> next{0};
  P::parallel(workers, [&](std::size_t) {
    Status s;
    std::uint64_t share = 0;
    while (s.ok()) {
      const std::uint64_t piece = next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= pieces) break;
      const std::uint64_t end = std::min((piece + 1) * kPiece, tier.buckets());
      for (std::uint64_t b = piece * kPiece; b < end && s.ok(); ++b) s = visit(b, share);
    }
    if (!context_.platform.fence("level.each.bucket"_site) && s.ok()) s = StatusCode::poisoned;
    LatchGuard guard(latch);
    sum += share;
    if (first_error.ok()) first_error = std::move(s);
  });
  return first_error;
}

// Where a line lies, slot its first; not found() if it is in none of the levels.
template <Platform P, class Codec, class G>
typename Level<P, Codec, G>::Place Level<P, Codec, G>::place_of(std::uint64_t line) const noexcept {
  const ViewT& view = *current();
  for (std::uint32_t i = 0; i < view.levels; ++i) {
    TierT* tier = view.tiers[i];
    if (line < tier->offset || line - tier->offset >= TierT::line_bytes(tier->log)) continue;
    const std::uint64_t number = (line - tier->offset) / sizeof(Line);
    const std::uint64_t in_bucket = number % TierT::kLines * Form::kSlots;
    if ((line - tier->offset) % sizeof(Line) != 0) return {};
    return {tier, number / TierT::kLines, static_cast<std::uint32_t>(in_bucket)};
  }
  return {};
}

// A key that is valid in both lines of a Move loses its slot in the first. One Move after the
// other: a stale one may name the lines of another the other way round. Nothing else can make a
// stale one name a key twice, and then either copy is as good (level.I2).
template <Platform P, class Codec, class G>
Status Level<P, Codec, G>::finish_moves() noexcept {
  P& platform = context_.platform;
  bool wrote = false;
  for (layout::Move& move : root_->moves) {
    const std::uint64_t from_offset = platform.load(move.from);
    const std::uint64_t to_offset = platform.load(move.to);
    if (to_offset == 0 || from_offset == to_offset) continue;
    const Place from = place_of(from_offset);
    const Place to = place_of(to_offset);
    if (!from.found() || !to.found() || !P::runs("level.recover.move"_site)) continue;
    Line& a = from.line();
    const Line& b = to.line();
    for (std::uint32_t i = 0; i < Form::kSlots; ++i) {
      for (std::uint32_t j = 0; j < Form::kSlots; ++j) {
        const std::uint64_t tokens = Form::tokens(platform, a);
        if ((tokens >> i & 1) == 0 || (Form::tokens(platform, b) >> j & 1) == 0) continue;
        if (!same_item(Form::load(platform, a, i), Form::load(platform, b, j))) continue;
        Form::set_tokens(platform, a, tokens & ~(1ULL << i));
        platform.flush(&a.tokens, 8, "level.recover.move"_site);
        wrote = true;
      }
    }
  }
  // The Moves stay until another movement takes their line: the same again finds nothing.
  return !wrote || platform.fence("level.recover.move"_site) ? Status() : StatusCode::poisoned;
}

// Two slots that both count hold one item. Byte strings of one hash are told apart by their record,
// which a copy shares.
template <Platform P, class Codec, class G>
bool Level<P, Codec, G>::same_item(const Item& a, const Item& b) noexcept {
  return std::ranges::equal(a.key, b.key) && (!Codec::kBytes || a.value[0] == b.value[0]);
}

// Whether an item of the level that is being drained is in another level as well.
template <Platform P, class Codec, class G>
bool Level<P, Codec, G>::is_twice(const TierT& source, const Item& item,
                                  const Probe& probe) const noexcept {
  const ViewT& view = *current();
  for (std::uint32_t i = 0; i < view.levels; ++i) {
    TierT& tier = *view.tiers[i];
    if (&tier == &source) continue;
    for (const std::uint64_t hash : probe.hashes) {
      Place other{&tier, tier.index(hash), 0};
      for (; other.slot < kSlots; ++other.slot) {
        if (other.meta().print(other.slot) != 0 && same_item(item, load(other))) return true;
      }
    }
  }
  return false;
}

// Fingerprints, counts and marks of a bucket. `twice`: its items may be in other levels too.
template <Platform P, class Codec, class G>
Status Level<P, Codec, G>::recover_bucket(TierT& tier, std::uint64_t bucket, bool clean,
                                          bool twice) noexcept {
  P& platform = context_.platform;
  const auto bad = [&](const char* what) {
    return pass_over(Status::format(
        StatusCode::corruption, "the bucket at offset %llu is damaged (%s)",
        static_cast<unsigned long long>(tier.offset + bucket * TierT::kLines * sizeof(Line)),
        what));
  };
  std::int64_t count = 0;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    Line& line = tier.line(bucket, slot);
    const std::uint64_t tokens = Form::tokens(platform, line);
    if (slot % Form::kSlots == 0) {
      if (tokens >> Form::kSlots != 0) {
        if (Status s = bad("tokens"); !s.ok()) return s;
        continue;
      }
      // Before what it names is looked at; the values in records need that first.
      if (clean && !line_intact(tier, bucket, slot, false)) {
        if (Status s = bad("checksum"); !s.ok()) return s;
      }
    }
    const Place place{&tier, bucket, slot};
    if ((tokens & place.bit()) == 0) continue;
    const Item item = load(place);
    const Probe probe = probe_of(item);
    if (tier.index(probe.hashes[0]) != bucket && tier.index(probe.hashes[1]) != bucket) {
      if (Status s = bad("a key in a foreign bucket"); !s.ok()) return s;
      continue;
    }
    if (twice && is_twice(tier, item, probe) && P::runs("level.recover.twice"_site)) {
      Form::set_tokens(platform, line, Form::tokens(platform, line) & ~place.bit());
      platform.flush(&line.tokens, 8, "level.recover.twice"_site);
      continue;
    }
    if (records()) {
      const std::uint64_t offset = item.value[0];
      Status s = check_record(offset, false);
      if (s.ok() && P::runs("level.recover.mark_record"_site)) s = context_.heap.mark(offset);
      if (s.ok() && context_.heap.block_bytes(offset) == 0) s = damaged_record(offset);
      if (!s.ok()) {
        if (Status p = pass_over(std::move(s)); !p.ok()) return p;
        continue;
      }
    }
    place.meta().set_print(slot, probe.print);
    ++count;
  }
  if (clean && word_records_) {
    for (std::uint32_t first = 0; first < kSlots; first += Form::kSlots) {
      if (line_intact(tier, bucket, first, true)) continue;
      if (Status s = bad("checksum of values"); !s.ok()) return s;
    }
  }
  if (count != 0) tier.add(count);
  return {};
}

// --- close ---

// Nothing is written to a line that was never used.
template <Platform P, class Codec, class G>
std::uint32_t Level<P, Codec, G>::line_crc(const Line& line) const noexcept {
  static constexpr Line kZero{};
  if (std::memcmp(&line, &kZero, Form::kCoveredBytes) == 0) return 0;
  return crc32c(0, &line, Form::kCoveredBytes);
}

// Of the word values that no record's own checksum covers, since they are updated in place.
template <Platform P, class Codec, class G>
std::uint32_t Level<P, Codec, G>::values_crc(const Line& line) const noexcept {
  std::uint64_t words[Form::kSlots];
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < Form::kSlots && word_records_; ++i) {
    if ((Form::tokens(context_.platform, line) >> i & 1) == 0) continue;
    const std::uint64_t offset = Form::load(context_.platform, line, i).value[0];
    if (!check_record(offset, false).ok()) continue;
    words[count++] = context_.platform.load(record_at(offset)->value);
  }
  return count == 0 ? 0 : crc32c(0, words, count * sizeof(words[0]));
}

template <Platform P, class Codec, class G>
bool Level<P, Codec, G>::line_intact(const TierT& tier, std::uint64_t bucket, std::uint32_t slot,
                                     bool values) const noexcept {
  const Line& line = tier.line(bucket, slot);
  const std::uint64_t crcs = context_.platform.load(tier.check(bucket, slot));
  if (values) {
    return static_cast<std::uint32_t>(crcs >> 32) == values_crc(line) ||
           !P::verifies("level.values.crc"_site);
  }
  return static_cast<std::uint32_t>(crcs >> TierT::check_bit(slot)) == line_crc(line) ||
         !P::verifies("level.line.crc"_site);
}

// What the checksums of a bucket's lines add to the sum of all (E27).
template <Platform P, class Codec, class G>
std::uint64_t Level<P, Codec, G>::sum_of(const TierT& tier, std::uint64_t bucket) const noexcept {
  std::uint64_t sum = 0;
  for (std::uint32_t slot = 0; slot < kSlots; slot += Form::kArrays ? kSlots : Form::kSlots) {
    const std::uint64_t& word = tier.check(bucket, slot);
    const auto place =
        reinterpret_cast<const std::byte*>(&word) - reinterpret_cast<const std::byte*>(tier.lines);
    sum +=
        closed_term(tier.offset + static_cast<std::uint64_t>(place), context_.platform.load(word));
  }
  return sum;
}

template <Platform P, class Codec, class G>
Status Level<P, Codec, G>::close() {
  P& platform = context_.platform;
  const ViewT& view = *current();
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < view.levels; ++i) {
    const TierT& tier = *view.tiers[i];
    Status s =
        for_each_bucket(tier, sum, [&](std::uint64_t bucket, std::uint64_t& share) -> Status {
          for (std::uint32_t first = 0; first < kSlots; first += Form::kSlots) {
            const Line& line = tier.line(bucket, first);
            std::uint64_t& word = tier.check(bucket, first);
            std::uint64_t crcs = std::uint64_t{line_crc(line)} << TierT::check_bit(first);
            if constexpr (Form::kArrays) {
              crcs |= platform.load(word) & ~(0xFFFF'FFFFULL << TierT::check_bit(first));
            } else {
              crcs |= std::uint64_t{values_crc(line)} << 32;
            }
            if (platform.load(word) == crcs) continue;
            platform.store(word, crcs);
            platform.flush(&word, 8, "level.close.line"_site);
          }
          share += sum_of(tier, bucket);
          return {};
        });
    if (!s.ok()) return s;
  }
  const std::uint64_t closed =
      closed_crc(view.descriptor, view.generation) | std::uint64_t{short_sum(sum)} << 32;
  if (platform.load(root_->closed) != closed) {
    platform.store(root_->closed, closed);
    platform.flush(&root_->closed, 8, "level.close.root"_site);
  }
  return {};
}

template <Platform P, class Codec, class G>
void Level<P, Codec, G>::start() noexcept {
  context_.background.add(work_, BackgroundWork<P>::kMaxWidth);
}

}  // namespace perdure::level
