// Versions: tag, reads of closed versions, history, diff, pins. Responsible for pskiplist.I8 while
// a map is open.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "index/pskiplist/scan.h"

namespace perdure::pskiplist {

template <class T>
class Versions : public Scan<T> {
 protected:
  using Base = Scan<T>;
  using Base::as_of, Base::begin_mutation, Base::begin_read, Base::confirm, Base::entry_at;
  using Base::Base;
  using Base::clock, Base::clock_, Base::context_, Base::horizon_, Base::limit_;
  using Base::find_with_slot, Base::for_each_entry, Base::for_each_leaf, Base::key_of;
  using Base::kLeafKeys, Base::latest, Base::load, Base::prefetch, Base::scan_versions, Base::show;
  using Base::limit_latch_, Base::nodes_, Base::pin_latch_, Base::pins_, Base::readable;
  using Base::reserve_, Base::root_;
  using Base::slot_at, Base::store_durably, Base::value_of;
  using typename Base::Codec, typename Base::Listing, typename Base::Node, typename Base::P;

  // Reserves versions up to this one and more (pskiplist.I8). Where a power failure could take the
  // limit back, it waits for a cut that has it: so it is called in no guard but one that is around
  // the operation. Callers that meet wait for one cut, or for two. Errors: those of a mutation, and
  // of the log.
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

 public:
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
    const auto deliver = [&](std::uint64_t version, bool present, std::uint64_t word) {
      detail::VersionedValue out{.version = version};
      if (present && !value_of(word, out.value.emplace())) failure = Records<P>::damaged(word);
      if (platform.poisoned()) failure = platform.failure();
      return more = failure.ok() && visit(out);
    };
    const std::uint64_t slot = nodes_[number].slot.load(std::memory_order_acquire);
    if (std::uint32_t left = end.entries; slot != 0 && left != 1) {  // at most so many, with `end`
      for_each_entry(slot_at(slot), [&](std::uint64_t offset, std::uint64_t stamp) {
        if (version_of(stamp) >= end.version()) return false;
        const std::uint64_t word = load(entry_at(offset).value);
        if (load(entry_at(offset).stamp) != stamp) return true;
        return deliver(version_of(stamp), !is_removed(stamp), word) && --left != 1;
      });
    }
    if (more) (void)deliver(end.version(), end.present(), end.value);
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
    pin = {.version = version, .next = pins_, .prev = nullptr, .pinned = true};
    if (pins_ != nullptr) pins_->prev = &pin;
    pins_ = &pin;
    return {};
  }
  void unpin(detail::VersionPin& pin) noexcept override {
    LatchGuard guard(pin_latch_);
    if (!pin.pinned) return;
    if (pin.next != nullptr) pin.next->prev = pin.prev;
    (pin.prev != nullptr ? pin.prev->next : pins_) = pin.next;
    pin = {};
  }
};

}  // namespace perdure::pskiplist
