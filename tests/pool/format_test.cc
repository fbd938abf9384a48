// test: no asan, cross
// The format of a pool file: pools of other versions, feature bits, the fields of a log, reserved
// bytes. The pools in golden/ are bytes that were written once. The build under test must not
// generate them.
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "format/layout.h"
#include "format/pool_core.h"
#include "tests/support/golden.h"
#include "tests/support/small_pool.h"

namespace perdure::test {
namespace {

using layout::Header;

// The content of the golden pool of this version: a small map of each engine, with records.
constexpr std::uint64_t kGoldenKeys = 5;
MapOptions golden_map(Engine engine) {
  return {.engine = engine, .capacity = 1, .phast = {.partition_bits = 0}, .level = {.buckets = 4}};
}
void fill_golden(Pool& pool) {
  for (const EngineInfo& engine : kEngines) {
    const MapOptions options = golden_map(engine.engine);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>(engine.name, options));
    for (std::uint64_t i = 0; i < kGoldenKeys; ++i) {
      require(was_absent(map.insert(mix(i), i)), "insert");
    }
  }
  auto texts = must(pool.map<Bytes, Bytes>("texts", golden_map(Engine::phast)));
  require(was_absent(texts.insert("a key of some length", "a value of some length")), "insert");
}
void expect_golden(Pool& pool) {
  for (const EngineInfo& engine : kEngines) {
    SCOPED_TRACE(engine.name);
    const MapOptions options = golden_map(engine.engine);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>(engine.name, options));
    for (std::uint64_t i = 0; i < kGoldenKeys; ++i) {
      EXPECT_EQ(must(map.get(mix(i))), std::optional(i));
    }
    EXPECT_FALSE(must(map.get(mix(kGoldenKeys))).has_value());
  }
  auto texts = must(pool.map<Bytes, Bytes>("texts", golden_map(Engine::phast)));
  EXPECT_EQ(must(texts.get("a key of some length")),
            std::optional<std::string>("a value of some length"));
  expect_sound(pool);
}

// ---- headers ----

Header header_at(const std::string& bytes, int copy) {
  Header header;
  std::memcpy(&header, bytes.data() + copy * layout::kHeaderBytes, sizeof(header));
  return header;
}
void put_header(std::string& bytes, int copy, Header header) {
  header.crc = header_crc(header);
  std::memcpy(bytes.data() + copy * layout::kHeaderBytes, &header, sizeof(header));
}
// Changes the pool's header copies and corrects their checksums.
template <class F>
void change_headers(const std::string& path, F&& change) {
  std::string bytes = read_bytes(path);
  for (int copy = 0; copy < 2; ++copy) {
    Header header = header_at(bytes, copy);
    change(header);
    put_header(bytes, copy, header);
  }
  write_bytes(path, bytes);
}
int counting_copy(const std::string& bytes) {
  return header_at(bytes, 1).sequence > header_at(bytes, 0).sequence ? 1 : 0;
}

// open, a read-only open, an open that accepts everything, and inspect all fail with the same
// message.
void expect_refused_everywhere(const std::string& path, StatusCode code,
                               std::initializer_list<std::string> words) {
  PoolOptions look = small_pool();
  look.mode = OpenMode::read_only;
  PoolOptions accepting = small_pool();
  accepting.accept_untrusted = true;
  for (const PoolOptions& options : {small_pool(), look, accepting}) {
    ASSERT_NO_FATAL_FAILURE(expect_refused(path, {code}, options));
    const auto pool = Pool::open(path, options);
    for (const std::string& word : words) {
      EXPECT_NE(pool.error().message().find(word), Bytes::npos) << pool.error().message();
    }
  }
  const auto inspected = Pool::inspect(path);
  ASSERT_FALSE(inspected.has_value());
  EXPECT_EQ(inspected.error(), code);
  for (const std::string& word : words) {
    EXPECT_NE(inspected.error().message().find(word), Bytes::npos) << inspected.error().message();
  }
}

class Format : public ::testing::Test {
 protected:
  TempPath path_;
};

// ---- versions ----

