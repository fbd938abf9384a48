// Lookup: finds the leaf, the slot and the value of a key, and scans in both directions.
// Responsible for what a find and a scan return: phast.I4 (it is durable), phast.D5 (it is no older
// than what has returned), ordered.N1; and for the scan orders (phast.D3).
//
// SCAN  One leaf at a time: a validated snapshot of its entries in key order, delivered under the
//   guard. All of a leaf is prefetched before it is entered, and all of the next one once this one
//   proves to have fewer entries than are wanted. The order of the slots is kept per scanned
//   leaf, and is used again while the version and the number of entries are the same. It is built
//   and used at settled moments only, when no stripe is held. An erase raises the version while it
//   holds its stripe. So between two settled moments of one version the set of visible slots has
//   only grown, and equal numbers mean equal sets (phast.D3). If a set was read twice within one
//   version, it was also the set in between.
//   The version also tells how many entries were removed since an order was kept. If as many of its
//   slots are not visible any more, each was emptied once, and none of the others was: those have
//   the same keys, and are still in order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "index/ordered/scan_range.h"
#include "index/phast/state.h"

namespace perdure::phast {

template <class T>
class Lookup : public State<T> {
  using Base = State<T>;

 protected:
  using Base::absent, Base::begin_read, Base::context_, Base::damaged_record, Base::deliver,
      Base::inner_, Base::key_of, Base::kGroup, Base::leaf_of, Base::prefetch_home,
      Base::prefetch_leaf, Base::prefetch_record, Base::prefetch_rest, Base::record_at,
      Base::records, Base::records_, Base::root_, Base::stripe_of, Base::table_, Base::value_of,
      Base::zero_latch_;
  using typename Base::Codec, typename Base::Desc, typename Base::Entry, typename Base::Got,
      typename Base::Inner, typename Base::Keys, typename Base::Leaf, typename Base::Located,
      typename Base::P, typename Base::Visit;

 public:
  using Base::Base, Base::kBytes, Base::kEntries;

  Expected<void> scan(const detail::ScanRange& range,
                      FunctionRef<bool(std::span<const detail::Entry>)> visit) override {
    Limits limits(range);
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
    if (!kBytes && !range.reverse) {
      auto go_on = scan_zero(limits, visit);
      if (!go_on) return fail(std::move(go_on.error()));
      if (!*go_on) return {};
    }
    Probe position = limits.start(range.reverse);
    std::uint64_t left = range.limit;
    Batch batch;
    const auto locate = [&] {
      const std::uint32_t number = inner_.locate(position);
      prefetch_leaf(number);
      return number;
    };
    std::uint32_t hint = locate();
    while (left > 0) {
      const Entered entered = enter(position, {hint});
      hint = entered.number;
      if (!snapshot(entered, limits, range.reverse, left, batch)) continue;
      // A split lowers the bound before it raises the version: the entries behind the bound are in
      // another leaf by now. A forward scan reaches them, a reverse scan would not.
      if (range.reverse && batch.ends_before(position)) continue;
      if (context_.platform.poisoned()) return fail(context_.platform.failure());
      if (batch.damaged != 0) return fail(damaged_record(batch.damaged));
      left -= batch.count;
      const bool more =
          batch.count == 0 || visit(std::span<const detail::Entry>(batch.entries, batch.count));
      // The entries may come from pages that were lost meanwhile.
      if (context_.platform.poisoned()) return fail(context_.platform.failure());
      if (!more) return {};
      if (left == 0) break;
      if (!limits.pass(batch, range.reverse, position)) break;
      if (limits.end_before(position, range.reverse)) break;
      hint = !range.reverse && batch.next != kNoLeaf ? batch.next : locate();
    }
    if (!kBytes && range.reverse && left > 0) {
      auto go_on = scan_zero(limits, visit);
      if (!go_on) return fail(std::move(go_on.error()));
    }
    return {};
  }

 protected:
  // --- find ---

  [[gnu::always_inline]] Expected<bool> find(const detail::Key& key, Visit visit) {
    const Probe probe = Codec::probe(key);
    if constexpr (!kBytes) {
      if (probe.word == 0) return read_zero(visit);
    }
    const Located located = inner_.locate_range(probe);
    prefetch_home(located.leaf, probe);
    return read_from(probe, located, visit);
  }

