// test: injects
// destroy(): pools that were closed, killed or damaged, with every part; parts whose file is gone;
// what lies at the names of parts and is none; removals that are interrupted.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "format/header.h"
#include "tests/support/buffered_files.h"
#include "tests/support/inject.h"

namespace perdure::test {
namespace {

class Removal : public BufferedFiles {
 protected:
  static constexpr std::uint32_t kSeldom = 3'600'000;

  StatusCode removed(const std::string& name = "pool") {
    const Status s = destroy(path(name));
    message_ = s.message();
    return s.code();
  }
  void make_pool(const PoolOptions& options = buffered(), const std::string& name = "pool") {
    Pool pool = must(Pool::open(path(name), options));
    fill_pool(pool);
    must(pool.close());
  }
  // Log and image lie beside the file.
  void leave_pool(const PoolOptions& options = buffered(kSeldom)) {
    in_killed_process(
        [](Pool& pool) {
          for (std::uint64_t key = 0; key < 2'000; ++key) must(later(pool).put(key, key));
          must(pool.sync());
        },
        options);
  }
  // The newer image does not belong to what lies in its place then.
  std::string set_one_aside(std::uint64_t value) {
    if (!exists("pool")) make_pool();
    const std::string before = read_bytes(path());
    in_killed_process([&](Pool& pool) {
      must(later(pool).put(1, value));
      must(pool.sync());
    });
    write_bytes(path(), before);
    fs::remove_all(path("pool-log"));
    Pool pool = must(Pool::open(path(), as_it_was()));
    must(pool.close());
    return must(Pool::inspect(path())).aside_images.front().path;
  }
  // Their content, or what they are.
  std::map<std::string, std::string> all_files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      const bool file = entry.is_regular_file() && !entry.is_symlink();
      files[fs::relative(entry.path(), folder_)] = file ? read_bytes(entry.path()) : "no file";
    }
    return files;
  }
  void expect_refused(StatusCode code, const std::string& words) {
    const auto before = all_files();
    EXPECT_EQ(removed(), code) << message_;
    EXPECT_NE(message_.find(words), std::string::npos) << message_;
    EXPECT_TRUE(all_files() == before) << "nothing is removed";
  }
  void expect_all_removed() {
    EXPECT_EQ(removed(), StatusCode::ok) << message_;
    EXPECT_EQ(files(), 0U);
  }
};

TEST_F(Removal, OfAClosedPool) {
  for (const Durability durability : {Durability::process, Durability::buffered}) {
    PoolOptions options = buffered();
    options.durability = durability;
    make_pool(options);
    expect_all_removed();
  }
}

TEST_F(Removal, OfAPoolOfAKilledProcess) {
  leave_pool();
  ASSERT_TRUE(exists("pool-log") && exists("pool-live") && exists("pool-live-dirty"));
  expect_all_removed();
  PoolOptions process = buffered();
  process.durability = Durability::process;
  leave_pool(process);
  expect_all_removed();
}

TEST_F(Removal, OfAPoolThatAPowerFailureEnded) {
  leave_pool();
  machine_restarts();
  expect_all_removed();
  leave_pool();
  machine_restarts();
  // What was not on the disk reads as zeros.
  for (const char* name : {"pool-live", "pool-live-dirty"}) {
    const auto size = fs::file_size(path(name));
    fs::resize_file(path(name), 0);
    fs::resize_file(path(name), size);
  }
  expect_all_removed();
}

TEST_F(Removal, OfAnImageInAnotherFolder) {
  const std::string memory = fs::absolute(on_disk("-memory"));
  fs::create_directory(memory);
  PoolOptions options = buffered(kSeldom);
  options.buffered.memory_directory = memory;
  leave_pool(options);
  EXPECT_FALSE(fs::is_empty(memory));
  // A copy of the file names the same image.
  fs::copy_file(path(), path("copy"));
  EXPECT_EQ(removed("copy"), StatusCode::ok) << message_;
  EXPECT_FALSE(exists("copy"));
  EXPECT_EQ(std::distance(fs::directory_iterator(memory), fs::directory_iterator{}), 2);
  write_bytes(memory + "/other", "mine");
  expect_all_removed();
  EXPECT_EQ(std::distance(fs::directory_iterator(memory), fs::directory_iterator{}), 1);
  leave_pool(options);
  fs::remove_all(memory);
  expect_all_removed();
}

TEST_F(Removal, OfWhatIsLeftOfAPool) {
  leave_pool();
  fs::remove(path());
  EXPECT_EQ(refused(buffered()), StatusCode::exists);
  EXPECT_NE(message_.find("perdure remove " + path()), std::string::npos) << message_;
  expect_all_removed();
  make_pool();
  EXPECT_EQ(removed(), StatusCode::ok) << message_;
  // Each part alone.
  leave_pool();
  fs::create_directory(path("kept"));
  const std::vector<std::string> parts = {"pool-log", "pool-live", "pool-live-dirty"};
  for (const std::string& part : parts) fs::rename(path(part), path("kept/" + part));
  fs::remove(path());
  for (const std::string& part : parts) {
    fs::rename(path("kept/" + part), path(part));
    EXPECT_EQ(removed(), StatusCode::ok) << message_;
    EXPECT_EQ(files(), 1U) << part;
  }
  EXPECT_EQ(removed(), StatusCode::not_found) << message_;
}

// A file that was renamed after a kill is nothing without the parts that it has left behind.
TEST_F(Removal, OfWhatARenamedPoolNeedsIsRefused) {
  make_pool(buffered(), "closed");  // needs no part
  const std::string moved = fs::canonical(folder_).string() + "/moved";
  const auto expect_refused_for_it = [&] {
    expect_refused(StatusCode::exists, moved);
    EXPECT_NE(message_.find("rename it to " + fs::canonical(folder_).string() + "/pool"),
              std::string::npos)
        << message_;
    EXPECT_NE(message_.find("(perdure remove " + moved + ")"), std::string::npos) << message_;
  };
  leave_pool();
  fs::rename(path(), moved);
  expect_refused_for_it();
  // One part is enough, also without its checksums.
  for (const char* part : {"pool-live", "pool-log"}) {
    fs::rename(path(part), path("away"));
    expect_refused_for_it();
    fs::rename(path("away"), path(part));
  }
  const std::string segment = path("pool-log/0000000000000001");
  const std::string whole = read_bytes(segment);
  fs::rename(path("pool-live"), path("away"));
  write_bytes(segment, std::string(kPage, 'x') + whole.substr(kPage));
  expect_refused_for_it();
  write_bytes(segment, whole);
  fs::rename(path("away"), path("pool-live"));
  // What the message says helps.
  fs::rename(moved, path());
  {
    Pool pool = must(Pool::open(path(), as_it_was()));
    EXPECT_EQ(must(later(pool).get(1'999)), std::optional<std::uint64_t>(1'999));
  }
  leave_pool();
  fs::rename(path(), moved);
  EXPECT_EQ(removed("moved"), StatusCode::ok) << message_;
  EXPECT_EQ(removed(), StatusCode::ok) << message_;
  EXPECT_EQ(files(), 1U) << "the pool that was closed";
}

TEST_F(Removal, OfAFileInThePlaceOfARenamedPoolIsRefused) {
  leave_pool();
  fs::rename(path(), path("moved"));
  PoolOptions process = buffered();
  process.durability = Durability::process;
  make_pool(process);
  expect_refused(StatusCode::exists, "moved");
  EXPECT_NE(message_.find("move away the file that has this name"), std::string::npos) << message_;
  EXPECT_EQ(removed("moved"), StatusCode::ok) << message_;
  expect_all_removed();
  // A copy that was made while the pool was open needs the log like the pool.
  leave_pool();
  fs::copy_file(path(), path("copy"));
  EXPECT_EQ(removed("copy"), StatusCode::ok) << message_;
  fs::copy_file(path(), path("copy"));
  fs::remove(path());
  expect_refused(StatusCode::exists, "copy");
  fs::remove(path("copy"));
  expect_all_removed();
}

TEST_F(Removal, ARestoreNamesTheWayOut) {
  make_pool();
  must(back_up(path(), path("backup")));
  leave_pool();
  fs::remove(path());
  const auto refused = restore(path("backup"), path());
  ASSERT_EQ(refused.error(), StatusCode::exists);
  EXPECT_NE(refused.error().message().find("perdure remove " + path()), std::string::npos)
      << refused.error().message();
  EXPECT_EQ(removed(), StatusCode::ok) << message_;
  must(restore(path("backup"), path()));
}

TEST_F(Removal, OfAPoolInUseIsRefused) {
  make_pool();
  {
    const Pool reader =
        must(Pool::open(path(), {.mode = OpenMode::read_only, .recovery_threads = 1}));
    expect_refused(StatusCode::busy, "read_only");
  }
  Pool pool = must(Pool::open(path(), buffered(kSeldom)));
  EXPECT_EQ(removed(), StatusCode::busy);
  EXPECT_NE(message_.find("close it first"), std::string::npos) << message_;
  fs::rename(path(), path("moved"));  // its other parts keep their names
  EXPECT_EQ(removed(), StatusCode::busy) << message_;
  fs::rename(path("moved"), path());
  EXPECT_EQ(removed(), StatusCode::busy) << message_;
  must(later(pool).put(1, 1));
  must(pool.sync());
  must(pool.close());
  expect_all_removed();
  // Without an image in the same folder the log alone shows it.
  const std::string memory = fs::absolute(on_disk("-memory"));
  fs::create_directory(memory);
  PoolOptions options = buffered(kSeldom);
  options.buffered.memory_directory = memory;
  Pool elsewhere = must(Pool::open(path(), options));
  must(later(elsewhere).put(1, 1));
  must(elsewhere.sync());
  fs::rename(path(), path("moved"));
  EXPECT_EQ(removed(), StatusCode::busy) << message_;
  EXPECT_NE(message_.find("pool-log"), std::string::npos) << message_;
  fs::rename(path("moved"), path());
  must(elsewhere.close());
  expect_all_removed();
  fs::remove_all(memory);
}

TEST_F(Removal, OfImagesThatWereSetAside) {
  const std::string first = set_one_aside(1);
  const std::string second = set_one_aside(2);
  EXPECT_NE(first, second);
  const PoolInfo info = must(Pool::inspect(path()));
  ASSERT_EQ(info.aside_images.size(), 2U);
  EXPECT_EQ(info.aside_images[0].path, second) << "the newest first";
  EXPECT_EQ(info.aside_images[1].path, first);
  EXPECT_GT(info.aside_images[0].durable_unix_ns, info.aside_images[1].durable_unix_ns);
  EXPECT_EQ(files(), 5U);
  must(destroy(first));
  EXPECT_EQ(files(), 3U);
  EXPECT_EQ(must(Pool::inspect(path())).aside_images.size(), 1U);
  EXPECT_TRUE(fs::exists(second));
  // The image of the pool itself is no such image.
  in_killed_process([](Pool& pool) { must(later(pool).put(1, 1)); }, as_it_was());
  EXPECT_EQ(removed("pool-live"), StatusCode::invalid_argument) << message_;
  EXPECT_TRUE(exists("pool-live"));
  expect_all_removed();
}

TEST_F(Removal, OfWhatAKilledProcessHasNotFinished) {
  leave_pool();
  fs::copy_file(path("pool-live"), path("pool-live.creating"));
  write_bytes(path("pool-live-dirty.creating"), "");
  fs::create_hard_link(path(), path("pool.creating"));  // killed while it named the pool
  write_bytes(path("pool-log/new"), std::string(100'000, '\0'));
  write_bytes(path("pool-log/00000000000000ff"), std::string(4'096, '\0'));
  write_bytes(path("pool-log/00000000000000fe.unknown-7"), "");
  expect_all_removed();
  write_bytes(path("pool.creating"), "");
  expect_all_removed();
}

TEST_F(Removal, LeavesWhatIsNoPart) {
  const std::vector<std::string> names = {"pool.creating",
                                          "pool-live",
                                          "pool-live-dirty",
                                          "pool-live.creating",
                                          "pool-live-dirty.creating",
                                          "pool-live.unknown-0123456789abcdef",
                                          "pool-live.unknown-0123456789abcdef-dirty"};
  for (const std::string& name : names) {
    make_pool();
    write_bytes(path(name), "mine");
    EXPECT_EQ(removed(), StatusCode::ok) << message_;
    EXPECT_EQ(files(), 1U) << name;
    EXPECT_EQ(read_bytes(path(name)), "mine");
    EXPECT_EQ(removed(), StatusCode::not_found) << message_;
    fs::remove(path(name));
  }
  make_pool();
  fs::create_directory(path("pool-log"));
  write_bytes(path("pool-log/today.txt"), "mine");
  write_bytes(path("pool-live.unknown-0"), "mine");
  make_pool(buffered(), "pool-live-other");
  EXPECT_EQ(removed(), StatusCode::ok) << message_;
  EXPECT_EQ(files(), 3U);
  EXPECT_EQ(read_bytes(path("pool-log/today.txt")), "mine");
}

TEST_F(Removal, LeavesAnotherPoolWithTheNameOfAPart) {
  PoolOptions process = buffered();
  process.durability = Durability::process;
  make_pool(process, "pool-live");  // the first: beside `pool` it is refused
  make_pool(process);
  {
    const Pool other = must(Pool::open(path("pool-live"), as_it_was()));
    EXPECT_EQ(removed(), StatusCode::ok) << message_;
  }
  EXPECT_EQ(files(), 1U);
  must(Pool::open(path("pool-live"), as_it_was()));
}

TEST_F(Removal, IsRefusedIfTheLogHasSomethingElse) {
  leave_pool();
  const std::vector<std::string> names = {"notes.txt", "00000000000000ff", "new",
                                          "00000000000000ff.unknown-x"};
  for (const std::string& name : names) {
    write_bytes(path("pool-log/" + name), "mine");
    expect_refused(StatusCode::exists, "pool-log/" + name);
    fs::remove(path("pool-log/" + name));
  }
  fs::create_directory(path("pool-log/folder"));
  expect_refused(StatusCode::exists, "pool-log/folder");
  fs::remove(path("pool-log/folder"));
  fs::create_symlink(path(), path("pool-log/00000000000000ff"));
  expect_refused(StatusCode::exists, "move it away");
  fs::remove(path("pool-log/00000000000000ff"));
  expect_all_removed();
}

TEST_F(Removal, FollowsNoLink) {
  leave_pool();
  fs::create_directory(path("links"));
  fs::create_symlink(fs::canonical(path()), path("links/pool"));
  EXPECT_EQ(removed("links/pool"), StatusCode::invalid_argument);
  EXPECT_NE(message_.find(fs::canonical(path())), std::string::npos) << message_;
  fs::create_symlink(path("nowhere"), path("links/none"));
  EXPECT_EQ(removed("links/none"), StatusCode::invalid_argument) << message_;
  fs::remove_all(path("links"));
  // Parts that were moved, with links in their place.
  fs::create_directory(path("moved"));
  for (const char* name : {"pool-log", "pool-live", "pool-live-dirty"}) {
    fs::rename(path(name), path("moved/" + std::string(name)));
    fs::create_symlink(path("moved/" + std::string(name)), path(name));
  }
  const auto before = all_files();
  EXPECT_EQ(removed(), StatusCode::ok) << message_;
  auto after = before;
  after.erase("pool");
  EXPECT_TRUE(all_files() == after);
}

TEST_F(Removal, OfAPoolThatWasLeftOpenWithOtherNamesIsRefused) {
  leave_pool();
  fs::create_hard_link(path(), path("other"));
  expect_refused(StatusCode::invalid_argument, "hard links");
  fs::remove(path("other"));
  expect_all_removed();
}

TEST_F(Removal, WithoutAPool) {
  EXPECT_EQ(removed(), StatusCode::not_found) << message_;
  EXPECT_EQ(removed("nowhere/pool"), StatusCode::not_found) << message_;
  EXPECT_EQ(destroy(""), StatusCode::invalid_argument);
  fs::create_directory(path("folder"));
  EXPECT_EQ(removed("folder"), refused(as_it_was(), "folder")) << message_;
  EXPECT_TRUE(exists("folder"));
  leave_pool();
  write_bytes(path(), std::string(100'000, 'x'));
  const StatusCode like_an_open = refused();
  expect_refused(like_an_open, "not a perdure pool");
  write_bytes(path(), "");
  expect_refused(refused(), "not a perdure pool");
}

TEST_F(Removal, OfADamagedPool) {
  leave_pool();
  std::string bytes = read_bytes(path());
  for (std::size_t at = 64; at < bytes.size(); ++at) bytes[at] = 'x';
  write_bytes(path(), bytes);
  EXPECT_NE(refused(), StatusCode::ok);
  expect_all_removed();
  // Only the marks are left.
  leave_pool();
  bytes = read_bytes(path());
  for (const std::size_t copy : {std::size_t{0}, layout::kHeaderBytes})
    std::memset(bytes.data() + copy, 0, sizeof(layout::Header));
  write_bytes(path(), bytes);
  expect_all_removed();
}

TEST_F(Removal, OfPartsThatAreDamagedOrOld) {
  const auto put = [&](const std::string& name, std::size_t offset, const std::string& with) {
    std::string bytes = read_bytes(path(name));
    ASSERT_GE(bytes.size(), offset + with.size());
    write_bytes(path(name), bytes.replace(offset, with.size(), with));
  };
  leave_pool();
  put("pool-log/0000000000000001", 0, std::string(kPage, 'x'));  // its parts follow
  put("pool-live", layout::kMarkOffset, "PERLIVE2");             // of an older build
  expect_all_removed();
}

TEST_F(Removal, OfANewerFormat) {
  make_pool();
  std::string bytes = read_bytes(path());
  for (const std::size_t copy : {std::size_t{0}, layout::kHeaderBytes}) {
    layout::Header header;
    std::memcpy(&header, bytes.data() + copy, sizeof(header));
    header.format_version = 99;
    header.crc = header_crc(header);
    std::memcpy(bytes.data() + copy, &header, sizeof(header));
  }
  write_bytes(path(), bytes);
  EXPECT_EQ(refused(), StatusCode::unsupported_format) << message_;
  expect_all_removed();
}

// Every call of unlinkat(2) fails once, and kills the process once.
TEST_F(Removal, IsRepeatedAfterAnInterruption) {
  const std::string aside = set_one_aside(1);
  leave_pool();
  fs::copy_file(path("pool-live"), path("pool-live.creating"));
  const fs::path kept = folder_ + "-kept";
  fs::rename(folder_, kept);
  for (const bool kills : {false, true}) {
    std::uint64_t call = 1;
    for (;; ++call) {
      SCOPED_TRACE(call);
      fs::remove_all(folder_);
      fs::copy(kept, folder_, fs::copy_options::recursive);
      const ChildEnd end = run_child([&] {
        set_deadly(kills);
        const Failing fails(Fault::unlink, call, false);
        ::_exit(destroy(path()).ok() ? 0 : 1);
      });
      if (end.ok()) break;
      EXPECT_EQ(end.exited, !kills);
      EXPECT_TRUE(exists("pool")) << "the file is the last one";
      EXPECT_EQ(removed(), StatusCode::ok) << message_;
      ASSERT_EQ(files(), 0U);
    }
    EXPECT_GT(call, 8U) << "two images, their logs of dirty lines, the log, the pool";
  }
  fs::remove_all(kept);
}

TEST_F(Removal, LeavesPartsThatAnotherUserMayHaveMade) {
  leave_pool();
  for (const char* name : {"pool-live", "pool-live-dirty", "pool-log/0000000000000001"}) {
    ASSERT_EQ(::chmod(path(name).c_str(), 0666), 0);
    expect_refused(StatusCode::untrusted, name);
    ASSERT_EQ(::chmod(path(name).c_str(), 0644), 0);
  }
  expect_all_removed();
}

}  // namespace
}  // namespace perdure::test
