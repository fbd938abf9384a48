// Pools with durability `buffered` whose files are moved, replaced, removed, or prepared by another
// user while they are open, and programs that have closed their standard streams.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "platform/file_system.h"
#include "pool/pool_impl.h"
#include "testing/disk/forwarding_files.h"
#include "tests/support/buffered_files.h"

namespace perdure::test {
namespace {

constexpr std::uint32_t kSeldom = 3'600'000;
constexpr uid_t kOtherUser = 65'534;

class Names : public BufferedFiles {
 protected:
  Names() { fs::create_directory(path("")); }

  void make_pool(const std::string& name, std::uint64_t value) {
    Pool pool = must(Pool::open(path(name), buffered()));
    must(later(pool).put(1, value));
    must(pool.close());
  }
  std::uint64_t value_in(const std::string& name, std::uint64_t key = 1) {
    Pool pool = must(Pool::open(path(name), as_it_was()));
    const auto found = must(later(pool).get(key));
    expect_sound(pool);
    must(pool.close());
    return found.value_or(0);
  }
  unsigned mode_of(const std::string& name) const {
    struct stat info{};
    return ::stat(path(name).c_str(), &info) == 0 ? info.st_mode & 0777U : ~0U;
  }
  // Calls work() as another user, in a process of its own. Only the superuser can become one.
  void as_other_user(const std::function<void()>& work) const {
    const pid_t child = start_child([&] {
      require(::setgid(kOtherUser) == 0 && ::setuid(kOtherUser) == 0, "setuid");
      work();
      ::_exit(0);
    });
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
  static std::vector<std::string>& said() {
    static std::vector<std::string> lines;
    return lines;
  }
  static PoolOptions telling() {
    said().clear();
    PoolOptions options = buffered(kSeldom);
    options.log = [](void*, LogLevel level, std::string_view text) {
      if (level != LogLevel::info) said().emplace_back(text);
    };
    return options;
  }
  static bool has_said(const std::string& text) {
    return std::ranges::any_of(
        said(), [&](const std::string& line) { return line.find(text) != std::string::npos; });
  }
};

TEST_F(Names, AnotherPoolAtThePathStaysAsItIs) {
  make_pool("other", 2);
  make_pool("pool", 1);
  const std::string other = read_bytes(path("other"));
  Pool pool = must(Pool::open(path(), telling()));
  auto map = later(pool);
  for (std::uint64_t key = 2; key < 2'000; ++key) must(map.put(key, key));
  fs::rename(path(), path("old"));
  fs::copy_file(path("other"), path());
  for (std::uint64_t key = 2'000; key < 4'000; ++key) must(map.put(key, key));
  must(pool.sync());
  must(pool.fold_log());
  must(map.put(4'000, 4'000));
  must(pool.close());
  EXPECT_TRUE(has_said(fs::canonical(path("old")))) << "the log says where it is";
  EXPECT_TRUE(read_bytes(path()) == other);
  EXPECT_EQ(files(), 3U) << "no log, and no image";
  for (const std::uint64_t key : {std::uint64_t{1}, std::uint64_t{1'999}, std::uint64_t{4'000}})
    EXPECT_EQ(value_in("old", key), key);
  EXPECT_EQ(value_in("pool"), 2U);
}

TEST_F(Names, AFileThatIsNoPoolAtThePathStaysAsItIs) {
  Pool pool = must(Pool::open(path(), telling()));
  must(later(pool).put(1, 1));
  fs::rename(path(), path("old"));
  write_bytes(path(), std::string(100'000, 'x'));
  must(pool.fold_log());
  must(later(pool).put(2, 2));
  EXPECT_EQ(pool.backup(path("backup")).error(), StatusCode::io);
  must(pool.close());
  EXPECT_TRUE(read_bytes(path()) == std::string(100'000, 'x'));
  EXPECT_EQ(value_in("old", 2), 2U);
}

// When an open looks at the name of the base.
class ExchangingFiles final : public disk::ForwardingFiles {
 public:
  ExchangingFiles(FileSystem& files, std::string path, std::string other)
      : ForwardingFiles(files), path_(std::move(path)), other_(std::move(other)) {}
  Expected<File> borrow(std::string_view path, int descriptor) noexcept override {
    require(::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, other_.c_str(), RENAME_EXCHANGE) == 0,
            "renameat2");
    return files_.borrow(path, descriptor);
  }

 private:
  const std::string path_, other_;
};

TEST_F(Names, AFileThatTakesTheNameWithinAnOpenGetsNoPages) {
  make_pool("pool", 1);
  make_pool("other", 2);
  const std::string other = read_bytes(path("other"));
  RealFileSystem real;
  ExchangingFiles files(real, fs::canonical(path()), fs::canonical(path("other")));
  {
    auto pool = detail::PoolImpl::open_in(files, path(), telling());
    EXPECT_EQ(code_of(pool), StatusCode::busy);
    if (pool) must(later(*pool).put(1, 3));
  }
  EXPECT_TRUE(read_bytes(path()) == other);
  EXPECT_EQ(value_in("pool"), 2U);
  EXPECT_EQ(value_in("other"), 1U);
}

TEST_F(Names, TheFolderCanBeMovedWhileThePoolIsOpen) {
  fs::create_directory(path("here"));
  Pool pool = must(Pool::open(path("here/pool"), telling()));
  must(later(pool).put(1, 1));
  must(pool.sync());
  fs::rename(path("here"), path("there"));
  fs::create_directory(path("here"));
  fs::create_directory(path("here/pool-log"));
  for (const char* name : {"here/pool", "here/pool-live", "here/pool-live-dirty"})
    write_bytes(path(name), "foreign");
  for (std::uint64_t key = 2; key < 3'000; ++key) must(later(pool).put(key, key));
  must(pool.fold_log());
  must(later(pool).put(3'000, 3'000));
  must(pool.sync());
  must(pool.close());
  for (const char* name : {"here/pool", "here/pool-live", "here/pool-live-dirty"})
    EXPECT_EQ(read_bytes(path(name)), "foreign");
  EXPECT_TRUE(fs::is_empty(path("here/pool-log")));
  EXPECT_EQ(std::distance(fs::directory_iterator(path("there")), fs::directory_iterator{}), 1);
  EXPECT_EQ(value_in("there/pool", 3'000), 3'000U);
}

// Moved with all its parts, and killed.
TEST_F(Names, AMovedFolderIsThePoolAfterAKill) {
  fs::create_directory(path("here"));
  const pid_t child = start_child([&] {
    Pool pool = must(Pool::open(path("here/pool"), buffered(kSeldom)));
    must(later(pool).put(1, 1));
    fs::rename(path("here"), path("there"));
    must(pool.fold_log());
    must(later(pool).put(1, 7));
    ::kill(::getpid(), SIGKILL);
  });
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(value_in("there/pool"), 7U);
}

TEST_F(Names, TwoPoolsDoNotShareALog) {
  make_pool("other", 2);
  Pool pool = must(Pool::open(path(), buffered(kSeldom)));
  fs::rename(path(), path("old"));
  fs::rename(path("other"), path());
  EXPECT_EQ(refused(), StatusCode::busy) << "before the first segment, too";
  must(later(pool).put(1, 1));
  must(pool.sync());
  EXPECT_EQ(refused(), StatusCode::busy);
  EXPECT_NE(message_.find("pool-log"), std::string::npos) << message_;
  must(later(pool).put(1, 3));
  must(pool.close());
  EXPECT_EQ(value_in("pool"), 2U);
  EXPECT_EQ(value_in("old"), 3U);
}

// A program has closed descriptors 0 to 2, opens pools, and prints.
TEST_F(Names, StandardStreamsThatAreClosedAreNoPool) {
  for (const Durability durability : {Durability::buffered, Durability::process}) {
    for (int closed = 0; closed < 8; ++closed) {
      fs::remove(path());
      const pid_t child = start_child([&] {
        for (const int stream : {0, 1, 2}) {
          if ((closed >> stream & 1) != 0) ::close(stream);
        }
        for (const bool anew : {true, false}) {
          PoolOptions options = buffered(kSeldom);
          options.durability = durability;
          Pool pool = must(Pool::open(path(), options));
          if (anew) fill_pool(pool);
          for (const int stream : {0, 1, 2}) {
            if ((closed >> stream & 1) == 0) continue;
            require(::fcntl(stream, F_GETFD) < 0, "a stream is open");
          }
          must(pool.sync());
          if (durability == Durability::buffered) must(pool.fold_log());
          must(pool.close());
        }
        ::_exit(0);
      });
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_EQ(status, 0) << closed;
      Pool pool = must(Pool::open(path(), as_it_was()));
      EXPECT_EQ(wrong_content(pool), "");
      must(pool.close());
    }
  }
}

TEST_F(Names, PartsOfAPrivatePoolArePrivate) {
  for (const unsigned mode : {0600U, 0640U, 0664U}) {
    fs::remove(path());
    make_pool("pool", 1);
    ASSERT_EQ(::chmod(path().c_str(), mode), 0);
    Pool pool = must(Pool::open(path(), buffered(kSeldom)));
    must(later(pool).put(2, 2));
    must(pool.sync());
    EXPECT_EQ(mode_of("pool-live"), mode);
    EXPECT_EQ(mode_of("pool-live-dirty"), mode);
    EXPECT_EQ(mode_of("pool-log") & 0066U, mode & 0066U);
    for (const auto& segment : fs::directory_iterator(path("pool-log")))
      EXPECT_EQ(mode_of("pool-log/" + segment.path().filename().string()), mode);
    must(pool.backup(path("backup")));
    for (const auto& part : fs::recursive_directory_iterator(path("backup"))) {
      struct stat info{};
      ASSERT_EQ(::stat(part.path().c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 0066U, mode & 0066U) << part.path();
    }
    must(pool.close());
    must(restore(path("backup"), path("restored")));
    EXPECT_EQ(mode_of("restored"), mode);
    fs::remove(path("restored"));
    fs::remove_all(path("backup"));
  }
}

// In a folder in which all users may make files.
class OtherUsers : public Names {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only the superuser can become another user";
    ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);
    make_pool("pool", 1);
    ASSERT_EQ(::chmod(path().c_str(), 0600), 0);
  }
};

TEST_F(OtherUsers, AFolderThatTheyHaveMadeIsNoLog) {
  as_other_user([&] { require(::mkdir(path("pool-log").c_str(), 0777) == 0, "mkdir"); });
  EXPECT_EQ(refused(), StatusCode::untrusted);
  EXPECT_NE(message_.find("pool-log"), std::string::npos) << message_;
  fs::rename(path("pool-log"), path("away"));
  EXPECT_EQ(value_in("pool"), 1U) << "what the message says helps";
}

TEST_F(OtherUsers, ALinkThatTheyHaveMadeIsNoLog) {
  fs::create_directory(path("victim"));
  as_other_user([&] { fs::create_directory_symlink(path("victim"), path("pool-log")); });
  EXPECT_NE(refused(), StatusCode::ok);
  EXPECT_TRUE(fs::is_empty(path("victim")));
  fs::remove(path("pool-log"));
  EXPECT_EQ(value_in("pool"), 1U);
}

TEST_F(OtherUsers, AnImageThatTheyHaveMadeIsNotUsed) {
  write_bytes(path("victim"), "mine");
  as_other_user([&] {
    write_bytes(path("pool-live"), std::string(4'000'000, 'x'));
    write_bytes(path("pool-live.creating"), "x");
    fs::create_symlink(path("victim"), path("pool-live-dirty"));
    fs::create_symlink(path("victim"), path("pool-live-dirty.creating"));
    require(::chmod(path("pool-live").c_str(), 0666) == 0, "chmod");
  });
  const StatusCode code = refused();
  if (code != StatusCode::ok) {
    for (const char* name :
         {"pool-live", "pool-live.creating", "pool-live-dirty", "pool-live-dirty.creating"})
      fs::remove(path(name));
  }
  EXPECT_EQ(value_in("pool"), 1U) << message_;
  EXPECT_EQ(read_bytes(path("victim")), "mine");
}

// After a kill, with the parts replaced by those that another user may write.
TEST_F(OtherUsers, PartsThatTheyMayWriteAreRefused) {
  in_killed_process([&](Pool& pool) {
    must(later(pool).put(1, 7));
    must(pool.sync());
  });
  for (const char* name : {"pool-live", "pool-live-dirty"}) {
    ASSERT_EQ(::chmod(path(name).c_str(), 0666), 0);
    EXPECT_EQ(refused(), StatusCode::live_missing) << name;
    ASSERT_EQ(::chmod(path(name).c_str(), 0600), 0);
  }
  std::string segment;
  for (const auto& entry : fs::directory_iterator(path("pool-log")))
    segment = "pool-log/" + entry.path().filename().string();
  for (const std::string& name : {std::string("pool-log"), segment}) {
    const unsigned mode = mode_of(name);
    ASSERT_EQ(::chmod(path(name).c_str(), mode | 0022), 0);
    EXPECT_EQ(refused(), StatusCode::untrusted) << name;
    ASSERT_EQ(::chmod(path(name).c_str(), mode), 0);
  }
  EXPECT_EQ(value_in("pool"), 7U);
}

// The superuser opens a pool of another user, and is killed: its owner can go on.
TEST_F(OtherUsers, PartsBelongToTheOwnerOfThePool) {
  ASSERT_EQ(::chown(path().c_str(), kOtherUser, kOtherUser), 0);
  in_killed_process([&](Pool& pool) {
    must(later(pool).put(1, 7));
    must(pool.sync());
  });
  as_other_user([&] {
    Pool pool = must(Pool::open(path(), as_it_was()));
    require(must(later(pool).get(1)) == 7U, "content");
    must(pool.close());
  });
  EXPECT_EQ(value_in("pool"), 7U);
}

// A process that gives up its rights goes on.
TEST_F(OtherUsers, APoolGoesOnWithoutTheRightsThatItWasOpenedWith) {
  ASSERT_EQ(::chown(path().c_str(), kOtherUser, kOtherUser), 0);
  const pid_t child = start_child([&] {
    Pool pool = must(Pool::open(path(), buffered(kSeldom)));
    require(::setgid(kOtherUser) == 0 && ::setuid(kOtherUser) == 0, "setuid");
    for (std::uint64_t key = 2; key < 3'000; ++key) must(later(pool).put(key, key));
    must(pool.sync());
    ::kill(::getpid(), SIGKILL);
  });
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(value_in("pool", 2'999), 2'999U);
}

// It can read the log, but has no right to open the base for writing once more.
TEST_F(OtherUsers, APoolIsFoldedAndClosedWithoutTheRightsThatItWasOpenedWith) {
  ASSERT_EQ(::chmod(path().c_str(), 0644), 0);
  const pid_t child = start_child([&] {
    Pool pool = must(Pool::open(path(), buffered(kSeldom)));
    must(later(pool).put(2, 1));
    must(pool.sync());  // it has a segment
    require(::setgid(kOtherUser) == 0 && ::setuid(kOtherUser) == 0, "setuid");
    must(later(pool).put(2, 2));
    must(pool.fold_log());
    must(later(pool).put(3, 3));
    must(pool.close());
    ::_exit(0);
  });
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(value_in("pool", 2), 2U);
  EXPECT_EQ(value_in("pool", 3), 3U);
}

}  // namespace
}  // namespace perdure::test
