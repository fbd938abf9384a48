// test: no asan
// Pool::resize: the extent tables that it adds, growth over them, refusals, and pools that are
// closed, killed, copied and damaged afterwards.
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "format/pool_core.h"
#include "testing/sim/sim_memory.h"
#include "testing/sim/sim_pool.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using layout::Header;
using testing::kTinyShape;
using testing::SimMemory;
using testing::SimPool;
using Bytes = std::string_view;

// ---- Extent tables ----

Header header_of(const std::byte* base, std::uint64_t bytes) {
  Header header;
  must(read_header(base, bytes, header));
  return header;
}
Header tiny_header() {
  SimMemory memory(2_MiB);
  must(SimPool::create(memory, kTinyShape));
  return header_of(memory.base(), memory.size());
}
// What an open says of a pool with this header.
Status read_back(Header header) {
  std::vector<std::byte> pages(layout::kDirectoryOffset);
  header.crc = header_crc(header);
  std::memcpy(pages.data(), &header, sizeof(header));
  return read_header(pages.data(), kMaxPoolSize, header);
}
std::vector<std::uint64_t> tables_of(const Header& header) {
  std::vector<std::uint64_t> out;
  for (const MoreTable& table : header.more_tables) {
    if (table.extents == 0) break;
    out.push_back(table.first);
    out.push_back(table.extents);
  }
  return out;
}

using Numbers = std::vector<std::uint64_t>;

TEST(RaiseMax, ATableHasRoomForMoreThanOneResize) {
  Header header = tiny_header();  // 252 extents of a page, behind four pages
  must(raise_max(2_MiB, header));
  EXPECT_EQ(header.max_bytes, 2_MiB);
  EXPECT_EQ(tables_of(header), (Numbers{252, 1}));
  EXPECT_EQ(header.incompatible, layout::kHasMoreTables);
  must(raise_max(3_MiB + 1, header));
  EXPECT_EQ(header.max_bytes, 3_MiB) << "whole extents";
  EXPECT_EQ(tables_of(header), (Numbers{252, 1})) << "a page has 512 words";
  must(raise_max(6_MiB, header));
  EXPECT_EQ(tables_of(header), (Numbers{252, 1, 764, 3}));
  must(read_back(header));
}

TEST(RaiseMax, WhatIsRefused) {
  const Header header = tiny_header();
  const auto refused = [&](std::uint64_t max_bytes, const char* word) {
    Header changed = header;
    const Status s = raise_max(max_bytes, changed);
    EXPECT_EQ(s, StatusCode::invalid_argument) << max_bytes;
    EXPECT_NE(s.message().find(word), Bytes::npos) << s.message();
    EXPECT_EQ(std::memcmp(&changed, &header, sizeof(header)), 0);
  };
  for (const std::uint64_t size : {std::uint64_t{0}, kPage, 512_KiB, 1_MiB, 1_MiB + kPage - 1}) {
    refused(size, "not larger than the present one of 1048576 bytes");
  }
  refused(1_MiB + kPage, "adds no room");
  for (const std::uint64_t size : {kMaxPoolSize + 1, ~std::uint64_t{0}}) {
    refused(size, "more than a pool can have");
  }
}

TEST(RaiseMax, EightTimesAtLeast) {
  Header header = tiny_header();
  std::uint64_t size = 1_MiB;
  for (std::size_t i = 0; i < kMoreTables; ++i) {
    must(raise_max(size *= 4, header));
    must(read_back(header));
    EXPECT_EQ(tables_of(header).size(), 2 * (i + 1));
  }
  const Status s = raise_max(size * 4, header);
  EXPECT_EQ(s, StatusCode::unsupported);
  EXPECT_NE(s.message().find("dump its maps"), Bytes::npos) << s.message();
  EXPECT_EQ(header.max_bytes, size);
  Header small_steps = tiny_header();
  for (size = 2_MiB; size < 256_MiB; size += 1_MiB) must(raise_max(size, small_steps));
  EXPECT_LE(tables_of(small_steps).size(), 2 * kMoreTables);
  must(read_back(small_steps));
}

