// Close: the checksums that a clean close stores, and that the next open compares (E21, E27).
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "index/closed_sum.h"
#include "index/level/plans.h"

namespace perdure::level {

template <class T>
class Close : public Plans<T> {
 protected:
  using Base = Plans<T>;
  using P = typename T::Platform;
  using Form = typename T::Codec::Form;
  using Base::context_, Base::current, Base::kSlots, Base::records_, Base::root_;

 public:
  using Base::Base;

  Status close() override {
    P& platform = context_.platform;
    const View<T>& view = *current();
    std::uint64_t sum = 0;
    for (const Tier<T>* tier : view.all()) {
      Status s = for_each_bucket(*tier, sum, [&](std::uint64_t bucket, std::uint64_t& share) {
        for (std::uint32_t first = 0; first < kSlots; first += Form::kSlots) {
          const Line<T>& line = tier->line(bucket, first);
          std::uint64_t& word = tier->check(bucket, first);
          std::uint64_t crcs = std::uint64_t{line_crc(line)} << Tier<T>::check_bit(first);
          if constexpr (Form::kArrays) {
            crcs |= platform.load(word) & ~(0xFFFF'FFFFULL << Tier<T>::check_bit(first));
          } else {
            crcs |= std::uint64_t{values_crc(line)} << 32;
          }
          if (platform.load(word) == crcs) continue;
          platform.store(word, crcs);
          platform.flush(&word, 8, "level.close.line"_site);
        }
        share += sum_of(*tier, bucket);
        return Status();
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

 protected:
  // Calls visit(bucket, share) for all buckets, in parallel, and stops at the first error. Each
  // worker fences what it has written back. The shares are added to `sum`.
  template <class F>
  Status for_each_bucket(const Tier<T>& tier, std::uint64_t& sum, F&& visit) {
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

  static std::uint32_t closed_crc(std::uint64_t descriptor, std::uint64_t generation) {
    const std::uint64_t words[2] = {descriptor, generation};
    return crc32c(0, words, sizeof(words));
  }

  // `values`: compares the checksum of the word values in records, else that of the line.
  [[gnu::noinline]] bool line_intact(const Tier<T>& tier, std::uint64_t bucket, std::uint32_t slot,
                                     bool values) const {
    const Line<T>& line = tier.line(bucket, slot);
    const std::uint64_t crcs = context_.platform.load(tier.check(bucket, slot));
    if (values) {
      return matches<P>(static_cast<std::uint32_t>(crcs >> 32) == values_crc(line),
                        "level.values.crc"_site);
    }
    return matches<P>(
        static_cast<std::uint32_t>(crcs >> Tier<T>::check_bit(slot)) == line_crc(line),
        "level.line.crc"_site);
  }

  // Whether the slot's line is as the close has left it. True if the pool was not closed: then
  // there is no checksum. No mutation has run since the open.
  bool as_closed(const Tier<T>& tier, std::uint64_t bucket, std::uint32_t slot) const {
    return !closed_ || (line_intact(tier, bucket, slot, false) &&
                        (!this->word_records_ || line_intact(tier, bucket, slot, true)));
  }
  bool closed_ = false;  // the pool was closed before this open

  // Returns what the checksums of a bucket's lines add to the sum of all (E27).
  std::uint64_t sum_of(const Tier<T>& tier, std::uint64_t bucket) const {
    std::uint64_t sum = 0;
    for (std::uint32_t slot = 0; slot < kSlots; slot += Form::kArrays ? kSlots : Form::kSlots) {
      const std::uint64_t& word = tier.check(bucket, slot);
      const auto place = reinterpret_cast<const std::byte*>(&word) -
                         reinterpret_cast<const std::byte*>(tier.lines);
      sum += closed_term(tier.offset + static_cast<std::uint64_t>(place),
                         context_.platform.load(word));
    }
    return sum;
  }

 private:
  // A line that was never used has checksum 0, so close writes nothing to it.
  std::uint32_t line_crc(const Line<T>& line) const {
    static constexpr Line<T> kZero{};
    if (std::memcmp(&line, &kZero, Form::kCoveredBytes) == 0) return 0;
    return crc32c(0, &line, Form::kCoveredBytes);
  }

  // Returns the checksum of the word values, which are updated in place, so that no record's own
  // checksum covers them.
  [[gnu::noinline]] std::uint32_t values_crc(const Line<T>& line) const {
    std::uint64_t words[Form::kSlots];
    std::size_t count = 0;
    for (std::uint32_t i = 0; i < Form::kSlots && this->word_records_; ++i) {
      if ((Form::tokens(context_.platform, line) >> i & 1) == 0) continue;
      const std::uint64_t offset = Form::load(context_.platform, line, i).value[0];
      if (!this->check_record(offset, false).ok()) continue;
      words[count++] = context_.platform.load(records_.at(offset)->value);
    }
    return count == 0 ? 0 : crc32c(0, words, count * sizeof(words[0]));
  }
};

}  // namespace perdure::level
