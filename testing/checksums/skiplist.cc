// The checksums of a skiplist, `as` or `ascs`: links, nodes, blobs, root block.
#include <algorithm>
#include <cstddef>

#include "index/blob.h"
#include "index/skiplist/node.h"
#include "testing/checksums/checksums.h"
#include "util/crc32c.h"

namespace perdure::testing {

namespace {

using skiplist::kErased;
using skiplist::kOffsetMask;
using skiplist::Node;
using skiplist::layout::Root;

class Fixer : MapFixer {
 public:
  using MapFixer::MapFixer;

  void run() {
    if (!bytes_.inside(root_, sizeof(Root))) return;
    const auto levels = bytes_.load<Root>(root_).max_height;
    const auto flags = bytes_.load<Root>(root_).flags;
    bytes_values_ = (flags & skiplist::layout::kBytesValues) != 0;
    std::uint64_t at = fix_links(root_ + offsetof(Root, first_link), levels);
    for (std::uint64_t budget = bytes_.size() / sizeof(Node); at != 0 && budget > 0; --budget) {
      at = (flags & skiplist::layout::kBytesKeys) != 0 ? fix_node<true>(at) : fix_node<false>(at);
    }
    auto root = bytes_.load<Root>(root_);
    root.fixed_crc = crc32c(0, &root, offsetof(Root, fixed_crc));
    root.nodes_sum = sum_;
    bytes_.store(root_, root);
  }

 private:
  // The offset that the lowest of these links names; 0: none.
  std::uint64_t fix_links(std::uint64_t at, std::uint32_t levels) {
    for (std::uint32_t level = std::min<std::uint32_t>(levels, 31); level-- > 0;) {
      const std::uint64_t place = at + 8 * std::uint64_t{level};
      if (!bytes_.inside(place, 8)) continue;
      const std::uint64_t offset = bytes_.load<std::uint64_t>(place) & kOffsetMask;
      bytes_.store(place, skiplist::link_to(offset));
      if (level == 0) return offset;
    }
    return 0;
  }

  // The node that comes next; 0: none, or no node lies here.
  template <bool kBytesKey>
  std::uint64_t fix_node(std::uint64_t at) {
    const skiplist::Shape<kBytesKey> shape{.bytes_values = bytes_values_};
    if (at % 8 != 0 || !bytes_.inside(at, sizeof(Node))) return 0;
    auto node = bytes_.load<Node>(at);
    if (!bytes_.inside(at, shape.node_bytes(node.state))) return 0;
    if (bytes_values_ && node.value != 0) node.value = fix_blob(node.value & kOffsetMask);
    const auto* there = reinterpret_cast<const Node*>(bytes_.at(at));
    const std::string_view key{shape.key_bytes(there, node.state), shape.key_size(node.state)};
    const std::string_view value{shape.value_bytes(there, node.state),
                                 shape.inline_size(node.state)};
    const std::uint64_t plain = node.state & ~(kErased | 0xFFFFFFFFULL | shape.check_mask());
    node.state = plain | shape.crc(plain, node.key, key, value);
    sum_ += shape.closed_term(at, node.state);
    node.state = shape.with_value(node.state, node.value);
    bytes_.store(at, node);
    return fix_links(at + sizeof(Node), skiplist::height_of(plain));
  }

  // The link to it.
  std::uint64_t fix_blob(std::uint64_t at) {
    if (bytes_.inside(at, sizeof(Blob))) {
      auto blob = bytes_.load<Blob>(at);
      if (bytes_.inside(at + sizeof(Blob), blob.size)) {
        blob.crc = Blob::checksum(at, {bytes_.at(at + sizeof(Blob)), blob.size});
        bytes_.store(at, blob);
      }
    }
    return skiplist::link_to(at);
  }

  bool bytes_values_ = false;
  std::uint64_t sum_ = 0;  // of the nodes
};

}  // namespace

namespace fixers {
void as(PoolBytes& bytes, std::uint64_t root) { Fixer(bytes, root).run(); }
void ascs(PoolBytes& bytes, std::uint64_t root) { Fixer(bytes, root).run(); }
}  // namespace fixers

}  // namespace perdure::testing
