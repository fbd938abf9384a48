// test: tsan, three engines
// Parts of a `buffered` pool that are only in its base, and become live at their first store: with
// threads that read and store, kills, power failures, and without space for a chunk.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cut/live_chunks.h"
#include "pool/pool_impl.h"
#include "testing/disk/forwarding_files.h"
#include "tests/support/buffered_files.h"
#include "tests/support/file_limit.h"

namespace perdure::test {
namespace {

constexpr std::uint64_t kRecords = 6'000;

PoolOptions wide(std::uint32_t interval_ms = 100) {
  PoolOptions options = buffered(interval_ms);
  options.max_size = 64_MiB;
  return options;
}
std::string value_of(std::uint64_t i, std::uint64_t round) {
  return std::to_string(i) + ":" + std::to_string(round) + std::string(mix(i) % 800, 'v');
}

class Chunks : public BufferedFiles {
 public:
  using BufferedFiles::path;

 protected:
  using Records = Map<std::uint64_t, Bytes>;

  // A closed pool of some chunks.
  Chunks() {
    PoolOptions first = wide();
    first.durability = Durability::process;
    Pool pool = must(Pool::open(path(), first));
    auto records = records_of(pool);
    for (std::uint64_t i = 0; i < kRecords; ++i) must(records.put(i, value_of(i, 0)));
    must(pool.close());
  }
  static Records records_of(Pool& pool) {
    return must(pool.map<std::uint64_t, Bytes>("records", small_map()));
  }
  static void update(Pool& pool, std::uint64_t from, std::uint64_t to, std::uint64_t round) {
    auto records = records_of(pool);
    for (std::uint64_t i = from; i < to; ++i) must(records.put(i, value_of(i, round)));
  }
  // Records in [from, to) have the value of `round`, all others that of round 0.
  static std::string wrong(Pool& pool, std::uint64_t from = 0, std::uint64_t to = 0,
                           std::uint64_t round = 0) {
    auto records = records_of(pool);
    for (std::uint64_t i = 0; i < kRecords; ++i) {
      const auto got = records.get(i);
      const std::string right = value_of(i, i >= from && i < to ? round : 0);
      if (!got || !*got || **got != right) return "record " + std::to_string(i);
    }
    return "";
  }
  static std::string wrong_after(Pool& pool, std::uint64_t from, std::uint64_t to,
                                 std::uint64_t round) {
    const CheckReport report = must(pool.check({.deep = true}));
    return report.ok() ? wrong(pool, from, to, round) : std::string(report.first());
  }
  std::uint64_t log_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& entry : fs::directory_iterator(path("pool-log")))
      sum += disk_bytes("pool-log/" + entry.path().filename().string());
    return sum;
  }
  std::uint64_t disk_bytes(const std::string& name) const {
    struct stat info{};
    return ::stat(path(name).c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_blocks) * 512
                                                  : 0;
  }
};

TEST_F(Chunks, AnOpenAndACloseCopyWhatTheyStoreTo) {
  const std::uint64_t size = fs::file_size(path());
  ASSERT_GT(size, 5 * 256_KiB);
  {
    PoolOptions rests = wide(3'600'000);
    rests.background_threads = 0;
    Pool pool = must(Pool::open(path(), rests));
    EXPECT_EQ(wrong(pool), "");
    const std::uint64_t live = must(pool.stats()).live_bytes;
    EXPECT_GT(live, 0U);
    EXPECT_LT(live, size / 2);
    EXPECT_LT(disk_bytes("pool-live"), size / 2);
    must(records_of(pool).put(1, value_of(1, 1)));
    EXPECT_LT(must(pool.stats()).live_bytes, size / 2);
    must(pool.close());
  }
  EXPECT_EQ(files(), 1U);
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_after(pool, 1, 2, 1), "");
  EXPECT_EQ(must(pool.stats()).fold_written_bytes, 0U);
}

