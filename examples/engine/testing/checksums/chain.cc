// The checksums of a chain map: root block, links, records.
#include "index/chain/chain.h"

#include "testing/checksums/checksums.h"

namespace perdure::testing {

namespace {

using chain::layout::Node;
using chain::layout::Root;

class Fixer : MapFixer {
 public:
  using MapFixer::MapFixer;

  void run() {
    if (!bytes_.inside(root_, sizeof(Root))) return;
    auto root = bytes_.load<Root>(root_);
    root.fixed_crc = fixed_crc_of(root);
    bytes_.store(root_, root);
    if ((root.shape & 0xFF) > chain::layout::kMaxLogBuckets) return;
    // Damaged links may form cycles.
    std::uint64_t left = bytes_.size() / sizeof(Node);
    sum_ = 0;
    for (std::uint64_t bucket = 0; bucket < root.buckets(); ++bucket) {
      std::uint64_t link = root.table + bucket * sizeof(link);
      while (link != 0 && left > 0) {
        link = fix_link(link);
        if (link != 0) --left;  // a node; the tables of a small pool have more buckets
      }
    }
    root.sum = sum_;
    bytes_.store(root_, root);
  }

 private:
  // Returns the offset of the next link; 0 at the end.
  std::uint64_t fix_link(std::uint64_t link) {
    if (link % sizeof(link) != 0 || !bytes_.inside(link, sizeof(link))) return 0;
    const std::uint64_t node = chain::layout::target_of(bytes_.load<std::uint64_t>(link));
    if (node == 0 || node % 8 != 0 || !bytes_.inside(node, sizeof(Node))) return 0;
    bytes_.store(link, chain::layout::link_word(link, node));
    (void)bytes_.fix_record(node + offsetof(Node, record));
    const std::uint64_t state = node + offsetof(Node, record) + offsetof(RecordPrefix, state);
    sum_ += closed_term(link, node) + closed_term(state, bytes_.load<std::uint64_t>(state));
    return node + offsetof(Node, next);
  }

  std::uint64_t sum_ = 0;
};

}  // namespace

namespace fixers {
void chain(PoolBytes& bytes, std::uint64_t root) { Fixer(bytes, root).run(); }
}  // namespace fixers

}  // namespace perdure::testing
