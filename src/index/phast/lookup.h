// Lookup: finds the leaf, the slot and the value of a key. Responsible for what a find returns:
// phast.I4 (it is durable), phast.D5 (it is no older than what has returned), ordered.N1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "index/phast/state.h"

namespace perdure::phast {

template <class T>
class Lookup : public State<T> {
  using Base = State<T>;

 protected:
  using Base::absent, Base::context_, Base::damaged_record, Base::deliver, Base::inner_,
      Base::kGroup, Base::leaf_of, Base::prefetch_home, Base::record_at, Base::records, Base::root_,
      Base::stripe_of, Base::table_, Base::value_of, Base::zero_latch_;
  using typename Base::Codec, typename Base::Desc, typename Base::Entry, typename Base::Inner,
      typename Base::Keys, typename Base::Leaf, typename Base::P, typename Base::Visit;

 public:
  using Base::Base, Base::kBytes;

 protected:
  [[gnu::always_inline]] Expected<bool> find(const detail::Key& key, Visit visit) {
    const Probe probe = Codec::probe(key);
    if constexpr (!kBytes) {
      if (probe.word == 0) return read_zero(visit);
    }
    const std::uint32_t number = inner_.locate(probe);
    prefetch_home(number, probe);
    return read_from(probe, number, visit);
  }

  struct Group {
    Probe probes[kGroup];
    std::uint32_t leaves[kGroup];
  };
  [[gnu::always_inline]] Status fetch(Keys keys, Group& group) {
    auto& [probes, leaves] = group;
    typename Inner::Step steps[kGroup];
    const std::size_t n = keys.size();
    for (std::size_t i = 0; i < n; ++i) {
      probes[i] = Codec::probe(keys[i]);
      inner_.prefetch_shortcut(probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      leaves[i] = inner_.shortcut_to(probes[i]);
      if (leaves[i] == kNoLeaf) steps[i] = inner_.locate_node(probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (leaves[i] == kNoLeaf) inner_.locate_group(probes[i], steps[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (leaves[i] == kNoLeaf) leaves[i] = inner_.locate_leaf(probes[i], steps[i]);
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
      __builtin_prefetch(record_at(word));
      __builtin_prefetch(reinterpret_cast<const char*>(record_at(word)) + kLine);
    }
    return {};
  }
  [[gnu::always_inline]] Expected<bool> find_fetched(const Group& group, std::size_t i,
                                                     Visit visit) {
    const Probe& probe = group.probes[i];
    if (!kBytes && probe.word == 0) return read_zero(visit);
    return read_from(probe, group.leaves[i], visit);
  }

  // A leaf that a reader has entered: valid as long as the leaf's version is `version`.
  struct Entered {
    std::uint32_t number;
    std::uint64_t version;
  };

  // Returns the leaf whose range holds the key. The search starts from a hint; the descriptor
  // decides (ordered.N1).
  [[gnu::always_inline]] Entered enter(const Probe& probe, std::uint32_t number) const {
    for (unsigned misses = 0;;) {
      const Desc& desc = table_[number];
      const std::uint64_t version = desc.version.load(std::memory_order_acquire);
      __builtin_prefetch(&desc.search);
      if ((version & 1) != 0 || desc.below(probe)) [[unlikely]] {
        // The leaf is unlinked, or lies right of the key (ordered.N3). The partition's first leaf
        // is always left of the key.
        number = ++misses < 4 ? inner_.search(probe)
                              : inner_.first_leaf(inner_.partitioning().of(probe.word));
        if (misses > 4) P::pause(misses);
        continue;
      }
      if (!desc.above(probe)) [[likely]]
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

 private:
  // Whether the entry's key is the probe's. `value` is the entry's second word. It is loaded after
  // the first word for integers, before the record for byte strings.
  [[gnu::always_inline]] bool key_matches(const Entry& entry, const Probe& probe,
                                          std::uint64_t& value) const {
    if constexpr (kBytes) {
      value = context_.platform.load(entry.value);  // commit word
      if (value == 0 || context_.platform.load(entry.key) != probe.word) return false;
      // The place of the value is known only once the record has arrived: prefetch both at once.
      __builtin_prefetch(reinterpret_cast<const char*>(record_at(value)) + sizeof(RecordPrefix) +
                         probe.bytes.size());
      const auto record = RecordView::read(context_.platform, record_at(value));
      // A damaged length must not lead beyond the file. value_of() checks whether it fits the
      // block.
      return record.key_size() == probe.bytes.size() &&
             context_.heap.contains(value & kOffsetMask,
                                    sizeof(RecordPrefix) + record.key_size()) &&
             record.key() == probe.bytes;
    } else {
      if (context_.platform.load(entry.key) != probe.word) return false;
      value = context_.platform.load(entry.value);
      return true;
    }
  }

  // LP(find): the load of the entry's words, or of the fingerprints if none matched. The caller is
  // pinned.
  [[gnu::always_inline]] Expected<bool> read_from(const Probe& probe, std::uint32_t start,
                                                  Visit visit) {
    for (;;) {
      const Entered entered = enter(probe, start);
      const Desc& desc = table_[entered.number];
      start = entered.number;
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
};

}  // namespace perdure::phast