TEST_F(Chunks, ThreadsReadAndStoreWhileChunksBecomeLive) {
  constexpr std::uint64_t kThreads = 3;
  {
    Pool pool = must(Pool::open(path(), wide(1)));
    auto records = records_of(pool);
    std::atomic<std::uint64_t> ended = 0;
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint64_t i = t; i < kRecords; i += kThreads) must(records.put(i, value_of(i, 1)));
        ++ended;
      });
    }
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; ended < kThreads; i = mix(i + 1) % kRecords) {
        const auto got = must(records.get(i));
        ASSERT_TRUE(got && (*got == value_of(i, 0) || *got == value_of(i, 1))) << i;
      }
    });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong_after(pool, 0, kRecords, 1), "");
    must(pool.close());
  }
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_after(pool, 0, kRecords, 1), "");
}

TEST_F(Chunks, AKillLosesNothing) {
  in_killed_process([&](Pool& pool) { update(pool, 100, 200, 1); }, wide());
  in_killed_process([&](Pool& pool) { EXPECT_EQ(wrong_after(pool, 100, 200, 1), ""); },
                    as_it_was());
  in_killed_process([&](Pool& pool) { update(pool, 100, 1000, 2); }, as_it_was());
  {
    Pool pool = must(Pool::open(path(), as_it_was()));
    EXPECT_EQ(wrong_after(pool, 100, 1000, 2), "");
    must(pool.close());
  }
  EXPECT_EQ(files(), 1U);
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_after(pool, 100, 1000, 2), "");
}

// A segment of the log has parts that the base has already. The pages of these are in no live chunk
// after a power failure. A fold must not write them.
TEST_F(Chunks, AFoldLeavesOutWhatOnlyTheBaseHas) {
  for (const bool killed : {false, true}) {
    in_killed_process(
        [&](Pool& pool) {
          update(pool, 0, kRecords, 1);
          must(pool.sync());
          must(pool.fold_log());
          must(records_of(pool).put(0, value_of(0, 1)));
          must(pool.sync());
        },
        wide(3'600'000));
    machine_restarts();
    fs::remove(path("pool-live"));
    if (killed) in_killed_process([](Pool&) {}, as_it_was());
    {
      Pool pool = must(Pool::open(path(), as_it_was()));
      EXPECT_LT(must(pool.stats()).live_bytes, fs::file_size(path()));
      EXPECT_EQ(wrong_after(pool, 0, kRecords, 1), "");
      must(pool.close());
    }
    Pool pool = must(Pool::open(path(), as_it_was()));
    EXPECT_EQ(wrong_after(pool, 0, kRecords, 1), "") << killed;
  }
}

TEST_F(Chunks, APowerFailureLeavesTheLastCut) {
  in_killed_process(
      [&](Pool& pool) {
        update(pool, 50, 70, 1);
        must(pool.sync());
        update(pool, 3000, 4000, 1);  // in no cut
      },
      wide(3'600'000));
  machine_restarts();
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_after(pool, 50, 70, 1), "");
}

