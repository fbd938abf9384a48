// Lookup: finds a key without locks, or takes the locks that a mutation of it needs; and reads.
// Responsible for level.I4 as far as reads go, and for level.I5 and level.I6 when locks are taken.
// It also has the list of levels, on media and in DRAM, and the history of resizes, and it is
// responsible for level.I3 there.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "index/level/state.h"
#include "util/crc32c.h"

namespace perdure::level {

enum class Looked : std::uint8_t { found, absent, again };

template <class T>
class Lookup : public State<T> {
 protected:
  using Base = State<T>;
  using P = typename T::Platform;
  using Codec = typename T::Codec;
  using Form = typename Codec::Form;
  using Base::context_, Base::current, Base::deliver, Base::has_records, Base::in_table,
      Base::kGroup, Base::kSlots, Base::key_bytes_, Base::load, Base::persist, Base::records_,
      Base::resizes_, Base::root_, Base::scans_, Base::seeds_, Base::value_bytes_, Base::work_;
  using typename Base::Got, typename Base::Keys, typename Base::Visit;

 public:
  using Base::Base;

  // For MapEngine.
  [[gnu::always_inline]] Expected<bool> find(const detail::Key& key, Visit visit) {
    if (Form::kArrays && !takes(key).ok()) return fail(takes(key));
    const Probe probe = Codec::probe(key, seeds_);
    prefetch_all<false>(*current(), probe);
    return read_probe(probe, visit);
  }
  // The common case of find(), in few instructions: a byte string, or an integer with a word; two
  // levels, and no bucket that changes. `failed`: the caller looks again.
  [[gnu::always_inline]] Got find_at_once(const detail::Key& key, detail::Value& value) const
    requires(!Form::kArrays)
  {
    const View<T>& view = *current();
    if (view.levels != 2 || (!Codec::kBytes && has_records())) [[unlikely]]
      return Got::failed;
    const Probe probe = Codec::probe(key, seeds_);
    const std::uint32_t near = view.upwards.load(std::memory_order_relaxed);
    const typename View<T>::Seat* const seats[2] = {&view.seats[near], &view.seats[near ^ 1]};
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint64_t bucket = probe.hashes[i % 2] & seats[i / 2]->mask;
      __builtin_prefetch(seats[i / 2]->metas + bucket);
      __builtin_prefetch(seats[i / 2]->lines + bucket * Tier<T>::kLines +
                         Tier<T>::home_line(probe.print));
    }
    const Meta<P>* metas[4];
    std::uint64_t versions[4];
#pragma GCC unroll 4
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint64_t bucket = probe.hashes[i % 2] & seats[i / 2]->mask;
      metas[i] = seats[i / 2]->metas + bucket;
      versions[i] = metas[i]->version.load(std::memory_order_seq_cst);
      if ((versions[i] & 1) != 0) [[unlikely]]
        return Got::failed;
      const std::uint64_t prints = metas[i]->prints.load(std::memory_order_acquire);
      const Line<T>* const lines = seats[i / 2]->lines + bucket * Tier<T>::kLines;
      for (std::uint32_t m = Meta<P>::match(prints, probe.print); m != 0; m &= m - 1) {
        const auto& slot = *reinterpret_cast<const layout::Slot*>(
            reinterpret_cast<const std::byte*>(lines) + kSlotsAt[__builtin_ctz(m)]);
        if (context_.platform.load(slot.key) != probe.word) continue;
        value = {.word = context_.platform.load(slot.value), .word_size = 8};
        if constexpr (Codec::kBytes) {
          const Got got = records_.read_of(key.bytes, value.word, value);
          if (got == Got::absent) continue;
          if (got == Got::failed) [[unlikely]]
            return got;
        }
        const bool same = metas[i]->version.load(std::memory_order_acquire) == versions[i];
        return same ? Got::present : Got::failed;
      }
    }
    bool same = current() == &view;
    for (std::uint32_t i = 0; i < 4; ++i) {
      same = same && metas[i]->version.load(std::memory_order_acquire) == versions[i];
    }
    return same ? Got::absent : Got::failed;
  }
  struct Group {
    Probe probes[kGroup];
  };
  [[gnu::always_inline]] Status fetch(Keys keys, Group& group) const {
    const View<T>& view = *current();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (Form::kArrays && !takes(keys[i]).ok()) return takes(keys[i]);
      group.probes[i] = Codec::probe(keys[i], seeds_);
      prefetch(view, group.probes[i]);
    }
    for (std::size_t i = 0; i < keys.size(); ++i) prefetch_items(view, group.probes[i]);
    return {};
  }
  [[gnu::always_inline]] Expected<bool> find_fetched(const Group& group, std::size_t i,
                                                     Visit visit) {
    return read_probe(group.probes[i], visit);
  }

  // While scans_ is not 0, no item moves and no level leaves. So an item that exists throughout the
  // scan stays in its bucket, and is delivered once.
  Expected<void> for_each(FunctionRef<bool(std::span<const detail::Entry>)> visit) override {
    Expected<void> result{};
    Tier<T>* tiers[kMaxLevels];
    std::uint32_t levels = 0;
    {
      EpochGuard<P> guard(context_.epochs);
      LatchGuard latch(this->resize_latch_);  // excludes a level that is just leaving
      scans_.fetch_add(1, std::memory_order_seq_cst);
      const View<T>& view = *current();
      levels = view.levels;
      std::copy(view.tiers, view.tiers + levels, tiers);
      if (!guard.ok()) result = fail(StatusCode::out_of_memory);
    }
    bool more = result.has_value();
    for (std::uint32_t i = 0; i < levels && more; ++i) {
      Tier<T>& tier = *tiers[i];
      for (std::uint64_t bucket = 0; bucket < tier.buckets() && more; ++bucket) {
        const Meta<P>& meta = tier.metas[bucket];
        // The order of the two loads matters: a mover that locked the bucket before the scan began
        // has either finished, or its lock is seen.
        if ((meta.version.load(std::memory_order_seq_cst) & 1) == 0 &&
            meta.prints.load(std::memory_order_acquire) == 0) {
          continue;
        }
        EpochGuard<P> guard(context_.epochs);
        Item<T> items[kSlots];
        detail::Entry entries[kSlots];
        auto count = snapshot(tier, bucket, items, entries);
        if (!count) {
          result = fail(std::move(count.error()));
          more = false;
        } else if (*count > 0) {
          more = visit({entries, *count});
        }
      }
    }
    if (result && context_.platform.poisoned()) result = fail(context_.platform.failure());
    if (scans_.fetch_sub(1, std::memory_order_seq_cst) == 1) context_.background.wake(work_);
    return result;
  }

 protected:
  // Arrays have the lengths of the map. A caller that knows them at run time only may be wrong.
  [[gnu::always_inline]] Status takes(const detail::Key& key) const {
    if (Form::kArrays && key.bytes.size() != key_bytes_) return StatusCode::invalid_argument;
    return Base::validate(key);
  }
  [[gnu::always_inline]] Status takes(const detail::Key& key, const detail::Value& value) const {
    if constexpr (Form::kArrays) {
      const bool fits = value.word_size == 0
                            ? value_bytes_ != 0 && value.bytes.size() == value_bytes_
                            : value_bytes_ == 0;
      return fits ? takes(key) : Status(StatusCode::invalid_argument);
    } else {
      return Base::validate(key, value, true, has_records());
    }
  }

  // The key may point into the item. value_of() has read its record, if it has one.
  detail::Key key_of(const Item<T>& item) const {
    if constexpr (Codec::kBytes) {
      return {.bytes = RecordView::read(context_.platform, records_.at(item.value[0])).key()};
    } else if (key_bytes_ != 0) {
      return {.bytes = {reinterpret_cast<const char*>(item.key), key_bytes_}};
    }
    return {.word = item.key[0]};
  }
  // The value may point into the item. Returns false if the item names no record whose lengths fit
  // its block.
  [[gnu::always_inline]] bool value_of(const Item<T>& item, detail::Value& value) const {
    if (has_records()) return records_.read(item.value[0], value);
    if (Form::kArrays && value_bytes_ != 0) {
      value = {.bytes = {reinterpret_cast<const char*>(item.value), value_bytes_}};
    } else {
      value = {.word = item.value[0], .word_size = 8};
    }
    return true;
  }

  // Fetches the locks, fingerprints and home lines of the key's buckets: one round of misses, if
  // the key lies in its home line. `kLocks`: the caller will lock all buckets, so it fetches their
  // words for writing, because another core may have them.
  template <bool kLocks>
  [[gnu::always_inline]] void prefetch_all(const View<T>& view, const Probe& probe) const {
    const std::uint32_t home = Tier<T>::home_line(probe.print);
    for (std::uint32_t i = 0; i < view.levels; ++i) {
      const auto& seat = view.seats[i];
#pragma GCC unroll 2
      for (const std::uint64_t hash : probe.hashes) {
        const std::uint64_t bucket = hash & seat.mask;
        __builtin_prefetch(seat.metas + bucket, kLocks);
        __builtin_prefetch(seat.lines + bucket * Tier<T>::kLines + home);
      }
    }
  }

  // Finds the key and reads its item. The value may point into the item.
  [[gnu::always_inline]] Looked look(const View<T>& view, const Probe& probe, Item<T>& item,
                                     detail::Value& value, bool& readable) const {
    return seek(
        view, probe,
        [&] [[gnu::always_inline]] (Tier<T> & tier, const Meta<P>& meta, std::uint64_t bucket,
                                    std::uint32_t slot, std::uint64_t version) {
          item = load(tier, bucket, slot);
          readable = value_of(item, value);
          // The earlier loads have acquire order, so this one comes after them.
          const bool same = meta.version.load(std::memory_order_acquire) == version;
          return same ? Looked::found : Looked::again;
        });
  }

  // Acquires the locks of all candidate buckets of the key (level.I5), and returns the view that
  // they were acquired under (level.I6).
  [[gnu::always_inline]] View<T>* lock_key(const Probe& probe, Locks<T>& locks) {
    for (;;) {
      View<T>* view = current();
      prefetch_all<true>(*view, probe);
      for (std::uint32_t i = 0; i < view->levels; ++i) {
        Tier<T>& tier = *view->tiers[i];
        const std::uint64_t a = tier.index(probe.hashes[0]);
        const std::uint64_t b = tier.index(probe.hashes[1]);
        locks.lock(tier, a < b ? a : b);
        if (a != b) locks.lock(tier, a < b ? b : a);
      }
      if (current() == view) [[likely]]
        return view;
      locks.release();
    }
  }

  // The caller holds the key's locks.
  [[gnu::always_inline]] Place<T> find_locked(const View<T>& view, const Probe& probe) const {
    for (std::uint32_t i = 0; i < view.levels; ++i) {
      Tier<T>& tier = *view.tiers[i];
      for (const std::uint64_t hash : probe.hashes) {
        const std::uint64_t bucket = tier.index(hash);
        const std::uint64_t prints = tier.metas[bucket].prints.load(std::memory_order_relaxed);
        const std::uint32_t slot = find_in(tier.lines, bucket, prints, probe);
        if (slot != kSlots) return {&tier, bucket, slot};
      }
    }
    return {};
  }

  // Acquires the lock of the bucket that has the key, if the bucket is as it was when the key was
  // seen there (level.I5). After kRetries failures it acquires the locks of all candidates. Returns
  // false if the key is absent.
  [[gnu::always_inline]] bool lock_item(const Probe& probe, Locks<T>& locks, Place<T>& place) {
    for (unsigned tries = 0; tries < kRetries; ++tries) {
      if (tries != 0) P::pause(tries);
      const Looked looked =
          seek(*current(), probe,
               [&](Tier<T>& tier, const Meta<P>&, std::uint64_t bucket, std::uint32_t slot,
                   std::uint64_t version) {
                 place = {&tier, bucket, slot};
                 return locks.try_lock(tier, bucket, version) ? Looked::found : Looked::again;
               });
      if (looked == Looked::absent) return false;
      if (looked == Looked::again) continue;
      PERDURE_ASSERT(P, "level.I6", in_table(place.tier));
      return true;
    }
    const View<T>& view = *lock_key(probe, locks);
    place = find_locked(view, probe);
    return place.found();
  }

  // As lock_item(), but waits for no lock. `again`: a candidate is locked or has changed.
  [[gnu::always_inline]] Looked try_lock_item(const Probe& probe, Place<T>& place) {
    return seek(*current(), probe,
                [&](Tier<T>& tier, const Meta<P>& meta, std::uint64_t bucket, std::uint32_t slot,
                    std::uint64_t version) {
                  place = {&tier, bucket, slot};
                  return const_cast<Meta<P>&>(meta).try_lock(version) ? Looked::found
                                                                      : Looked::again;
                });
  }

  // --- the list of levels ---

  static std::uint32_t descriptor_crc(const layout::Descriptor& d) {
    return crc32c(0, reinterpret_cast<const std::byte*>(&d) + sizeof(d.crc),
                  sizeof(d) - sizeof(d.crc));
  }
  static bool descriptor_intact(const layout::Descriptor& image) {
    return matches<P>(image.crc == descriptor_crc(image), "level.descriptor.crc"_site);
  }

  // Adds a level of zeros to the table, and with it begins an expansion, which drains the bottom
  // level, or a shrink, which drains the top level. The caller holds the latch and is pinned.
  [[gnu::noinline]] Status begin_resize(View<T>& view, std::uint32_t log, Drain drain) {
    auto block = context_.heap.allocate(Tier<T>::bytes_of(log), BlockKind::zero_on_free);
    if (!block) return std::move(block.error());
    Tier<T>* tier = Tier<T>::make(*block, log, context_.heap.template at<Line<T>>(*block));
    if (tier == nullptr) {
      context_.heap.discard(*block);
      return StatusCode::out_of_memory;
    }
    const bool shrink = drain == Drain::top;
    Tier<T>* tiers[kMaxLevels] = {};
    tiers[shrink ? view.levels : 0] = tier;
    std::ranges::copy(view.all(), tiers + (shrink ? 0 : 1));
    if (Status s = publish(view, {tiers, view.levels + 1}, drain); !s.ok()) {
      // The medium of a poisoned pool may name the level.
      if (s != StatusCode::poisoned) context_.heap.discard(*block);
      delete tier;
      return s;
    }
    resize_begins(view, *current(), shrink);
    return {};
  }

  // Makes these the levels of the table: first durably, then for all threads. Retires the levels
  // that are no longer in the list. The caller holds the latch and is pinned.
  [[gnu::noinline]] Status publish(View<T>& before, std::span<Tier<T>* const> tiers, Drain drain) {
    P& platform = context_.platform;
    std::unique_ptr<View<T>> view(new (std::nothrow) View<T>);
    if (view == nullptr) return StatusCode::out_of_memory;
    auto block = context_.heap.allocate(sizeof(layout::Descriptor), BlockKind::plain);
    if (!block) return std::move(block.error());
    layout::Descriptor image{};
    image.top_log = static_cast<std::uint8_t>(tiers[0]->log);
    image.levels = static_cast<std::uint8_t>(tiers.size());
    image.drain = static_cast<std::uint8_t>(drain);
    image.generation = before.generation + 1;
    for (std::size_t i = 0; i < tiers.size(); ++i) {
      image.offsets[i] = tiers[i]->offset;
      view->add(tiers[i]);
    }
    image.crc = descriptor_crc(image);
    view->descriptor = *block;
    view->generation = image.generation;
    view->drain = drain;
    auto* descriptor = context_.heap.template at<layout::Descriptor>(*block);
    platform.copy(descriptor, &image, sizeof(image));
    if (!persist(descriptor, sizeof(image), "level.resize.descriptor"_site))
      return StatusCode::poisoned;
    PERDURE_ASSERT(P, "level.I3", platform.persisted(descriptor, sizeof(image)));
    PERDURE_ASSERT(P, "level.I3", std::ranges::all_of(tiers, [&](const Tier<T>* tier) {
                     return in_table(tier) ||
                            platform.persisted(tier->lines, Tier<T>::bytes_of(tier->log));
                   }));
    platform.store(root_->descriptor, *block);
    if (!persist(&root_->descriptor, 8, "level.resize.root"_site))
      return StatusCode::poisoned;  // PP(resize)
    PERDURE_ASSERT(P, "level.I3", platform.persisted(&root_->descriptor, 8));
    view->turn_search();
    this->view_.store(view.release(), std::memory_order_release);  // LP(resize)
    for (Tier<T>* tier : before.all()) {
      if (std::ranges::find(tiers, tier) != tiers.end()) continue;
      context_.heap.retire(tier->offset);
      context_.epochs.retire(kDelete<Tier<T>>, this, reinterpret_cast<std::uint64_t>(tier));
    }
    context_.heap.retire(before.descriptor);
    context_.epochs.retire(kDelete<View<T>>, this, reinterpret_cast<std::uint64_t>(&before));
    return {};
  }

  // The history of resizes. Each drains a level, and the level of the oldest resize leaves first.
  // The caller holds the latch.
  [[gnu::noinline]] void resize_begins(const View<T>& before, const View<T>& after, bool shrink) {
    resizes_.begin({.slots_before = before.slots(),
                    .slots_after = after.target_slots(),
                    .entries = before.items(),
                    .shrink = shrink});
  }
  [[gnu::noinline]] void resize_ends(const View<T>& drained) {
    const std::uint64_t moved = this->moved_.exchange(0, std::memory_order_relaxed);
    resizes_.end(drained.source().buckets(), moved, *context_.log, context_.map);
  }

 private:
  static constexpr unsigned kRetries = 64;
  // The slots of a bucket of words, by their numbers: bytes from its first line.
  static constexpr std::array<std::uint8_t, 8> kSlotsAt = [] {
    std::array<std::uint8_t, 8> at{};
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      at[slot] = static_cast<std::uint8_t>(Tier<T>::line_of(slot) * sizeof(layout::Line) +
                                           offsetof(layout::Line, slots) +
                                           Tier<T>::in_line(slot) * sizeof(layout::Slot));
    }
    return at;
  }();

  [[gnu::always_inline]] bool key_matches(const Line<T>& line, std::uint32_t slot,
                                          const Probe& probe) const {
    if (!Form::holds(context_.platform, line, slot, probe.word, probe.second)) return false;
    if constexpr (Codec::kBytes) {
      const std::uint64_t offset = Form::load(context_.platform, line, slot).value[0];
      if (!context_.heap.contains(offset, sizeof(RecordPrefix))) return false;
      const auto record = RecordView::read(context_.platform, records_.at(offset));
      // A damaged length must not lead beyond the file. value_of() checks that it fits the block.
      return record.key_size() == probe.bytes.size() &&
             context_.heap.contains(offset, sizeof(RecordPrefix) + record.key_size()) &&
             record.has_key(probe.bytes);
    }
    return true;
  }

  // Returns the slot that holds the key, of those whose fingerprint is in `prints`; or kSlots.
  [[gnu::always_inline]] std::uint32_t find_in(const Line<T>* lines, std::uint64_t bucket,
                                               std::uint64_t prints, const Probe& probe) const {
    const Line<T>* const begin = lines + bucket * Tier<T>::kLines;
    for (std::uint32_t m = Meta<P>::match(prints, probe.print); m != 0; m &= m - 1) {
      const auto slot = static_cast<std::uint32_t>(__builtin_ctz(m));
      const Line<T>& line = begin[Tier<T>::line_of(slot)];
      if (key_matches(line, Tier<T>::in_line(slot), probe)) return slot;
    }
    return kSlots;
  }

  // Looks once at all candidates. Where the key is seen, it returns what `found` returns: the key
  // is there if the bucket still has that version. `again`: a candidate is locked or has changed.
  template <class Found>
  [[gnu::always_inline]] Looked seek(const View<T>& view, const Probe& probe, Found&& found) const {
    struct Seen {
      const Meta<P>* meta;
      std::uint64_t version;
    };
    Seen seen[2 * kMaxLevels];
    std::uint32_t count = 0;
    const bool upwards = view.upwards.load(std::memory_order_relaxed);
    for (std::uint32_t n = 0; n < view.levels; ++n) {
      const std::uint32_t level = upwards ? view.levels - 1 - n : n;
      const auto& seat = view.seats[level];
#pragma GCC unroll 2
      for (const std::uint64_t hash : probe.hashes) {
        const std::uint64_t bucket = hash & seat.mask;
        const Meta<P>& meta = seat.metas[bucket];
        const std::uint64_t version = meta.version.load(std::memory_order_seq_cst);
        if ((version & 1) != 0) return Looked::again;
        const std::uint64_t prints = meta.prints.load(std::memory_order_acquire);
        const std::uint32_t slot = find_in(seat.lines, bucket, prints, probe);
        if (slot != kSlots) return found(*view.tiers[level], meta, bucket, slot, version);
        seen[count++] = {&meta, version};
      }
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      if (seen[i].meta->version.load(std::memory_order_acquire) != seen[i].version) {
        return Looked::again;
      }
    }
    return current() == &view ? Looked::absent : Looked::again;
  }

  [[gnu::always_inline]] void prefetch(const View<T>& view, const Probe& probe) const {
    for (std::uint32_t i = 0; i < view.levels; ++i) {
      const Tier<T>& tier = *view.tiers[i];
      __builtin_prefetch(&tier.metas[tier.index(probe.hashes[0])]);
      __builtin_prefetch(&tier.metas[tier.index(probe.hashes[1])]);
    }
  }

  // Fetches the lines whose fingerprints match.
  [[gnu::always_inline]] void prefetch_items(const View<T>& view, const Probe& probe) const {
    for (std::uint32_t i = 0; i < view.levels; ++i) {
      const Tier<T>& tier = *view.tiers[i];
      for (const std::uint64_t hash : probe.hashes) {
        const std::uint64_t bucket = tier.index(hash);
        const std::uint64_t prints = tier.metas[bucket].prints.load(std::memory_order_relaxed);
        const std::uint32_t m = Meta<P>::match(prints, probe.print);
        if (m != 0) {
          __builtin_prefetch(&tier.line(bucket, static_cast<std::uint32_t>(__builtin_ctz(m))));
        }
      }
    }
  }

  // LP(find): between the first and the second look at the versions. Nothing was stored into the
  // buckets in between. The caller is pinned.
  [[gnu::always_inline]] Expected<bool> read_probe(const Probe& probe, Visit visit) {
    Item<T> item;
    detail::Value value;
    bool readable = true;
    Looked looked = Looked::again;
    for (unsigned tries = 0; looked == Looked::again; ++tries) {
      if (tries != 0) P::pause(tries);
      if (tries < kRetries) {
        looked = look(*current(), probe, item, value, readable);
        continue;
      }
      Locks<T> locks;
      const View<T>& view = *lock_key(probe, locks);
      const Place<T> place = find_locked(view, probe);
      looked = place.found() ? Looked::found : Looked::absent;
      if (!place.found()) break;
      item = load(place);
      readable = value_of(item, value);
    }
    // The item may come from pages that were lost meanwhile.
    if (context_.platform.poisoned()) [[unlikely]]
      return fail(context_.platform.failure());
    if (looked == Looked::absent) return false;
    if (!readable) return fail(this->damaged_record(item.value[0]));
    return deliver(value, visit);
  }

  // Reads the items that a bucket held at one moment. The entries point into `items`. The caller is
  // pinned.
  [[gnu::noinline]] Expected<std::uint32_t> snapshot(const Tier<T>& tier, std::uint64_t bucket,
                                                     Item<T>* items, detail::Entry* entries) const {
    const Meta<P>& meta = tier.metas[bucket];
    for (unsigned spins = 0;; P::pause(spins++)) {
      const std::uint64_t version = meta.version.load(std::memory_order_seq_cst);
      if ((version & 1) != 0) continue;
      const std::uint64_t prints = meta.prints.load(std::memory_order_acquire);
      std::uint32_t count = 0;
      std::uint64_t damaged = 0;
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        if ((prints >> 8 * slot & 0xFF) == 0) continue;
        Item<T>& item = items[count];
        item = load(tier, bucket, slot);
        detail::Entry& entry = entries[count];
        if (!value_of(item, entry.value)) {
          damaged = item.value[0];
          continue;
        }
        entry.key = key_of(item);
        ++count;
      }
      if (meta.version.load(std::memory_order_acquire) != version) continue;
      if (damaged != 0) return fail(this->damaged_record(damaged));
      return count;
    }
  }

  template <class Object>
  static constexpr Reclaimer kDelete{
      nullptr, [](void*, std::uint64_t object) { delete reinterpret_cast<Object*>(object); }};
};

}  // namespace perdure::level
