// The checksums of a PhaST map: records, leaves, root block.
#include <cstddef>

#include "index/phast/codec.h"
#include "index/phast/layout.h"
#include "index/record.h"
#include "testing/checksums/checksums.h"
#include "util/crc32c.h"

namespace perdure::testing {

namespace {

using Leaf = phast::layout::Leaf<phast::DefaultGeometry>;
using phast::layout::Root;

class Fixer : MapFixer {
 public:
  using MapFixer::MapFixer;

  void run() {
    if (!bytes_.inside(root_, sizeof(Root))) return;
    auto root = bytes_.load<Root>(root_);
    if (root.partition_bits > 16) return;
    const std::uint64_t master_bytes = (1ULL << root.partition_bits) * 8;
    const std::uint64_t master = root_ + sizeof(Root);
    if (!bytes_.inside(master, master_bytes)) return;
    bytes_keys_ = (root.flags & phast::layout::kBytesKeys) != 0;
    records_ = bytes_keys_ || (root.flags & phast::layout::kRecordValues) != 0;
    word_records_ = (root.flags & phast::layout::kWordRecords) != 0;
    budget_ = bytes_.size() / sizeof(Leaf) + 1;  // a chain may run in a circle
    for (std::uint64_t p = 0; p < master_bytes; p += 8) {
      fix_chain(bytes_.load<std::uint64_t>(master + p));
    }
    if (records_ && !bytes_keys_ && root.zero_present != 0) {
      (void)bytes_.fix_record(root.zero_value);
    }
    root.fixed_crc =
        crc32c(crc32c(0, &root, offsetof(Root, fixed_crc)), bytes_.at(master), master_bytes);
    root.close_crc = crc32c(0, &root.zero_value, 16);
    bytes_.store(root_, root);
  }

 private:
  void fix_chain(std::uint64_t at) {
    for (; at != 0 && bytes_.inside(at, sizeof(Leaf)) && budget_ > 0; --budget_) {
      auto leaf = bytes_.load<Leaf>(at);
      if (bytes_keys_) (void)bytes_.fix_record(leaf.bound);
      std::uint32_t values = 0;
      for (phast::layout::Entry& entry : leaf.entries) {
        if (records_ && (bytes_keys_ ? entry.value : entry.key) != 0) fix_entry(entry, values);
      }
      if (word_records_) leaf.values_crc = values;
      leaf.crc = crc32c(crc32c(0, &leaf, offsetof(Leaf, crc)), &leaf.values_crc,
                        sizeof(Leaf) - offsetof(Leaf, values_crc));
      bytes_.store(at, leaf);
      at = leaf.next;
    }
  }

  void fix_entry(const phast::layout::Entry& entry, std::uint32_t& values) {
    const std::uint64_t record = entry.value & phast::kOffsetMask;
    (void)bytes_.fix_record(record);
    if (!bytes_.inside(record, sizeof(RecordPrefix))) return;
    const std::uint64_t word = bytes_.load<RecordPrefix>(record).value;
    // A chain of checksums from 0 on equals the checksum of the words in a row.
    values = crc32c(values, &word, sizeof(word));
  }

  bool bytes_keys_ = false;
  bool records_ = false;
  bool word_records_ = false;
  std::uint64_t budget_ = 0;
};

}  // namespace

namespace fixers {
void phast(PoolBytes& bytes, std::uint64_t root) { Fixer(bytes, root).run(); }
}  // namespace fixers

}  // namespace perdure::testing
