// test: tsan, cross
// The skiplists where their own bytes show: nodes, values and links that are damaged before an
// operation comes upon them.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "index/blob.h"
#include "index/skiplist/node.h"
#include "platform/real_platform.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using skiplist::Node;

constexpr std::uint64_t kKeys = 40;
std::uint64_t key_of(std::uint64_t i) { return mix(i) | 1; }
std::uint64_t value_of(std::uint64_t i) { return mix(i + 1'000); }
std::string text_of(std::uint64_t i) { return std::string(40, static_cast<char>('a' + i % 26)); }

// No thread: whatever is found is found by the operation.
constexpr PoolOptions kOptions{
    .durability = Durability::process, .max_size = 16_MiB, .background_threads = 0};

// A closed pool, and its bytes.
class SkiplistFile : public ::testing::TestWithParam<Engine> {
 protected:
  template <class V>
  Expected<Map<std::uint64_t, V>> map(Pool& pool, const char* name = "m") {
    return pool.map<std::uint64_t, V>(name, {.engine = GetParam()});
  }
  void make(const std::function<void(Pool&)>& fill) {
    Pool pool = open_pool(path_, kOptions);
    fill(pool);
    must(pool.close());
    original_ = read_bytes(path_);
  }
  std::size_t place_of(std::uint64_t key) const {
    for (std::size_t at = 0; at + sizeof(Node) <= original_.size(); at += 32) {
      const Node node = node_at(at);
      if (node.key == key && skiplist::height_of(node.state) != 0) return at;
    }
    throw std::runtime_error("no node has the key");
  }
  std::size_t place_of_root() const {
    for (std::size_t at = 0; at + sizeof(skiplist::layout::Root) <= original_.size(); at += 64) {
      if (word_at(at) == skiplist::layout::kRootMagic) return at;
    }
    throw std::runtime_error("no root block");
  }
  Node node_at(std::size_t at) const {
    Node node;
    std::memcpy(&node, &original_[at], sizeof(node));
    return node;
  }
  std::uint64_t word_at(std::size_t at) const {
    std::uint64_t word = 0;
    std::memcpy(&word, &original_[at], sizeof(word));
    return word;
  }
  // One word of the file is another one.
  void set_word(std::size_t at, std::uint64_t word) {
    std::string bytes = original_;
    std::memcpy(&bytes[at], &word, sizeof(word));
    write_bytes(path_, bytes);
  }
  // One bit of that word of the node.
  void flip(std::size_t node, std::size_t word, unsigned bit) {
    set_word(node + word, word_at(node + word) ^ 1ULL << bit);
  }
  TempPath path_;
  std::string original_;
};

class SkiplistBytes : public SkiplistFile {
 protected:
  // Returns the code of the first operation after an open, or of the open.
  StatusCode code_after_open(std::uint64_t key, bool erases) {
    auto pool = Pool::open(path_, kOptions);
    if (!pool) return pool.error().code();
    auto map = this->map<std::uint64_t>(*pool);
    if (!map) return map.error().code();
    return erases ? code_of(map->erase(key)) : code_of(map->get(key));
  }
  void SetUp() override {
    make([&](Pool& pool) {
      auto map = must(this->map<std::uint64_t>(pool));
      for (std::uint64_t i = 0; i < kKeys; ++i) must(map.insert(key_of(i), value_of(i)));
    });
  }
};
// Two maps of byte strings, each value in a block of its own; the bits that are flipped are the
// first one's.
class SkiplistBlobs : public SkiplistFile {
 protected:
  void SetUp() override {
    make([&](Pool& pool) {
      for (const char* name : {"m", "other"}) {
        auto map = must(this->map<std::string_view>(pool, name));
        for (std::uint64_t i = 0; i < kKeys; ++i) must(map.insert(key_of(i) + name[0], "old"));
        for (std::uint64_t i = 0; i < kKeys; ++i) {
          must(map.update(key_of(i) + name[0], text_of(i)));
        }
      }
    });
  }
  // Others get the chance to take what was freed.
  void reuse(Pool& pool) {
    auto third = must(this->map<std::string_view>(pool, "third"));
    for (std::uint64_t i = 0; i < 200; ++i) must(third.insert(i, std::string(40, '!')));
  }
  // Everything in the map but this key.
  void expect_others(Pool& pool, const char* name, std::uint64_t but = kKeys) {
    auto map = must(this->map<std::string_view>(pool, name));
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      if (i == but) continue;
      require(must(map.get(key_of(i) + name[0])) == std::optional(text_of(i)),
              std::string("another value of ") + name + " has changed");
    }
  }
};
const auto kNames = [](const auto& row) { return std::string(engine_name(row.param)); };
const auto kBoth = ::testing::Values(Engine::as, Engine::ascs);
INSTANTIATE_TEST_SUITE_P(Engines, SkiplistBytes, kBoth, kNames);
INSTANTIATE_TEST_SUITE_P(Engines, SkiplistBlobs, kBoth, kNames);
class Skiplists : public SkiplistFile {};
INSTANTIATE_TEST_SUITE_P(Engines, Skiplists, kBoth, kNames);

// An operation before the walk behind the open checks what it visits. It returns corruption, and
// nothing made up. An erase does not follow a height that no path has.
TEST_P(SkiplistBytes, NothingIsReturnedFromADamagedNode) {
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
        EXPECT_EQ(code_after_open(key_of(i), erases), StatusCode::corruption);
      }
    }
  }
  write_bytes(path_, original_);
  EXPECT_EQ(code_after_open(key_of(0), false), StatusCode::ok);
}