// The power failure may have taken any part of the image.
TEST_F(Chunks, AnImageThatAPowerFailureDamagedDoesNotStay) {
  for (const std::string& left : {std::string(), std::string(100'000, '\0')}) {
    in_killed_process(
        [&](Pool& pool) {
          update(pool, 0, 10, 1);
          must(pool.sync());
        },
        wide(3'600'000));
    machine_restarts();
    write_bytes(path("pool-live"), left);
    Pool pool = must(Pool::open(path(), as_it_was()));
    EXPECT_EQ(wrong_after(pool, 0, 10, 1), "");
    must(pool.close());
    EXPECT_EQ(files(), 1U);
  }
}

// The hook is called when a fold begins.
class FoldHook final : public disk::ForwardingFiles {
 public:
  FoldHook(FileSystem& files, std::function<void()>& hook) : ForwardingFiles(files), hook_(hook) {}
  Expected<File> reopen(File file, std::string_view path) noexcept override {
    if (auto call = std::exchange(hook_, nullptr)) call();
    return files_.reopen(file, path);
  }

 private:
  std::function<void()>& hook_;
};

// A chunk becomes live after the image gave free space back, and before the base does.
TEST_F(Chunks, WhatAChunkCopiesOfFreeSpaceIsGivenBackToo) {
  constexpr std::uint64_t kWords = 20'000;
  const auto words_of = [](Pool& pool) {  // of an engine that changes them in place
    return must(pool.map<std::uint64_t, std::uint64_t>("words", {.engine = Engine::phast}));
  };
  {  // Their extents lie between each other.
    Pool pool = must(Pool::open(path(), wide()));
    auto words = words_of(pool);
    auto goes = must(pool.map<std::uint64_t, std::string_view>("goes", small_map()));
    for (std::uint64_t i = 0; i < kWords; ++i) {
      must(words.put(i, i));
      if (i % 50 == 0) must(goes.put(i, std::string(30'000, 'g')));
    }
    must(pool.close());
  }
  const pid_t child = start_child([&] {
    std::function<void()> hook;
    RealFileSystem real;
    FoldHook files(real, hook);
    Pool pool = must(detail::PoolImpl::open_in(files, path(), wide(3'600'000)));
    auto words = words_of(pool);
    must(pool.drop("goes"));
    bool called = false;
    hook = [&] {
      for (std::uint64_t i = 0; i < kWords; ++i) must(words.put(i, i + 1));  // in place
      called = true;
    };
    (void)must(pool.compact());
    require(called, "the log was folded before the base was punched");
    ::kill(::getpid(), SIGKILL);
  });
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  Pool pool = must(Pool::open(path(), as_it_was()));
  auto words = words_of(pool);
  for (std::uint64_t i = 0; i < kWords; ++i) ASSERT_EQ(must(words.get(i)), std::optional(i + 1));
  EXPECT_EQ(wrong_after(pool, 0, 0, 0), "");
}

// --- compact -------------------------------------------------------------------------------------

constexpr std::uint64_t kLarge = 100;
Map<std::uint64_t, std::string_view> grow(Pool& pool, char c) {
  auto large = must(pool.map<std::uint64_t, std::string_view>("large", small_map()));
  for (std::uint64_t i = 0; i < kLarge; ++i) must(large.put(i, std::string(30'000, c)));
  return large;
}
bool has_grown(Pool& pool, char c) {
  auto large = must(pool.map<std::uint64_t, std::string_view>("large", small_map()));
  for (std::uint64_t i = 0; i < kLarge; ++i) {
    if (must(large.get(i)) != std::optional(std::string(30'000, c))) return false;
  }
  return true;
}

// Also what the pool has grown by since it was opened. Then it goes on, and is killed.
TEST_F(Chunks, CompactGivesBackWhatTheBaseHas) {
  for (const bool restarts : {false, true}) {
    in_killed_process(
        [&](Pool& pool) {
          update(pool, 0, kRecords, 1);
          (void)grow(pool, 'a');
          (void)must(pool.compact());
          const std::uint64_t size = fs::file_size(path());
          require(must(pool.stats()).live_bytes < size / 3, "few chunks are live");
          require(disk_bytes("pool-live") < size / 3, "the others take no space");
          require(log_bytes() < 2_MiB, "nor does the log");
          require(wrong(pool, 0, kRecords, 1).empty() && has_grown(pool, 'a'), "nothing changes");
          update(pool, 0, kRecords, 2);
          (void)grow(pool, 'b');
          (void)must(pool.compact());
          require(disk_bytes("pool-live") < size / 3, "again");
          update(pool, 0, kRecords, 3);
          (void)grow(pool, 'c');
          if (restarts) must(pool.sync());
        },
        wide(3'600'000));
    if (restarts) machine_restarts();
    Pool pool = must(Pool::open(path(), as_it_was()));
    EXPECT_EQ(wrong_after(pool, 0, kRecords, 3), "");
    EXPECT_TRUE(has_grown(pool, 'c'));
    must(pool.close());
    EXPECT_EQ(files(), 1U);
  }
}

// A chunk with something that no fold has stays live.
TEST_F(Chunks, CompactKeepsWhatTheBaseLacks) {
  in_killed_process(
      [&](Pool& pool) {
        update(pool, 0, kRecords, 1);
        std::atomic<bool> ended = false;
        std::thread compacts([&] {
          while (!ended) (void)must(pool.compact());
        });
        for (std::uint64_t round = 2; round <= 12; ++round) update(pool, 0, kRecords, round);
        ended = true;
        compacts.join();
      },
      wide(1));
  {
    Pool pool = must(Pool::open(path(), as_it_was()));
    EXPECT_EQ(wrong_after(pool, 0, kRecords, 12), "");
    must(pool.close());
  }
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_after(pool, 0, kRecords, 12), "");
}

// The hook is called when a fold has ended.
class AfterFold final : public disk::ForwardingFiles {
 public:
  AfterFold(FileSystem& files, std::function<void()>& hook) : ForwardingFiles(files), hook_(hook) {}
  Status write(File file, const void* bytes, std::size_t n, std::uint64_t at) noexcept override {
    layout::BaseMark mark{};
    if (n == sizeof(mark)) std::memcpy(&mark, bytes, n);
    if (mark.magic == layout::kMarkMagic && mark.folded > folded_) {
      folded_ = mark.folded;
      ended_ = true;
    }
    return files_.write(file, bytes, n, at);
  }
  Expected<std::uint64_t> size(File file) noexcept override {
    if (ended_.exchange(false)) {
      if (auto call = std::exchange(hook_, nullptr)) call();
    }
    return files_.size(file);
  }

 private:
  std::function<void()>& hook_;
  std::uint64_t folded_ = 0;
  std::atomic<bool> ended_ = false;
};

// What is noted, and in no cut, keeps its chunk live.
TEST_F(Chunks, CompactKeepsWhatNoCutHas) {
  std::function<void()> hook;
  RealFileSystem real;
  AfterFold files(real, hook);
  PoolOptions rests = wide(3'600'000);
  rests.background_threads = 0;  // nothing moves the notes
  Pool pool(must(detail::PoolImpl::open_in(files, path(), rests)));
  update(pool, 0, kRecords, 1);
  bool called = false;
  hook = [&] {
    auto records = records_of(pool);
    for (std::uint64_t i = 0; i < kRecords; i += 200) must(records.put(i, value_of(i, 2)));
    called = true;
  };
  (void)must(pool.compact());
  EXPECT_TRUE(called);
  auto records = records_of(pool);
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    const auto got = records.get(i);
    ASSERT_TRUE(got && *got == value_of(i, i % 200 == 0 ? 2 : 1)) << i;
  }
  expect_sound(pool);
}

TEST_F(Chunks, ThreadsReadAndStoreWhileChunksAreRetired) {
  constexpr std::uint64_t kThreads = 2, kRounds = 8;
  {
    Pool pool = must(Pool::open(path(), wide(1)));
    auto records = records_of(pool);
    std::atomic<std::uint64_t> ended = 0;
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (std::uint64_t round = 1; round <= kRounds; ++round) {
          for (std::uint64_t i = t; i < kRecords; i += kThreads)
            must(records.put(i, value_of(i, round)));
        }
        ++ended;
      });
    }
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; ended < kThreads; i = mix(i + 1) % kRecords) {
        const auto got = must(records.get(i));
        ASSERT_TRUE(got && got->starts_with(std::to_string(i) + ":")) << i;
      }
    });
    while (ended < kThreads) (void)must(pool.compact());
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong_after(pool, 0, kRecords, kRounds), "");
    must(pool.close());
  }
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_after(pool, 0, kRecords, kRounds), "");
}

// --- without space -------------------------------------------------------------------------------

// As if the process had been killed then: nothing that was acknowledged is lost.
TEST_F(Chunks, WithoutSpaceForAChunkThePoolStops) {
  constexpr std::uint64_t kThreads = 2;
  constexpr std::uint64_t kHot = 2'000;
  std::array<std::atomic<std::uint64_t>, kThreads> hot_done{}, cold_done{};
  {
    Pool pool = must(Pool::open(path(), wide(3'600'000)));
    auto records = records_of(pool);
    auto hot = later(pool);
    for (std::uint64_t t = 0; t < kThreads; ++t) must(hot.put(t, 0));
    const FileLimit limit(256_KiB);  // the first chunk, which is live
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        Found put = hot.put(t, 0);
        for (std::uint64_t i = 1; put.ok() && i <= kHot; ++i) {
          put = hot.put(t, i);
          if (put.ok()) hot_done[t] = i;
        }
        for (std::uint64_t i = t; put.ok() && i < kRecords; i += kThreads) {
          put = records.put(i, value_of(i, 1));
          if (put.ok()) cold_done[t] = i + 1;
        }
        EXPECT_EQ(put.status(), StatusCode::poisoned);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(hot.put(0, kHot + 1).status(), StatusCode::poisoned);
    const Status failure = pool.sync();
    EXPECT_EQ(failure, StatusCode::poisoned);
    EXPECT_NE(failure.message().find("live image"), std::string_view::npos) << failure.message();
    EXPECT_EQ(pool.close(), StatusCode::poisoned);
  }
  Pool pool = must(Pool::open(path(), as_it_was()));
  auto records = records_of(pool);
  auto hot = later(pool);
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    const std::uint64_t got = must(hot.get(t)).value_or(0);
    EXPECT_TRUE(got == hot_done[t] || got == hot_done[t] + 1) << got << " " << hot_done[t];
  }
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    const bool was = i < cold_done[i % kThreads];
    const auto got = must(records.get(i));
    ASSERT_TRUE(got && (*got == value_of(i, 1) || (!was && *got == value_of(i, 0)))) << i;
  }
  std::printf("acknowledged: %llu, %llu\n", static_cast<unsigned long long>(hot_done[0]),
              static_cast<unsigned long long>(cold_done[0]));
  expect_sound(pool);
  must(pool.close());
}

