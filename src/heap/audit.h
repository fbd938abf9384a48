// Audit: leaked blocks, by a second marking, and statistics.
#pragma once

#include "heap/sweep.h"

namespace perdure {

struct HeapStats {
  std::uint64_t extents = 0;
  std::uint64_t assigned_extents = 0;  // without those that hold a table
  std::uint64_t table_extents = 0;
  std::uint64_t punched_extents = 0;
  std::uint64_t allocated_bytes = 0;  // blocks with the used bit, caches and limbo included
  std::uint64_t cached_bytes = 0;     // of those, in threads' caches
  std::uint64_t dram_bytes = 0;
};

}  // namespace perdure

namespace perdure::heap {

template <Platform P>
class Audit : public Sweep<P> {
  using Base = Sweep<P>;

 public:
  using Base::Base;

  // An audit counts the blocks that are allocated and not marked again: begin_audit, audit_mark*,
  // end_audit, which returns the count. No other operation runs; the caches are flushed.
  Status begin_audit() { return audit_.reserve(this->data_bytes() / 16 / 64 + 1); }
  [[gnu::noinline]] Status audit_mark(std::uint64_t offset) noexcept {
    std::uint64_t number = 0;
    std::uint32_t block = 0;
    if (Status s = this->locate(offset, number, block); !s.ok()) return s;
    if (!Base::is_set(bits_of(extents_[number]), block, std::memory_order_acquire)) {
      return Status::format(StatusCode::corruption, "the block at offset %lu is in use but free",
                            offset);
    }
    const std::uint64_t at16 = (offset - this->data_offset()) / 16;
    const std::uint64_t bit = 1ULL << (at16 % 64);
    if ((audit_[at16 / 64].fetch_or(bit, std::memory_order_acq_rel) & bit) != 0) {
      return this->twice(offset);
    }
    return {};
  }
  [[gnu::noinline]] std::uint64_t end_audit() {
    const std::uint64_t count = this->extent_count();
    std::uint64_t leaked = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      Extent& extent = extents_[i];
      if (!this->assigned(i) || extent.has(this->kInside)) continue;
      const bool slab = extent.state == ExtentState::slab;
      const std::uint32_t blocks = slab ? blocks_in(extent) : 1;
      const std::uint64_t size = slab ? kClassSizes[extent.size_class] : 0;
      for (std::uint32_t b = 0; b < blocks; ++b) {
        if (!Base::is_set(bits_of(extent), b, std::memory_order_relaxed)) continue;
        const std::uint64_t at16 = ((i << extent_shift_) + b * size) / 16;
        if (!Base::is_set(audit_.data(), at16, std::memory_order_relaxed)) ++leaked;
      }
    }
    audit_.release();
    return leaked;
  }
  // Of a table that is damaged, only the part that could be read counts.
  [[gnu::noinline]] HeapStats stats() {
    (void)this->read_table();
    HeapStats out;
    {
      LatchGuard guard(this->extent_latch_);
      out.extents = this->extent_count_.load(std::memory_order_relaxed);
      out.assigned_extents = this->assigned_;
      out.table_extents = out.extents - this->geometry_.blocks_between(0, out.extents);
      for (std::uint64_t i = 0; i < out.extents; ++i) {
        const Extent& extent = extents_[i];
        if (extent.has(this->kPunched)) ++out.punched_extents;
        if (!this->assigned(i) || extent.has(this->kInside | this->kChanging)) continue;
        out.allocated_bytes +=
            extent.state == ExtentState::slab
                ? std::uint64_t{blocks_in(extent) - extent.count()} * kClassSizes[extent.size_class]
                : std::uint64_t{extent.count()} << extent_shift_;
      }
      out.dram_bytes = out.extents * sizeof(Extent) + out.extents / 8;
    }
    this->for_each_cache([&](auto& cache, std::uint32_t /*slot*/) {
      out.dram_bytes += sizeof(cache);
      for (auto& row : cache.bins) {
        for (std::uint32_t c = 0; c < kClassCount; ++c) {
          const auto* bin = row[c];
          if (bin == nullptr) continue;
          out.dram_bytes += sizeof(*bin);
          out.cached_bytes += std::uint64_t{bin->count} * kClassSizes[c];
        }
      }
    });
    out.dram_bytes += this->bitmap_bytes_.load(std::memory_order_relaxed);
    return out;
  }

 protected:
  using Base::audit_, Base::bits_of, Base::blocks_in, Base::extent_shift_, Base::extents_;
  using typename Base::Extent;
};

}  // namespace perdure::heap
