// The checksums of a map of the multi-version store: records, segments, blocks of the key chain,
// root block.
#include <cstddef>
#include <vector>

#include "index/pskiplist/layout.h"
#include "index/record.h"
#include "testing/checksums/checksums.h"
#include "util/crc32c.h"

namespace perdure::testing {

namespace {

using pskiplist::layout::Block;
using pskiplist::layout::Entry;
using pskiplist::layout::Root;
using pskiplist::layout::Segment;
using pskiplist::layout::Slot;

constexpr std::uint64_t kSlots = pskiplist::DefaultGeometry::kBlockSlots;

class Fixer : MapFixer {
 public:
  using MapFixer::MapFixer;

  void run() {
    if (!bytes_.inside(root_, sizeof(Root))) return;
    auto root = bytes_.load<Root>(root_);
    bytes_keys_ = (root.flags & pskiplist::layout::kBytesKeys) != 0;
    record_values_ = (root.flags & pskiplist::layout::kRecordValues) != 0;
    budget_ = bytes_.size() / sizeof(Entry) + 1;  // chains may run in circles
    for (std::uint64_t at = root.chain;
         at != 0 && bytes_.inside(at, sizeof(Block) + kSlots * sizeof(Slot)) && budget_ > 0;
         at = fix_block(at)) {
    }
    root.fixed_crc = crc32c(0, &root, offsetof(Root, fixed_crc));
    const std::uint32_t place = crc32c(0, &root_, sizeof(root_));
    root.close_crc = crc32c(place, &root.chain, offsetof(Root, close_crc) - offsetof(Root, chain));
    bytes_.store(root_, root);
  }

 private:
  // Returns the next block.
  std::uint64_t fix_block(std::uint64_t at) {
    std::vector<std::uint64_t> states;  // of key records
    for (std::uint64_t i = 0; i < kSlots; ++i) {
      const auto slot = bytes_.load<Slot>(at + sizeof(Block) + i * sizeof(Slot));
      if (slot.first.stamp == 0) continue;
      if (bytes_keys_) {
        (void)bytes_.fix_record(slot.key);
        if (slot.key % 16 == 0 && bytes_.inside(slot.key, sizeof(RecordPrefix))) {
          states.push_back(bytes_.load<RecordPrefix>(slot.key).state);
        }
      }
      fix_entry(slot.first);
      std::uint64_t segment = slot.more;
      while (segment != 0 && budget_ > 0) segment = fix_segment(segment);
    }
    auto block = bytes_.load<Block>(at);
    std::uint32_t crc = crc32c(0, &at, sizeof(at));
    crc = crc32c(crc, &block.next, sizeof(block.next));
    crc = crc32c(crc, bytes_.at(at + sizeof(Block)), kSlots * sizeof(Slot));
    block.crc = crc32c(crc, states.data(), states.size() * sizeof(std::uint64_t));
    bytes_.store(at, block);
    --budget_;
    return block.next;
  }

  std::uint64_t fix_segment(std::uint64_t at) {
    const std::uint64_t size = bytes_.block_bytes(at);
    if (size < sizeof(Segment) + sizeof(Entry) || !bytes_.inside(at, size)) return 0;
    const std::uint64_t entries = (size - sizeof(Segment)) / sizeof(Entry);
    for (std::uint64_t i = 0; i < entries; ++i) {
      fix_entry(bytes_.load<Entry>(at + sizeof(Segment) + i * sizeof(Entry)));
    }
    auto segment = bytes_.load<Segment>(at);
    const std::uint32_t place = crc32c(0, &at, sizeof(at));
    segment.crc = crc32c(crc32c(place, &segment.next, sizeof(segment.next)),
                         bytes_.at(at + sizeof(Segment)), entries * sizeof(Entry));
    bytes_.store(at, segment);
    --budget_;
    return segment.next;
  }

  void fix_entry(const Entry& entry) {
    const bool names = (entry.stamp & (pskiplist::layout::kRemoved |  //
                                       pskiplist::layout::kDropped)) == 0;
    if (record_values_ && entry.stamp != 0 && names) (void)bytes_.fix_record(entry.value);
  }

  bool bytes_keys_ = false;
  bool record_values_ = false;
  std::uint64_t budget_ = 0;
};

}  // namespace

namespace fixers {
void pskiplist(PoolBytes& bytes, std::uint64_t root) { Fixer(bytes, root).run(); }
}  // namespace fixers

}  // namespace perdure::testing