// An image of `bytes` bytes over a base, without a pool.
struct ImageAlone {
  ImageAlone(const Chunks& files, const std::string& content, std::uint64_t bytes) {
    write_bytes(files.path("base"), content);
    must(base.open(files.path("base"), FileStorage::Access::owner));
    must(image.create(files.path("image")));
    must(image.map(2 * bytes));
    must(image.lengthen(bytes));
    chunks.emplace(image, base.descriptor());
    must(chunks->begin(content.size(), {}));
  }
  FileStorage base, image;
  std::optional<LiveChunks> chunks;
};

// Those with the pages, and the first, which is live from the start. The base ends within a page.
TEST_F(Chunks, AllWithSomePagesBecomeLive) {
  constexpr std::uint64_t kChunk = 256_KiB, kChunks = 300;
  std::string content((kChunks - 1) * kChunk + 5'000, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i / 1'000 + i);
  ImageAlone alone(*this, content, kChunks * kChunk);
  PageSet pages;
  std::set<std::uint64_t> live = {0, 1, 2, 77, 150, 290, kChunks - 1};
  for (const std::uint64_t chunk : live) ASSERT_TRUE(pages.add(chunk * kChunk / kPage + chunk % 2));
  ASSERT_TRUE(pages.add(2 * kChunks * kChunk / kPage));  // the base has no such page
  must(alone.chunks->make_live(pages));
  for (std::uint64_t chunk = 0; chunk < kChunks; ++chunk)
    EXPECT_EQ(alone.chunks->is_live(chunk * kChunk), live.contains(chunk)) << chunk;
  content.resize(2 * kPage * (content.size() / kPage / 2 + 1));
  // The first two pages have the head of the image.
  EXPECT_EQ(std::memcmp(alone.image.base() + 2 * kPage, content.data() + 2 * kPage,
                        content.size() - 2 * kPage),
            0);
}

