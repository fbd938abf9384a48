// PSkipList: tag, reads of closed versions, history, diff, pins. Included by pskiplist.h only.
#pragma once

#include <algorithm>

#include "index/pskiplist/pskiplist.h"

namespace perdure::pskiplist {

// --- versions ---

// Reserves versions up to this one and more (pskiplist.I8).
template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::extend_limit(std::uint64_t version) noexcept {
  P& platform = context_.platform;
  LatchGuard guard(limit_latch_);
  if (limit_.load(std::memory_order_relaxed) >= version) return {};
  const std::uint64_t limit = std::min(version + G::kReservedVersions - 1, kLastVersion);
  PERDURE_ASSERT(P, "pskiplist.I8", limit >= version);
  platform.store(root_->limit, limit);
  platform.flush(&root_->limit, 8, "pskiplist.tag.limit"_site);
  if (!platform.fence("pskiplist.tag.limit"_site)) return StatusCode::poisoned;
  PERDURE_ASSERT(P, "pskiplist.I8", platform.persisted(&root_->limit, sizeof(root_->limit)));
  limit_.store(limit, std::memory_order_release);
  return {};
}

template <Platform P, class Codec, class G>
Expected<std::uint64_t> PSkipList<P, Codec, G>::tag() {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
  for (std::uint64_t version = clock();;) {
    if (version >= kLastVersion) return fail(StatusCode::pool_full, "no version is left");
    if (version > limit_.load(std::memory_order_acquire)) {
      if (Status s = extend_limit(version); !s.ok()) return fail(std::move(s));
    }
    if (clock_.compare_exchange_strong(version, version + 1, std::memory_order_seq_cst)) {  // LP
      PERDURE_ASSERT(P, "pskiplist.I8", version <= limit_.load(std::memory_order_relaxed));
      reserve_.try_refill();  // a closed version makes erases append
      return version;
    }
  }
}

template <Platform P, class Codec, class G>
detail::VersionRange PSkipList<P, Codec, G>::versions() {
  return {horizon_.load(std::memory_order_seq_cst), clock() - 1};
}

template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::readable(std::uint64_t version) const noexcept {
  const std::uint64_t first = horizon_.load(std::memory_order_seq_cst);
  const std::uint64_t last = clock() - 1;
  if (version >= first && version <= last) [[likely]]
    return {};
  if (last < first) {
    return Status::format(StatusCode::invalid_argument,
                          "version %llu: no tag has closed it yet; there is none",
                          static_cast<unsigned long long>(version));
  }
  return Status::format(
      StatusCode::invalid_argument, "version %llu: %s; there are %llu to %llu",
      static_cast<unsigned long long>(version),
      version < first ? "it was trimmed, or never was" : "no tag has closed it yet",
      static_cast<unsigned long long>(first), static_cast<unsigned long long>(last));
}

template <Platform P, class Codec, class G>
Expected<bool> PSkipList<P, Codec, G>::read_at(const detail::Key& key, std::uint64_t version,
                                               FunctionRef<void(const detail::Value&)> visit) {
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  if (Status s = readable(version); !s.ok()) return fail(std::move(s));
  const std::uint32_t number = find_with_slot(Codec::probe(key));
  return show(number != 0 ? as_of(nodes_[number], version) : Found{}, version, visit);
}

template <Platform P, class Codec, class G>
Expected<void> PSkipList<P, Codec, G>::scan_at(
    std::uint64_t version, const detail::ScanRange& range,
    FunctionRef<bool(std::span<const detail::Entry>)> visit) {
  if (Status s = readable(version); !s.ok()) return fail(std::move(s));
  return scan_versions(range, version, visit);
}

// LP: that of a find, which gives the last entry. What is before it is durable, and stays the same;
// so a stamp that is still there after the value was loaded says that both were one entry's. A trim
// takes entries away meanwhile, and the whole slot once no version that can be read has the key:
// the history ends there, or goes on with what stays. An entry of another key in the slot is not of
// a version before the last one here.
template <Platform P, class Codec, class G>
Expected<void> PSkipList<P, Codec, G>::history(
    const detail::Key& key, FunctionRef<bool(const detail::VersionedValue&)> visit) {
  const P& platform = context_.platform;
  EpochGuard<P> guard(context_.epochs);
  if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
  const auto none = [&]() -> Expected<void> {
    if (platform.poisoned()) [[unlikely]]
      return fail(platform.failure());
    return {};
  };
  const std::uint32_t number = find_with_slot(Codec::probe(key));
  if (number == 0) return none();
  Node& node = nodes_[number];
  const End end = latest(node);
  if (end.entry == 0) return none();
  Status failure;
  bool more = true;
  const auto deliver = [&](std::uint64_t version, bool present, std::uint64_t word) {
    detail::VersionedValue out{.version = version};
    if (present && !value_of(word, out.value.emplace())) failure = Records<P>::damaged(word);
    if (platform.poisoned()) failure = platform.failure();
    return more = failure.ok() && visit(out);
  };
  const std::uint64_t slot = node.slot.load(std::memory_order_acquire);
  if (std::uint32_t left = end.entries; slot != 0 && left != 1) {  // at most so many, and `end`
    for_each_entry(slot_at(slot), [&](std::uint64_t offset, std::uint64_t stamp) {
      if (version_of(stamp) >= end.version()) return false;
      const std::uint64_t word = platform.load(entry_at(offset).value);
      if (platform.load(entry_at(offset).stamp) != stamp) return true;
      const bool on = deliver(version_of(stamp), (stamp & layout::kRemoved) == 0, word);
      return on && --left != 1;
    });
  }
  if (more) (void)deliver(end.version(), end.present(), end.value);
  if (!failure.ok()) return fail(std::move(failure));
  return {};
}

template <Platform P, class Codec, class G>
Expected<void> PSkipList<P, Codec, G>::diff(std::uint64_t from, std::uint64_t to,
                                            const detail::ScanRange& range,
                                            FunctionRef<bool(const detail::Difference&)> visit) {
  for (const std::uint64_t version : {from, to}) {
    if (Status s = readable(version); !s.ok()) return fail(std::move(s));
  }
  Status failure;
  std::uint64_t left = range.limit;
  bool to_the_end = true;
  if (left == 0) return {};
  auto done = for_each_leaf(range, [&](const Listing& listing) {
    to_the_end = false;
    prefetch(listing, G::kLeafKeys, std::min(from, to));
    for (std::uint32_t i = 0; i < listing.count && left > 0; ++i) {
      Node& node = nodes_[listing.nodes[i]];
      const Found sides[2] = {as_of(node, from), as_of(node, to)};
      if (sides[0].entry == sides[1].entry) continue;
      detail::Difference out;
      std::optional<detail::Value>* values[2] = {&out.before, &out.after};
      std::uint64_t damaged = 0;
      for (int side = 0; side < 2; ++side) {
        if (!sides[side].present) continue;
        if (!value_of(sides[side].word, values[side]->emplace())) damaged = sides[side].word;
      }
      failure = readable(std::min(from, to));
      if (failure.ok() && context_.platform.poisoned()) failure = context_.platform.failure();
      if (failure.ok() && damaged != 0) failure = Records<P>::damaged(damaged);
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
  // Keys that a trim took away have no sides that differ.
  if (to_the_end) failure = readable(std::min(from, to));
  if (!failure.ok()) return fail(std::move(failure));
  return {};
}

template <Platform P, class Codec, class G>
Status PSkipList<P, Codec, G>::pin(detail::VersionPin& pin, std::uint64_t version) {
  if (context_.platform.poisoned()) return context_.platform.failure();
  LatchGuard guard(pin_latch_);
  if (Status s = readable(version); !s.ok()) return s;
  pin = {.version = version, .next = pins_, .prev = nullptr, .pinned = true};
  if (pins_ != nullptr) pins_->prev = &pin;
  pins_ = &pin;
  return {};
}

template <Platform P, class Codec, class G>
void PSkipList<P, Codec, G>::unpin(detail::VersionPin& pin) noexcept {
  LatchGuard guard(pin_latch_);
  if (!pin.pinned) return;
  if (pin.next != nullptr) pin.next->prev = pin.prev;
  (pin.prev != nullptr ? pin.prev->next : pins_) = pin.next;
  pin = {};
}

}  // namespace perdure::pskiplist
