// Lookup: the entry that counts in the latest state, or at a closed version; finds of one key and
// of many; scans of keys in order, leaf after leaf; and versions: tag, reads of closed versions,
// history, diff, pins. Responsible for the readers' side of pskiplist.I3 and pskiplist.I6, and for
// pskiplist.I8 while a map is open.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "index/ordered/scan_range.h"
#include "index/pskiplist/state.h"

namespace perdure::pskiplist {

template <class T>
class Lookup : public MapState<T> {
 protected:
  using Base = MapState<T>;
  using Base::absent, Base::begin_mutation, Base::begin_read, Base::clock, Base::clock_;
  using Base::Base;
  using Base::context_, Base::deliver, Base::directory_, Base::entry_at, Base::for_each_entry;
  using Base::horizon_, Base::kGroup, Base::limit_, Base::limit_latch_, Base::load, Base::nodes_;
  using Base::persist, Base::pin_latch_, Base::pins_, Base::reserve_, Base::root_, Base::search;
  using Base::slot_at, Base::store_durably, Base::value_of;
  using typename Base::Codec, typename Base::Keys, typename Base::Node, typename Base::P;
  using typename Base::Visit;

  // --- finds ---

  // Returns the key's node, or 0, for a caller that goes on to the slot. If the guess is right,
  // both misses overlap.
  [[gnu::always_inline]] std::uint32_t find_with_slot(const Probe& probe) const {
    return directory_.find(
        probe, [&](std::uint32_t node) { __builtin_prefetch(&slot_at(nodes_.likely_slot(node))); });
  }
  // Returns the node's state after every write of a version up to this one has come, or is `stored`
  // (pskiplist.I3).
  [[gnu::always_inline]] State settle_state(Node& node, std::uint64_t version) const {
    for (unsigned spins = 0;; P::pause(spins++)) {
      State seen = node.load();
      if (seen.phase() == Phase::unstamped) {
        (void)node.change(seen, State::of(Phase::stamped, clock()));
        seen = node.load();
      }
      if (seen.phase() == Phase::unstamped) continue;
      if (seen.phase() != Phase::stamped || seen.number() > version) return seen;
    }
  }
  // LP: the second load of the state.
  [[gnu::always_inline]] End latest(Node& node) const {
    for (;;) {
      const State state = settle_state(node, kLatest);
      if (state.phase() == Phase::dead) return {};
      const End end = node.end();
      if (state.phase() == Phase::stored) help(end.entry);
      if (node.load() == state) return end;
    }
  }
  // Makes an entry durable that its writer is about to make durable.
  [[gnu::noinline]] void help(std::uint64_t entry) const {
    (void)persist(&entry_at(entry), sizeof(Entry), "pskiplist.find.help"_site);
  }
  // Returns the entry that counts at a closed version. Entries that come meanwhile have later
  // versions, and lie behind. So if the node is being written, its slot still says where the
  // history begins, and the history is searched.
  [[gnu::noinline]] Found as_of(Node& node, std::uint64_t version) const {
    const State state = settle_state(node, version);
    if (state.phase() == Phase::dead) return {};
    const std::uint64_t slot = node.slot.load(std::memory_order_acquire);
    const End end = node.end();
    if (state.phase() == Phase::idle && node.load() == state) {  // pskiplist.N2
      if (end.version() <= version) return Found::of(end);
      return end.entries != 1 ? search(slot, version, end.entries - 1) : Found{};
    }
    if (state.phase() == Phase::stored) help(end.entry);
    return slot != 0 ? search(slot, version, ~0U) : Found{};
  }

