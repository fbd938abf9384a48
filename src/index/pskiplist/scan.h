// Scan: keys in order, leaf after leaf, in the latest state or at a closed version.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "index/ordered/scan_range.h"
#include "index/pskiplist/lookup.h"

namespace perdure::pskiplist {

template <class T>
class Scan : public Lookup<T> {
 protected:
  using Base = Lookup<T>;
  using Base::as_of, Base::begin_read, Base::context_, Base::directory_, Base::latest, Base::nodes_;
  using Base::Base;
  using Base::readable, Base::slot_at, Base::value_of;
  using typename Base::Codec, typename Base::P;
  using Limits = ordered::Limits<Codec>;
  using Batch = typename Directory<T>::Batch;
  using typename Base::Node;

  static constexpr std::uint32_t kLeafKeys = T::Geometry::kLeafKeys;
  // The keys of a leaf that are within the limits, in the direction of the scan.
  struct Listing {
    std::uint32_t count = 0;
    std::uint64_t words[kLeafKeys];
    std::uint32_t nodes[kLeafKeys];
  };

  detail::Key key_of(std::uint64_t word, std::uint32_t node) const {
    if constexpr (Codec::kBytes) return {.word = word, .bytes = directory_.key_of(node)};
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
    for (bool end = false;;) {
      directory_.collect(position, batch);
      within(batch, limits, range.reverse, listing);
      if (listing.count != 0 && !visit(listing)) break;
      position = ordered::behind<Codec>(batch, range.reverse, end);
      if (end) break;
      limits.pass(position, batch.low, range.reverse);
      if (limits.end_before(position, range.reverse)) break;
    }
    // Keys in pages that were lost meanwhile may have been read as zeros.
    if (context_.platform.poisoned()) [[unlikely]]
      return fail(context_.platform.failure());
    return {};
  }
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
    return damaged ? Records<P>::damaged(*damaged) : Status();
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

 private:
  void within(const Batch& batch, const Limits& limits, bool reverse, Listing& out) const {
    const auto before = [&](std::uint32_t i, const Probe& probe) {  // key < probe
      if (!Codec::kBytes || batch.words[i] != probe.word) return batch.words[i] < probe.word;
      return ordered::compare(probe, directory_.key_of(batch.nodes[i])) > 0;
    };
    out.count = 0;
    for (std::uint32_t n = 0; n < batch.count; ++n) {
      const std::uint32_t i = reverse ? batch.count - 1 - n : n;
      if (limits.has_from && before(i, limits.from)) continue;
      if (limits.has_to && !before(i, limits.to)) continue;
      out.words[out.count] = batch.words[i];
      out.nodes[out.count++] = batch.nodes[i];
    }
  }

 public:
  Expected<void> scan(const detail::ScanRange& range,
                      FunctionRef<bool(std::span<const detail::Entry>)> visit) override {
    return scan_versions(range, kLatest, visit);
  }
};

}  // namespace perdure::pskiplist