TEST(RaiseMax, AHeaderWithImpossibleTablesIsRefused) {
  Header good = tiny_header();
  for (const std::uint64_t size : {2_MiB, 3_MiB, 6_MiB}) must(raise_max(size, good));
  ASSERT_EQ(tables_of(good), (Numbers{252, 1, 764, 3}));
  const auto refused = [&](const char* what, auto&& change) {
    Header header = good;
    change(header);
    const Status s = read_back(header);
    EXPECT_EQ(s, StatusCode::corruption) << what;
    EXPECT_NE(s.message().find("(extent tables)"), Bytes::npos) << what << ": " << s.message();
  };
  refused("no bit", [](Header& h) { h.incompatible = 0; });
  refused("a bit only", [](Header& h) {
    h.max_bytes = 1_MiB;
    std::memset(h.more_tables, 0, sizeof(h.more_tables));
  });
  refused("no tables", [](Header& h) {
    h.incompatible = 0;
    std::memset(h.more_tables, 0, sizeof(h.more_tables));
  });
  refused("a gap", [](Header& h) { std::swap(h.more_tables[1], h.more_tables[2]); });
  refused("no length", [](Header& h) { h.more_tables[1].extents = 0; });
  refused("the first extent", [](Header& h) { h.more_tables[0].first = 0; });
  refused("too late for the words of the first table",
          [](Header& h) { h.more_tables[0].first = 513; });
  refused("too late for those of the second", [](Header& h) { ++h.more_tables[1].first; });
  refused("out of order", [](Header& h) { std::swap(h.more_tables[0], h.more_tables[1]); });
  refused("overlap", [](Header& h) { h.more_tables[0].extents = 513; });
  refused("behind the end", [](Header& h) { h.more_tables[1].extents = 1532 - 764 + 1; });
  refused("too short", [](Header& h) { h.more_tables[1].extents = 1; });
  refused("far behind the end", [](Header& h) { h.more_tables[7] = {~0U, ~0U}; });
}

// Every extent outside the tables can be used, and each is found again.
TEST(MoreTables, ThePoolGrowsOverAllOfThem) {
  SimMemory memory(12_MiB);
  must(SimPool::create(memory, kTinyShape));
  memory.settle();
  memory.set_mode(testing::SimMode::plain);
  for (const std::uint64_t size : {2_MiB, 6_MiB, 12_MiB}) must(SimPool(memory).resize(1, size));
  const Header header = header_of(memory.base(), memory.size());
  std::set<std::uint64_t> tables;
  for (const MoreTable& table : header.more_tables) {
    for (std::uint32_t i = 0; i < table.extents; ++i) {
      tables.insert(geometry_of(header).offset_of(table.first + i));
    }
  }
  ASSERT_EQ(tables_of(header).size(), 6U);
  const std::uint64_t extents = geometry_of(header).max_extents;
  std::set<std::uint64_t> blocks;
  {
    SimPool pool(memory);
    must(pool.open_whole(1));
    for (;;) {
      // A page is a run: the largest class is half a page.
      const auto block = pool.heap().allocate(kPage, BlockKind::zero_on_free);
      if (!block) break;
      ASSERT_TRUE(blocks.insert(*block).second) << "handed out twice";
      ASSERT_FALSE(tables.contains(*block)) << "it holds a table";
      for (std::uint64_t at = 0; at < kPage; at += 8) {
        auto& word = *pool.heap().at<std::uint64_t>(*block + at);
        ASSERT_EQ(pool.platform().load(word), 0U);
        pool.platform().store(word, *block);
      }
    }
    EXPECT_EQ(blocks.size(), extents - tables.size());
    EXPECT_EQ(pool.heap().stats().assigned_extents, blocks.size());
    EXPECT_EQ(pool.heap().stats().table_extents, tables.size());
    pool.core().verify([](const char* what) { ADD_FAILURE() << what; });
    must(pool.core().close(true));
    EXPECT_EQ(memory.hole_stores(), 0U);
  }
  SimPool pool(memory);
  must(pool.open(1));
  for (const std::uint64_t block : blocks) {
    must(pool.heap().mark(block));
    ASSERT_EQ(*pool.heap().at<std::uint64_t>(block + kPage - 8), block);
  }
  for (const std::uint64_t table : tables) {
    EXPECT_EQ(pool.heap().mark(table), StatusCode::corruption);
  }
  must(pool.core().complete(true));
  pool.core().verify([](const char* what) { ADD_FAILURE() << what; });
  EXPECT_EQ(pool.heap().punch_free().value_or(1), 0U) << "a table was punched";
  for (const std::uint64_t block : blocks) pool.heap().discard(block);
  pool.epochs().drain_all();
  must(pool.heap().punch_free());
  EXPECT_EQ(pool.heap().stats().assigned_extents, 0U);
  must(pool.core().close(true));
}

