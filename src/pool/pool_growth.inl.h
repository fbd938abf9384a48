// PoolCore: growth, on demand and ahead of it. Included by pool_core.h only.
#pragma once

#include "pool/pool_core.h"

namespace perdure {

template <Platform P>
Expected<std::uint64_t> PoolCore<P>::grow(std::uint64_t extents) noexcept {
  LatchGuard guard(latch_);
  unseal();
  PERDURE_ASSERT(P, "pool.I4", is_dirty());
  const std::uint64_t now = extents_in(header_.file_bytes);
  const std::uint64_t max = extents_in(header_.max_bytes);
  if (extents > max - now) {
    return refuse_growth(
        Status::format(StatusCode::pool_full,
                       "the pool is full: %llu of %llu bytes; erase entries, or load into a pool "
                       "with a larger max_size",
                       static_cast<unsigned long long>(header_.file_bytes),
                       static_cast<unsigned long long>(header_.max_bytes)));
  }
  std::uint64_t want = std::min(std::max(extents, growth_of(now)), max - now);
  for (;;) {
    const std::uint64_t table_begin = header_.table_offset + now * 8;
    Status s =
        storage_.allocate(table_begin / kPage * kPage,
                          align_up(table_begin + want * 8, kPage) - table_begin / kPage * kPage);
    if (s.ok()) s = storage_.allocate(header_.file_bytes, want * header_.extent_bytes);
    if (s.ok()) break;
    if (s == StatusCode::poisoned) platform_.poison();  // the file lacks what the pool has
    if (want == extents || s != StatusCode::pool_full) return refuse_growth(std::move(s));
    want = extents;  // the medium is nearly full: ask for no more than is needed
  }
  const std::uint64_t bytes = header_.file_bytes + want * header_.extent_bytes;
  PERDURE_ASSERT(P, "pool.I2", bytes <= storage_.size());
  if (platform_.durable()) {  // the new length must not be lost after the header names it
    if (Status s = sync_storage(header_.file_bytes, bytes - header_.file_bytes); !s.ok()) {
      return fail(std::move(s));
    }
  }
  if (Status s = claim_words(now, want); !s.ok()) return fail(std::move(s));
  header_.file_bytes = bytes;
  expected_ -= std::min(expected_, want);
  if (Status s = write_header(false); !s.ok()) return fail(std::move(s));
  growth_refused_ = false;
  growth_ahead_.grown(background_, bytes);
  return extents_in(bytes);
}

// Told once until it grows again: every insert into a full pool asks for it.
template <Platform P>
std::unexpected<Status> PoolCore<P>::refuse_growth(Status why) noexcept {
  if (!growth_refused_) {
    const std::string_view text = why.message();
    background_.log().say(LogLevel::warning, "growth was refused: %.*s",
                          static_cast<int>(text.size()), text.data());
  }
  growth_refused_ = true;
  return fail(std::move(why));
}

// pool.I2, where it is not so: a header that is lost takes growth back whose extents were used, and
// what they hold stays. Such extents are free, so that they are zeroed where that is relied upon;
// those of a run are known by its head. Nor has any open looked at words of extents that never
// were: a bit that has flipped in one would be the end of a pool that lacks nothing.
template <Platform P>
Status PoolCore<P>::claim_words(std::uint64_t first, std::uint64_t count) noexcept {
  const std::uint64_t offset = header_.table_offset + first * 8;
  auto* words = reinterpret_cast<std::uint64_t*>(storage_.base() + offset);
  bool wrote = false;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t extent = first + i;
    const std::uint64_t found = platform_.load(words[i]);
    ExtentWord word;
    if (ExtentWord::decode(found, extent, word) && word.state == ExtentState::run) {
      used_until_ = std::max(used_until_, extent + word.run);
    }
    if (found == 0 && extent >= used_until_) continue;
    platform_.store(words[i], ExtentWord{.state = ExtentState::free}.encode(extent));
    wrote = true;
  }
  if (!wrote || !platform_.durable()) return {};
  const std::uint64_t begin = offset / kPage * kPage;
  return sync_storage(begin, align_up(offset + count * 8, kPage) - begin);
}

template <Platform P>
void PoolCore<P>::expect(std::uint64_t extents) noexcept {
  LatchGuard guard(latch_);
  expected_ = std::max(expected_, extents);
  growth_ahead_.expected(background_, expected_ * header_.extent_bytes);
}

template <Platform P>
bool PoolCore<P>::prepare_growth(std::uint64_t bytes) noexcept {
  LatchGuard guard(latch_);
  if (!open_ || platform_.poisoned()) return false;
  const std::uint64_t now = extents_in(header_.file_bytes);
  const std::uint64_t want =
      std::min(std::max(growth_of(now), expected_), extents_in(header_.max_bytes) - now);
  const std::uint64_t begin = std::max(storage_.size(), header_.file_bytes);
  const std::uint64_t end = header_.file_bytes + want * header_.extent_bytes;
  if (begin >= end) return false;
  // Pieces end at multiples, so that each is huge pages where the system has them.
  const std::uint64_t piece = std::min(end, (begin / bytes + 1) * bytes) - begin;
  return storage_.allocate(begin, piece).ok();
}

}  // namespace perdure