// A process that was killed, an open that is closed before its walk has come anywhere: then a bit
// flips in a pool that was closed cleanly, as all others.
TEST_P(SkiplistBytes, ValuesAreCheckedAfterAKillAndAQuickClose) {
  const ChildEnd end = run_child([&] {
    Pool pool = open_pool(path_, kOptions);
    auto map = must(this->map<std::uint64_t>(pool));
    must(map.update(key_of(0), 7));
    _exit(0);
  });
  ASSERT_TRUE(end.ok()) << end;
  must(open_pool(path_, kOptions).close());
  original_ = read_bytes(path_);
  for (const std::uint64_t i : {0, 1, 17, 39}) {
    flip(place_of(key_of(i)), offsetof(Node, value), 13);
    EXPECT_EQ(code_after_open(key_of(i), false), StatusCode::corruption) << "key " << i;
  }
}

// A root that says what the directory does not, with a checksum that fits.
TEST_P(SkiplistBytes, FlagsAreThoseOfTheDirectory) {
  const std::size_t at = place_of_root();
  for (unsigned bit = 0; bit < 32; ++bit) {
    skiplist::layout::Root root;
    std::memcpy(&root, &original_[at], sizeof(root));
    root.flags ^= 1U << bit;
    root.fixed_crc = crc32c(0, &root, offsetof(skiplist::layout::Root, fixed_crc));
    std::string bytes = original_;
    std::memcpy(&bytes[at], &root, sizeof(root));
    write_bytes(path_, bytes);
    EXPECT_EQ(code_of(Pool::open(path_, kOptions)), StatusCode::corruption) << "flag " << bit;
  }
}

