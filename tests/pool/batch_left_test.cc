// test: explores
// A process is killed within a batch: what the next open does, and what it refuses. Crashes at
// every write are in testing/crash/explored.cc.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "format/layout.h"
#include "perdure/write_batch.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

constexpr std::uint64_t kKeys = 4000;

using Bytes = std::string_view;

class BatchLeft : public ::testing::Test {
 protected:
  struct Maps {
    Map<std::uint64_t, std::uint64_t> numbers;
    Map<Bytes, Bytes> texts;
    Map<Bytes, Bytes> notes;  // the record names their blocks
  };
  Pool open(const PoolOptions& options = {}) const { return open_pool(path_, options); }
  static Maps maps_of(Pool& pool) {
    return {must(pool.map<std::uint64_t, std::uint64_t>("numbers", {.engine = Engine::phast})),
            must(pool.map<Bytes, Bytes>("texts", {.engine = Engine::clevel})),
            must(pool.map<Bytes, Bytes>("notes", {.engine = Engine::phast}))};
  }
  static std::string key_of(std::uint64_t i) { return "key" + std::to_string(i); }
  static std::string text_of(std::uint64_t round) {
    return std::string(20 + round % 20, 'a' + round % 26);
  }
  static void commit(Pool& pool, const Maps& maps, std::uint64_t round) {
    WriteBatch batch;
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      batch.put(maps.numbers, i, round);
      batch.put(maps.texts, key_of(i), text_of(round));
      batch.put(maps.notes, key_of(i), text_of(round));
    }
    must(pool.commit(batch));
  }
  // Kills a process that commits batches until one is left within its last batch.
  void leave() {
    {
      Pool pool = open({.max_size = 256_MiB});
      commit(pool, maps_of(pool), 1);
      must(pool.close());
    }
    for (std::uint64_t turn = 10; turn-- > 0 && word() == 0;) {
      const pid_t child = start_child([&] {
        Pool pool = open();
        const Maps maps = maps_of(pool);
        for (std::uint64_t round = 2;; ++round) commit(pool, maps, round);
      });
      for (int i = 0; i < 100'000 && word() == 0; ++i) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::microseconds(turn * 50));
      ::kill(child, SIGKILL);
      wait_child(child);
    }
    ASSERT_NE(word(), 0U) << "no kill came within a batch";
  }
  std::uint64_t word() const {
    std::uint64_t word = 0;
    peek(layout::kBatchLog, &word, sizeof word);
    return word;
  }
  void peek(std::uint64_t offset, void* to, std::size_t n) const {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(::pread(fd, to, n, static_cast<off_t>(offset)), static_cast<ssize_t>(n));
    ::close(fd);
  }
  void poke(std::uint64_t offset, const void* from, std::size_t n) const {
    const int fd = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(::pwrite(fd, from, n, static_cast<off_t>(offset)), static_cast<ssize_t>(n));
    ::close(fd);
  }
  // Flips a bit for as long as it lives.
  class Flip {
   public:
    Flip(const BatchLeft& test, std::uint64_t offset) : test_(test), offset_(offset) { flip(); }
    ~Flip() { flip(); }
    Flip(const Flip&) = delete;
    Flip& operator=(const Flip&) = delete;

   private:
    void flip() const {
      std::uint8_t byte = 0;
      test_.peek(offset_, &byte, 1);
      byte ^= 4;
      test_.poke(offset_, &byte, 1);
    }
    const BatchLeft& test_;
    std::uint64_t offset_;
  };

  // All keys of all maps are of one batch.
  static void expect_one_batch(Pool& pool) {
    Maps maps = maps_of(pool);
    const std::uint64_t round = must(maps.numbers.get(0)).value();
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      ASSERT_EQ(must(maps.numbers.get(i)), round) << i;
      ASSERT_EQ(must(maps.texts.get(key_of(i))), text_of(round)) << i;
      ASSERT_EQ(must(maps.notes.get(key_of(i))), text_of(round)) << i;
    }
  }
  Status refusal(const PoolOptions& options = {}) const {
    auto pool = Pool::open(path_, options);
    return pool ? Status() : Status(pool.error());
  }
  std::uint64_t record() const { return word() & ((1ULL << 48) - 1); }
  // The first block that the record names.
  std::uint64_t named_block() const {
    layout::BatchRecord head{};
    peek(record(), &head, sizeof head);
    std::uint64_t at = record() + sizeof head + head.runs * sizeof(layout::BatchRun);
    for (std::uint32_t i = 0; i < head.maps; ++i) {
      layout::BatchMap map{};
      peek(at, &map, sizeof map);
      at += sizeof map;
      for (std::uint64_t n = 0; n < map.entries; ++n) {
        layout::BatchEntry entry{};
        peek(at, &entry, sizeof entry);
        if (entry.kind == 2) return entry.value;
        at += sizeof entry + (entry.key_bytes + 7) / 8 * 8 + (entry.value_bytes + 7) / 8 * 8;
      }
    }
    return 0;
  }

  TempPath path_;
};

TEST_F(BatchLeft, TheNextOpenDoesTheRest) {
  leave();
  Pool pool = open();
  EXPECT_EQ(word(), 0U);
  expect_one_batch(pool);
  expect_sound(pool);
}

TEST_F(BatchLeft, AReaderSeesItWholeAndChangesNothing) {
  leave();
  const std::string before = read_bytes(path_);
  {
    Pool pool = open({.mode = OpenMode::read_only});
    expect_one_batch(pool);
    expect_sound(pool);
  }
  EXPECT_TRUE(read_bytes(path_) == before);
}

TEST_F(BatchLeft, ADamagedWordOrRecordIsRefused) {
  leave();
  const std::uint64_t block = named_block();
  ASSERT_NE(block, 0U);
  for (const std::uint64_t offset :
       {layout::kBatchLog, layout::kBatchLog + 3, layout::kBatchLog + 7, record(), record() + 8,
        record() + 16, record() + 24, record() + 28, record() + 20, record() + 100, block,
        block + 4, block + 6, block + 8, block + 17, block + 30}) {
    const Flip flip(*this, offset);
    EXPECT_EQ(refusal().code(), StatusCode::corruption) << offset;
    EXPECT_EQ(refusal({.mode = OpenMode::read_only}).code(), StatusCode::corruption) << offset;
    Pool pool = open({.mode = OpenMode::read_only, .allow_damage = true});
    auto report = must(pool.check({}));
    EXPECT_NE(std::string(report.first()).find("batch"), std::string::npos) << report.first();
  }
  Pool pool = open();
  expect_one_batch(pool);
}

TEST_F(BatchLeft, AMapThatCannotBeReadRefusesThePool) {
  leave();
  layout::Root root{};
  std::uint64_t line = layout::kDirectoryOffset;
  for (peek(line, &root, sizeof root); std::strcmp(root.name, "texts") != 0;
       peek(line, &root, sizeof root)) {
    line += sizeof root;
  }
  {
    const Flip flip(*this, root.root);  // the magic of the map
    EXPECT_EQ(refusal().code(), StatusCode::corruption);
    const Status s = refusal({.mode = OpenMode::read_only});
    EXPECT_EQ(s.code(), StatusCode::corruption);
    EXPECT_NE(std::string(s.message()).find("within a batch"), std::string::npos) << s.message();
    Pool pool = open({.mode = OpenMode::read_only, .allow_damage = true});
    must(pool.map<std::uint64_t, std::uint64_t>("numbers", {.mode = OpenMode::read_only}));
  }
  Pool pool = open();
  expect_one_batch(pool);
}

}  // namespace
}  // namespace perdure::test
