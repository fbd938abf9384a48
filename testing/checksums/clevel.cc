// The checksums of a clevel map: items, blobs, the list of levels, root block.
#include <algorithm>
#include <cstddef>

#include "index/blob.h"
#include "index/clevel/item.h"
#include "index/closed_sum.h"
#include "testing/checksums/checksums.h"
#include "util/crc32c.h"

namespace perdure::testing {

namespace {

using clevel::Bucket;
using clevel::Item;
using clevel::Root;

class Fixer : MapFixer {
 public:
  using MapFixer::MapFixer;

  void run() {
    if (!bytes_.inside(root_, sizeof(Root))) return;
    auto root = bytes_.load<Root>(root_);
    root.fixed_crc = crc32c(0, &root, offsetof(Root, fixed_crc));
    bytes_values_ = (root.flags & clevel::layout::kBytesValues) != 0;
    for (std::uint64_t& word : root.levels) {
      if (word == 0) continue;
      word &= clevel::kOffsetMask;
      const std::uint64_t check = crc32c(0, &word, sizeof(word)) & 0xFFFF;
      fix_level(word & ~std::uint64_t{63}, word & 63, root.slots);
      word |= check << clevel::kOffsetBits;
    }
    root.slots_sum = sum_;
    bytes_.store(root_, root);
  }

 private:
  void fix_level(std::uint64_t begin, std::uint64_t log, std::uint32_t bucket_slots) {
    if (log > clevel::kMaxLogBuckets || !bytes_.inside(begin, sizeof(Bucket) << log)) return;
    for (std::uint64_t n = 0; n < std::uint64_t{1} << log; ++n) {
      const auto bucket = bytes_.load<Bucket>(begin + n * sizeof(Bucket));
      for (std::uint32_t i = 0; i < std::min<std::uint32_t>(bucket_slots, 8); ++i) {
        const std::uint64_t word = bucket.slots[i];
        sum_ += closed_term(begin + n * sizeof(Bucket) + i * sizeof(word), word);
        if (word != 0 && word != clevel::kSealed) fix_item(word & clevel::kOffsetMask);
      }
    }
  }

  void fix_item(std::uint64_t at) {
    if (at % 8 != 0 || !bytes_.inside(at, sizeof(Item))) return;
    const auto item = bytes_.load<Item>(at);
    if (!clevel::is_live(item.state) || !bytes_.inside(at, clevel::item_bytes(item.state))) return;
    if (bytes_values_ && item.value > clevel::kGone) fix_blob(item.value);
    const std::uint64_t shape = item.state >> 32 << 32 & ~clevel::kClosed;
    const auto* there = reinterpret_cast<const Item*>(bytes_.at(at));
    const std::uint64_t open =
        shape | clevel::item_crc(shape, clevel::key_of(there), clevel::value_of(there, shape));
    bytes_.store(at,
                 clevel::is_closed(item.state) ? clevel::toggle_closed(open, item.value) : open);
  }

  void fix_blob(std::uint64_t at) {
    if (!bytes_.inside(at, sizeof(Blob))) return;
    auto blob = bytes_.load<Blob>(at);
    if (!bytes_.inside(at + sizeof(Blob), blob.size)) return;
    blob.crc = Blob::checksum(at, {bytes_.at(at + sizeof(Blob)), blob.size});
    bytes_.store(at, blob);
  }

  bool bytes_values_ = false;
  std::uint64_t sum_ = 0;  // of the slots
};

}  // namespace

namespace fixers {
void clevel(PoolBytes& bytes, std::uint64_t root) { Fixer(bytes, root).run(); }
}  // namespace fixers

}  // namespace perdure::testing
