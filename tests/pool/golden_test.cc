// test: tsan
// Pools of durability `buffered` and `process` as a process of an older build left them: closed,
// killed, or before a power failure. Their files in golden/ are bytes that were written once, by
// commit 487fa736. This build must open them with all that they promised.
//
// The files are copies here. So a test first writes into them that they were made here: the boot,
// and the inode and file system of the new file. Without that they are copies of open pools.
// The layouts below are those of the files. Those of the library may go on from there.
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "format/header.h"
#include "format/layout.h"
#include "platform/file_storage.h"
#include "tests/support/buffered_files.h"
#include "tests/support/golden.h"
#include "util/crc32c.h"

namespace perdure::test {
namespace {

// ---- the layouts of the files ----

constexpr std::uint64_t kMarkAt[] = {3072, 4096 + 3072};
constexpr std::uint64_t kMark1 = 0x314B52414D524550;  // "PERMARK1"
constexpr std::uint64_t kLive2 = 0x324556494C524550;  // "PERLIVE2"

struct Mark1 {
  std::uint64_t magic;
  std::uint32_t state, folded_seal;
  std::uint8_t log_id[16];
  std::uint64_t number, folded, folding, newest, folding_segment;
  std::uint32_t folding_seal, reserved1;
  std::uint64_t replaced, folded_bytes;
  std::uint8_t live_id[16], boot_id[16];
  std::uint64_t inode, filesystem_id, max_bytes, unverified;
  char memory_directory[256];
  std::uint8_t reserved[88];
  std::uint32_t crc;
};
static_assert(sizeof(Mark1) == 512);
std::uint32_t crc_of(const Mark1& mark) { return crc32c(0, &mark, offsetof(Mark1, crc)); }

struct Live2 {
  std::uint64_t magic;
  std::uint8_t live_id[16], log_id[16], boot_id[16];
  std::uint64_t inode, filesystem_id, covered, chunk_bytes, crc;
  std::uint64_t folded, folding, used, changes;
  struct {
    std::uint64_t epoch;
    std::uint32_t seal;
  } durable[2];
  std::uint64_t durable_unix_ns;
  std::uint64_t live[40];
};
static_assert(sizeof(Live2) == 488);
std::uint64_t crc_of(const Live2& head) { return crc32c(4, &head, offsetof(Live2, crc)); }

template <class T>
T at(const std::string& bytes, std::uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}
template <class T>
void put(std::string& bytes, std::uint64_t offset, const T& value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

// ---- the content ----

constexpr std::uint64_t kKeys = 10;
constexpr std::uint64_t kRounds = 7;

using Numbers = Map<std::uint64_t, std::uint64_t>;
Numbers numbers(Pool& pool, const EngineInfo& engine) {
  const MapOptions options = {.engine = engine.engine,
                              .capacity = 1,
                              .phast = {.partition_bits = 0},
                              .level = {.buckets = 4}};
  return must(pool.map<std::uint64_t, std::uint64_t>(engine.name, options));
}
Map<Bytes, Bytes> texts(Pool& pool) {
  return must(pool.map<Bytes, Bytes>("texts", {.phast = {.partition_bits = 0}}));
}
// Zeros, which take no space in golden/: so the pool has more than one chunk of a live image.
std::string text(std::uint64_t i) { return std::to_string(i) + std::string(100'000, '\0') + "end"; }

// Round 0 fills the pool. Each later one inserts into each map, changes key 0, and erases a key.
void store(Pool& pool, std::uint64_t round) {
  for (const EngineInfo& engine : kEngines) {
    auto map = numbers(pool, engine);
    for (std::uint64_t i = 0; i < kKeys; ++i) must(map.put(mix(kKeys * round + i), round));
    must(map.put(mix(0), round));
    if (round != 0) require(was_present(map.erase(mix(round))), "erase");
  }
  if (round != 0) return;
  auto map = texts(pool);
  for (std::uint64_t i = 0; i < kKeys; ++i) must(map.put(std::to_string(i), text(i)));
}

// The pool has these rounds, and no other.
void expect_rounds(Pool& pool, const std::vector<std::uint64_t>& rounds) {
  const auto has = [&](std::uint64_t round) { return std::ranges::count(rounds, round) != 0; };
  for (const EngineInfo& engine : kEngines) {
    SCOPED_TRACE(engine.name);
    auto map = numbers(pool, engine);
    EXPECT_EQ(must(map.get(mix(0))), std::optional(rounds.back()));
    for (std::uint64_t key = 1; key < kKeys * kRounds; ++key) {
      const std::uint64_t round = key / kKeys;
      const bool erased = key < kRounds && has(key);
      const auto expected = has(round) && !erased ? std::optional(round) : std::nullopt;
      EXPECT_EQ(must(map.get(mix(key))), expected) << key;
    }
  }
  auto map = texts(pool);
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    EXPECT_TRUE(must(map.get(std::to_string(i))) == std::optional(text(i))) << i;
  }
  expect_sound(pool);
}

// ---- files ----

const std::string kSets = "mark1_live2/";

class Golden : public BufferedFiles {
 protected:
  // The files of the set, as they were written; the pool is path().
  void lay_out(const std::string& set) {
    const fs::path source = golden_folder() + kSets + set;
    for (const auto& entry : fs::recursive_directory_iterator(source)) {
      const fs::path name = fs::relative(entry.path(), source).replace_extension();
      if (entry.is_directory()) {
        ASSERT_EQ(::mkdir(path(name.string()).c_str(), 0700), 0);
        continue;
      }
      write_from_golden(kSets + set + "/" + name.string(), path(name.string()));
    }
  }
  // Writes into them that they were made here, in this boot or in another one.
  void made_here(bool other_boot = false) {
    ASSERT_EQ(::stat(path().c_str(), &file_), 0);
    struct statfs system{};
    ASSERT_EQ(::statfs(path().c_str(), &system), 0);
    std::memcpy(&filesystem_id_, &system.f_fsid, sizeof(filesystem_id_));
    ASSERT_TRUE(read_boot_id(boot_id_));
    if (other_boot) std::memset(boot_id_, 0x55, sizeof(boot_id_));
    change_base();
    if (exists("pool-live")) change_image();
  }
  void machine_went_down() {
    made_here(true);
    fs::remove(path("pool-live"));
    fs::remove(path("pool-live-dirty"));
  }
  // What must be there, read-only, and then for good.
  void expect_all(const std::vector<std::uint64_t>& rounds, Durability durability) {
    {
      Pool look = open_pool(path(), {.mode = OpenMode::read_only});
      expect_rounds(look, rounds);
    }
    expect_opened(rounds, durability);
  }
  void expect_opened(const std::vector<std::uint64_t>& rounds, Durability durability,
                     const PoolOptions& options = as_it_was(), std::size_t left = 1) {
    {
      Pool pool = open_pool(path(), options);
      EXPECT_EQ(must(pool.info()).durability, durability);
      expect_rounds(pool, rounds);
      auto map = must(pool.map<std::uint64_t, std::uint64_t>("more"));
      must(map.put(1, 2));
      must(pool.close());
    }
    EXPECT_EQ(files(), left);
    Pool pool = open_pool(path(), as_it_was());
    expect_rounds(pool, rounds);
    must(pool.close());
  }
  // A copy of a pool that was open is refused. What it has must be accepted.
  void expect_copy(const std::string& set, const std::vector<std::uint64_t>& rounds,
                   Durability durability) {
    lay_out(set);
    EXPECT_EQ(refused(), StatusCode::untrusted) << message_;
    EXPECT_NE(message_.find("is a copy"), std::string::npos) << message_;
    PoolOptions accepting = as_it_was();
    accepting.accept_untrusted = true;
    Pool pool = open_pool(path(), accepting);
    EXPECT_EQ(must(pool.info()).durability, durability);
    expect_rounds(pool, rounds);
    must(pool.close());
  }

 private:
  template <class T>
  void change_ids(T& of) const {
    std::memcpy(of.boot_id, boot_id_, sizeof(of.boot_id));
    of.inode = file_.st_ino;
    of.filesystem_id = filesystem_id_;
  }
  void change_headers(std::string& bytes) const {
    for (const std::uint64_t copy : {std::uint64_t{0}, layout::kHeaderBytes}) {
      auto header = at<layout::Header>(bytes, copy);
      if (header.crc != header_crc(header)) continue;
      change_ids(header.identity);
      header.identity.device = file_.st_dev;
      header.crc = header_crc(header);
      put(bytes, copy, header);
    }
  }
  void change_base() const {
    std::string bytes = read_bytes(path());
    change_headers(bytes);
    for (const std::uint64_t offset : kMarkAt) {
      auto mark = at<Mark1>(bytes, offset);
      if (mark.magic != kMark1) continue;
      ASSERT_EQ(mark.crc, crc_of(mark));
      change_ids(mark);
      mark.crc = crc_of(mark);
      put(bytes, offset, mark);
    }
    write_bytes(path(), bytes);
  }
  void change_image() const {
    std::string bytes = read_bytes(path("pool-live"));
    change_headers(bytes);
    auto head = at<Live2>(bytes, kMarkAt[0]);
    ASSERT_EQ(head.magic, kLive2);
    ASSERT_EQ(head.crc, crc_of(head));
    EXPECT_EQ(head.live[0] & 1, 1U);
    EXPECT_GE(head.covered, 2 * head.chunk_bytes);
    change_ids(head);
    head.crc = crc_of(head);
    put(bytes, kMarkAt[0], head);
    write_bytes(path("pool-live"), bytes);
  }

  struct stat file_{};
  std::uint64_t filesystem_id_ = 0;
  std::uint8_t boot_id_[16] = {};
};

// ---- how they were made ----

// With PERDURE_WRITE_GOLDEN=1. Builds that write other layouts need sets of their own.
class WriteGolden : public Golden {
 protected:
  void write(const std::string& set) const {
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.is_directory()) continue;
      const std::string name = fs::relative(entry.path(), folder_).string();
      const std::string bytes = read_bytes(entry.path().string());
      if (name == "pool-live") {
        require(at<Live2>(bytes, kMarkAt[0]).magic == kLive2, "another layout of the live image");
        const auto head = at<Live2>(bytes, kMarkAt[0]);
        const std::uint64_t chunks = (head.covered + head.chunk_bytes - 1) / head.chunk_bytes;
        require(std::uint64_t(std::popcount(head.live[0])) < chunks, "each chunk is live");
      }
      write_golden(kSets + set + "/" + name, bytes,
                   "Written by tests/pool/golden_test.cc with PERDURE_WRITE_GOLDEN=1.");
    }
  }
  static PoolOptions of(Durability durability) {
    return {.durability = durability,
            .buffered = {.interval_ms = 3'600'000},
            .max_size = 2_MiB,
            .recovery_threads = 1};
  }
  void close_after(const std::vector<std::uint64_t>& rounds, Durability durability) {
    Pool pool = open_pool(path(), of(durability));
    for (const std::uint64_t round : rounds) store(pool, round);
    must(pool.close());
  }
  // A process that is killed: the first round is in a durable cut, the second one in none.
  void kill_after(std::uint64_t first, std::uint64_t second, Durability durability,
                  bool folds = false) {
    in_killed_process(
        [&](Pool& pool) {
          store(pool, first);
          must(pool.sync());
          if (folds) must(pool.fold_log());
          store(pool, second);
        },
        of(durability));
  }
};

TEST_F(WriteGolden, All) {
  if (std::getenv("PERDURE_WRITE_GOLDEN") == nullptr) {
    GTEST_SKIP() << "PERDURE_WRITE_GOLDEN is not set";
  }
  close_after({0, 1}, Durability::process);
  write("process_closed");
  kill_after(2, 3, Durability::process);
  write("process_killed");
  fs::remove(path());
  close_after({0, 1}, Durability::buffered);
  write("buffered_closed");
  kill_after(2, 3, Durability::buffered, true);
  kill_after(4, 5, Durability::buffered);
  write("buffered_killed");
  machine_restarts();
  kill_after(6, 5, Durability::buffered);
  write("buffered_restored");
}

// ---- what they must be ----

TEST_F(Golden, ProcessClosed) {
  lay_out("process_closed");  // synced: trusted anywhere
  expect_all({0, 1}, Durability::process);
}
TEST_F(Golden, ProcessKilled) {
  lay_out("process_killed");
  made_here();
  expect_opened({0, 1, 2, 3}, Durability::process);
}
TEST_F(Golden, ProcessKilledAndCopied) {
  expect_copy("process_killed", {0, 1, 2, 3}, Durability::process);
}

TEST_F(Golden, BufferedClosed) {
  lay_out("buffered_closed");
  expect_all({0, 1}, Durability::buffered);
}
TEST_F(Golden, BufferedClosedHere) {
  lay_out("buffered_closed");
  made_here();
  expect_all({0, 1}, Durability::buffered);
}

// It goes on with the live image: 4 is in the log only, 5 in the image only.
TEST_F(Golden, BufferedKilled) {
  lay_out("buffered_killed");
  made_here();
  expect_all({0, 1, 2, 3, 4, 5}, Durability::buffered);
}
TEST_F(Golden, BufferedAfterAPowerFailure) {
  lay_out("buffered_killed");
  machine_went_down();
  expect_opened({0, 1, 2, 3, 4}, Durability::buffered);
}
// The image lies beside the pool, with what was written back of it. It has no clocks that prove the
// restart, so it is kept under another name.
TEST_F(Golden, BufferedAfterAPowerFailureWithItsImage) {
  lay_out("buffered_killed");
  made_here(true);
  expect_opened({0, 1, 2, 3, 4}, Durability::buffered, as_it_was(), 3);
}
TEST_F(Golden, BufferedKilledAndCopied) {
  expect_copy("buffered_killed", {0, 1, 2, 3, 4}, Durability::buffered);
}

// Its log was restored once before: an epoch that does not count any more was replaced.
TEST_F(Golden, BufferedKilledAfterARestore) {
  lay_out("buffered_restored");
  made_here();
  expect_all({0, 1, 2, 3, 4, 6, 5}, Durability::buffered);
}
TEST_F(Golden, BufferedAfterTwoPowerFailures) {
  lay_out("buffered_restored");
  machine_went_down();
  expect_opened({0, 1, 2, 3, 4, 6}, Durability::buffered);
}

}  // namespace
}  // namespace perdure::test
