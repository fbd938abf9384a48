// Phast: scans. Included by phast.h only.
//
// One leaf at a time: a validated snapshot of its entries in key order, delivered under the guard.
// The slots' order is kept per scanned leaf and used again while version and number of entries are
// the same. It is made and used at settled moments only, when no stripe is held: an erase raises
// the version while it holds its stripe, so between two settled moments of one version the set of
// visible slots has only grown, and equal numbers mean equal sets (phast.D3). A set that was read
// twice within one version was the set in between.
#pragma once

#include "index/phast/phast.h"

namespace perdure::phast {

// For assertions: the set of the slots that an order lists.
inline std::uint64_t slots_of(const std::uint8_t* order, std::uint32_t count) noexcept {
  std::uint64_t slots = 0;
  for (std::uint32_t i = 0; i < count; ++i) slots |= 1ULL << order[i];
  return slots;
}

template <Platform P, class Codec, class G>
std::uint32_t Phast<P, Codec, G>::ordered_slots(Desc& desc, const Leaf& leaf,
                                                const Entered& entered, std::uint64_t visible,
                                                bool settled, std::uint8_t* order) noexcept {
  const auto count = static_cast<std::uint32_t>(__builtin_popcountll(visible));
  const std::uint64_t cached = desc.order.load(std::memory_order_acquire);
  const std::uint64_t stamp = entered.version << 6 << 26 | std::uint64_t{count} << 26;
  if (settled && cached != 0 && (cached & ~kOrderNumber) == stamp) {
    std::memcpy(order, table_.order(static_cast<std::uint32_t>(cached & kOrderNumber)).slots,
                count);
    PERDURE_ASSERT(P, "phast.D3",
                   desc.version.load(std::memory_order_acquire) != entered.version ||
                       slots_of(order, count) == visible);
    return count;
  }
  const std::uint32_t sorted = sort_slots(leaf, visible, order);
  if (!settled || sorted != count || count == 0 || desc.visible() != visible ||
      desc.version.load(std::memory_order_acquire) != entered.version) {
    return sorted;
  }
  const std::uint32_t fresh = table_.take_order();
  if (fresh == 0) return sorted;
  if (fresh > kOrderNumber) {
    table_.give_order(fresh);
    return sorted;
  }
  std::memcpy(table_.order(fresh).slots, order, sorted);
  std::uint64_t expected = cached;
  if (desc.order.compare_exchange_strong(expected, stamp | fresh, std::memory_order_acq_rel)) {
    if (cached != 0) context_.epochs.retire(kOrderReclaimer, this, cached & kOrderNumber);
  } else {
    table_.give_order(fresh);
  }
  return sorted;
}

template <Platform P, class Codec, class G>
void Phast<P, Codec, G>::prefetch_leaf(const Desc& desc) const noexcept {
  const auto* bytes = reinterpret_cast<const char*>(&leaf_of(desc));
  for (std::size_t line = kLine; line < sizeof(Leaf); line += kLine) {
    __builtin_prefetch(bytes + line);
  }
  const std::uint64_t cached = desc.order.load(std::memory_order_relaxed);
  if (cached != 0) table_.order(cached & kOrderNumber).prefetch();
}

// The first position in key order whose word is not below `word`; 0 if an entry is being emptied,
// since its word says nothing about the others then.
template <Platform P, class Codec, class G>
std::uint32_t Phast<P, Codec, G>::first_at(const Leaf& leaf, const std::uint8_t* order,
                                           std::uint32_t count, std::uint64_t word) const noexcept {
  std::uint32_t low = 0;
  std::uint32_t high = count;
  while (low < high) {
    const std::uint32_t middle = (low + high) / 2;
    const std::uint64_t key = context_.platform.load(leaf.entries[order[middle]].key);
    if (key == 0 && !Codec::kBytes) return 0;
    if (key < word) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Copies the entries within the limits and the batch's bound, in the direction of the scan; answers
// how many. An emptied one is either in flight, then absent and helped by the caller, or the
// version has moved.
template <Platform P, class Codec, class G>
std::uint32_t Phast<P, Codec, G>::collect_words(const Leaf& leaf,
                                                std::span<const std::uint8_t> order,
                                                const Limits& limits, bool reverse,
                                                std::uint64_t limit, Batch& batch) const noexcept {
  const P& platform = context_.platform;
  const std::uint64_t first = limits.has_from ? std::max<std::uint64_t>(limits.from.word, 1) : 1;
  std::uint64_t end = batch.bound + 1;  // exclusive; 0 is past the last word
  if (limits.has_to && limits.to.word == 0) return 0;
  if (limits.has_to && limits.to.word - 1 < end - 1) end = limits.to.word;
  if (end - 1 < first || limit == 0) return 0;
  const bool plain = !records();
  std::uint32_t count = 0;
  const std::size_t begin =
      reverse ? 0 : first_at(leaf, order.data(), static_cast<std::uint32_t>(order.size()), first);
  for (std::size_t i = begin; i < order.size(); ++i) {
    const Entry& entry = leaf.entries[order[reverse ? order.size() - 1 - i : i]];
    const std::uint64_t key = platform.load(entry.key);
    if (key - first > end - 1 - first) [[unlikely]] {
      if (key != 0 && (key < first) == reverse) break;
      continue;
    }
    const std::uint64_t word = platform.load(entry.value);
    detail::Entry& out = batch.entries[count];
    out = {.key = {.word = key}, .value = {.word = word, .word_size = 8}};
    if (!plain && !value_of(word, out.value)) {
      batch.damaged = word;
      continue;
    }
    if (++count == limit) break;
  }
  return count;
}

template <Platform P, class Codec, class G>
std::uint32_t Phast<P, Codec, G>::collect_bytes(const Leaf& leaf,
                                                std::span<const std::uint8_t> order,
                                                const Limits& limits, bool reverse,
                                                std::uint64_t limit, Batch& batch) const noexcept {
  const P& platform = context_.platform;
  const auto beyond = [&](const detail::Entry& e) {
    if (e.key.word != batch.bound) return e.key.word > batch.bound;
    return batch.bound_separator != nullptr && e.key.bytes > batch.bound_separator->view();
  };
  const auto before = [&](const detail::Entry& e, const Probe& probe) {  // entry < probe
    return e.key.word == probe.word ? compare(probe, e.key.bytes) > 0 : e.key.word < probe.word;
  };
  std::uint32_t count = 0;
  const auto size = static_cast<std::uint32_t>(order.size());
  const std::uint32_t begin =
      limits.has_from && !reverse ? first_at(leaf, order.data(), size, limits.from.word) : 0;
  for (std::uint32_t i = begin; i < size && count < limit; ++i) {
    const Entry& entry = leaf.entries[order[reverse ? size - 1 - i : i]];
    const std::uint64_t word = platform.load(entry.value);
    if (word == 0) continue;
    detail::Entry& out = batch.entries[count];
    out = {};
    if (!value_of(word, out.value)) {
      batch.damaged = word;
      continue;
    }
    out.key = {.word = platform.load(entry.key),
               .bytes = RecordView::read(platform, record_at(word)).key()};
    if (beyond(out)) {
      if (!reverse) break;
    } else if (limits.has_from && before(out, limits.from)) {
      if (reverse) break;
    } else if (limits.has_to && !before(out, limits.to)) {
      if (!reverse) break;
    } else {
      ++count;
    }
  }
  return count;
}

// Fills the batch with the leaf's entries inside the limits, in the direction of the scan. False if
// the leaf changed under us.
template <Platform P, class Codec, class G>
bool Phast<P, Codec, G>::snapshot(const Entered& entered, const Limits& limits, bool reverse,
                                  std::uint64_t limit, Batch& batch) noexcept {
  Desc& desc = table_[entered.number];
  const Leaf& leaf = leaf_of(desc);
  prefetch_leaf(desc);
  // The range first: entries that a split is moving out of it are not delivered, wherever it
  // stands, and the scan goes on behind the same bound.
  batch.next = desc.next.load(std::memory_order_acquire);
  batch.low = desc.low.load(std::memory_order_acquire);
  batch.bound = desc.bound.load(std::memory_order_acquire);
  if constexpr (Codec::kBytes) {
    batch.low_separator = desc.separators.low.load(std::memory_order_acquire);
    batch.bound_separator = desc.separators.bound.load(std::memory_order_acquire);
  }
  if (desc.search.stripes.load() != 0) {  // phast.D5
    for (unsigned stripe = 0; stripe < P::ByteLatches::kCount; ++stripe) desc.let_go(stripe);
  }
  const bool settled = desc.search.stripes.load() == 0;  // before the slots
  const std::uint64_t visible = desc.visible();
  std::uint8_t slots[64];
  const std::uint32_t count = ordered_slots(desc, leaf, entered, visible, settled, slots);
  if (batch.next != kNoLeaf && limit > kEntries / 3 && !reverse) prefetch_leaf(table_[batch.next]);
  batch.damaged = 0;
  const std::span<const std::uint8_t> order(slots, count);
  if constexpr (Codec::kBytes) {
    batch.count = collect_bytes(leaf, order, limits, reverse, limit, batch);
  } else {
    batch.count = collect_words(leaf, order, limits, reverse, limit, batch);
  }
  if (desc.search.stripes.load() != 0) {
    const std::uint64_t now = desc.visible();
    (void)help(desc, visible | now);  // phast.I4; a cached order may name slots of both
    // Erased meanwhile: the slot may be taken again, and what was read there not be shown yet.
    if ((visible & ~now) != 0) return false;
  }
  // Low falls when the left neighbour goes, without this leaf's version: what was inserted below
  // the low that was read would be delivered again to the left of it.
  if (reverse) {
    if constexpr (Codec::kBytes) {
      if (desc.separators.low.load(std::memory_order_acquire) != batch.low_separator) return false;
    }
    if (desc.low.load(std::memory_order_acquire) != batch.low) return false;
  }
  return desc.version.load(std::memory_order_acquire) == entered.version;
}

// The key 0, which lies in no leaf.
template <Platform P, class Codec, class G>
Expected<bool> Phast<P, Codec, G>::scan_zero(
    const Limits& limits, FunctionRef<bool(std::span<const detail::Entry>)> visit) noexcept {
  if ((limits.has_from && limits.from.word > 0) || (limits.has_to && limits.to.word == 0)) {
    return true;
  }
  bool go_on = true;
  auto found = read_zero([&](const detail::Value& value) {
    const detail::Entry entry{.key = {}, .value = value};
    go_on = visit(std::span<const detail::Entry>(&entry, 1));
  });
  if (!found) return found;
  return go_on;
}

template <Platform P, class Codec, class G>
Expected<void> Phast<P, Codec, G>::scan(const detail::ScanRange& range,
                                        FunctionRef<bool(std::span<const detail::Entry>)> visit) {
  Limits limits(range);
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  if (!Codec::kBytes && !range.reverse) {
    auto go_on = scan_zero(limits, visit);
    if (!go_on) return fail(std::move(go_on.error()));
    if (!*go_on) return {};
  }
  Probe position = limits.start(range.reverse);
  std::uint64_t left = range.limit;
  Batch batch;
  bool end = false;
  std::uint32_t hint = inner_.locate(position);
  while (left > 0) {
    const Entered entered = enter(position, hint);
    hint = entered.number;
    __builtin_prefetch(&table_[table_[hint].next.load(std::memory_order_relaxed)]);
    if (!snapshot(entered, limits, range.reverse, left, batch)) continue;
    // A split lowers the bound before it raises the version: what lies behind is elsewhere by now.
    // Going on to the right finds it, going on to the left would not.
    if (range.reverse && batch.ends_before(position)) continue;
    if (context_.platform.poisoned()) return fail(context_.platform.failure());
    if (batch.damaged != 0) return fail(damaged_record(batch.damaged));
    position = ordered::behind<Codec>(batch, range.reverse, end);
    if (!end) limits.pass(position, batch.low, range.reverse);
    left -= batch.count;
    const bool more =
        batch.count == 0 || visit(std::span<const detail::Entry>(batch.entries, batch.count));
    // What was shown may have come from pages that were lost meanwhile.
    if (context_.platform.poisoned()) return fail(context_.platform.failure());
    if (!more) return {};
    if (end || limits.end_before(position, range.reverse)) break;
    hint = !range.reverse && batch.next != kNoLeaf ? batch.next : inner_.locate(position);
  }
  if (!Codec::kBytes && range.reverse && left > 0) {
    auto go_on = scan_zero(limits, visit);
    if (!go_on) return fail(std::move(go_on.error()));
  }
  return {};
}

}  // namespace perdure::phast
