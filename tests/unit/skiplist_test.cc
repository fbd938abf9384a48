// The skiplists where their own bytes show: a node that is damaged before an operation comes upon
// it.
#include <cstring>
#include <string>
#include <vector>

#include "index/skiplist/node.h"
#include "tests/conformance/support.h"

namespace perdure::test {
namespace {

using skiplist::Node;

constexpr std::uint64_t kKeys = 40;
std::uint64_t key_of(std::uint64_t i) { return mix(i) | 1; }
std::uint64_t value_of(std::uint64_t i) { return mix(i + 1'000); }

class SkiplistBytes : public ::testing::TestWithParam<Engine> {
 protected:
  // No thread: whatever is found is found by the operation.
  static constexpr PoolOptions kOptions{
      .durability = Durability::process, .max_size = 16_MiB, .background_threads = 0};
  // What the first operation after an open answers, or the open.
  StatusCode answer(std::uint64_t key, bool erases) {
    auto pool = Pool::open(path_, kOptions);
    if (!pool) return pool.error().code();
    auto map = pool->map<std::uint64_t, std::uint64_t>("m", {.engine = GetParam()});
    if (!map) return map.error().code();
    return erases ? code_of(map->erase(key)) : code_of(map->find(key));
  }
  void SetUp() override {
    Pool pool = open_pool(path_, kOptions);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", {.engine = GetParam()}));
    for (std::uint64_t i = 0; i < kKeys; ++i) must(map.insert(key_of(i), value_of(i)));
    must(pool.close());
    original_ = read_bytes(path_);
  }
  std::size_t place_of(std::uint64_t key) const {
    for (std::size_t at = 0; at + sizeof(Node) <= original_.size(); at += 32) {
      Node node;
      std::memcpy(&node, &original_[at], sizeof(node));
      if (node.key == key && skiplist::height_of(node.state) != 0) return at;
    }
    throw std::runtime_error("no node has the key");
  }
  // One bit of that word of the node.
  void flip(std::size_t node, std::size_t word, unsigned bit) {
    std::string bytes = original_;
    bytes[node + word + bit / 8] = static_cast<char>(bytes[node + word + bit / 8] ^ 1 << bit % 8);
    write_bytes(path_, bytes);
  }
  TempPath path_;
  std::string original_;
};
INSTANTIATE_TEST_SUITE_P(Engines, SkiplistBytes, ::testing::Values(Engine::as, Engine::ascs),
                         [](const auto& row) { return std::string(engine_name(row.param)); });

// An operation that comes before the walk behind the open looks at what it visits: it answers
// corruption, and nothing made up; nor does an erase follow a height that no path has.
TEST_P(SkiplistBytes, NothingIsAnsweredFromADamagedNode) {
  struct Bit {
    std::size_t word;
    unsigned bit;
    bool of_value = false;  // which an erase does not need
  };
  const Bit bits[] = {{offsetof(Node, state), 0},      {offsetof(Node, state), 40, true},
                      {offsetof(Node, state), 58},     {offsetof(Node, state), 62},
                      {offsetof(Node, key), 0},        {offsetof(Node, key), 63},
                      {offsetof(Node, value), 5, true}};
  for (std::uint64_t i = 0; i < kKeys; i += san() ? 13 : 3) {
    const std::size_t node = place_of(key_of(i));
    for (const Bit& bit : bits) {
      for (const bool erases : {false, true}) {
        if (erases && bit.of_value) continue;
        SCOPED_TRACE(::testing::Message() << "key " << i << ", word " << bit.word << ", bit "
                                          << bit.bit << (erases ? ", erase" : ", find"));
        flip(node, bit.word, bit.bit);
        EXPECT_EQ(answer(key_of(i), erases), StatusCode::corruption);
      }
    }
  }
  write_bytes(path_, original_);
  EXPECT_EQ(answer(key_of(0), false), StatusCode::ok);
}

}  // namespace
}  // namespace perdure::test