TEST_F(Format, APoolOfVersion0NamesTheWayAcross) {
  write_from_golden("pool_v0", path_);
  const Header header = header_at(read_bytes(path_), 0);
  ASSERT_EQ(header.magic, layout::kMagic);
  ASSERT_EQ(header.format_version, 0U);
  ASSERT_EQ(header.crc, header_crc(header));
  expect_refused_everywhere(
      path_, StatusCode::unsupported_format,
      {"format version 0", "this build reads version 1",
       "`perdure dump " + path_.str() + " items.tsv`", "`perdure load NEW items.tsv`"});
}

TEST_F(Format, APoolOfVersion1IsReadAndWritten) {
  if (std::getenv("PERDURE_WRITE_GOLDEN") != nullptr) {
    Pool pool = open_pool(path_, {.durability = Durability::process, .max_size = 1_MiB});
    fill_golden(pool);
    must(pool.close());
    write_golden("pool_v1", read_bytes(path_),
                 "A pool of format version " + std::to_string(layout::kFormatVersion) +
                     ", written by tests/pool/format_test.cc with PERDURE_WRITE_GOLDEN=1.");
  }
  write_from_golden("pool_v1", path_);
  const std::string bytes = read_bytes(path_);
  ASSERT_EQ(header_at(bytes, 0).format_version, 1U);
  {
    Pool look = open_pool(path_, {.mode = OpenMode::read_only});
    expect_golden(look);
  }
  EXPECT_TRUE(read_bytes(path_) == bytes) << "a look changed the file";
  for (int round = 0; round < 2; ++round) {
    Pool pool = open_pool(path_, {.mode = OpenMode::existing});
    expect_golden(pool);
    auto more = must(pool.map<std::uint64_t, std::uint64_t>("more", golden_map(Engine::phast)));
    must(more.put(mix(1), mix(2)));
    expect_sound(pool);
    must(pool.close());
  }
}

TEST_F(Format, ANewerVersionIsNamed) {
  make_pool(path_);
  change_headers(path_, [](Header& header) { header.format_version = 2; });
  expect_refused_everywhere(path_, StatusCode::unsupported_format,
                            {"format version 2 is newer than version 1", "newer one"});
}

TEST_F(Format, AnotherKindOfMachineIsNamed) {
  make_pool(path_);
  const std::string bytes = read_bytes(path_);
  const auto refused = [&](auto&& change) {
    write_bytes(path_, bytes);
    change_headers(path_, change);
    expect_refused_everywhere(path_, StatusCode::unsupported_format,
                              {"another kind of machine", "`perdure dump` there"});
  };
  refused([](Header& header) { header.endian_tag = 0x04030201; });
  refused([](Header& header) { header.word_bytes = 4; });
  refused([](Header& header) { header.header_bytes = 1024; });
}

TEST_F(Format, ANewPoolHasNoFeatures) {
  make_pool(path_);
  const std::string bytes = read_bytes(path_);
  for (int copy = 0; copy < 2; ++copy) {
    const Header header = header_at(bytes, copy);
    EXPECT_EQ(header.format_version, 1U);
    EXPECT_EQ(header.compatible | header.incompatible | header.batch_log | header.log_incarnation,
              0U);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(header.log_id), 16), std::string(16, '\0'));
    EXPECT_EQ(header.table_offset,
              layout::kDirectoryOffset + header.root_slots * sizeof(layout::Root));
  }
  const PoolInfo info = must(Pool::inspect(path_));
  EXPECT_EQ(info.format_version, 1U);
  EXPECT_EQ(info.compatible_features | info.incompatible_features, 0U);
}

// ---- features ----

TEST_F(Format, UnknownIncompatibleFeaturesAreNamed) {
  make_pool(path_);
  change_headers(path_, [](Header& header) {
    header.incompatible = 1ULL << 3 | 1ULL << 17 | 1ULL << 63;
    header.compatible = 1ULL << 4;
    header.batch_log = header.data_offset;
    header.reserved[7] = 1;
  });
  expect_refused_everywhere(path_, StatusCode::unsupported_format,
                            {"incompatible bits 3, 17, 63)", "newer one"});
  change_headers(path_, [](Header& header) { header.incompatible = ~std::uint64_t{0}; });
  expect_refused_everywhere(path_, StatusCode::unsupported_format,
                            {"bits 3, 4, 5,", "62, 63)", "newer one"});
}