  [[gnu::noinline]] Status readable(std::uint64_t version) const {
    const std::uint64_t first = horizon_.load(std::memory_order_seq_cst);
    const std::uint64_t last = clock() - 1;
    if (version >= first && version <= last) [[likely]]
      return {};
    if (last < first) {
      return Status::format(StatusCode::invalid_argument,
                            "version %lu: no tag has closed it yet; no version can be read",
                            version);
    }
    return Status::format(
        StatusCode::invalid_argument, "version %lu: %s; readable versions: %lu to %lu", version,
        version < first ? "it was trimmed, or never was" : "no tag has closed it yet", first, last);
  }
  // At a version, the horizon is loaded last (pskiplist.I6): a trimmed entry may have been reused.
  [[gnu::always_inline]] Expected<bool> show(const Found& found, std::uint64_t version,
                                             Visit visit) const {
    detail::Value value;
    const bool sound = !found.present || value_of(found.word, value);
    if (version != kLatest) {
      if (Status s = readable(version); !s.ok()) return fail(std::move(s));
    }
    // The entry may have been read from pages that were lost meanwhile.
    if (context_.platform.poisoned()) [[unlikely]]
      return fail(context_.platform.failure());
    if (!found.present) return false;
    if (!sound) return fail(this->damaged_record(found.word));
    return deliver(value, visit);
  }

