// test: tsan, each engine
// Backups of real pools of each engine: while threads store and the log is folded, of pools in
// other processes, killed and closed ones; and what is restored from them.
#include <fcntl.h>
#include <sys/file.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include "platform/real_platform.h"
#include "tests/support/buffered_files.h"

namespace perdure::test {
namespace {

constexpr std::uint64_t kStride = 1'000'000;

class Backups : public BufferedFiles {
 protected:
  std::string dir() const { return path("backups"); }
  // Restores into a new file and opens that.
  Pool restored(const RestoreOptions& options = {}) {
    const std::string name = "restored" + std::to_string(++restores_);
    const BackupEpoch epoch = must(restore(dir(), path(name), options));
    EXPECT_EQ(epoch.epoch, options.epoch.value_or(epoch.epoch));
    const PoolInfo info = must(Pool::inspect(path(name)));
    EXPECT_TRUE(info.clean && info.synced && info.trusted);
    Pool pool = must(Pool::open(path(name), as_it_was()));
    EXPECT_EQ(wrong_content(pool), "");
    expect_sound(pool);
    return pool;
  }
  StatusCode refuses(const Expected<BackupInfo>& made) {
    if (made) return StatusCode::ok;
    message_ = made.error().message();
    return made.error().code();
  }
  StatusCode not_restored(const std::string& name, const RestoreOptions& options = {}) {
    auto epoch = restore(dir(), path(name), options);
    if (epoch) return StatusCode::ok;
    message_ = epoch.error().message();
    return epoch.error().code();
  }
  int restores_ = 0;
};

// Each thread puts keys in their order, and after each the last one under a key of its own.
class Storing {
 public:
  explicit Storing(Pool& pool, std::uint64_t threads) : acknowledged_(threads) {
    for (std::uint64_t t = 0; t < threads; ++t) {
      threads_.emplace_back([&pool, t, this] {
        auto map = must(pool.map<std::uint64_t, std::uint64_t>("later", small_map()));
        for (std::uint64_t i = 1; !stop_ && i < 8'000; ++i) {
          must(map.put((t + 1) * kStride + i % 3'000, i));
          must(map.put(t, i));
          acknowledged_[t] = i;
        }
      });
    }
  }
  ~Storing() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  std::vector<std::uint64_t> acknowledged() const {
    return {acknowledged_.begin(), acknowledged_.end()};
  }

 private:
  std::vector<std::atomic<std::uint64_t>> acknowledged_;
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

// The pool is as at one moment, which is not before `least`, the last number of each thread.
void expect_one_moment(Pool& pool, const std::vector<std::uint64_t>& least) {
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("later", small_map()));
  for (std::uint64_t t = 0; t < least.size(); ++t) {
    const std::uint64_t last = must(map.get(t)).value_or(0);
    EXPECT_GE(last, least[t]) << t;
    for (std::uint64_t i = last > 2'900 ? last - 2'900 : 1; i <= last; ++i)
      ASSERT_EQ(must(map.get((t + 1) * kStride + i % 3'000)), std::optional(i)) << t;
    // One put may be behind the last number, and no more.
    for (std::uint64_t i = last + 2; i < last + 50; ++i)
      ASSERT_NE(must(map.get((t + 1) * kStride + i % 3'000)), std::optional(i)) << t;
  }
}

TEST_F(Backups, AreOfOneMomentWhileThreadsStore) {
  PoolOptions options = buffered(2);
  options.max_size = 16_MiB;
  options.buffered.keep_log_bytes = 1_GiB;
  Pool pool = must(Pool::open(path(), options));
  fill_pool(pool);
  must(pool.fold_log());  // so no backup has an epoch from before the end of fill_pool()
  std::vector<BackupInfo> made;
  std::vector<std::vector<std::uint64_t>> least;
  {
    const Storing storing(pool, 2);
    std::atomic<bool> stop = false;
    std::thread folds([&] {
      while (!stop) must(pool.fold_log());
    });
    for (int i = 0; i < 3; ++i) {
      usleep(20'000);
      least.push_back(storing.acknowledged());
      made.push_back(must(pool.backup(dir())));
      EXPECT_EQ(made.back().extended, i != 0);
    }
    stop = true;
    folds.join();
  }
  EXPECT_EQ(made[0].first.epoch, made[2].first.epoch);
  EXPECT_LE(made[2].base_bytes, made[0].base_bytes);
  for (std::size_t i = 0; i < made.size(); ++i) {
    Pool again = restored({.epoch = made[i].last.epoch});
    expect_one_moment(again, least[i]);
  }
  const std::vector<std::uint64_t> none(2);
  const std::uint64_t first = made[2].first.epoch, last = made[2].last.epoch;
  for (const std::uint64_t epoch : {first, first + 1, (first + last) / 2, last - 1}) {
    if (epoch < first || epoch > last) continue;
    Pool again = restored({.epoch = epoch});
    expect_one_moment(again, none);
  }
  EXPECT_EQ(not_restored("none", {.epoch = first - 1}), StatusCode::invalid_argument);
  EXPECT_NE(message_.find("it has " + std::to_string(first)), std::string::npos) << message_;
  EXPECT_FALSE(exists("none"));
}

TEST_F(Backups, GoBackToATime) {
  Pool pool = must(Pool::open(path(), buffered(1)));
  fill_pool(pool);
  auto map = later(pool);
  std::vector<std::uint64_t> times;
  must(pool.backup(dir()));
  for (std::uint64_t i = 1; i <= 3; ++i) {
    must(map.put(1, i));
    must(pool.sync());
    times.push_back(RealPlatform::unix_ns());
    usleep(20'000);
  }
  const BackupInfo made = must(pool.backup(dir()));
  for (std::uint64_t i = 1; i <= 3; ++i) {
    Pool again = restored({.unix_ns = times[i - 1]});
    EXPECT_EQ(must(later(again).get(1)), std::optional(i));
  }
  EXPECT_EQ(not_restored("none", {.unix_ns = made.ends_unix_ns + 1'000'000'000}),
            StatusCode::invalid_argument);
  EXPECT_EQ(not_restored("none", {.unix_ns = 1}), StatusCode::invalid_argument);
  EXPECT_EQ(not_restored("none", {.epoch = 1, .unix_ns = 1}), StatusCode::invalid_argument);
  const BackupInfo seen = must(inspect_backup(dir() + "/"));
  EXPECT_EQ(seen.last.epoch, made.last.epoch);
  EXPECT_EQ(seen.uuid, must(pool.info()).uuid);
}

// Another process has it open; then it is killed; then the machine restarts.
TEST_F(Backups, OfAPoolThatAnotherProcessHas) {
  in_killed_process([&](Pool& pool) {
    fill_pool(pool);
    must(later(pool).put(1, 1));
    must(pool.sync());
    const pid_t child = start_child([&] { must(back_up(path(), dir())); });
    int status = 0;
    require(::waitpid(child, &status, 0) == child && status == 0, "backup");
    must(later(pool).put(2, 2));
    must(pool.sync());
  });
  {
    Pool again = restored();
    EXPECT_EQ(must(later(again).get(1)), std::optional<std::uint64_t>(1));
    EXPECT_EQ(must(later(again).get(2)), std::nullopt);
  }
  EXPECT_TRUE(must(back_up(path(), dir())).extended);
  machine_restarts();
  EXPECT_TRUE(must(back_up(path(), dir())).extended);
  {
    Pool again = restored();
    EXPECT_EQ(must(later(again).get(2)), std::optional<std::uint64_t>(2));
  }
  Pool pool = must(Pool::open(path(), as_it_was()));
  must(later(pool).put(3, 3));
  EXPECT_EQ(refuses(pool.backup(dir())), StatusCode::exists);
  EXPECT_NE(message_.find("begun again"), std::string::npos) << message_;
  must(pool.backup(path("more")));
}

TEST_F(Backups, OfClosedPoolsAndOthers) {
  for (const Durability durability : {Durability::process, Durability::buffered}) {
    const std::string name = durability == Durability::process ? "process" : "buffered";
    PoolOptions options = buffered();
    options.durability = durability;
    Pool pool = must(Pool::open(path(name), options));
    fill_pool(pool);
    if (durability == Durability::process) {
      EXPECT_EQ(refuses(pool.backup(path("in-use"))), StatusCode::unsupported);
      EXPECT_NE(message_.find("close it"), std::string::npos) << message_;
      EXPECT_EQ(refuses(back_up(path(name), path("in-use"))), StatusCode::busy);
    }
    must(pool.close());
    const BackupInfo made = must(back_up(path(name), dir()));
    EXPECT_TRUE(made.closed);
    Pool again = restored();
    EXPECT_EQ(must(again.info()).durability, durability);
    must(again.close());
    EXPECT_EQ(refuses(back_up(path(name), dir())), StatusCode::exists);
    fs::remove_all(dir());
  }
  PoolOptions options = buffered();
  options.durability = Durability::process;
  in_killed_process([&](Pool& pool) { fill_pool(pool); }, options);
  EXPECT_EQ(refuses(back_up(path(), dir())), StatusCode::invalid_argument);
  EXPECT_EQ(refuses(back_up(path("nothing"), dir())), StatusCode::not_found);
  EXPECT_EQ(refuses(inspect_backup(path("nothing"))), StatusCode::not_found);
}

TEST_F(Backups, KeepTheLogThatTheyNeed) {
  for (const std::uint64_t keep : {std::uint64_t{0}, 64_MiB}) {
    PoolOptions options = buffered(1);
    options.buffered.keep_log_bytes = keep;
    Pool pool = must(Pool::open(path("pool" + std::to_string(keep)), options));
    fill_pool(pool);
    const std::string to = path("to" + std::to_string(keep));
    must(pool.backup(to));
    auto map = later(pool);
    for (std::uint64_t i = 0; must(pool.stats()).log_written_bytes < 24_MiB; ++i) {
      must(map.put(i % 300, i));
      must(pool.sync());
      if (i % 400 == 0) must(pool.fold_log());
    }
    must(pool.fold_log());
    const auto next = pool.backup(to);
    EXPECT_EQ(next.has_value(), keep != 0);
    EXPECT_TRUE(next || next.error() == StatusCode::exists);
    EXPECT_EQ(must(pool.stats()).log_bytes > 8_MiB, keep != 0);
    must(pool.close());
  }
}

TEST_F(Backups, ReplaceNothing) {
  {
    Pool pool = must(Pool::open(path(), buffered()));
    fill_pool(pool);
    must(pool.backup(dir()));
    EXPECT_EQ(not_restored("pool"), StatusCode::exists);
    // A log beside a pool that is gone may be all that is left of it.
    fs::create_directory(path("other-log"));
    EXPECT_EQ(not_restored("other"), StatusCode::exists);
    EXPECT_NE(message_.find("move it away"), std::string::npos) << message_;
    fs::remove(path("other-log"));
  }
  // What an interrupted restore has left, and what only looks like it.
  const std::string left = "other.restoring-000000000000abcd";
  for (const char* part : {"", "-live", "-live-dirty"}) std::ofstream(path(left + part)) << "half";
  fs::create_directory(path(left + "-log"));
  std::ofstream(path(left + "-log/new")) << "half";
  std::ofstream(path("other.restoring")) << "mine";
  EXPECT_EQ(not_restored("other"), StatusCode::ok) << message_;
  for (const char* part : {"", "-live", "-live-dirty", "-log"}) EXPECT_FALSE(exists(left + part));
  EXPECT_TRUE(exists("other.restoring"));
  // Another call uses the folder.
  const int folder = ::open(dir().c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(folder, LOCK_EX), 0);
  EXPECT_EQ(refuses(back_up(path(), dir())), StatusCode::busy);
  EXPECT_EQ(not_restored("third"), StatusCode::busy);
  ::close(folder);
  // A damaged byte of each file.
  for (const auto& file : fs::recursive_directory_iterator(dir())) {
    if (!file.is_regular_file()) continue;
    const std::string before = read_bytes(file.path());
    for (const std::size_t at :
         {std::size_t{20}, std::min<std::size_t>(kPage + 200, before.size() - 1)}) {
      std::string damaged = before;
      damaged[at] ^= 0x10;
      std::ofstream(file.path(), std::ios::binary) << damaged;
      EXPECT_EQ(not_restored("third"), StatusCode::corruption) << file.path() << " at " << at;
      EXPECT_FALSE(exists("third"));
    }
    std::ofstream(file.path(), std::ios::binary) << before;
  }
  EXPECT_EQ(not_restored("third"), StatusCode::ok) << message_;
}

TEST_F(Backups, GoIntoNoPartOfAPool) {
  {
    Pool pool = must(Pool::open(path(), buffered()));
    fill_pool(pool);
    must(pool.sync());
    fs::create_directory_symlink(fs::absolute(folder_), path("alias"));
    const std::string log = path("pool-log/") + "0000000000000001";
    for (const std::string& to : {path(), path("pool-live"), path("pool-live-dirty"),
                                  path("pool-log"), path("alias/pool-log/"), log}) {
      EXPECT_EQ(refuses(pool.backup(to)), StatusCode::invalid_argument) << to;
      EXPECT_EQ(refuses(back_up(path(), to)), StatusCode::invalid_argument) << to;
      EXPECT_NE(message_.find("; choose another path"), std::string::npos) << message_;
    }
    must(pool.backup(dir()));
    EXPECT_EQ(not_restored("backups/log/new"), StatusCode::invalid_argument);
    EXPECT_EQ(not_restored("backups/backup-new"), StatusCode::invalid_argument);
  }
  // A closed pool has its parts again at the next open.
  for (const char* part : {"pool-log", "pool-live", "pool-live-dirty"}) {
    EXPECT_EQ(refuses(back_up(path(), path(part))), StatusCode::invalid_argument) << part;
    EXPECT_EQ(not_restored(part), StatusCode::invalid_argument) << part;
    EXPECT_FALSE(exists(part));
  }
  EXPECT_EQ(not_restored("pool-lively"), StatusCode::ok) << message_;
  Pool pool = must(Pool::open(path(), as_it_was()));
  EXPECT_EQ(wrong_content(pool), "");
}

TEST_F(Backups, FollowALinkOfThisUserOnly) {
  {
    Pool pool = must(Pool::open(path(), buffered()));
    fill_pool(pool);
    must(pool.close());
  }
  fs::create_directory(path("elsewhere"));
  fs::create_directory_symlink(fs::absolute(path("elsewhere")), dir());
  if (::geteuid() == 0) {
    constexpr uid_t kOtherUser = 65'534;
    ASSERT_EQ(::lchown(dir().c_str(), kOtherUser, kOtherUser), 0);
    EXPECT_EQ(refuses(back_up(path(), dir())), StatusCode::untrusted);
    EXPECT_NE(message_.find("name that folder"), std::string::npos) << message_;
    EXPECT_EQ(not_restored("third"), StatusCode::untrusted);
    EXPECT_TRUE(fs::is_empty(path("elsewhere")));
    ASSERT_EQ(::lchown(dir().c_str(), 0, 0), 0);
  }
  must(back_up(path(), dir()));
  EXPECT_FALSE(fs::is_empty(path("elsewhere")));
  EXPECT_EQ(not_restored("third"), StatusCode::ok) << message_;
}

TEST_F(Backups, OverwriteNothingThatHasTheNameOfTheirHead) {
  {
    Pool pool = must(Pool::open(path(), buffered()));
    fill_pool(pool);
  }
  fs::create_directory(dir());
  fs::rename(path(), path("backups/backup-new"));
  fs::copy_file(path("backups/backup-new"), path());
  const std::string before = read_bytes(path());
  EXPECT_EQ(refuses(back_up(path("backups/backup-new"), dir())), StatusCode::exists) << message_;
  EXPECT_NE(message_.find("name another folder"), std::string::npos) << message_;
  EXPECT_EQ(read_bytes(path("backups/backup-new")), before);
}

// A backup removes what an attempt before it has left: not what a link leads to, nor the pool.
TEST_F(Backups, RemoveNoPartOfThePoolFromAnUnfinishedOne) {
  Pool pool = must(Pool::open(path(), buffered()));
  fill_pool(pool);
  must(pool.backup(dir()));
  fs::rename(path("backups/backup"), path("backups/backup-new"));
  fs::remove_all(path("backups/log"));
  fs::create_directory_symlink(fs::absolute(path("pool-log")), path("backups/log"));
  EXPECT_EQ(refuses(pool.backup(dir())), StatusCode::invalid_argument) << message_;
  EXPECT_FALSE(fs::is_empty(path("pool-log")));
  fs::remove(path("backups/log"));
  must(pool.close());
  const std::string before = read_bytes(path());
  fs::rename(path(), path("backups/base"));
  EXPECT_EQ(refuses(back_up(path("backups/base"), dir())), StatusCode::invalid_argument);
  EXPECT_EQ(read_bytes(path("backups/base")), before);
  fs::rename(path("backups/base"), path());
  must(back_up(path(), dir()));
}

TEST_F(Backups, OfAPoolThatIsOpenedMeanwhile) {
  PoolOptions options = buffered();
  options.durability = Durability::process;
  Pool pool = must(Pool::open(path(), options));
  fill_pool(pool);
  must(pool.close());
  struct Opens {
    std::string path;
    std::optional<Pool> pool;
    void open() {
      if (pool) return;
      pool.emplace(must(Pool::open(path, as_it_was())));
      must(later(*pool).put(1, 1));
    }
  } opens{path(), {}};
  const auto progress = [](void* context, std::uint64_t, std::uint64_t) {
    static_cast<Opens*>(context)->open();
  };
  EXPECT_EQ(refuses(back_up(path(), dir(), {.progress = progress, .progress_context = &opens})),
            StatusCode::busy);
  EXPECT_NE(message_.find("was opened"), std::string::npos) << message_;
  EXPECT_EQ(refuses(inspect_backup(dir())), StatusCode::not_found);
  must(opens.pool->close());
  must(back_up(path(), dir()));
}

TEST_F(Backups, RestoreOnceByManyCallers) {
  Pool pool = must(Pool::open(path(), buffered()));
  fill_pool(pool);
  must(pool.backup(dir()));
  for (int round = 0; round < 5; ++round) {
    const std::string name = "many" + std::to_string(round);
    std::atomic<int> made = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        auto epoch = restore(dir(), path(name));
        made += epoch ? 1 : 0;
        EXPECT_TRUE(epoch || epoch.error() == StatusCode::exists ||
                    epoch.error() == StatusCode::busy)
            << epoch.error().message();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(made, 1);
    Pool again = must(Pool::open(path(name), as_it_was()));
    EXPECT_EQ(wrong_content(again), "");
  }
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_EQ(entry.path().string().find("restoring"), std::string::npos) << entry.path();
}

}  // namespace
}  // namespace perdure::test