// The current one of the two copies decides. The older one's bits are outdated.
TEST_F(Format, TheCountingCopyNamesTheFeatures) {
  make_pool(path_);
  const std::string bytes = read_bytes(path_);
  const int counting = counting_copy(bytes);
  for (const int copy : {counting, counting ^ 1}) {
    std::string changed = bytes;
    Header header = header_at(bytes, copy);
    header.incompatible = 8;
    put_header(changed, copy, header);
    write_bytes(path_, changed);
    if (copy == counting) {
      expect_refused(path_, {StatusCode::unsupported_format});
    } else {
      Pool pool = open_pool(path_, small_pool());
      EXPECT_EQ(wrong_content(pool), "");
    }
  }
}

// ---- a damaged copy ----

TEST_F(Format, TheDamagedCopyOfAClosedPoolIsFound) {
  make_pool(path_);
  const std::string bytes = read_bytes(path_);
  const auto found = [](const std::string& in) {
    return find_damaged_copy(reinterpret_cast<const std::byte*>(in.data()));
  };
  EXPECT_EQ(found(bytes), -1);
  for (const int copy : {0, 1}) {
    SCOPED_TRACE(copy);
    const std::size_t at = static_cast<std::size_t>(copy) * layout::kHeaderBytes;
    std::string damaged = bytes;
    damaged[at + 200] ^= 1;
    EXPECT_EQ(found(damaged), copy);
    std::memset(damaged.data() + at, 0, sizeof(Header));  // a sector that reads as zeros
    EXPECT_EQ(found(damaged), copy);
    // A kill, or a power failure, can leave half of a copy.
    Header other = header_at(bytes, 1 - copy);
    other.close_state = layout::CloseState::dirty;
    put_header(damaged, 1 - copy, other);
    EXPECT_EQ(found(damaged), -1);
  }
  // The creation of a pool writes one copy, and may be the last that a process does.
  std::string created(2 * layout::kHeaderBytes, '\0');
  EXPECT_EQ(found(created), -1);
  Header first = header_at(bytes, 0);
  first.sequence = 1;
  put_header(created, 0, first);
  EXPECT_EQ(found(created), -1);
  first.sequence = 2;
  put_header(created, 0, first);
  EXPECT_EQ(found(created), 1);
}

// Any open for writing repairs the copy. The check of that open says so.
TEST_F(Format, CheckReportsADamagedCopyOfTheHeader) {
  make_pool(path_);
  const auto expect_reported = [](const Pool& pool, const std::string& words) {
    for (const bool deep : {false, true}) {
      const CheckReport report = must(pool.check({.deep = deep}));
      EXPECT_EQ(report.violation_count, 1U);
      EXPECT_EQ(std::string(report.first()).rfind(words, 0), 0U) << report.first();
    }
  };
  const auto keep = [](void* to, LogLevel, std::string_view message) {
    static_cast<std::string*>(to)->append(message);
  };
  for (const int copy : {0, 1}) {
    SCOPED_TRACE(copy);
    std::string bytes = read_bytes(path_);
    bytes[static_cast<std::size_t>(copy) * layout::kHeaderBytes + 200] ^= 1;
    write_bytes(path_, bytes);
    const std::string name = copy == 0 ? "copy A of the header " : "copy B of the header ";
    {
      PoolOptions reads = small_pool();
      reads.mode = OpenMode::read_only;
      Pool pool = open_pool(path_, reads);
      expect_reported(pool, name + "is damaged");
    }
    EXPECT_TRUE(read_bytes(path_) == bytes);
    const TempPath backup("backup"), restored("restored");
    must(back_up(path_, backup));
    must(restore(backup, restored));
    std::string said;
    PoolOptions tells = small_pool();
    tells.log = keep;
    tells.log_context = &said;
    Pool pool = open_pool(path_, tells);
    EXPECT_NE(said.find("of its header was damaged"), Bytes::npos) << said;
    EXPECT_EQ(wrong_content(pool), "");
    expect_reported(pool, name + "was damaged");
    must(pool.close());
    for (const std::string& whole : {path_.str(), restored.str()}) {
      Pool again = open_pool(whole, small_pool());
      expect_sound(again);
    }
  }
}

// ---- bits and fields that are kept ----

