// Records: makes, reads and checks the records of a map in its heap. The engine passes its own
// sites.
#pragma once

#include "index/engine.h"
#include "index/engine_report.h"
#include "index/record.h"

namespace perdure {

template <Platform P>
class Records {
 public:
  explicit Records(const EngineContext<P>& context) noexcept
      : platform_(context.platform), heap_(context.heap) {}

  const RecordPrefix* at(std::uint64_t offset) const noexcept {
    return heap_.template at<RecordPrefix>(offset);
  }

  // Writes a record and returns its offset. The caller must fence before it links the record,
  // because its block is a plain one.
  template <class WriteSite>
  Expected<std::uint64_t> write(std::string_view key, const detail::Value& value,
                                WriteSite site) const noexcept {
    const std::size_t bytes = RecordView::bytes_needed(key, value);
    auto block = heap_.allocate(bytes, BlockKind::plain);
    if (!block) return block;
    void* memory = heap_.template at<void>(*block);
    RecordView::write(platform_, memory, key, value);
    platform_.flush(memory, bytes, site);
    return block;
  }
  // Writes a record, fences, and returns its offset.
  template <class WriteSite>
  Expected<std::uint64_t> make(std::string_view key, const detail::Value& value,
                               WriteSite site) const noexcept {
    auto block = write(key, value, site);
    if (block && !platform_.fence(site)) return fail(StatusCode::poisoned);
    return block;
  }

  // Returns false if the offset names no record whose lengths fit its block.
  [[gnu::always_inline]] bool read(std::uint64_t offset, detail::Value& value) const noexcept {
    const std::size_t room = heap_.block_bytes(offset);
    if (room == 0) return false;
    const auto record = RecordView::read(platform_, at(offset));
    value = record.value();
    return record.plausible(room);
  }

  // read() of a record that may have another key: then absent. Failed: the lengths do not fit.
  [[gnu::always_inline]] detail::Index::Got read_of(std::string_view key, std::uint64_t offset,
                                                    detail::Value& value) const noexcept {
    using Got = detail::Index::Got;
    // The value may lie in the next line: both are fetched at once.
    const RecordPrefix* const prefix = at(offset);
    __builtin_prefetch(reinterpret_cast<const char*>(prefix) + kLine);
    const std::size_t room = heap_.block_bytes(offset);
    // A damaged offset may lie inside the last block.
    if (room < RecordView::key_end(key.size()) || !heap_.contains(offset, room)) [[unlikely]]
      return Got::failed;
    const auto record = RecordView::read(platform_, prefix);
    if (!record.has_key(key)) return Got::absent;
    value = record.value();
    return record.plausible(room) ? Got::present : Got::failed;
  }

  // ok if the offset can name a record. `deep`: also that it has a block of its own and is intact.
  template <class CrcSite>
  Status check(std::uint64_t offset, bool deep, CrcSite crc) const noexcept {
    const auto bad = [offset](const char* what) {
      return damaged_object("the record", offset, what);
    };
    if (!heap_.contains(offset, sizeof(RecordPrefix)) || offset % 16 != 0) return bad("place");
    if (!deep) return {};
    if (!heap_.is_block(offset)) return bad("place");
    const auto record = RecordView::read(platform_, at(offset));
    if (!record.plausible(heap_.block_bytes(offset))) return bad("lengths");
    if (!matches<P>(record.intact(), crc)) return bad("checksum");
    return {};
  }

  // The error of an operation that needed the record; see MapEngine::of_this_map().
  static Status damaged(std::uint64_t offset) noexcept {
    return damaged_object("the record", offset);
  }

 private:
  P& platform_;
  Heap<P>& heap_;
};

}  // namespace perdure