// Each step leaves the head as the next process needs it, with the bits in both pages.
TEST_F(Chunks, ChunksAreAddedAndRetired) {
  constexpr std::uint64_t kChunk = 256_KiB, kHad = 3, kChunks = 2'700;
  constexpr std::uint64_t kBytes = kChunks * kChunk + 5'000;
  ImageAlone alone(*this, std::string(kHad * kChunk - 5'000, 'b'), kBytes);
  LiveChunks& chunks = *alone.chunks;
  RealPlatform platform;
  chunks.attach(platform);
  ASSERT_EQ(::ftruncate(alone.base.descriptor(), kBytes), 0);
  const auto place = [&](std::uint64_t chunk) {
    return reinterpret_cast<char*>(alone.image.base() + chunk * kChunk + 7'000);
  };
  *place(kHad) = 'g';  // behind the chunks
  must(chunks.cover(kBytes));
  must(chunks.cover(kBytes - kChunk));  // nothing
  EXPECT_EQ(chunks.covered(), kChunks * kChunk);
  EXPECT_TRUE(layout::is_live_head(chunks.head()));
  EXPECT_EQ(chunks.head().covered, kChunks * kChunk);
  EXPECT_TRUE(chunks.is_live((kHad - 1) * kChunk)) << "its end was in the image only";
  EXPECT_FALSE(chunks.is_live(kChunk));
  EXPECT_TRUE(chunks.is_live(kHad * kChunk) && chunks.is_live((kChunks - 1) * kChunk));
  EXPECT_EQ(*place(kHad), 'g');
  bool asked = false;
  const auto retire = [&](bool ends, std::uint64_t stays) {
    for (std::uint64_t at = 0; at < chunks.covered();) {
      at = must(chunks.retire(
          at,
          [&] {
            asked = true;
            return ends;
          },
          [&](std::uint64_t from, std::uint64_t to) {
            EXPECT_FALSE(chunks.is_live(from)) << "no store can begin";
            EXPECT_EQ(to, from + kChunk);
            return from / kChunk != stays;
          }));
    }
  };
  retire(false, 0);
  EXPECT_TRUE(asked);
  EXPECT_EQ(*place(kHad), 'g') << "a store was under way";
  retire(true, kHad);
  EXPECT_EQ(*place(kHad), 'g');
  for (std::uint64_t chunk = 0; chunk <= kChunks; ++chunk) {
    const bool live = chunk == 0 || chunk == kHad || chunk == kChunks;
    EXPECT_EQ(chunks.is_live(chunk * kChunk), live) << chunk;
  }
  EXPECT_EQ(chunks.live_bytes(), 2 * kChunk + 5'000);
  must(chunks.give_back());
  EXPECT_LT(alone.image.disk_bytes(), 3 * kChunk);
  chunks.before((kChunks - 1) * kChunk);  // a bit of the second page
  *place(kChunks - 1) = 's';
  LiveChunks next(alone.image, alone.base.descriptor());
  must(next.go_on());
  for (const std::uint64_t chunk : {std::uint64_t{0}, kHad, kChunks - 1, kChunks})
    EXPECT_TRUE(next.is_live(chunk * kChunk)) << chunk;
  EXPECT_FALSE(next.is_live(kChunk) || next.is_live((kChunks - 2) * kChunk));
  EXPECT_EQ(*place(kHad), 'g');
  EXPECT_EQ(*place(kChunks - 1), 's');
}

// The copy of a chunk must have no zeros for what the base has lost.
TEST_F(Chunks, ABaseThatBecomesShorterIsNoticed) {
  constexpr std::uint64_t kChunk = 256_KiB;
  ImageAlone alone(*this, std::string(4 * kChunk, 'b'), 4 * kChunk);
  ASSERT_EQ(::ftruncate(alone.base.descriptor(), 2 * kChunk - 100), 0);
  for (const std::uint64_t chunk : {1, 2, 3}) {
    EXPECT_EQ(alone.chunks->make_live(chunk * kChunk), StatusCode::corruption);
    EXPECT_FALSE(alone.chunks->is_live(chunk * kChunk));
  }
}

// Not even to chunks that are live, and to what lies behind all chunks.
TEST_F(Chunks, AfterAFailureNoStoreReachesAFile) {
  constexpr std::uint64_t kCovered = 4 * 256_KiB, kBytes = kCovered + 64_KiB;
  const std::string content(kCovered, 'b');
  ImageAlone alone(*this, content, kBytes);
  FileStorage& image = alone.image;
  LiveChunks& chunks = *alone.chunks;
  RealPlatform platform;
  platform.name("a pool");
  {
    const FileLimit limit(2 * 256_KiB);
    EXPECT_EQ(chunks.make_live(3 * 256_KiB), StatusCode::pool_full);
    EXPECT_FALSE(chunks.is_live(3 * 256_KiB));
  }
  chunks.attach(platform);
  const std::array<std::uint64_t, 4> places = {100'000, 256_KiB, 3 * 256_KiB, kCovered + 5};
  const auto store = [&](std::uint64_t at, char c) {
    chunks.before(at);
    image.base()[at] = static_cast<std::byte>(c);
  };
  store(places[1], '1');
  store(places[3], '1');
  EXPECT_TRUE(chunks.is_live(0) && chunks.is_live(256_KiB) && chunks.is_live(kCovered));
  EXPECT_FALSE(chunks.is_live(2 * 256_KiB));
  const std::string before = read_bytes(path("image.creating"));
  {
    const FileLimit limit(2 * 256_KiB);
    store(places[2], '2');
  }
  EXPECT_TRUE(platform.poisoned());
  EXPECT_NE(platform.failure().message().find("live image"), std::string_view::npos);
  for (const std::uint64_t at : places) store(at, '2');
  for (const std::uint64_t at : places) EXPECT_EQ(image.base()[at], static_cast<std::byte>('2'));
  EXPECT_EQ(image.base()[places[1] + 1], static_cast<std::byte>('b'));
  EXPECT_TRUE(read_bytes(path("image.creating")) == before);
  EXPECT_TRUE(read_bytes(path("base")) == content);
}

// The operation that has read zeros goes on. Its stores must not reach a file.
TEST_F(Chunks, AfterALostPageNoStoreReachesAFile) {
  constexpr std::uint64_t kBytes = 4 * 256_KiB;
  ImageAlone alone(*this, std::string(kBytes, 'b'), kBytes);
  FileStorage& image = alone.image;
  LiveChunks& chunks = *alone.chunks;
  RealPlatform platform;
  platform.name("a pool");
  chunks.attach(platform);
  ASSERT_TRUE(watch_bus_errors(image.base(), image.capacity(), platform.mapping_state()));
  chunks.before(kPage);
  image.base()[kPage] = std::byte{'1'};
  const std::string before = read_bytes(path("image.creating"));
  fs::resize_file(path("base"), 2 * 256_KiB);
  const auto* lost = reinterpret_cast<const std::uint64_t*>(image.base() + 3 * 256_KiB);
  EXPECT_EQ(platform.load(*lost), 0U);
  EXPECT_TRUE(platform.lost());
  for (const std::uint64_t at : {kPage, 256_KiB, 3 * 256_KiB}) {
    chunks.before(at);
    image.base()[at] = std::byte{'2'};
  }
  EXPECT_EQ(image.base()[kPage], std::byte{'2'});
  EXPECT_TRUE(read_bytes(path("image.creating")) == before);
  platform.leave_mapping();
}

// Small pools have all bits in the head, larger ones also in the second page, and large ones larger
// chunks.
TEST_F(Chunks, ThePlaceOfABitDependsOnTheSize) {
  for (const std::uint64_t gib : {1, 2, 9}) {
    const std::uint64_t covered = gib * 1024_MiB - 64_KiB;
    TempPath folder;
    fs::create_directory(folder.str());
    write_bytes(folder.str() + "/base", "");
    fs::resize_file(folder.str() + "/base", covered);
    FileStorage base, image;
    must(base.open(folder.str() + "/base", FileStorage::Access::owner));
    must(image.create(folder.str() + "/image"));
    must(image.map(covered + 1_MiB));
    must(image.lengthen(covered));
    const std::array<std::uint64_t, 4> places = {covered / 2, covered / 3, covered - 64, covered};
    {
      LiveChunks chunks(image, base.descriptor());
      must(chunks.begin(covered, {}));
      for (const std::uint64_t at : places) {
        must(chunks.make_live(at));
        if (at < covered) std::memset(image.base() + at, 'x', 8);
      }
      EXPECT_LT(chunks.live_bytes(), 16_MiB);
    }
    image.unmap();
    must(image.map(covered + 1_MiB));
    LiveChunks chunks(image, base.descriptor());
    must(chunks.go_on());
    for (const std::uint64_t at : places) {
      EXPECT_TRUE(chunks.is_live(at)) << gib << " " << at;
      EXPECT_TRUE(at == covered || image.base()[at] == static_cast<std::byte>('x')) << at;
    }
    EXPECT_FALSE(chunks.is_live(covered / 5));
    EXPECT_EQ(image.base()[covered / 5], std::byte{0});
    // What go_on() refuses.
    layout::LiveHead& head = chunks.head();
    const layout::LiveHead whole = head;
    const auto refuses = [&](auto&& damage) {
      damage(head);
      head.crc = layout::live_head_crc(head);
      LiveChunks other(image, base.descriptor());
      EXPECT_EQ(other.go_on(), StatusCode::corruption);
      std::memcpy(&head, &whole, sizeof(whole));
    };
    refuses([](layout::LiveHead& h) { h.chunk_bytes += kPage; });
    refuses([](layout::LiveHead& h) { h.chunk_bytes = kPage; });
    refuses([](layout::LiveHead& h) { h.covered += 1; });
    refuses([](layout::LiveHead& h) { h.covered *= 2; });
    refuses([](layout::LiveHead& h) { h.live[0] &= ~std::uint64_t{1}; });
    image.discard_new();
  }
}

TEST_F(Chunks, ARestoreWithoutSpaceChangesNothing) {
  in_killed_process(
      [&](Pool& pool) {
        update(pool, 0, kRecords, 1);
        must(pool.sync());
      },
      wide(3'600'000));
  machine_restarts();
  {
    const FileLimit limit(fs::file_size(path()) / 2);
    EXPECT_EQ(refused(), StatusCode::pool_full);
    EXPECT_NE(message_.find("live image"), std::string::npos) << message_;
  }
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_after(pool, 0, kRecords, 1), "");
}

// --- files ---------------------------------------------------------------------------------------

TEST_F(Chunks, ALiveImageIsNoPool) {
  in_killed_process([&](Pool& pool) { update(pool, 0, 10, 1); }, wide());
  fs::copy_file(path("pool-live"), path("copy"));
  for (const char* name : {"pool-live", "copy"}) {
    EXPECT_EQ(refused(as_it_was(), name), StatusCode::invalid_argument);
    EXPECT_NE(message_.find("live image"), std::string::npos) << message_;
    EXPECT_EQ(refused({.mode = OpenMode::read_only}, name), StatusCode::invalid_argument);
  }
  EXPECT_EQ(refused(), StatusCode::ok) << message_;
}

TEST_F(Chunks, AShortBaseIsNoticed) {
  in_killed_process([&](Pool& pool) { update(pool, 0, 10, 1); }, wide());
  const std::string before = read_bytes(path());
  fs::resize_file(path(), before.size() / 2);
  EXPECT_EQ(refused(), StatusCode::live_missing);
  EXPECT_NE(message_.find("truncated"), std::string::npos) << message_;
  PoolOptions accept = as_it_was();
  accept.accept_untrusted = true;
  EXPECT_EQ(refused(accept), StatusCode::corruption) << message_;
  write_bytes(path(), before);
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_after(pool, 0, 10, 1), "");
}

// Any byte of the head that counts.
TEST_F(Chunks, ADamagedHeadIsNoticed) {
  in_killed_process([&](Pool& pool) { update(pool, 0, 10, 1); }, wide());
  const std::string before = read_bytes(path("pool-live"));
  for (std::size_t i = 0; i < offsetof(layout::LiveHead, folded); ++i) {
    std::string damaged = before;
    damaged[layout::kMarkOffset + i] = static_cast<char>(damaged[layout::kMarkOffset + i] ^ 0x10);
    write_bytes(path("pool-live"), damaged);
    EXPECT_EQ(refused(), StatusCode::live_missing) << i << ": " << message_;
  }
  write_bytes(path("pool-live"), before);
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_after(pool, 0, 10, 1), "");
}

}  // namespace
}  // namespace perdure::test