// Uses a pool in every way: opens, growth, sync, a kill, closes.
void use_in_every_way(const std::string& path) {
  {
    Pool pool = open_pool(path, small_pool());
    EXPECT_EQ(wrong_content(pool), "");
    const std::uint64_t before = must(pool.info()).file_bytes;
    auto more = must(pool.map<Bytes, Bytes>("more", {.engine = Engine::phast}));
    for (int i = 0; i < 8; ++i) {
      must(more.put("long " + std::to_string(i), std::string(100'000, 'x')));
    }
    EXPECT_GT(must(pool.info()).file_bytes, before) << "it has grown";
    must(pool.sync());
    must(more.put("after", "the seal"));
    must(pool.close());
  }
  const ChildEnd end = run_child([&] {
    Pool pool = open_pool(path, small_pool());
    auto more = must(pool.map<Bytes, Bytes>("more", {.engine = Engine::phast}));
    must(more.put("killed", "behind this"));
    std::raise(SIGKILL);
  });
  EXPECT_EQ(end.signal, SIGKILL);
  Pool pool = open_pool(path, small_pool());
  EXPECT_EQ(wrong_content(pool), "");
  must(pool.close({.sync = false}));
}

// Both header copies must keep the effect of `set` after all use of the pool.
template <class Set>
void expect_kept(const std::string& path, const Set& set) {
  use_in_every_way(path);
  for (int copy = 0; copy < 2; ++copy) {
    const Header header = header_at(read_bytes(path), copy);
    Header expected = header;
    set(expected);
    EXPECT_EQ(std::memcmp(&header, &expected, sizeof(header)), 0) << "copy " << copy;
  }
}

TEST_F(Format, UnknownCompatibleFeaturesAreKept) {
  make_pool(path_);
  constexpr std::uint64_t kBits = 1ULL << 5 | 1ULL << 62;
  const auto set = [](Header& header) {
    header.compatible = kBits;
    header.reserved0 = 0x01020304;
    header.reserved1 = 0x05060708;
    header.reserved2 = 0x090A0B0C;
    for (std::size_t i = 0; i < std::size(header.reserved); ++i) {
      header.reserved[i] = static_cast<std::uint8_t>(i + 1);
    }
  };
  change_headers(path_, set);
  EXPECT_EQ(must(Pool::inspect(path_)).compatible_features, kBits);
  expect_kept(path_, set);
}

TEST_F(Format, TheIdentityOfALogIsKept) {
  make_pool(path_);
  const auto set = [](Header& header) {
    for (std::size_t i = 0; i < std::size(header.log_id); ++i) {
      header.log_id[i] = static_cast<std::uint8_t>(0xA0 + i);
    }
    header.log_incarnation = 0x1122334455667788;
  };
  change_headers(path_, set);
  expect_kept(path_, set);
}

// A build with batches sets an incompatible bit with the root of their log. Without the bit there
// must be no root: this build would give the log's blocks to other uses.
TEST_F(Format, ALogOfBatchesNeedsItsFeature) {
  make_pool(path_);
  change_headers(path_, [](Header& header) { header.batch_log = header.data_offset; });
  expect_refused_everywhere(path_, StatusCode::corruption,
                            {"the header is inconsistent (log of batches)"});
}

TEST_F(Format, EveryReservedByteIsZero) {
  make_pool(path_);
  const std::string bytes = read_bytes(path_);
  std::vector<std::size_t> places;
  const auto add = [&](std::size_t offset, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) places.push_back(offset + i);
  };
  add(offsetof(Header, reserved0), sizeof(Header::reserved0));
  add(offsetof(Header, reserved1), sizeof(Header::reserved1));
  add(offsetof(Header, reserved), sizeof(Header::reserved));
  add(offsetof(Header, reserved2), sizeof(Header::reserved2));
  ASSERT_EQ(places.size(), 4U + 4U + 152U + 4U);
  for (const std::size_t place : places) {
    SCOPED_TRACE("byte " + std::to_string(place));
    write_bytes(path_, bytes);
    change_headers(path_, [&](Header& header) { reinterpret_cast<char*>(&header)[place] = 1; });
    const auto inspected = Pool::inspect(path_);
    ASSERT_FALSE(inspected.has_value());
    EXPECT_EQ(inspected.error(), StatusCode::corruption);
    EXPECT_NE(inspected.error().message().find("reserved bytes"), Bytes::npos);
    if (place % 16 == 0) expect_refused(path_, {StatusCode::corruption});
  }
}

}  // namespace
}  // namespace perdure::test