// A word of the second table that is damaged is found at open, and a run ends before the table.
TEST(MoreTables, ADamagedWordIsFound) {
  SimMemory memory(2_MiB);
  must(SimPool::create(memory, kTinyShape));
  must(SimPool(memory).resize(1, 2_MiB));
  {
    SimPool pool(memory);
    must(pool.open_whole(1));
    must(pool.heap().allocate(252 * kPage, BlockKind::plain));
    must(pool.heap().allocate(kPage, BlockKind::plain));
    must(pool.core().close(true));
  }
  const HeapGeometry geometry = geometry_of(header_of(memory.base(), memory.size()));
  auto word = [&](std::uint64_t extent) -> std::uint64_t& {
    return *reinterpret_cast<std::uint64_t*>(memory.base() + geometry.word_offset(extent));
  };
  EXPECT_EQ(geometry.word_offset(253), geometry.offset_of(252) + 8);
  const auto refused = [&](std::uint64_t extent, std::uint64_t bad) {
    const std::uint64_t good = std::exchange(word(extent), bad);
    SimPool pool(memory);
    EXPECT_EQ(pool.open(1), StatusCode::corruption);
    word(extent) = good;
  };
  refused(253, word(253) ^ 1ULL << 50);
  refused(0, ExtentWord{.state = ExtentState::run, .run = 253}.encode(0));
  SimPool pool(memory);
  EXPECT_TRUE(pool.open(1).ok());
}

// ---- Pools ----