  // The common case of find(), in few instructions: a byte string, or an integer with a word, in
  // the leaf that the shortcut or the search names, and nothing of its stripe in flight. `failed`:
  // the caller looks again.
  [[gnu::always_inline]] Got find_at_once(const detail::Key& key, detail::Value& value) const {
    if (!kBytes && (key.word == 0 || records())) [[unlikely]]
      return Got::failed;
    const Probe probe = Codec::probe(key);
    const Located located = inner_.locate_range(probe);
    prefetch_home(located.leaf, probe);
    const Desc& desc = table_[located.leaf];
    const std::uint64_t version = desc.version.load(std::memory_order_acquire);
    __builtin_prefetch(&desc.search);
    const auto elsewhere = [&] { return desc.below(probe) || desc.above(probe); };
    const bool gone = (version & 1) != 0 || (!kBytes && elsewhere());
    if (gone || desc.holder(stripe_of(probe)) != 0) [[unlikely]]  // phast.D5
      return Got::failed;
    const Leaf& leaf = leaf_of(desc);
    Got got = Got::absent;
    for (std::uint64_t m = desc.matches(probe.fingerprint); m != 0 && got == Got::absent;
         m &= m - 1) {
      got = value_at_once(leaf.entries[__builtin_ctzll(m)], probe, value);
    }
    // A visible key lies in its leaf. So only an absence needs the range: in byte strings, the
    // separators that the search has compared (ordered.N6), or those of the leaf, each a miss.
    if constexpr (kBytes) {
      if (got == Got::absent && !located.proves(desc)) {
        ordered::fetch_separators(desc, probe);
        if (elsewhere()) [[unlikely]]
          return Got::failed;
      }
    }
    // phast.I4: loaded after the value.
    if (desc.holder(stripe_of(probe)) != 0 ||
        desc.version.load(std::memory_order_acquire) != version) [[unlikely]] {
      return Got::failed;
    }
    return got;
  }
  struct Group {
    Probe probes[kGroup];
    std::uint32_t leaves[kGroup];
  };
  [[gnu::always_inline]] Status fetch(Keys keys, Group& group) {
    auto& [probes, leaves] = group;
    const std::size_t n = keys.size();
    for (std::size_t i = 0; i < n; ++i) {
      probes[i] = Codec::probe(keys[i]);
      inner_.prefetch_shortcut(probes[i]);
    }
    inner_.locate_all(probes, leaves, n);
    for (std::size_t i = 0; i < n; ++i) {
      __builtin_prefetch(&table_[leaves[i]]);
      __builtin_prefetch(&table_[leaves[i]].search);
      prefetch_home(leaves[i], probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      const Desc& desc = table_[leaves[i]];
      const std::uint64_t m = desc.matches(probes[i].fingerprint);
      if (m != 0) __builtin_prefetch(&leaf_of(desc).entries[__builtin_ctzll(m)]);
    }
    if (!records()) return {};
    for (std::size_t i = 0; i < n; ++i) {
      const Desc& desc = table_[leaves[i]];
      const std::uint64_t m = desc.matches(probes[i].fingerprint);
      if (m == 0) continue;
      const Entry& entry = leaf_of(desc).entries[__builtin_ctzll(m)];
      const std::uint64_t word = context_.platform.load(entry.value);
      prefetch_record(word);
    }
    return {};
  }
  [[gnu::always_inline]] Expected<bool> find_fetched(const Group& group, std::size_t i,
                                                     Visit visit) {
    const Probe& probe = group.probes[i];
    if (!kBytes && probe.word == 0) return read_zero(visit);
    return read_from(probe, {group.leaves[i]}, visit);
  }

  // A leaf that a reader has entered: valid as long as the leaf's version is `version`.
  struct Entered {
    std::uint32_t number;
    std::uint64_t version;
  };

  // Returns the leaf whose range holds the key. The search starts from a hint; the descriptor
  // decides (ordered.N1, ordered.N6).
  [[gnu::always_inline]] Entered enter(const Probe& probe, const Located& located) const {
    std::uint32_t number = located.leaf;
    for (unsigned misses = 0;;) {
      const Desc& desc = table_[number];
      const std::uint64_t version = desc.version.load(std::memory_order_acquire);
      __builtin_prefetch(&desc.search);
      const bool proved = located.proves(desc);
      if constexpr (kBytes) {
        if (!proved) ordered::fetch_separators(desc, probe);
      }
      if ((version & 1) != 0 || (!proved && desc.below(probe))) [[unlikely]] {
        // The leaf is unlinked, or lies right of the key (ordered.N3). The partition's first leaf
        // is always left of the key.
        number = ++misses < 4 ? inner_.search(probe)
                              : inner_.first_leaf(inner_.partitioning().of(probe.word));
        if (misses > 4) P::pause(misses);
        continue;
      }
      if (proved || !desc.above(probe)) [[likely]]
        return {number, version};
      const std::uint32_t next = desc.next.load(std::memory_order_acquire);
      number = next != kNoLeaf ? next : inner_.search(probe);
    }
  }

  [[gnu::always_inline]] std::uint32_t find_slot(const Desc& desc, const Probe& probe,
                                                 std::uint64_t& value) const {
    const Leaf& leaf = leaf_of(desc);
    for (std::uint64_t m = desc.matches(probe.fingerprint); m != 0; m &= m - 1) {
      const auto slot = static_cast<std::uint32_t>(__builtin_ctzll(m));
      if (key_matches(leaf.entries[slot], probe, value)) return slot;
    }
    return kNoSlot;
  }

  // Makes durable what was seen of slots in flight: the entries' lines, and the records' value
  // words (X3).
  [[gnu::noinline]] bool help(const Desc& desc, std::uint64_t slots) {
    P& platform = context_.platform;
    if (!platform.durable()) return true;
    const Leaf& leaf = leaf_of(desc);
    const void* last_line = nullptr;
    for (; slots != 0; slots &= slots - 1) {
      const Entry& entry = leaf.entries[__builtin_ctzll(slots)];
      const void* line =
          reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(&entry) & ~(kLine - 1));
      if (line != last_line) platform.flush(line, kLine, "phast.help.entry"_site);
      last_line = line;
      if constexpr (kBytes) {
        const std::uint64_t word = platform.load(entry.value);
        if (word != 0) {
          platform.flush(record_at(word), sizeof(RecordPrefix), "phast.help.record"_site);
        }
      }
    }
    return platform.fence("phast.help.entry"_site);
  }