// Lines that are lost, or have changed places, may leave a list that is in order: the sum of all
// nodes tells. `ascs` finds it at open. `as` serves what is there; once its walk has been through
// no lookup returns "absent", nothing is vouched for, and the next open knows at once.
TEST_P(SkiplistBytes, ANodeThatIsLostIsFound) {
  const auto expect_found = [&](const std::string& bytes) {
    write_bytes(path_, bytes);
    for (const bool again : {false, true}) {
      auto pool = Pool::open(path_, kOptions);
      if (!pool || GetParam() == Engine::ascs) {
        EXPECT_EQ(code_of(pool), StatusCode::corruption);
        continue;
      }
      auto map = must(this->map<std::uint64_t>(*pool));
      while (must(pool->run_background()) && !again) {
      }
      for (std::uint64_t i = 0; i < kKeys; ++i) {
        const auto found = map.get(key_of(i));
        if (!found) {
          EXPECT_EQ(found.error(), StatusCode::corruption);
        } else {
          EXPECT_EQ(*found, std::optional(value_of(i)));
        }
      }
      for (const std::uint64_t key : {std::uint64_t{2}, ~std::uint64_t{1}}) {
        EXPECT_EQ(code_of(map.get(key)), StatusCode::corruption);
        EXPECT_EQ(code_of(map.insert(key, 1)), StatusCode::corruption);
        EXPECT_EQ(code_of(map.update(key, 1)), StatusCode::corruption);
        EXPECT_EQ(code_of(map.erase(key)), StatusCode::corruption);
      }
      EXPECT_EQ(code_of(map.for_each([](std::uint64_t, std::uint64_t) { return true; })),
                StatusCode::corruption);
      EXPECT_FALSE(must(pool->check()).ok());
      EXPECT_EQ(pool->sync(), StatusCode::corruption);
      EXPECT_EQ(pool->close(), StatusCode::corruption);
    }
  };
  // Those in which nodes begin, the head among them.
  std::vector<std::size_t> lines{place_of_root() + offsetof(skiplist::layout::Root, head)};
  for (std::uint64_t i = 0; i < kKeys; ++i) lines.push_back(place_of(key_of(i)) / kLine * kLine);
  std::ranges::sort(lines);
  lines.erase(std::ranges::unique(lines).begin(), lines.end());
  ASSERT_GT(lines.size(), 20U);
  for (std::size_t i = 0; i < lines.size(); i += san() ? 5 : 1) {
    SCOPED_TRACE(::testing::Message() << "line " << i);
    std::string bytes = original_;
    bytes.replace(lines[i], kLine, kLine, '\0');
    expect_found(bytes);
    if (i == 0) continue;
    bytes = original_;
    bytes.replace(lines[i], kLine, original_, lines[i - 1], kLine);
    bytes.replace(lines[i - 1], kLine, original_, lines[i], kLine);
    expect_found(bytes);
  }
  write_bytes(path_, original_);
  Pool pool = open_pool(path_, kOptions);
  expect_sound(pool);
  must(pool.close());
}

// A link of level 1 that leads to its own node: a check comes to its end and says so. `ascs` makes
// such links anew.
TEST_P(SkiplistBytes, ALevelThatIsACircleIsReported) {
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    const std::size_t at = place_of(key_of(i));
    if (skiplist::height_of(node_at(at).state) < 2) continue;
    set_word(at + sizeof(Node) + 8, skiplist::link_to(at));
    const ChildEnd end = run_child([&] {
      alarm(20);
      Pool pool = open_pool(path_, kOptions);
      const bool sound = must(pool.check({})).ok();
      require(sound == (GetParam() == Engine::ascs), "the check is wrong");
    });
    ASSERT_TRUE(end.ok()) << end << ", key " << i;
  }
}

// A link of level 1 that leads to a node without a level 1, or into one: `as` stores nothing there,
// neither before its walk nor after it. Each value looks like a node of height 3 with the next key.
TEST_P(Skiplists, NothingIsStoredOutsideOfATower) {
  const auto fake = [](std::uint64_t key) {
    const std::uint64_t words[] = {3ULL << 58, key + 1, 0, 0, 0, 0};
    return std::string(reinterpret_cast<const char*>(words), sizeof(words));
  };
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < kKeys; ++i) keys.push_back(key_of(i));
  std::ranges::sort(keys);
  make([&](Pool& pool) {
    auto map = must(this->map<std::string_view>(pool));
    for (const std::uint64_t key : keys) must(map.insert(key, fake(key)));
  });
  const auto height = [&](std::uint64_t key) {
    return skiplist::height_of(node_at(place_of(key)).state);
  };
  std::size_t i = 1;
  while (height(keys.at(i - 1)) < 2 || height(keys.at(i)) != 1) ++i;
  const std::size_t link = place_of(keys[i - 1]) + sizeof(Node) + 8;
  const std::size_t low = place_of(keys[i]);
  for (const std::size_t place : {low, low + sizeof(Node) + 8}) {
    for (const bool walked : {false, true}) {
      SCOPED_TRACE(::testing::Message()
                   << (place == low ? "a node" : "into one") << (walked ? ", walked" : ""));
      set_word(link, skiplist::link_to(place));
      Pool pool = open_pool(path_, kOptions);
      auto map = must(this->map<std::string_view>(pool));
      while (walked && must(pool.run_background())) {
      }
      const StatusCode expected =
          GetParam() == Engine::as ? StatusCode::corruption : StatusCode::ok;
      for (std::uint64_t n = 2; n < 14; ++n) {
        EXPECT_EQ(code_of(map.insert(keys[i] + n, "new")), expected) << "insert " << n;
      }
      if (place == low) {
        EXPECT_EQ(code_of(map.erase(keys[i])), expected);
      }
      const auto report = must(pool.check({.deep = true}));
      EXPECT_EQ(report.ok(), GetParam() == Engine::ascs);
      for (const auto& violation : report.violations) {
        EXPECT_FALSE(std::string_view(violation).contains("checksum")) << violation;
      }
    }
  }
}