  [[gnu::always_inline]] Expected<bool> find(const detail::Key& key, Visit visit) {
    const std::uint32_t number = directory_.find(Codec::probe(key));
    return find_node(number, visit);
  }
  struct Group {
    std::uint32_t numbers[kGroup];
  };
  [[gnu::always_inline]] Status fetch(Keys keys, Group& group) const {
    auto& numbers = group.numbers;
    Probe probes[kGroup];
    Hint hints[kGroup];
    const std::size_t n = keys.size();
    for (std::size_t i = 0; i < n; ++i) {
      probes[i] = Codec::probe(keys[i]);
      directory_.prefetch_hint(probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      hints[i] = directory_.prefetch_node(probes[i]);
    }
    for (std::size_t i = 0; i < n; ++i) directory_.prefetch_key(hints[i].node);
    for (std::size_t i = 0; i < n; ++i) {
      if (!hints[i].absent) hints[i] = directory_.find_hinted(probes[i]);
      if (!hints[i].known()) directory_.prefetch_leaf(probes[i]);
      numbers[i] = hints[i].node;
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (hints[i].known()) continue;
      numbers[i] = directory_.find_listed(probes[i]);
      __builtin_prefetch(&nodes_[numbers[i]]);
    }
    return {};
  }
  [[gnu::always_inline]] Expected<bool> find_fetched(const Group& group, std::size_t i,
                                                     Visit visit) {
    return find_node(group.numbers[i], visit);
  }

  // --- scans ---

  static constexpr std::uint32_t kLeafKeys = T::Geometry::kLeafKeys;
  // The keys of a leaf that are within the limits, in the direction of the scan.
  struct Listing {
    std::uint32_t count = 0;
    std::uint64_t words[kLeafKeys];
    std::uint32_t nodes[kLeafKeys];
  };

  detail::Key key_of(std::uint64_t word, std::uint32_t node) const {
    if constexpr (Codec::kBytes) return {.bytes = directory_.key_of(node)};
    return {.word = word};
  }
  // Calls visit(listing) for leaf after leaf, in one guard, until it returns false. A key that is
  // there throughout is listed once.
  template <class F>
  [[gnu::noinline]] Expected<void> for_each_leaf(const detail::ScanRange& range, F&& visit) {
    Limits limits(range);
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
    Probe position = limits.start(range.reverse);
    Batch batch;
    Listing listing;
    for (;;) {
      directory_.collect(position, batch);
      within(batch, limits, range.reverse, listing);
      if (listing.count != 0 && !visit(listing)) break;
      if (!limits.pass(batch, range.reverse, position)) break;
      if (limits.end_before(position, range.reverse)) break;
    }
    // Keys in pages that were lost meanwhile may have been read as zeros.
    if (context_.platform.poisoned()) [[unlikely]]
      return fail(context_.platform.failure());
    return {};
  }

  // --- versions ---

  // Reserves versions up to this one and more (pskiplist.I8). Where a power failure could take the
  // limit back, it waits for a cut that has it: so it is called in no guard. Callers that meet wait
  // for one cut, or for two. Errors: those of a mutation, and of the log.
  [[gnu::noinline]] Status extend_limit(std::uint64_t version) {
    std::uint64_t limit = 0;
    {
      MutationGuard<P> guard(context_.epochs);
      if (Status s = begin_mutation(guard, false); !s.ok()) return s;
      LatchGuard latch(limit_latch_);
      if (limit_.load(std::memory_order_relaxed) >= version) return {};
      limit = load(root_->limit);
      if (limit < version) {
        limit = std::min(version + T::Geometry::kReservedVersions - 1, kLastVersion);
        Status s = store_durably(root_->limit, limit, "pskiplist.tag.limit"_site);
        if (!s.ok()) return s;
      }
      PERDURE_ASSERT(P, "pskiplist.I8", limit >= version);
      PERDURE_ASSERT(P, "pskiplist.I8",
                     context_.platform.persisted(&root_->limit, sizeof(root_->limit)));
      if (context_.cuts == nullptr) {
        limit_.store(limit, std::memory_order_release);
        return {};
      }
    }
    if (Status s = context_.cuts->make_durable(); !s.ok()) return s;
    LatchGuard latch(limit_latch_);  // another thread may have come further
    if (limit_.load(std::memory_order_relaxed) < limit) {
      limit_.store(limit, std::memory_order_release);
    }
    return {};
  }

 private:
  // `number`: 0 if the key has no node.
  [[gnu::always_inline]] Expected<bool> find_node(std::uint32_t number, Visit visit) {
    if (number == 0) return absent();
    return show(Found::of(latest(nodes_[number])), kLatest, visit);
  }

  // --- scans ---

  using Limits = ordered::Limits<Codec>;
  using Batch = typename Directory<T>::Batch;

  // Overlaps the misses of a leaf's keys: of their nodes, and of histories that are read from their
  // beginning at that version.
  [[gnu::noinline]] void prefetch(const Listing& listing, std::uint64_t limit,
                                  std::uint64_t version) const {
    const std::uint64_t n = std::min<std::uint64_t>(listing.count, limit);
    for (std::uint64_t i = 0; i < n; ++i) __builtin_prefetch(&nodes_[listing.nodes[i]]);
    for (std::uint64_t i = 0; version != kLatest && i < n; ++i) {
      const Node& node = nodes_[listing.nodes[i]];
      const End end = node.end();
      if (end.version() <= version || end.entries == 1) continue;
      __builtin_prefetch(&slot_at(node.slot.load(std::memory_order_relaxed)));
    }
  }
  // Whether entries that were read at the version may be delivered. `damaged`: the word of one of
  // them that names no record, if there is one. Such a word may be 0, as lost lines read.
  Status confirm(std::uint64_t version, std::optional<std::uint64_t> damaged) const {
    if (version != kLatest) {
      if (Status s = readable(version); !s.ok()) return s;
    }
    if (context_.platform.poisoned()) return context_.platform.failure();
    return damaged ? this->damaged_record(*damaged) : Status();
  }
  [[gnu::noinline]] Expected<void> scan_versions(
      const detail::ScanRange& range, std::uint64_t version,
      FunctionRef<bool(std::span<const detail::Entry>)> visit) {
    Status failure;
    std::uint64_t left = range.limit;
    bool to_the_end = true;
    if (left == 0) return {};
    auto done = for_each_leaf(range, [&](const Listing& listing) {
      to_the_end = false;
      detail::Entry entries[kLeafKeys];
      std::uint32_t count = 0;
      std::optional<std::uint64_t> damaged;
      prefetch(listing, left, version);
      for (std::uint32_t i = 0; i < listing.count && count < left; ++i) {
        Node& node = nodes_[listing.nodes[i]];
        const Found found = version == kLatest ? Found::of(latest(node)) : as_of(node, version);
        if (!found.present) continue;
        detail::Entry& entry = entries[count];
        if (!value_of(found.word, entry.value)) {
          damaged = found.word;
          continue;
        }
        entry.key = key_of(listing.words[i], listing.nodes[i]);
        ++count;
      }
      failure = confirm(version, damaged);
      if (!failure.ok()) return false;
      left -= count;
      const bool more = count == 0 || visit(std::span<const detail::Entry>(entries, count));
      if (context_.platform.poisoned()) failure = context_.platform.failure();
      return to_the_end = more && left > 0 && failure.ok();
    });
    if (!done) return done;
    // A trim may have removed the last keys, and then their leaves were not listed.
    if (version != kLatest && to_the_end) failure = readable(version);
    if (!failure.ok()) return fail(std::move(failure));
    return {};
  }
  void within(const Batch& batch, const Limits& limits, bool reverse, Listing& out) const {
    const auto before = [&](std::uint32_t i, const Probe& probe,
                            std::uint64_t word) {  // key < probe
      if (!Codec::kBytes || batch.words[i] != word) return batch.words[i] < word;
      return ordered::compare(probe, directory_.key_of(batch.nodes[i])) > 0;
    };
    const std::uint64_t from = batch.word_in(limits.from);
    const std::uint64_t to = batch.word_in(limits.to);
    out.count = 0;
    for (std::uint32_t n = 0; n < batch.count; ++n) {
      const std::uint32_t i = reverse ? batch.count - 1 - n : n;
      if (limits.has_from && before(i, limits.from, from)) continue;
      if (limits.has_to && !before(i, limits.to, to)) continue;
      out.words[out.count] = batch.words[i];
      out.nodes[out.count++] = batch.nodes[i];
    }
  }

 public:
  Expected<void> scan(const detail::ScanRange& range,
                      FunctionRef<bool(std::span<const detail::Entry>)> visit) override {
    return scan_versions(range, kLatest, visit);
  }

  // --- versions ---

  Expected<std::uint64_t> tag() override {
    for (std::uint64_t version = 0;;) {
      {
        MutationGuard<P> guard(context_.epochs);
        if (Status s = begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
        version = clock();
        while (version < kLastVersion && version <= limit_.load(std::memory_order_acquire)) {
          if (clock_.compare_exchange_strong(version, version + 1,
                                             std::memory_order_seq_cst)) {  // LP
            PERDURE_ASSERT(P, "pskiplist.I8", version <= limit_.load(std::memory_order_relaxed));
            reserve_.try_refill();  // a closed version makes erases append
            return version;
          }
        }
      }
      if (version >= kLastVersion) return fail(StatusCode::pool_full, "no version is left");
      if (Status s = extend_limit(version); !s.ok()) return fail(std::move(s));
    }
  }
  detail::VersionRange versions() override {
    return {horizon_.load(std::memory_order_seq_cst), clock() - 1};
  }

  Expected<bool> read_at(const detail::Key& key, std::uint64_t version,
                         FunctionRef<void(const detail::Value&)> visit) override {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
    if (Status s = readable(version); !s.ok()) return fail(std::move(s));
    const std::uint32_t number = find_with_slot(Codec::probe(key));
    return show(number != 0 ? as_of(nodes_[number], version) : Found{}, version, visit);
  }
  Expected<void> scan_at(std::uint64_t version, const detail::ScanRange& range,
                         FunctionRef<bool(std::span<const detail::Entry>)> visit) override {
    if (Status s = readable(version); !s.ok()) return fail(std::move(s));
    return scan_versions(range, version, visit);
  }

  // LP: that of a find, which returns the last entry. The entries before it are durable and stay
  // the same. So if a stamp is still the same after the value was loaded, both belong to one entry.
  // A trim may remove entries meanwhile, and the whole slot once no version that can be read has
  // the key. Then the history ends there, or continues with the entries that stay. If another key
  // gets the slot, its entry has no version below that of the last entry here.
  Expected<void> history(const detail::Key& key,
                         FunctionRef<bool(const detail::VersionedValue&)> visit) override {
    const P& platform = context_.platform;
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
    const std::uint32_t number = find_with_slot(Codec::probe(key));
    const End end = number != 0 ? latest(nodes_[number]) : End{};
    if (end.entry == 0) {
      if (platform.poisoned()) [[unlikely]]
        return fail(platform.failure());
      return {};
    }
    Status failure;
    bool more = true;
    const auto pass_on = [&](std::uint64_t version, bool present, std::uint64_t word) {
      detail::VersionedValue out{.version = version};
      if (present && !value_of(word, out.value.emplace())) failure = this->damaged_record(word);
      if (platform.poisoned()) failure = platform.failure();
      return more = failure.ok() && visit(out);
    };
    const std::uint64_t slot = nodes_[number].slot.load(std::memory_order_acquire);
    if (std::uint32_t left = end.entries; slot != 0 && left != 1) {  // at most so many, with `end`
      for_each_entry(slot_at(slot), [&](std::uint64_t offset, std::uint64_t stamp) {
        if (version_of(stamp) >= end.version()) return false;
        const std::uint64_t word = load(entry_at(offset).value);
        if (load(entry_at(offset).stamp) != stamp) return true;
        return pass_on(version_of(stamp), !is_removed(stamp), word) && --left != 1;
      });
    }
    if (more) (void)pass_on(end.version(), end.present(), end.value);
    if (!failure.ok()) return fail(std::move(failure));
    return {};
  }

  Expected<void> diff(std::uint64_t from, std::uint64_t to, const detail::ScanRange& range,
                      FunctionRef<bool(const detail::Difference&)> visit) override {
    for (const std::uint64_t version : {from, to}) {
      if (Status s = readable(version); !s.ok()) return fail(std::move(s));
    }
    Status failure;
    std::uint64_t left = range.limit;
    bool to_the_end = true;
    if (left == 0) return {};
    auto done = for_each_leaf(range, [&](const Listing& listing) {
      to_the_end = false;
      prefetch(listing, kLeafKeys, std::min(from, to));
      for (std::uint32_t i = 0; i < listing.count && left > 0; ++i) {
        Node& node = nodes_[listing.nodes[i]];
        const Found sides[2] = {as_of(node, from), as_of(node, to)};
        if (sides[0].entry == sides[1].entry) continue;
        detail::Difference out;
        std::optional<detail::Value>* values[2] = {&out.before, &out.after};
        std::optional<std::uint64_t> damaged;
        for (int side = 0; side < 2; ++side) {
          if (!sides[side].present) continue;
          if (!value_of(sides[side].word, values[side]->emplace())) damaged = sides[side].word;
        }
        failure = confirm(std::min(from, to), damaged);
        if (!failure.ok()) return false;
        if (!out.before && !out.after) continue;
        if (out.before && out.after && out.before->word == out.after->word &&
            out.before->bytes == out.after->bytes) {
          continue;
        }
        out.key = key_of(listing.words[i], listing.nodes[i]);
        --left;
        if (!visit(out)) return false;
      }
      return to_the_end = left > 0;
    });
    if (!done) return done;
    // For a key that a trim removed both sides are the same.
    if (to_the_end) failure = readable(std::min(from, to));
    if (!failure.ok()) return fail(std::move(failure));
    return {};
  }

  Status pin(detail::VersionPin& pin, std::uint64_t version) override {
    if (context_.platform.poisoned()) return context_.platform.failure();
    LatchGuard guard(pin_latch_);
    if (Status s = readable(version); !s.ok()) return s;
    pin = {.version = version, .next = pins_, .prev = nullptr};
    if (pins_ != nullptr) pins_->prev = &pin;
    pins_ = &pin;
    return {};
  }
  void unpin(detail::VersionPin& pin) noexcept override {
    LatchGuard guard(pin_latch_);
    if (pin.next != nullptr) pin.next->prev = pin.prev;
    (pin.prev != nullptr ? pin.prev->next : pins_) = pin.next;
    pin = {};
  }
};

}  // namespace perdure::pskiplist