  // The root holds integer key 0; see ZeroLatch.
  [[gnu::noinline]] Expected<bool> read_zero(Visit visit) {
    P& platform = context_.platform;
    std::uint64_t version = 0;
    std::uint64_t word = 0;
    bool present = false;
    do {
      version = zero_latch_.enter();
      present = platform.load(root_->zero_present) != 0;
      word = platform.load(root_->zero_value);
    } while (!zero_latch_.unchanged(version));
    if (zero_latch_.held(version)) {
      platform.flush(&root_->zero_value, 16, "phast.help.zero"_site);
      (void)platform.fence("phast.help.zero"_site);
    }
    if (platform.poisoned()) return fail(platform.failure());
    if (!present) return absent();
    detail::Value value;
    if (!value_of(word, value)) return fail(damaged_record(word));
    return deliver(value, visit);
  }

  // --- scan ---

  // Sorts the given slots by key and returns their number. Keys are copied first, because a writer
  // may empty a slot meanwhile (only scans call this without the latches). Such a slot is omitted.
  // `order`: has room for 64.
  // The rank of a word is the number of smaller ones, by the first 15 bits in which the words
  // differ. So no branch depends on a comparison: it would be mispredicted every second time.
  [[gnu::noinline]] std::uint32_t sort_slots(const Leaf& leaf, std::uint64_t slots,
                                             std::uint8_t* order) const {
    Unsorted all;
    std::uint64_t least = ~std::uint64_t{0};
    std::uint64_t most = 0;
    std::uint32_t count = 0;
    for (; slots != 0; slots &= slots - 1) {
      const auto slot = static_cast<std::uint64_t>(__builtin_ctzll(slots));
      const Entry& entry = leaf.entries[slot];
      if constexpr (kBytes) all.values[count] = context_.platform.load(entry.value);
      const std::uint64_t word = context_.platform.load(entry.key);
      if ((kBytes ? all.values[count] : word) == 0) [[unlikely]]
        continue;
      all.words[count] = word;
      all.slots[count++] = static_cast<std::uint8_t>(slot);
      least = std::min(least, word);
      most = std::max(most, word);
    }
    const int shift = std::max(0, 49 - std::countl_zero((most - least) | 1));
    std::int16_t digits[64] = {};
    for (std::uint32_t i = 0; i < count; ++i) {
      digits[i] = static_cast<std::int16_t>((all.words[i] - least) >> shift);
    }
    std::int16_t ranks[64] = {};
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::int16_t digit = digits[i];
      for (std::uint32_t j = 0; j < 64; ++j) ranks[j] = ranks[j] + (digit < digits[j] ? 1 : 0);
    }
    std::uint64_t taken = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      order[ranks[i]] = all.slots[i];
      taken |= 1ULL << ranks[i];
    }
    if (static_cast<std::uint32_t>(std::popcount(taken)) != count) [[unlikely]]
      sort_ties(all, ranks, count, order);
    return count;
  }

  // Omits the slots that are not visible any more from an order of `count` slots, and returns how
  // many are left. Returns 0 if they are not as many as entries were removed: then a slot may have
  // been emptied and filled again.
  static std::uint32_t omit_removed(std::uint64_t visible, std::uint64_t removed,
                                    std::uint8_t* order, std::uint32_t count) {
    std::uint32_t left = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint8_t slot = order[i];
      order[left] = slot;
      left += static_cast<std::uint32_t>(visible >> slot & 1);
    }
    return left + removed == count ? left : 0;
  }

 private:
  // --- find ---

  // The value of the entry, if its key is the probe's.
  [[gnu::always_inline]] Got value_at_once(const Entry& entry, const Probe& probe,
                                           detail::Value& value) const {
    if constexpr (kBytes) {
      const std::uint64_t word = context_.platform.load(entry.value);  // commit word
      if (word == 0 || context_.platform.load(entry.key) != probe.word) return Got::absent;
      return records_.read_of(probe.bytes, word & kOffsetMask, value);
    } else {
      value.word_size = 8;
      return key_matches(entry, probe, value.word) ? Got::present : Got::absent;
    }
  }
  // Whether the entry's key is the probe's. `value` is the entry's second word. It is loaded after
  // the first word for integers, before the record for byte strings.
  [[gnu::always_inline]] bool key_matches(const Entry& entry, const Probe& probe,
                                          std::uint64_t& value) const {
    if constexpr (kBytes) {
      value = context_.platform.load(entry.value);  // commit word
      if (value == 0 || context_.platform.load(entry.key) != probe.word) return false;
      if (!context_.heap.contains(value & kOffsetMask, sizeof(RecordPrefix))) return false;
      // The place of the value is known only once the record has arrived: prefetch both at once.
      __builtin_prefetch(reinterpret_cast<const char*>(record_at(value)) + sizeof(RecordPrefix) +
                         probe.bytes.size());
      const auto record = RecordView::read(context_.platform, record_at(value));
      // A damaged length must not lead beyond the file. value_of() checks whether it fits the
      // block.
      return record.key_size() == probe.bytes.size() &&
             context_.heap.contains(value & kOffsetMask,
                                    sizeof(RecordPrefix) + record.key_size()) &&
             record.has_key(probe.bytes);
    } else {
      if (context_.platform.load(entry.key) != probe.word) return false;
      value = context_.platform.load(entry.value);
      return true;
    }
  }

  // LP(find): the load of the entry's words, or of the fingerprints if none matched. The caller is
  // pinned.
  [[gnu::always_inline]] Expected<bool> read_from(const Probe& probe, Located start, Visit visit) {
    for (;;) {
      const Entered entered = enter(probe, start);
      const Desc& desc = table_[entered.number];
      start.leaf = entered.number;
      desc.let_go(stripe_of(probe));
      const std::uint64_t candidates = desc.matches(probe.fingerprint);
      const Leaf& leaf = leaf_of(desc);
      bool found = false;
      std::uint64_t word = 0;
      std::uint64_t left = candidates;
      for (; left != 0 && !found; left &= left - 1) {
        found = key_matches(leaf.entries[__builtin_ctzll(left)], probe, word);
      }
      detail::Value value;
      // A record stays readable: its retirement waits for this guard.
      const bool readable = !found || value_of(word, value);
      // phast.I4: loaded after the value. All candidates belong to the key's stripe.
      if (desc.holder(stripe_of(probe)) != 0 && candidates != 0) [[unlikely]] {
        if (!help(desc, candidates)) return fail(StatusCode::poisoned);
        // The entry was erased meanwhile. Its slot may be taken again, and what was read there may
        // not be shown yet.
        if (found && (candidates & ~left & ~desc.matches(probe.fingerprint)) != 0) continue;
      }
      if (context_.platform.poisoned()) return fail(context_.platform.failure());
      if (desc.version.load(std::memory_order_acquire) != entered.version) continue;
      if (!readable) return fail(damaged_record(word));
      if (!found) return false;
      return deliver(value, visit);
    }
  }

  // --- scan ---

  using Limits = ordered::Limits<Codec>;
  static constexpr std::uint32_t kAhead = 8;  // records in flight

  // What was copied of a leaf.
  struct Batch {
    std::uint32_t count = 0;
    std::uint32_t next = kNoLeaf;
    std::uint64_t low = 0, bound = 0;
    std::uint64_t damaged = 0;  // names a damaged record, if there is one
    const Separator<P>* low_separator = nullptr;
    const Separator<P>* bound_separator = nullptr;
    union {  // not initialised: only the first `count` are read
      detail::Entry entries[64];
    };
    Batch() {}  // NOLINT(modernize-use-equals-default): the union has none

    bool ends_before(const Probe& position) const {
      if (kBytes && position.word == bound) {
        return bound_separator != nullptr && compare(position, bound_separator->view()) > 0;
      }
      return position.word > bound;
    }
  };

  // Returns the set of the slots that an order lists.
  static std::uint64_t slots_of(const std::uint8_t* order, std::uint32_t count) {
    std::uint64_t slots = 0;
    for (std::uint32_t i = 0; i < count; ++i) slots |= 1ULL << order[i];
    return slots;
  }

  // What was copied of a leaf, to sort it.
  struct Unsorted {
    std::uint64_t words[64];
    std::uint64_t values[kBytes ? 64 : 1];
    std::uint8_t slots[64];
  };
  // Sorts slots of which some have the same rank: those are next to each other.
  [[gnu::noinline]] void sort_ties(const Unsorted& all, const std::int16_t* ranks,
                                   std::uint32_t count, std::uint8_t* order) const {
    std::string_view keys[kBytes ? 64 : 1];
    if constexpr (kBytes) {
      for (std::uint32_t i = 0; i < count; ++i) __builtin_prefetch(record_at(all.values[i]));
      for (std::uint32_t i = 0; i < count; ++i) keys[i] = key_of(all.values[i]);
    }
    std::uint8_t sorted[64];  // indices
    std::uint64_t taken = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      auto at = static_cast<std::uint32_t>(ranks[i]);
      while ((taken >> at & 1) != 0) ++at;
      taken |= 1ULL << at;
      sorted[at] = static_cast<std::uint8_t>(i);
    }
    for (std::uint32_t i = 1; i < count; ++i) {
      const std::uint8_t a = sorted[i];
      const auto below = [&](std::uint8_t b) {
        return all.words[a] != all.words[b] ? all.words[a] < all.words[b]
                                            : kBytes && keys[a] < keys[b];
      };
      std::uint32_t at = i;
      for (; at > 0 && below(sorted[at - 1]); --at) sorted[at] = sorted[at - 1];
      sorted[at] = a;
    }
    for (std::uint32_t i = 0; i < count; ++i) order[i] = all.slots[sorted[i]];
  }

  // Adds the other visible slots to the sorted ones at the front of `order`. Returns false if it
  // cannot: a writer may empty a slot meanwhile, and its key then tells no place.
  [[gnu::noinline]] bool add_slots(const Leaf& leaf, std::uint64_t visible, std::uint32_t sorted,
                                   std::uint8_t* order) const {
    std::uint64_t added = visible & ~slots_of(order, sorted);
    if (sorted + static_cast<std::uint32_t>(std::popcount(added)) !=
        static_cast<std::uint32_t>(std::popcount(visible))) {
      return false;
    }
    for (; added != 0; added &= added - 1, ++sorted) {
      const auto slot = static_cast<std::uint8_t>(__builtin_ctzll(added));
      SlotKey key;
      if (!key_in(leaf, slot, key)) return false;
      std::uint32_t low = 0;
      for (std::uint32_t high = sorted; low < high;) {
        const std::uint32_t middle = (low + high) / 2;
        SlotKey other;
        if (!key_in(leaf, order[middle], other)) return false;
        if (comes_before(other, key)) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      std::memmove(order + low + 1, order + low, sorted - low);
      order[low] = slot;
    }
    return true;
  }
  // What orders the entry of a slot. Byte strings: equal words leave it to the record that the
  // value names.
  struct SlotKey {
    std::uint64_t word = 0;
    std::uint64_t value = 0;
  };
  [[gnu::always_inline]] bool comes_before(const SlotKey& a, const SlotKey& b) const {
    if (a.word != b.word) return a.word < b.word;
    return kBytes && key_of(a.value) < key_of(b.value);
  }
  // Returns false if the slot is empty.
  [[gnu::always_inline]] bool key_in(const Leaf& leaf, std::uint8_t slot, SlotKey& key) const {
    const Entry& entry = leaf.entries[slot];
    if constexpr (kBytes) key.value = context_.platform.load(entry.value);  // commit word
    key.word = context_.platform.load(entry.key);
    return (kBytes ? key.value : key.word) != 0;
  }

  // Sorts the visible slots. Uses the order kept: entries that were removed since are omitted from
  // it, and entries that came since are added. Keeps a new order if `settled`. `order`: has room
  // for 64.
  [[gnu::always_inline]] std::uint32_t ordered_slots(const Entered& entered, const Leaf& leaf,
                                                     std::uint64_t visible, bool settled,
                                                     std::uint8_t* order) {
    std::uint64_t removed = 0;
    const std::uint32_t kept =
        settled ? table_.order_of(entered.number, entered.version, order, removed) : 0;
    if (removed != 0 || kept != static_cast<std::uint32_t>(std::popcount(visible))) [[unlikely]] {
      const std::uint32_t left = removed == 0 ? kept : omit_removed(visible, removed, order, kept);
      return new_order(entered, leaf, visible, settled, left, order);
    }
    PERDURE_ASSERT(
        P, "phast.D3",
        table_[entered.number].version.load(std::memory_order_acquire) != entered.version ||
            slots_of(order, kept) == visible);
    return kept;
  }
  [[gnu::noinline]] std::uint32_t new_order(const Entered& entered, const Leaf& leaf,
                                            std::uint64_t visible, bool settled, std::uint32_t kept,
                                            std::uint8_t* order) {
    const Desc& desc = table_[entered.number];
    const auto count = static_cast<std::uint32_t>(std::popcount(visible));
    const bool known = kept == count || (kept != 0 && add_slots(leaf, visible, kept, order));
    const std::uint32_t sorted = known ? count : sort_slots(leaf, visible, order);
    PERDURE_ASSERT(P, "phast.D3",
                   !settled || !known || ascends(leaf, {order, sorted}) ||
                       context_.platform.poisoned() ||
                       desc.version.load(std::memory_order_acquire) != entered.version);
    if (settled && sorted == count && desc.visible() == visible &&
        desc.version.load(std::memory_order_acquire) == entered.version) {
      table_.keep_order(entered.number, entered.version, order, count);
    }
    return sorted;
  }

  // For an assertion: whether the keys of the slots ascend. Those that are being emptied have none,
  // and damaged ones may be equal.
  bool ascends(const Leaf& leaf, std::span<const std::uint8_t> order) const {
    SlotKey before;
    bool first = true;
    for (const std::uint8_t slot : order) {
      SlotKey key;
      if (!key_in(leaf, slot, key)) continue;
      if (!first && comes_before(key, before)) return false;
      before = key;
      first = false;
    }
    return true;
  }

  // Returns where a scan begins in key order: no entry before that is at or behind its first key.
  [[gnu::always_inline]] std::size_t begin_of(const Desc& desc, std::span<const std::uint8_t> order,
                                              const Probe& from) const {
    if (!kBytes && from.word <= desc.low.load(std::memory_order_relaxed)) return 0;
    // The position behind the left neighbour. Its bound is this leaf's low, the same separator.
    if constexpr (kBytes) {
      const Separator<P>* low = desc.separators.low.load(std::memory_order_relaxed);
      if (low != nullptr && from.after && from.bytes.data() == low->view().data()) return 0;
    }
    // A key: probably it is there. The word 0 is none: a slot that is being emptied has it.
    if (from.fingerprint != 0) {
      std::uint64_t ignored = 0;
      const std::uint32_t slot = find_slot(desc, from, ignored);
      const void* at = slot != kNoSlot
                           ? std::memchr(order.data(), static_cast<int>(slot), order.size())
                           : nullptr;
      if (at != nullptr) {
        return static_cast<std::size_t>(static_cast<const std::uint8_t*>(at) - order.data());
      }
    }
    return first_at(leaf_of(desc), order, from.word);
  }
  // Returns the first position in key order whose word is not below `word`. Returns 0 if an entry
  // is being emptied: its word then tells nothing about the others.
  [[gnu::noinline]] std::size_t first_at(const Leaf& leaf, std::span<const std::uint8_t> order,
                                         std::uint64_t word) const {
    if (order.empty()) return 0;
    bool emptied = false;
    const auto below = [&](std::size_t position) {
      const std::uint64_t key = context_.platform.load(leaf.entries[order[position]].key);
      emptied |= !kBytes && key == 0;
      return static_cast<std::size_t>(key < word);
    };
    std::size_t first = 0;
    for (std::size_t n = order.size(); n > 1; n -= n / 2) {
      first += below(first + n / 2 - 1) * (n / 2);  // no branch, which would be mispredicted
    }
    first += below(first);
    return emptied ? 0 : first;
  }

  // Copies the entries within the limits and the batch's bound, in the direction of the scan, and
  // returns their number. If an entry was emptied, either its erase is in flight, and the entry is
  // absent and helped by the caller, or the version has changed.
  [[gnu::noinline]] std::uint32_t collect_words(const Leaf& leaf,
                                                std::span<const std::uint8_t> order,
                                                const Limits& limits, bool reverse,
                                                std::uint64_t limit, Batch& batch) const {
    const P& platform = context_.platform;
    const std::uint64_t first = limits.has_from ? std::max<std::uint64_t>(limits.from.word, 1) : 1;
    std::uint64_t end = batch.bound + 1;  // exclusive; 0 is past the last word
    if (limits.has_to && limits.to.word == 0) return 0;
    if (limits.has_to && limits.to.word - 1 < end - 1) end = limits.to.word;
    if (end - 1 < first || limit == 0) return 0;
    const std::size_t size = order.size();
    const std::size_t step = reverse ? ~std::size_t{0} : 1;
    detail::Entry* out = batch.entries;
    const detail::Entry* const full = out + std::min<std::uint64_t>(limit, size);
    for (std::size_t i = reverse ? size - 1 : 0; i < size && out != full; i += step) {
      const Entry& entry = leaf.entries[order[i]];
      const std::uint64_t key = platform.load(entry.key);
      if (key - first > end - 1 - first) [[unlikely]] {
        if (key != 0 && (key < first) == reverse) break;
        continue;
      }
      *out++ = {.key = {.word = key},
                .value = {.word = platform.load(entry.value), .word_size = 8}};
    }
    const auto count = static_cast<std::uint32_t>(out - batch.entries);
    if (records()) {
      const std::span<detail::Entry> entries(batch.entries, count);
      for (const detail::Entry& entry : entries) prefetch_record(entry.value.word);
      for (detail::Entry& entry : entries) {
        const std::uint64_t word = entry.value.word;
        if (!value_of(word, entry.value)) batch.damaged = word;
        prefetch_rest(entry.value);
      }
    }
    return count;
  }

  // The same for byte strings.
  [[gnu::noinline]] std::uint32_t collect_bytes(const Leaf& leaf,
                                                std::span<const std::uint8_t> order,
                                                const Limits& limits, bool reverse,
                                                std::uint64_t limit, Batch& batch) const {
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
    const auto entry_at = [&](std::uint32_t i) -> const Entry& {
      return leaf.entries[order[reverse ? size - 1 - i : i]];
    };
    std::uint32_t fetched = 0;
    for (std::uint32_t i = 0; i < size && count < limit; ++i) {
      // Records lie apart, so their misses must overlap. Also the one behind the limit is fetched:
      // a caller that removes entries from an end scans for it next.
      for (; fetched < size && fetched < i + kAhead && fetched - i <= limit - count; ++fetched) {
        prefetch_record(platform.load(entry_at(fetched).value));
      }
      const Entry& entry = entry_at(i);
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
      prefetch_rest(out.value);
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

  // Fills the batch with the leaf's entries within the limits, in the direction of the scan.
  // Returns false if the leaf changed meanwhile.
  [[gnu::noinline]] bool snapshot(const Entered& entered, const Limits& limits, bool reverse,
                                  std::uint64_t limit, Batch& batch) {
    const Desc& desc = table_[entered.number];
    const Leaf& leaf = leaf_of(desc);
    // The range first: entries that a split moves out of it are not delivered, however far the
    // split has come, and the scan goes on behind the same bound.
    batch.next = desc.next.load(std::memory_order_acquire);
    batch.low = desc.low.load(std::memory_order_acquire);
    batch.bound = desc.bound.load(std::memory_order_acquire);
    if constexpr (kBytes) {
      batch.low_separator = desc.separators.low.load(std::memory_order_acquire);
      batch.bound_separator = desc.separators.bound.load(std::memory_order_acquire);
    }
    if (desc.search.stripes.load() != 0) {  // phast.D5
      for (unsigned stripe = 0; stripe < P::ByteLatches::kCount; ++stripe) desc.let_go(stripe);
    }
    const bool settled = desc.search.stripes.load() == 0;  // before the slots
    const std::uint64_t visible = desc.visible();
    std::uint8_t slots[64] = {};
    const std::uint32_t count = ordered_slots(entered, leaf, visible, settled, slots);
    batch.damaged = 0;
    std::span<const std::uint8_t> order(slots, count);
    if (!reverse && limits.has_from) order = order.subspan(begin_of(desc, order, limits.from));
    if (!reverse && order.size() < limit) prefetch_leaf(batch.next);
    if constexpr (kBytes) {
      batch.count = collect_bytes(leaf, order, limits, reverse, limit, batch);
    } else {
      batch.count = collect_words(leaf, order, limits, reverse, limit, batch);
    }
    if (desc.search.stripes.load() != 0) {
      const std::uint64_t now = desc.visible();
      (void)help(desc, visible | now);  // phast.I4; a cached order may name slots of both
      // An entry was erased meanwhile. Its slot may be taken again, and what was read there may not
      // be shown yet.
      if ((visible & ~now) != 0) return false;
    }
    // The low falls when the left neighbour is unlinked, and this leaf's version does not change.
    // An entry inserted below the low that was read would be delivered again, to the left of it.
    if (reverse) {
      if constexpr (kBytes) {
        if (desc.separators.low.load(std::memory_order_acquire) != batch.low_separator)
          return false;
      }
      if (desc.low.load(std::memory_order_acquire) != batch.low) return false;
    }
    return desc.version.load(std::memory_order_acquire) == entered.version;
  }

  // Delivers key 0, which lies in no leaf. Returns whether the scan goes on.
  [[gnu::noinline]] Expected<bool> scan_zero(
      const Limits& limits, FunctionRef<bool(std::span<const detail::Entry>)> visit) {
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
};

}  // namespace perdure::phast