// A link of level 1 that fits its check and leads to a whole node that is not in the map: one of
// another map, or one that was erased. `as` stores nothing to such a node, nor behind it, before
// its walk has come there and after it; the walk finds the link. `ascs` makes such links anew.
class SkiplistStrangers : public SkiplistFile {
 protected:
  static constexpr std::uint64_t kNodes = 6'000;  // more than a mutation that helps walks over
  static constexpr std::uint64_t kFar = 5'000;
  static std::uint64_t mine(std::uint64_t i) { return 0x51ABCDEF'00000000 + 4 * i; }
  static std::uint64_t other(std::uint64_t i) { return mine(i) + 2; }

  void fill(Pool& pool) {
    auto m = must(map<std::uint64_t>(pool, "m"));
    auto strangers = must(map<std::uint64_t>(pool, "other"));
    for (std::uint64_t i = 0; i < kNodes; ++i) {
      must(m.insert(mine(i), i));
      must(strangers.insert(other(i), i));
    }
  }
  std::uint32_t height(std::uint64_t key) const {
    return skiplist::height_of(node_at(place_of(key)).state);
  }
  std::size_t link_of(std::uint64_t key) const { return place_of(key) + sizeof(Node) + 8; }

  // Opens the pool, does one thing to the map, and expects that it is refused, or `otherwise`, and
  // that the other map has its entries.
  using Call = std::function<StatusCode(Map<std::uint64_t, std::uint64_t>&)>;
  void expect_refused(bool walked, StatusCode otherwise, const Call& call) {
    Pool pool = open_pool(path_, kOptions);
    auto m = must(map<std::uint64_t>(pool, "m"));
    while (walked && must(pool.run_background())) {
    }
    EXPECT_EQ(call(m), GetParam() == Engine::as ? StatusCode::corruption : otherwise);
    auto strangers = must(map<std::uint64_t>(pool, "other"));
    for (std::uint64_t i = 0; i < kNodes; ++i) {
      ASSERT_EQ(must(strangers.get(other(i))), std::optional(i)) << "entry " << i;
    }
    EXPECT_EQ(must(strangers.get(other(kNodes))), std::nullopt);
    EXPECT_EQ(must(pool.check()).ok(), GetParam() == Engine::ascs);
  }
};
INSTANTIATE_TEST_SUITE_P(Engines, SkiplistStrangers, kBoth, kNames);

TEST_P(SkiplistStrangers, NothingIsStoredToAnotherMap) {
  make([&](Pool& pool) { fill(pool); });
  std::uint64_t i = kFar;
  while (height(mine(i)) < 2 || height(mine(i + 1)) != 1 || height(other(i)) < 2) ++i;
  const std::size_t link = link_of(mine(i));
  const std::uint64_t stranger = skiplist::link_to(place_of(other(i)));
  const std::uint64_t behind = other(i + 1);
  const Call calls[] = {[&](auto& m) { return code_of(m.update(behind, 7)); },
                        [&](auto& m) { return code_of(m.put(behind, 7)); },
                        [&](auto& m) { return code_of(m.insert(behind - 1, 7)); },
                        [&](auto& m) { return code_of(m.insert(other(i), 7)); },
                        [&](auto& m) { return code_of(m.erase(behind)); }};
  for (const bool walked : {false, true}) {
    int n = 0;
    for (const Call& call : calls) {
      SCOPED_TRACE(::testing::Message() << "call " << n++ << (walked ? ", walked" : ""));
      set_word(link, stranger);
      expect_refused(walked, StatusCode::ok, call);
    }
  }
}

// The last key was erased and a link to its node has come back, as that of an older page. The mark
// of an erased node need not have become durable.
TEST_P(SkiplistStrangers, NothingIsStoredToAnErasedNode) {
  std::size_t place = 0;
  std::uint64_t last = kNodes;
  make([&](Pool& pool) {
    fill(pool);
    auto m = must(map<std::uint64_t>(pool, "m"));
    // The last key has a node with two levels.
    do {
      must(m.insert(mine(last), last));
      original_ = read_bytes(path_);
    } while (height(mine(last)) < 2 && ++last != 0);
    place = place_of(mine(last));
    must(m.erase(mine(last)));
  });
  std::uint64_t i = last - 1;
  while (height(mine(i)) < 2) --i;
  const std::size_t link = link_of(mine(i));
  ASSERT_EQ(word_at(link), 0U);
  const std::uint64_t state = word_at(place) & ~skiplist::kErased;
  ASSERT_EQ(word_at(place + offsetof(Node, key)), mine(last));
  const Call calls[] = {[&](auto& m) { return code_of(m.update(mine(last), 7)); },
                        [&](auto& m) { return code_of(m.put(mine(last), 7)); },
                        [&](auto& m) { return code_of(m.erase(mine(last))); },
                        [&](auto& m) { return code_of(m.insert(mine(last) + 1, 7)); }};
  for (const bool walked : {false, true}) {
    int n = 0;
    for (const Call& call : calls) {
      SCOPED_TRACE(::testing::Message() << "call " << n++ << (walked ? ", walked" : ""));
      std::string bytes = original_;
      const std::uint64_t to = skiplist::link_to(place);
      std::memcpy(&bytes[link], &to, sizeof(to));
      std::memcpy(&bytes[place], &state, sizeof(state));
      write_bytes(path_, bytes);
      expect_refused(walked, StatusCode::ok, call);
    }
  }
}

// A value that would begin in the middle of a block, whose bytes there read as a size that fits.
TEST_P(Skiplists, AValueBeginsWithABlock) {
  constexpr std::uint64_t kSize = 60'000;
  std::string large;
  while (large.size() < 2 * kSize) large.append(reinterpret_cast<const char*>(&kSize), 8);
  make([&](Pool& pool) {
    auto map = must(this->map<std::string_view>(pool));
    must(map.insert(key_of(0), std::string(2'000, 'a')));
    must(map.insert(key_of(1), large));
  });
  const std::size_t block = node_at(place_of(key_of(1))).value & skiplist::kOffsetMask;
  set_word(place_of(key_of(0)) + offsetof(Node, value), skiplist::link_to(block + 4096));
  auto pool = Pool::open(path_, kOptions);
  if (GetParam() == Engine::ascs) {
    EXPECT_EQ(code_of(pool), StatusCode::corruption);
    return;
  }
  auto map = must(this->map<std::string_view>(*pool));
  EXPECT_EQ(code_of(map.get(key_of(0))), StatusCode::corruption);
  EXPECT_EQ(must(map.get(key_of(1))), std::optional(large));
}

// An erase frees, and an update replaces, what the value word names: nothing if that is damaged, or
// it would be another key's.
TEST_P(SkiplistBlobs, ADamagedReferenceIsNotFreed) {
  for (std::uint64_t i = 0; i < kKeys; i += 13) {
    const std::size_t node = place_of(key_of(i) + 'm');
    ASSERT_NE(node_at(node).value, 0U);
    for (unsigned bit = 0; bit < 64; bit += bit < 20 ? 1 : 9) {
      flip(node, offsetof(Node, value), bit);
      for (const int operation : {0, 1, 2}) {
        auto pool = Pool::open(path_, kOptions);
        if (!pool) {
          EXPECT_EQ(code_of(pool), StatusCode::corruption);
          break;
        }
        auto map = must(this->map<std::string_view>(*pool));
        const std::uint64_t key = key_of(i) + 'm';
        const auto done = operation == 0   ? map.erase(key)
                          : operation == 1 ? map.put(key, "new")
                                           : map.update(key, "new");
        EXPECT_EQ(code_of(done), StatusCode::corruption)
            << "key " << i << ", bit " << bit << ", operation " << operation;
        reuse(*pool);
        expect_others(*pool, "m", i);
        expect_others(*pool, "other");
        pool = fail(StatusCode::ok);
        flip(node, offsetof(Node, value), bit);
      }
    }
  }
}

// A map that is dropped before its walk has seen the damage is walked first, and gives back
// nothing: the next open frees what no map reaches.
TEST_P(SkiplistBlobs, DroppingADamagedMapHarmsNoOther) {
  const auto drop = [&](std::uint64_t i, const char* what, unsigned bit) {
    const ChildEnd end = run_child([&] {
      alarm(30);
      auto pool = Pool::open(path_, kOptions);
      if (!pool) {
        require(code_of(pool) == StatusCode::corruption, "open: " + describe(pool.error()));
        return;
      }
      must(pool->drop("m"));
      reuse(*pool);
      expect_others(*pool, "other");
      if (const Status s = pool->close(); !s.ok()) {
        require(s == StatusCode::corruption, "close: " + describe(s));
      }
      pool = must(Pool::open(path_, kOptions));
      reuse(*pool);
      expect_others(*pool, "other");
      const auto report = must(pool->check({.deep = true}));
      require(report.ok(), std::string(report.first()));
    });
    EXPECT_TRUE(end.ok()) << end << ", key " << i << ", " << what << " " << bit;
  };
  for (const std::uint64_t i : {0, 11, 39}) {
    const std::size_t node = place_of(key_of(i) + 'm');
    for (unsigned bit = 0; bit < 64; bit += san() ? 9 : bit < 42 ? 6 : 3) {
      flip(node, offsetof(Node, value), bit);
      drop(i, "value", bit);
      flip(node, sizeof(Node), bit);
      drop(i, "link", bit);
    }
    // A circle, as pages of another time would make it.
    set_word(node + sizeof(Node), skiplist::link_to(place_of(key_of(i) + 'm')));
    drop(i, "circle", 0);
  }
}

// Two keys with one value: a drop would free it twice, and the heap hand it out twice.
TEST_P(SkiplistBlobs, AValueOfTwoKeysIsNotFreedTwice) {
  const std::uint64_t value = node_at(place_of(key_of(0) + 'm')).value;
  set_word(place_of(key_of(1) + 'm') + offsetof(Node, value), value);
  auto pool = Pool::open(path_, kOptions);
  if (GetParam() == Engine::ascs) {  // walks before it serves
    EXPECT_EQ(code_of(pool), StatusCode::corruption);
    return;
  }
  must(pool->drop("m"));
  EXPECT_GT(must(pool->check()).leaked_blocks, 0U) << "it was given back";
  reuse(*pool);
  expect_others(*pool, "other");
  must(pool->close());
  pool = Pool::open(path_, kOptions);
  expect_others(*pool, "other");
  const auto report = must(pool->check({.deep = true}));
  EXPECT_TRUE(report.ok()) << report.first();
  EXPECT_EQ(report.leaked_blocks, 0U);
}

// A value that is whole, and another key's.
TEST_P(SkiplistBlobs, AValueInThePlaceOfAnotherIsFound) {
  for (std::uint64_t i = 1; i < kKeys; i += 5) {
    std::size_t places[2];
    for (const std::uint64_t k : {0, 1}) {
      places[k] = node_at(place_of(key_of(i - k) + 'm')).value & skiplist::kOffsetMask;
    }
    const std::size_t size = sizeof(Blob) + text_of(i).size();
    std::string bytes = original_;
    bytes.replace(places[0], size, original_, places[1], size);
    bytes.replace(places[1], size, original_, places[0], size);
    write_bytes(path_, bytes);
    Pool pool = open_pool(path_, kOptions);
    EXPECT_FALSE(must(pool.check({.deep = true})).ok()) << "key " << i;
  }
}

// A5: the head's links lie in several lines, so a crash may keep those of an emptied map that are
// far up. `as` has stored them in order: such a link is damage.
TEST_P(Skiplists, A5_TheLinksOfAnEmptiedHeadAreNotFollowed) {
  make([&](Pool& pool) { must(this->map<std::uint64_t>(pool)); });
  const std::size_t root = place_of_root();
  for (const std::size_t level : {1, 5, 12, 23}) {
    SCOPED_TRACE(level);
    set_word(root + offsetof(skiplist::layout::Root, first_link) + 8 * level,
             skiplist::link_to(root + 4096));  // nothing lies there
    auto pool = Pool::open(path_, kOptions);
    if (GetParam() == Engine::as) {
      EXPECT_EQ(code_of(pool), StatusCode::corruption);
      continue;
    }
    auto map = must(this->map<std::uint64_t>(*pool));
    EXPECT_TRUE(must(pool->check({})).ok());
    for (std::uint64_t i = 0; i < 500; ++i) ASSERT_TRUE(was_absent(map.insert(key_of(i), i)));
    for (std::uint64_t i = 0; i < 500; ++i) {
      ASSERT_EQ(must(map.get(key_of(i))), std::optional(i)) << "key " << i;
    }
    expect_sound(*pool);
  }
}

// A scan that stands on an entry that is erased meanwhile delivers nothing of what went behind it.
TEST_P(Skiplists, AScanOnAnErasedEntryLooksAgain) {
  constexpr std::uint64_t kBatch = 64;
  constexpr std::uint64_t kEntries = 400;
  const auto scan_of = [&](auto&& key_at) {
    TempPath path("scan");
    Pool pool = open_pool(path, kOptions);
    using K = std::conditional_t<std::is_same_v<decltype(key_at(0)), std::string>, std::string_view,
                                 std::uint64_t>;
    auto map = must(pool.ordered_map<K, std::uint64_t>("m", {.engine = GetParam()}));
    for (std::uint64_t i = 0; i < kEntries; ++i) must(map.insert(key_at(i), i));
    std::vector<std::uint64_t> seen;
    must(map.for_each([&](K, std::uint64_t i) {
      seen.push_back(i);
      // The last one of a batch goes, and what comes behind it, in this order; it is put in again.
      if (i == kBatch - 1) {
        std::thread([&] {
          for (std::uint64_t e = i; e < 2 * kBatch; ++e) must(map.erase(key_at(e)));
          must(map.insert(key_at(i), i));
        }).join();
      }
    }));
    std::vector<std::uint64_t> expected;
    for (std::uint64_t i = 0; i < kEntries; ++i) {
      if (i < kBatch || i >= 2 * kBatch) expected.push_back(i);
    }
    EXPECT_EQ(seen, expected);
  };
  scan_of([](std::uint64_t i) { return i * 3; });
  scan_of([](std::uint64_t i) { return "customer:" + std::to_string(1'000 + i); });
}

// No checksum covers the state, key and value of the head. No result rests on them, not even that
// of a scan that begins there.
TEST_P(Skiplists, WhatTheHeadHasInCommonWithNodesIsNotRead) {
  make([&](Pool& pool) {
    auto numbers = must(pool.map<std::uint64_t, std::uint64_t>("n", {.engine = GetParam()}));
    auto texts = must(pool.map<std::string_view, std::uint64_t>("t", {.engine = GetParam()}));
    for (std::uint64_t i = 0; i < 3; ++i) {
      must(numbers.insert(i, i));
      must(texts.insert(std::string(i, 'a'), i));
    }
  });
  for (std::size_t bit = 0; bit < 8 * sizeof(Node); ++bit) {
    std::string bytes = original_;
    for (std::size_t at = 0; at + sizeof(skiplist::layout::Root) <= bytes.size(); at += kLine) {
      if (word_at(at) != skiplist::layout::kRootMagic) continue;
      bytes[at + offsetof(skiplist::layout::Root, head) + bit / 8] ^=
          static_cast<char>(1 << bit % 8);
    }
    write_bytes(path_, bytes);
    Pool pool = open_pool(path_, kOptions);
    auto numbers = must(pool.map<std::uint64_t, std::uint64_t>("n", {.engine = GetParam()}));
    auto texts = must(pool.map<std::string_view, std::uint64_t>("t", {.engine = GetParam()}));
    std::vector<std::uint64_t> seen;
    must(numbers.for_each([&](std::uint64_t, std::uint64_t i) { return seen.push_back(i), true; }));
    must(
        texts.for_each([&](std::string_view, std::uint64_t i) { return seen.push_back(i), true; }));
    EXPECT_EQ(seen, (std::vector<std::uint64_t>{0, 1, 2, 0, 1, 2})) << "bit " << bit;
    ASSERT_TRUE(was_present(numbers.erase(0)) && was_absent(numbers.insert(0, 0)));
    ASSERT_TRUE(was_present(texts.erase("")) && was_absent(texts.insert("", 0)));
    EXPECT_TRUE(must(pool.check({.deep = true})).ok()) << "bit " << bit;
  }
}

// What comes and goes before the walk, and behind it, is no loss; nor is a close before its end.
TEST_P(Skiplists, TheWalkKnowsWhatChangesMeanwhile) {
  PERDURE_TRACE_SEED();
  Rng rng;
  std::map<std::uint64_t, std::uint64_t> model;
  const std::uint64_t keys = scaled(4'000, 600);
  for (int round = 0; round < 8; ++round) {
    Pool pool = open_pool(path_, kOptions);
    auto map = must(this->map<std::uint64_t>(pool));
    for (std::uint64_t n = 0; n < keys / 2; ++n) {
      const std::uint64_t key = rng.below(keys);
      if (rng.one_in(2)) {
        ASSERT_EQ(was_absent(map.insert(key, n)), model.emplace(key, n).second);
      } else {
        ASSERT_EQ(was_present(map.erase(key)), model.erase(key) != 0);
      }
      if (round % 4 == 1 && n % 16 == 0) (void)must(pool.run_background());
    }
    if (round % 2 == 0) expect_sound(pool);
    ASSERT_TRUE(pool.close().ok());
  }
  Pool pool = open_pool(path_, kOptions);
  expect_sound(pool);
  auto map = must(this->map<std::uint64_t>(pool));
  EXPECT_EQ(map.stats().entries, model.size());
  for (const auto& [key, value] : model) ASSERT_EQ(must(map.get(key)), std::optional(value));
}

// By threads, beside one of the pool.
TEST_P(Skiplists, TheWalkKnowsWhatThreadsChangeMeanwhile) {
  const PoolOptions options{.durability = Durability::process, .max_size = 64_MiB};
  const std::uint64_t keys = scaled(60'000, 6'000);
  {
    Pool pool = open_pool(path_, options);
    auto map = must(this->map<std::uint64_t>(pool));
    for (std::uint64_t key = 0; key < keys; key += 2) ASSERT_TRUE(was_absent(map.insert(key, key)));
    must(pool.close());
  }
  for (std::uint64_t round = 0; round < scaled(6, 2); ++round) {
    Pool pool = open_pool(path_, options);
    auto map = must(this->map<std::uint64_t>(pool));
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        // Even and odd keys take turns at being there.
        for (std::uint64_t n = t; n < keys / 20; n += 3) {
          const std::uint64_t even = (mix(n + round) % (keys / 6) * 3 + t) * 2;
          const bool there = map.erase(even).present();
          EXPECT_TRUE(there || map.erase(even + 1).present());
          EXPECT_TRUE(map.insert(even + (there ? 1 : 0), n).absent());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (round % 2 == 0) expect_sound(pool);
    ASSERT_TRUE(pool.close().ok());
  }
  Pool pool = open_pool(path_, options);
  expect_sound(pool);
}

// In a full pool the room of an erased entry takes a new one, though its tower would be so high
// that no extent has blocks for it.
TEST_P(Skiplists, AFullPoolTakesAnEntryForEveryOneThatGoes) {
  Pool pool = open_pool(
      path_,
      {.durability = Durability::process, .max_size = kMinPoolSize, .background_threads = 0});
  auto map = must(this->map<std::uint64_t>(pool));
  std::uint64_t next = 0;
  while (map.insert(key_of(next), next).ok()) ++next;
  ASSERT_GT(next, 1'000U);
  const std::uint64_t rounds = scaled(50'000, 5'000);
  for (std::uint64_t oldest = 0; oldest < rounds; ++oldest, ++next) {
    ASSERT_TRUE(was_present(map.erase(key_of(oldest))));
    const auto done = map.insert(key_of(next), next);
    ASSERT_TRUE(done.ok()) << "entry " << next << ": " << describe(done.status());
  }
  expect_sound(pool);
}

}  // namespace
}  // namespace perdure::test
