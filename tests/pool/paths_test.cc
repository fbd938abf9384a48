// test: no asan, each engine
// Paths that are no regular files, files without permission, and read-only opens. Each must end
// with a documented status, and never with a signal.
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/small_pool.h"

namespace perdure::test {
namespace {

template <class T>
std::string code_and_text(const Expected<T>& refused) {
  return refused ? "not refused" : describe(refused.error());
}

TEST(Paths, DirectoriesFifosAndDevices) {
  TempPath dir("dir");
  std::filesystem::create_directory(dir.str());
  const auto directory = Pool::open(dir, small_pool());
  EXPECT_FALSE(directory.has_value());
  EXPECT_TRUE(code_of(directory) == StatusCode::io ||
              code_of(directory) == StatusCode::invalid_argument)
      << describe(directory.error());
  for (const auto& refused : {code_and_text(Pool::open(dir, {.mode = OpenMode::read_only})),
                              code_and_text(Pool::inspect(dir)), code_and_text(directory)}) {
    EXPECT_NE(refused.find("is a directory; name a file in it"), refused.npos) << refused;
  }

  TempPath fifo("fifo");
  ASSERT_EQ(mkfifo(fifo.str().c_str(), 0600), 0);
  // Opening a FIFO may block. The child has an alarm.
  const ChildEnd end = run_child([&] {
    alarm(10);
    for (const OpenMode mode : {OpenMode::open_or_create, OpenMode::read_only}) {
      const auto pool = Pool::open(fifo, {.mode = mode});
      require(code_of(pool) == StatusCode::io || code_of(pool) == StatusCode::invalid_argument,
              "a FIFO was not refused");
      require(!Pool::inspect(fifo).has_value(), "a FIFO was inspected");
    }
  });
  EXPECT_TRUE(end.ok()) << end;

  for (const char* device : {"/dev/null", "/dev/zero"}) {
    const auto pool = Pool::open(device, small_pool());
    EXPECT_FALSE(pool.has_value());
    EXPECT_TRUE(code_of(pool) == StatusCode::io || code_of(pool) == StatusCode::invalid_argument)
        << device << ": " << describe(pool.error());
    EXPECT_FALSE(Pool::inspect(device).has_value());
  }
  for (const std::string& path : {std::string(), std::string("/no/such/directory/pool"),
                                  std::string(5'000, 'x'), dir.str() + "/"}) {
    EXPECT_FALSE(Pool::open(path, small_pool()).has_value()) << path.substr(0, 50);
  }
}

// A directory that takes no new files is not an absent one.
TEST(Paths, AFileSystemWithoutNewFiles) {
  const auto pool = Pool::open("/proc/perdure_test", small_pool());
  EXPECT_EQ(code_of(pool), StatusCode::io);
  const std::string said = code_and_text(pool);
  EXPECT_NE(said.find("/proc/perdure_test: cannot create: "), said.npos) << said;
  EXPECT_EQ(code_of(Pool::open("/no/such/directory/pool")), StatusCode::not_found);
}

TEST(Paths, AbsentFiles) {
  TempPath path;
  const auto absent = Pool::open(path, {.mode = OpenMode::existing});
  EXPECT_EQ(code_of(absent), StatusCode::not_found);
  EXPECT_FALSE(std::filesystem::exists(path.str())) << "refused, but created";
  EXPECT_EQ(code_of(Pool::inspect(path)), StatusCode::not_found);
  EXPECT_EQ(code_of(Pool::open(path, {.mode = OpenMode::read_only})), StatusCode::not_found);
  EXPECT_FALSE(std::filesystem::exists(path.str()));
  make_pool(path);
  const std::string before = read_bytes(path);
  EXPECT_EQ(code_of(Pool::open(path, {.mode = OpenMode::create_new})), StatusCode::exists);
  EXPECT_TRUE(read_bytes(path) == before);
}

TEST(Paths, SymbolicLinksAreFollowed) {
  TempPath target("target"), link("link");
  make_pool(target);
  ASSERT_EQ(symlink(target.str().c_str(), link.str().c_str()), 0);
  {
    Pool pool = open_pool(link, small_pool());
    EXPECT_EQ(wrong_content(pool), "");
    // The lock is on the pool, not on the name.
    EXPECT_EQ(code_of(Pool::open(target, small_pool())), StatusCode::busy);
    must(pool.close());
  }
  EXPECT_TRUE(std::filesystem::is_symlink(link.str())) << "the link was replaced by a file";
}

TEST(Paths, DanglingSymbolicLink) {
  TempPath target("target"), link("link");
  ASSERT_EQ(symlink(target.str().c_str(), link.str().c_str()), 0);
  EXPECT_EQ(code_of(Pool::open(link, {.mode = OpenMode::existing})), StatusCode::not_found);
  EXPECT_FALSE(std::filesystem::exists(target.str()));
  // With `create` the target is made, or the link is refused. The link is never replaced.
  const auto pool = Pool::open(link, small_pool());
  EXPECT_TRUE(std::filesystem::is_symlink(link.str()));
  EXPECT_EQ(std::filesystem::exists(target.str()), pool.has_value());
}

TEST(Paths, HardLinksAreOnePool) {
  TempPath first("first"), second("second");
  make_pool(first);
  ASSERT_EQ(link(first.str().c_str(), second.str().c_str()), 0);
  Pool pool = open_pool(first, small_pool());
  EXPECT_EQ(code_of(Pool::open(second, small_pool())), StatusCode::busy);
}

// Root may do anything: the child gives up its rights first.
TEST(Paths, PlacesThatPartsOfAPoolNeed) {
  TempPath path;
  must(open_pool(path, small_pool()).close());
  for (const char* suffix : {"-log", "-live", "-live-dirty"}) {
    const std::string part = path.str() + suffix;
    const auto refused = Pool::open(part, small_pool());
    EXPECT_EQ(code_of(refused), StatusCode::invalid_argument) << part;
    EXPECT_EQ(code_and_text(refused),
              "invalid_argument: " + part + ": is the place of a part of the pool " +
                  std::filesystem::canonical(path.str()).string() + "; choose another path");
    EXPECT_FALSE(std::filesystem::exists(part));
  }
}

// A message keeps 1,023 bytes, so its end can be missing.
TEST(Paths, PlacesOfPartsInADeepFolder) {
  TempPath root("deep");
  std::string folder = root.str();
  while (folder.size() < 1'500) folder += "/" + std::string(200, 'x');
  std::filesystem::create_directories(folder);
  must(Pool::open(folder + "/pool", small_pool())->close());
  EXPECT_EQ(code_of(Pool::open(folder + "/pool-live", small_pool())), StatusCode::invalid_argument);
}

TEST(Paths, FilesWithoutPermission) {
  TempPath path;
  make_pool(path);
  for (const mode_t mode : {mode_t{0444}, mode_t{0000}}) {
    ASSERT_EQ(chmod(path.str().c_str(), mode), 0);
    const std::string before = read_bytes(path);
    const ChildEnd end = run_child([&] {
      if (geteuid() == 0) require(setgid(65'534) == 0 && setuid(65'534) == 0, "setuid");
      const auto pool = Pool::open(path, small_pool());
      require(code_of(pool) == StatusCode::io, "not refused as io");
      require(pool.error().message().find("ermission") != Bytes::npos ||
                  pool.error().message().find("EACCES") != Bytes::npos,
              "the message does not say why: " + std::string(pool.error().message()));
      if (mode == 0444) {
        Pool looking = open_pool(path, {.mode = OpenMode::read_only});
        require(wrong_content(looking).empty(), "wrong content");
        require(Pool::inspect(path).has_value(), "inspect of a readable file");
      }
    });
    EXPECT_TRUE(end.ok()) << end;
    ASSERT_EQ(chmod(path.str().c_str(), 0600), 0);
    EXPECT_TRUE(read_bytes(path) == before);
  }
}

TEST(ReadOnly, LooksAndRefusesMutations) {
  TempPath path;
  make_pool(path);
  const std::string before = read_bytes(path);
  {
    Pool pool = open_pool(path, {.mode = OpenMode::read_only});
    EXPECT_EQ(wrong_content(pool), "");
    Pool second = open_pool(path, {.mode = OpenMode::read_only});  // a second read-only open
    EXPECT_EQ(wrong_content(second), "");
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("numbers", small_map()));
    EXPECT_EQ(must(map.for_each([](std::uint64_t, std::uint64_t) {})), kEntries);
    EXPECT_EQ(code_of(map.insert(7, 7)), StatusCode::read_only);
    EXPECT_EQ(code_of(map.put(mix(1), 7)), StatusCode::read_only);
    EXPECT_EQ(code_of(map.update(mix(1), 7)), StatusCode::read_only);
    EXPECT_EQ(code_of(map.erase(mix(1))), StatusCode::read_only);
    // A read-only open creates nothing: an absent map stays absent.
    const StatusCode absent = code_of(pool.map<std::uint64_t, std::uint64_t>("new"));
    EXPECT_TRUE(absent == StatusCode::read_only || absent == StatusCode::not_found);
    EXPECT_EQ(pool.drop("numbers").code(), StatusCode::read_only);
    EXPECT_EQ(code_of(pool.compact()), StatusCode::read_only);
    expect_sound(pool);
    EXPECT_EQ(wrong_content(pool), "");
  }
  EXPECT_TRUE(read_bytes(path) == before) << "a look changed the file";
}

// Recovery would have to write. A read-only open after a kill therefore fails, or recovers a
// private copy. The file stays as it is.
TEST(ReadOnly, AnUncleanPoolIsRefusedOrShownRight) {
  TempPath path;
  const ChildEnd end = run_child([&] {
    Pool pool = open_pool(path, small_pool());
    fill_pool(pool);
    kill(getpid(), SIGKILL);
  });
  ASSERT_EQ(end.signal, SIGKILL);
  const std::string before = read_bytes(path);
  {
    auto pool = Pool::open(path, {.mode = OpenMode::read_only});
    if (pool) {
      EXPECT_EQ(wrong_content(*pool), "");
      expect_sound(*pool);
    }
  }
  EXPECT_TRUE(read_bytes(path) == before);
}

// Its owner would change what is read.
TEST(ReadOnly, APoolInUseIsRefusedWithoutDisturbingIt) {
  TempPath path;
  Pool owner = open_pool(path, small_pool());
  fill_pool(owner);
  EXPECT_EQ(code_of(Pool::open(path, {.mode = OpenMode::read_only})), StatusCode::busy);
  EXPECT_EQ(wrong_content(owner), "");
}

}  // namespace
}  // namespace perdure::test