PoolOptions small_pool(Durability durability = Durability::process) {
  return {.durability = durability, .max_size = 4_MiB, .recovery_threads = 1};
}
std::string value_of(std::uint64_t i) {
  return std::string(6000 + i % 5000, static_cast<char>('a' + i % 26));
}
Map<std::uint64_t, Bytes> map_of(Pool& pool) {
  return must(pool.map<std::uint64_t, Bytes>("map", {.phast = {.partition_bits = 0}}));
}
// Inserts from `from` on until the pool is full, at most to `to`. Returns the end.
std::uint64_t fill(Pool& pool, std::uint64_t from, std::uint64_t to = ~std::uint64_t{0}) {
  auto map = map_of(pool);
  for (std::uint64_t i = from; i < to; ++i) {
    const Found put = map.insert(i, value_of(i));
    if (code_of(put) == StatusCode::pool_full) return i;
    require(was_absent(put), "insert");
  }
  return to;
}
void expect_content(Pool& pool, std::uint64_t end) {
  auto map = map_of(pool);
  for (std::uint64_t i = 0; i < end; ++i) {
    ASSERT_TRUE(must(map.get(i)) == std::optional(value_of(i))) << i;
  }
  EXPECT_FALSE(must(map.get(end)).has_value());
  expect_sound(pool);
}
Header header_of(const std::string& path) {
  const std::string bytes = read_bytes(path);
  return header_of(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
}
void kill_while(const std::function<void()>& run) {
  const ChildEnd end = run_child([&] {
    run();
    std::raise(SIGKILL);
  });
  ASSERT_EQ(end.signal, SIGKILL);
}

TEST(Resize, TheNewSpaceIsFilledClosedKilledAndReopened) {
  for (const Durability durability : {Durability::process, Durability::emulated}) {
    SCOPED_TRACE(durability_name(durability));
    TempPath path;
    std::uint64_t first = 0, second = 0, third = 0;
    {
      Pool pool = open_pool(path, small_pool(durability));
      first = fill(pool, 0);
      must(pool.close());
    }
    must(Pool::resize(path, 12_MiB));
    EXPECT_EQ(must(Pool::inspect(path)).max_bytes, 12_MiB);
    {
      Pool pool = open_pool(path, {});
      EXPECT_EQ(must(pool.info()).durability, durability);
      expect_content(pool, first);
      second = fill(pool, first, first + first);  // far into the new space
      EXPECT_EQ(second, 2 * first);
      expect_content(pool, second);
      must(pool.close());
    }
    EXPECT_GT(must(Pool::inspect(path)).file_bytes, 6_MiB);
    ASSERT_NO_FATAL_FAILURE(kill_while([&] {
      Pool pool = open_pool(path, {});
      require(fill(pool, second, second + 40) == second + 40, "fill");
      auto map = map_of(pool);
      for (std::uint64_t i = first; i < first + 20; ++i) must(map.erase(i));
      for (std::uint64_t i = first; i < first + 20; ++i) must(map.insert(i, value_of(i)));
      std::raise(SIGKILL);
    }));
    {
      Pool pool = open_pool(path, {});
      expect_content(pool, second + 40);
      third = fill(pool, second + 40);
      expect_content(pool, third);
      const PoolStats stats = must(pool.stats());
      EXPECT_EQ(stats.file_bytes, 12_MiB);
      EXPECT_EQ(stats.used_bytes + stats.free_bytes, 12_MiB) << "no extent is lost";
      must(pool.close());
    }
    must(Pool::resize(path, 13_MiB));  // the last table has room
    Pool pool = open_pool(path, {});
    expect_content(pool, third);
    EXPECT_GT(fill(pool, third), third);
    EXPECT_EQ(header_of(path).more_tables[1].extents, 0U);
    must(pool.compact());
    expect_sound(pool);
  }
}

// Nothing is recovered, and nothing but the header is written.
TEST(Resize, APoolThatWasKilledStaysOne) {
  TempPath path;
  must(open_pool(path, small_pool()).close());
  ASSERT_NO_FATAL_FAILURE(kill_while([&] {
    Pool pool = open_pool(path, small_pool());
    require(fill(pool, 0, 100) == 100, "fill");
    std::raise(SIGKILL);
  }));
  const std::string before = read_bytes(path);
  must(Pool::resize(path, 8_MiB));
  const std::string after = read_bytes(path);
  EXPECT_TRUE(after.substr(layout::kDirectoryOffset) == before.substr(layout::kDirectoryOffset));
  EXPECT_FALSE(must(Pool::inspect(path)).clean);
  Pool pool = open_pool(path, small_pool());
  expect_content(pool, 100);
}

// Only the fields of the resize differ, in both copies.
TEST(Resize, TheHeaderKeepsEverythingElse) {
  TempPath path;
  must(open_pool(path, small_pool()).close());
  const Header before = header_of(path);
  EXPECT_EQ(must(Pool::inspect(path)).incompatible_features, 0U);
  must(Pool::resize(path, 8_MiB));
  EXPECT_EQ(must(Pool::inspect(path)).incompatible_features, layout::kHasMoreTables);
  const std::string bytes = read_bytes(path);
  for (const std::uint64_t copy : {0, 1}) {
    Header after;
    std::memcpy(&after, bytes.data() + copy * layout::kHeaderBytes, sizeof(after));
    EXPECT_EQ(after.max_bytes, 8_MiB);
    EXPECT_EQ(after.more_tables[0].first, (4_MiB - before.data_offset) / before.extent_bytes);
    after.max_bytes = before.max_bytes;
    after.more_tables[0] = {};
    after.incompatible = 0;
    after.sequence = before.sequence;
    after.crc = before.crc;
    EXPECT_EQ(std::memcmp(&after, &before, sizeof(after)), 0) << "copy " << copy;
  }
}

void expect_not_resized(const std::string& path, std::uint64_t max_size, StatusCode code,
                        const char* word) {
  const std::string before = read_bytes(path);
  const Status s = Pool::resize(path, max_size);
  EXPECT_EQ(s.code(), code) << describe(s);
  EXPECT_NE(s.message().find(word), Bytes::npos) << s.message();
  EXPECT_TRUE(s.message().starts_with(path)) << s.message();
  EXPECT_TRUE(read_bytes(path) == before) << "a refused file was changed";
}

TEST(Resize, SizesThatAreRefused) {
  TempPath path;
  EXPECT_EQ(Pool::resize(path, 8_MiB), StatusCode::not_found);
  EXPECT_FALSE(std::filesystem::exists(path.str()));
  must(open_pool(path, small_pool()).close());
  for (const std::uint64_t size : {std::uint64_t{0}, 1_MiB, 4_MiB, 4_MiB + 1}) {
    expect_not_resized(path, size, StatusCode::invalid_argument, "not larger than the present one");
  }
  expect_not_resized(path, kMaxPoolSize + 1, StatusCode::invalid_argument, "at most");
  expect_not_resized(path, ~std::uint64_t{0}, StatusCode::invalid_argument, "at most");
  expect_not_resized(path, 4_MiB + 16_KiB, StatusCode::invalid_argument, "adds no room");
  must(Pool::resize(path, kMaxPoolSize));
  EXPECT_EQ(must(Pool::inspect(path)).max_bytes, kMaxPoolSize);
  expect_not_resized(path, kMaxPoolSize, StatusCode::invalid_argument, "not larger");
}

// The table of a much larger pool is a hole in the file, except for its first words.
TEST(Resize, ALargeTableTakesLittleSpace) {
  TempPath path;
  std::uint64_t first = 0;
  {
    Pool pool = open_pool(path, small_pool());
    first = fill(pool, 0);
    must(pool.close());
  }
  must(Pool::resize(path, 256_GiB));
  std::uint64_t end = 0;
  for (int round = 0; round < 2; ++round) {
    Pool pool = open_pool(path, {});
    end = fill(pool, round == 0 ? first : end, first + 100 * static_cast<std::uint64_t>(round + 1));
    const PoolStats stats = must(pool.stats());
    EXPECT_GT(stats.file_bytes, 128_MiB) << "behind the table";
    EXPECT_LT(stats.disk_bytes, 32_MiB);
    expect_content(pool, end);
    must(pool.compact());
    must(pool.sync());
    expect_content(pool, end);
    must(pool.close());
  }
}

TEST(Resize, APoolThatCannotBeHadIsRefused) {
  TempPath path, copy("copy");
  {
    Pool pool = open_pool(path, small_pool());
    fill(pool, 0, 50);
    expect_not_resized(path, 8_MiB, StatusCode::busy, "has it open already");
    EXPECT_EQ(fill(pool, 50, 60), 60U) << "the refused call disturbed the owner";
    write_bytes(copy, read_bytes(path));
    must(pool.close());
  }
  expect_not_resized(copy, 8_MiB, StatusCode::untrusted, "perdure check");
  const std::string bytes = read_bytes(path);
  const Header header = header_of(path);
  const auto damaged = [&](std::uint64_t offset, const char* word) {
    std::string changed = bytes;
    changed[offset] = static_cast<char>(changed[offset] ^ 4);
    write_bytes(path, changed);
    expect_not_resized(path, 8_MiB, StatusCode::corruption, word);
  };
  damaged(header.table_offset, "extent table");
  damaged(layout::kDirectoryOffset, "root directory");
  write_bytes(path, std::string(bytes.size(), 'x'));
  expect_not_resized(path, 8_MiB, StatusCode::corruption, "not a perdure pool");
}

TEST(Resize, AMaximumThatCannotBeMappedIsRefused) {
  if (san()) GTEST_SKIP() << "a sanitizer needs the address space";
  TempPath path;
  must(open_pool(path, small_pool()).close());
  const ChildEnd end = run_child([&] {
    const rlimit limit{1_GiB, 1_GiB};
    require(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
    const Status s = Pool::resize(path, 1024_GiB);
    require(s == StatusCode::out_of_memory, describe(s));
    must(Pool::resize(path, 64_MiB));
  });
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_EQ(must(Pool::inspect(path)).max_bytes, 64_MiB);
}

// The seal covers the second table: a copy of a synced pool is trusted, a changed one is not.
TEST(Resize, ACopyOfASyncedPoolIsVerifiedToItsLastTable) {
  TempPath path, copy("copy");
  must(open_pool(path, small_pool()).close());
  must(Pool::resize(path, 12_MiB));
  Pool pool = open_pool(path, {});
  const std::uint64_t end = fill(pool, 0, 700);
  ASSERT_EQ(end, 700U);
  must(pool.sync());
  ASSERT_TRUE(must(pool.info()).synced);
  const std::string bytes = read_bytes(path);
  write_bytes(copy, bytes);
  {
    Pool backup = open_pool(copy, {});
    expect_content(backup, end);
    must(backup.close());
  }
  const Header header = header_of(path);
  const std::uint64_t last = (header.file_bytes - header.data_offset) / header.extent_bytes - 1;
  ASSERT_GT(last, header.more_tables[0].first);
  // A virgin extent becomes a free one: a word that is as good, but not the one that was sealed.
  std::string changed = bytes;
  std::uint64_t word = 0;
  char* at = changed.data() + geometry_of(header).word_offset(last);
  ASSERT_EQ(std::memcmp(at, &word, sizeof(word)), 0) << "the last extent is in use";
  word = ExtentWord{.state = ExtentState::free}.encode(last);
  std::memcpy(at, &word, sizeof(word));
  write_bytes(copy, changed);
  EXPECT_EQ(code_of(Pool::open(copy, {})), StatusCode::untrusted);
}

}  // namespace
}  // namespace perdure::test
