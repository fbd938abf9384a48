// test: injects, no asan, each engine
// Media that this machine does not have, and rare results of system calls: the durability that a
// pool gets. The library must refuse what it cannot determine.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "platform/file_storage.h"
#include "platform/medium.h"
#include "platform/mounts.h"
#include "platform/real_platform.h"
#include "tests/support/engines.h"
#include "tests/support/inject.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

constexpr std::uint32_t kExt4 = 0xEF53, kBtrfs = 0x9123683E, kF2fs = 0xF2F52010, kZfs = 0x2FC12FC1,
                        kBcachefs = 0xCA451A4E, kOverlay = 0x794C7630, kNfs = 0x6969,
                        kTmpfs = 0x01021994,
                        kUnknown = 0x19830326;  // BeeGFS, whose files many machines share

PoolOptions with(Durability durability) {
  return {.durability = durability, .max_size = 4_MiB, .recovery_threads = 1};
}
MapOptions maps() { return {.engine = chosen_engine().engine, .phast = {.partition_bits = 1}}; }

class Media : public ::testing::Test {
 protected:
  ~Media() override { std::filesystem::remove(path_); }

  // The message of the refusal of `power`; "" if there is none.
  std::string refusal() {
    const auto pool = Pool::open(path_, with(Durability::power));
    if (pool) return "";
    EXPECT_EQ(pool.error().code(), StatusCode::unsupported);
    return std::string(pool.error().message());
  }

  const std::string path_ = on_disk("-media.perdure");
};

TEST_F(Media, PowerIsRefusedWithTheReason) {
  struct Row {
    std::uint32_t file_system;
    const char* why;
  };
  for (const Row& row :
       {Row{kNfs, "network file systems cannot promise it"}, Row{kTmpfs, "lost with the machine"},
        Row{kBtrfs, "only ext4 and xfs"}, Row{kUnknown, "only ext4 and xfs"}}) {
    const Pretended pretended({.file_system = row.file_system});
    EXPECT_NE(refusal().find(row.why), std::string::npos) << row.why;
    // An open that asks for no durability gets what there is.
    const bool disk = row.file_system == kBtrfs;
    Pool pool = open_pool(path_, with(Durability::automatic));
    EXPECT_EQ(must(pool.info()).durability, disk ? Durability::buffered : Durability::process);
    must(pool.close());
    std::filesystem::remove(path_);
  }
}

// It may be one that other machines share. So `buffered` has to be asked for.
TEST_F(Media, AnUnknownFileSystemIsNotTakenForALocalDisk) {
  const Pretended pretended({.file_system = kUnknown});
  std::string said;
  PoolOptions options = with(Durability::automatic);
  options.log_context = &said;
  options.log = [](void* to, LogLevel level, std::string_view text) {
    if (level == LogLevel::warning) *static_cast<std::string*>(to) += text;
  };
  const auto opened = [&](Durability durability) {
    options.durability = durability;
    said.clear();
    Pool pool = open_pool(path_, options);
    const PoolInfo info = must(pool.info());
    EXPECT_EQ(info.filesystem, "unknown");
    must(pool.close());
    return info.durability;
  };
  EXPECT_EQ(opened(Durability::automatic), Durability::process);
  EXPECT_NE(said.find("(unknown) is not known to be of a local disk"), std::string::npos) << said;
  EXPECT_EQ(opened(Durability::automatic), Durability::process);
  EXPECT_EQ(said, "");
  EXPECT_EQ(opened(Durability::buffered), Durability::buffered);
  EXPECT_EQ(opened(Durability::automatic), Durability::buffered) << "it was asked for";
  EXPECT_EQ(said, "");
  EXPECT_EQ(must(Pool::inspect(path_)).filesystem, "unknown");
}

TEST_F(Media, LocalDisks) {
  for (const std::uint32_t disk : {kExt4, kXfs, kBtrfs, kF2fs, kZfs, kBcachefs, kOverlay}) {
    const Pretended pretended({.file_system = disk});
    Pool pool = open_pool(path_, with(Durability::automatic));
    EXPECT_EQ(must(pool.info()).durability, Durability::buffered) << std::hex << disk;
    must(pool.close());
    std::filesystem::remove(path_);
  }
}

// What is changed in an overlay lies in its upper layer.
TEST_F(Media, AnOverlayIsWhatItsUpperLayerIs) {
  const int folder = ::open(std::filesystem::path(path_).parent_path().c_str(), O_PATH);
  const std::string mount = std::to_string(mount_of(folder));
  ::close(folder);
  const auto durability = [&](const std::string& upper) {
    const std::string text =
        "1 1 0:1 / / rw - ext4 /dev/vda rw\n" + mount +
        " 1 0:9 / / rw - overlay overlay rw,lowerdir=/usr:/bin,upperdir=" + upper +
        ",workdir=/var/tmp\n";
    const Pretended pretended(
        {.file_system = kOverlay, .file = "/proc/self/mountinfo", .text = text.c_str()});
    Pool pool = open_pool(path_, with(Durability::automatic));
    const PoolInfo info = must(pool.info());
    must(pool.close());
    std::filesystem::remove(path_);
    return std::string(durability_name(info.durability)) + ", " + info.filesystem;
  };
  EXPECT_EQ(durability("/nowhere/layer"), "buffered, overlayfs") << "of a container";
  EXPECT_EQ(durability("/proc"), "process, overlayfs over unknown");
  const std::string memory = "/dev/shm/perdure, " + std::to_string(getpid());
  if (!std::filesystem::create_directory(memory)) GTEST_SKIP() << "no /dev/shm";
  EXPECT_EQ(durability("/dev/shm/perdure\\054\\040" + std::to_string(getpid())),
            "process, overlayfs");
  std::filesystem::remove(memory);
}

TEST_F(Media, AMountHasOneNumber) {
  for (const char* path : {"/proc", "/dev", "/"}) {
    const int fd = ::open(path, O_PATH | O_CLOEXEC);
    EXPECT_NE(mount_of(fd), 0U) << path;
    EXPECT_EQ(mount_of(fd), mount_in_fdinfo(fd)) << path;
    ::close(fd);
  }
  EXPECT_EQ(mount_of(-1), 0U);
}

TEST_F(Media, JournalledDataIsCopied) {
  struct stat info{};
  ASSERT_EQ(stat(std::filesystem::path(path_).parent_path().c_str(), &info), 0);
  const std::string device =
      std::to_string(major(info.st_dev)) + ":" + std::to_string(minor(info.st_dev));
  const std::string here = "22 1 " + device + " / / rw - ext4 /dev/sda1 rw";
  const std::string mounts = "21 1 0:5 / /proc rw - proc proc rw,data=journal\n" + here;
  const Pretence ext4{.file_system = kExt4, .file = "/proc/self/mountinfo"};
  {
    const std::string text = mounts + ",data=journal\n";
    Pretence journals = ext4;
    journals.text = text.c_str();
    const Pretended pretended(journals);
    EXPECT_NE(refusal().find("data=journal"), std::string::npos);
  }
  {
    const Pretended cannot_be_read(ext4);
    EXPECT_NE(refusal().find("data=journal"), std::string::npos);
  }
  // XFS has no such mode: no file is read, and only the block device decides.
  Pretence xfs = ext4;
  xfs.file_system = kXfs;
  const Pretended pretended(xfs);
  const std::string message = refusal();
  EXPECT_TRUE(message.empty() || message.find("device") != std::string::npos) << message;
}

// If a name may not survive, the open fails, and leaves no file for the next open.
TEST_F(Media, ANameThatCannotBeSyncedIsNotThere) {
  const Pretended pretended({.file_system = kXfs, .disk = true});
  for (const Durability durability : {Durability::process, Durability::power}) {
    for (const int error : {EIO, EINVAL}) {
      {
        const Failing failing(Fault::fsync, 1, true, error);
        EXPECT_EQ(code_of(Pool::open(path_, with(durability))), StatusCode::io) << error;
      }
      EXPECT_FALSE(std::filesystem::exists(path_));
    }
  }
  must(open_pool(path_, with(Durability::power)).close());
}

// The process that made it may have been killed before the name was durable.
TEST_F(Media, AnOpenForPowerSyncsTheName) {
  const Pretended pretended({.file_system = kXfs, .disk = true});
  must(open_pool(path_, with(Durability::power)).close());
  {
    const Failing failing(Fault::fsync, 1, true);
    EXPECT_EQ(code_of(Pool::open(path_, with(Durability::power))), StatusCode::io);
  }
  must(open_pool(path_, with(Durability::power)).close());
}

// A mode that an open states stays for later opens, so a weaker one must not go unnoticed.
TEST_F(Media, AWeakerModeStaysAndIsLogged) {
  const Pretended pretended({.file_system = kXfs, .disk = true});
  int said = 0;
  const auto logged = [&said](PoolOptions options) {
    options.log_context = &said;
    options.log = [](void* count, LogLevel level, std::string_view text) {
      const bool weaker = text.find("was `power` and is `process`") != std::string_view::npos;
      *static_cast<int*>(count) += level == LogLevel::warning && weaker ? 1 : 0;
    };
    return options;
  };
  must(open_pool(path_, logged(with(Durability::power))).close());
  must(open_pool(path_, logged(with(Durability::automatic))).close());
  EXPECT_EQ(said, 0);
  must(open_pool(path_, logged(with(Durability::process))).close());
  EXPECT_EQ(said, 1);
  Pool pool = open_pool(path_, logged(with(Durability::automatic)));
  EXPECT_EQ(must(pool.info()).durability, Durability::process);
  EXPECT_EQ(said, 1);
  must(pool.close());
}

// The life of a pool on DAX, with the instructions used there.
void live_on_dax(const std::string& path, Medium medium, const std::string& instruction) {
  {
    Pool pool = open_pool(path, with(Durability::automatic));
    const PoolInfo info = must(pool.info());
    EXPECT_EQ(info.durability, Durability::power) << "the best that there is";
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("numbers", maps()));
    for (std::uint64_t i = 0; i < 1'000; ++i) must(map.insert(i, mix(i)));
    must(pool.close());
  }
  Pool pool = open_pool(path, with(Durability::automatic));
  const PoolInfo info = must(pool.info());
  EXPECT_EQ(info.medium, medium);
  EXPECT_EQ(info.durability, Durability::power);
  EXPECT_EQ(info.flush_instruction, instruction);
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("numbers", maps()));
  for (std::uint64_t i = 0; i < 1'000; ++i) EXPECT_EQ(must(map.get(i)), mix(i));
  expect_sound(pool);
  must(pool.close());
}

TEST_F(Media, DaxIsWrittenBackByLine) {
  const Pretended pretended({.file_system = kExt4, .dax = true});
  live_on_dax(path_, Medium::cache_line, flush_instruction_name(best_flush_instruction()));
}
TEST_F(Media, FlushedCachesNeedAFenceOnly) {
  const Pretended pretended({.file_system = kExt4, .dax = true, .eadr = true});
  must(open_pool(path_, with(Durability::automatic)).close());  // libpmem2 refuses empty files
  if (must(open_pool(path_, with(Durability::automatic)).info()).medium != Medium::eadr) {
    GTEST_SKIP() << "built without libpmem2, which alone can tell";
  }
  live_on_dax(path_, Medium::eadr, "none");
}

// A thread that has changed one pool lives on after another thread closes it, and changes the next.
// The write-backs of its last operation without a fence no longer matter.
TEST_F(Media, AThreadOutlivesAPoolWhosePagesItWroteBack) {
  const auto first = Pool::open(path_, with(Durability::power));
  if (!first && first.error() == StatusCode::unsupported) {
    GTEST_SKIP() << "power is not to be had here: " << first.error().message();
  }
  std::filesystem::remove(path_);
  constexpr int kRounds = 4;
  std::optional<Pool> pool;
  std::atomic<int> turn{0};
  std::string wrong;
  std::thread worker([&] {
    const std::string value(2'000, 'v');
    for (int round = 0; round < kRounds; ++round) {
      while (turn.load() != 2 * round + 1) std::this_thread::yield();
      try {
        auto numbers = must(pool->map<std::uint64_t, std::uint64_t>("numbers", maps()));
        auto texts = must(pool->map<std::uint64_t, std::string_view>("texts", maps()));
        for (std::uint64_t i = 0; i < 9; ++i) {
          must(numbers.put(mix(i), i));
          must(texts.put(mix(i), value));
          if (i % 3 == 2) must(numbers.erase(mix(i - 1)));
        }
        // It ends with any of these; some make a tower.
        for (int i = 0; i <= round; ++i) must(numbers.put(mix(100 + i), 1));
      } catch (const std::exception& error) {
        wrong += error.what();
      }
      turn = 2 * round + 2;
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    // Each pool is larger: its mapping does not lie where the last one did, but its object may.
    PoolOptions options = with(Durability::power);
    options.max_size <<= round;
    const std::string path = path_ + std::to_string(round);
    pool.emplace(open_pool(path, options));
    turn = 2 * round + 1;
    while (turn.load() != 2 * round + 2) std::this_thread::yield();
    const Status closed = pool->close();
    EXPECT_TRUE(closed.ok()) << closed.message();
    pool.reset();
    std::filesystem::remove(path);
  }
  worker.join();
  EXPECT_EQ(wrong, "");
}

// ---- results of system calls ----

// If the boot id is unknown, it may be another boot: then only a synced pool is served.
TEST_F(Media, BootIds) {
  const char* const file = "/proc/sys/kernel/random/boot_id";
  std::uint8_t id[16];
  const std::uint8_t unknown[16] = {};
  const auto read_as = [&](const char* text) {
    const Pretended pretended({.file = file, .text = text});
    EXPECT_TRUE(read_boot_id(id)) << text;
    return std::string(reinterpret_cast<const char*>(id), 16);
  };
  const std::string none(reinterpret_cast<const char*>(unknown), 16);
  EXPECT_EQ(read_as("01234567-89ab-cdef-0011-223344556677\n"),
            std::string("\x01\x23\x45\x67\x89\xab\xcd\xef\x00\x11\x22\x33\x44\x55\x66\x77", 16));
  EXPECT_EQ(read_as(nullptr), none) << "not to be read in a sandbox";
  EXPECT_EQ(read_as(""), none);
  EXPECT_EQ(read_as("0123456789ABCDEFGHIJ:;<=@`{|~"), none) << "too few hexadecimal digits";
  const std::string whole = "00112233445566778899aabbccddeeff";
  EXPECT_EQ(read_as((whole + "gg00").c_str()), read_as(whole.c_str()));
  {
    const Failing none_there(Fault::open, 1, true, ENOENT);
    EXPECT_TRUE(read_boot_id(id)) << "no such thing in this kernel";
  }
  {
    const Pretended pretended({.file = file, .unreadable = true});
    EXPECT_FALSE(read_boot_id(id)) << "an error is not `unknown`";
  }
  const Failing failing(Fault::open, 1, true);
  EXPECT_FALSE(read_boot_id(id));
}

class File : public Media {
 protected:
  // Makes a storage of eight pages, mapped.
  void make(FileStorage& storage) {
    require(storage.create(path_).ok(), "create");
    require(storage.map(1 << 20).ok(), "map");
    require(storage.allocate(0, 8 * 4096).ok(), "allocate");
    require(storage.publish().ok(), "publish");
  }
};

TEST_F(File, ANameThatIsAnotherFilesByNowStays) {
  FileStorage storage;
  make(storage);
  const std::string own = path_ + "-own";
  ASSERT_EQ(std::rename(path_.c_str(), own.c_str()), 0);
  write_bytes(path_, "another");
  storage.remove_name();
  EXPECT_EQ(read_bytes(path_), "another");
  ASSERT_EQ(std::rename(own.c_str(), path_.c_str()), 0);
  storage.remove_name();
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
}

TEST_F(File, AnObserverChangesNothing) {
  FileStorage owner;
  make(owner);
  FileStorage observer;
  ASSERT_TRUE(observer.open(path_, FileStorage::Access::observer).ok());
  ASSERT_TRUE(observer.map(1 << 20).ok());
  EXPECT_EQ(observer.allocate(0, 1 << 16).code(), StatusCode::read_only);
  EXPECT_EQ(observer.punch(0, 4096).code(), StatusCode::read_only);
  EXPECT_TRUE(observer.sync(0, 4096).ok());
  EXPECT_EQ(observer.lock_holder() != 0, true);
  observer.base()[0] = std::byte{1};
  EXPECT_EQ(owner.base()[0], std::byte{0});
  // Pages beyond the file are not populated.
  observer.populate(1 << 19, 4096);
  observer.populate(0, 1 << 19);
}

TEST_F(File, AllocationReturnsEveryError) {
  FileStorage storage;
  make(storage);
  const auto grown = [&](int error, bool sticky = true) {
    const Failing failing(Fault::posix_fallocate, 1, sticky, error);
    return storage.allocate(8 * 4096, 4096).code();
  };
  for (const int error : {ENOSPC, EFBIG, EDQUOT}) EXPECT_EQ(grown(error), StatusCode::pool_full);
  EXPECT_EQ(grown(EIO), StatusCode::io);
  EXPECT_EQ(storage.size(), 8 * 4096U);
  EXPECT_EQ(grown(EINTR, false), StatusCode::ok) << "interrupted: again";
  EXPECT_EQ(storage.size(), 9 * 4096U);
  {
    const Failing failing(Fault::fallocate, 1, true, EOPNOTSUPP);
    EXPECT_EQ(storage.punch(4096, 4096).code(), StatusCode::unsupported);
  }
  {
    const Failing failing(Fault::fallocate, 1, true);
    EXPECT_EQ(storage.punch(4096, 4096).code(), StatusCode::io);
  }
  EXPECT_TRUE(storage.punch(4096, 4096).ok());
  // The file is cut outside the library. Growing it would hide that.
  ASSERT_EQ(truncate(path_.c_str(), 4096), 0);
  EXPECT_EQ(storage.allocate(9 * 4096, 4096).code(), StatusCode::poisoned);
  EXPECT_EQ(std::filesystem::file_size(path_), 4096U);
}

TEST_F(File, ALimitOfFileSizesIsAStatus) {
  const ChildEnd end = run_child([&] {
    FileStorage storage;
    make(storage);
    rlimit limit{};
    require(getrlimit(RLIMIT_FSIZE, &limit) == 0, "getrlimit");
    const rlimit before = limit;
    limit.rlim_cur = 16 * 4096;
    require(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
    require(storage.allocate(8 * 4096, 8 * 4096).ok(), "within the limit");
    require(storage.allocate(16 * 4096, 4096) == StatusCode::pool_full, "beyond it");
    require(setrlimit(RLIMIT_FSIZE, &before) == 0, "setrlimit");
  });
  EXPECT_TRUE(end.ok()) << end;
}

// Memory is extended and populated. A kernel without MADV_POPULATE_WRITE returns EINVAL.
TEST_F(File, MemoryWithoutPopulation) {
  const std::string path = (scratch_dir() / ("perdure-test-" + std::to_string(getpid()))).string();
  FileStorage storage;
  ASSERT_TRUE(storage.create(path).ok());
  ASSERT_TRUE(storage.map(1 << 20).ok());
  if (storage.medium().medium == Medium::volatile_ram) {
    {
      const Failing failing(Fault::madvise, 1, true, EINVAL);
      EXPECT_TRUE(storage.allocate(0, 8 * 4096).ok());
    }
    {
      const Failing failing(Fault::madvise, 1, true, ENOMEM);
      EXPECT_EQ(storage.allocate(8 * 4096, 4096).code(), StatusCode::pool_full);
      EXPECT_EQ(storage.size(), 8 * 4096U);
    }
    {
      const Failing failing(Fault::ftruncate, 1, true);
      EXPECT_EQ(storage.allocate(8 * 4096, 4096).code(), StatusCode::pool_full);
    }
    EXPECT_TRUE(storage.allocate(0, 4096).ok()) << "within the file";
  }
  storage.discard_new();
}

// Asks for huge pages if there can be some. Without them everything works.
TEST_F(File, MemoryWithoutHugePages) {
  constexpr std::uint64_t kBytes = 64 << 20;
  const std::string path = (scratch_dir() / ("perdure-test-" + std::to_string(getpid()))).string();
  struct Row {
    std::uint64_t k;
    int error;
  };
  // Four calls populate a page each, the fifth collapses around them. If that one fails, huge page
  // by huge page is tried.
  for (const Row& row : {Row{1, ENOMEM}, Row{5, EINVAL}, Row{5, ENOMEM}, Row{10, ENOMEM}}) {
    FileStorage storage;
    ASSERT_TRUE(storage.create(path).ok());
    ASSERT_TRUE(storage.map(kBytes).ok());
    if (storage.medium().medium == Medium::volatile_ram) {
      const Failing failing(Fault::madvise, row.k, false, row.error);
      EXPECT_TRUE(storage.allocate(0, kBytes).ok());
      EXPECT_EQ(faults_fired(), 1U);
    }
    storage.discard_new();
  }
}

// The bytes of the mapping of a file that are on huge pages.
std::uint64_t huge_bytes(const std::byte* base) {
  std::ifstream smaps("/proc/self/smaps");
  char begin[32];
  std::snprintf(begin, sizeof(begin), "%zx-", reinterpret_cast<std::size_t>(base));
  bool found = false;
  for (std::string line; std::getline(smaps, line);) {
    found = found || line.starts_with(begin);
    if (!found || !line.starts_with("ShmemPmdMapped:")) continue;
    return std::strtoull(line.c_str() + line.find(':') + 1, nullptr, 10) << 10;
  }
  return 0;
}

// A huge page that cannot be had does not keep the others of its call from being huge.
TEST_F(File, OneHugePageLess) {
  constexpr std::uint64_t kBytes = 64 << 20;
  const std::string path = (scratch_dir() / ("perdure-test-" + std::to_string(getpid()))).string();
  const auto huge_of = [&](std::uint64_t failing_call) {
    FileStorage storage;
    EXPECT_TRUE(storage.create(path).ok());
    EXPECT_TRUE(storage.map(kBytes).ok());
    const Failing failing(Fault::madvise, failing_call, false, ENOMEM);
    EXPECT_TRUE(storage.allocate(0, kBytes).ok());
    const std::uint64_t bytes = huge_bytes(storage.base());
    storage.discard_new();
    return bytes;
  };
  constexpr std::uint64_t kNever = 1'000'000;
  if (huge_of(kNever) != kBytes) GTEST_SKIP() << "the system gives no huge pages";
  EXPECT_EQ(huge_of(5), kBytes) << "each of the four alone";
  EXPECT_EQ(huge_of(10), kBytes) << "the second four";
}

TEST_F(File, SpaceBeforeTheMapAndBeyondIt) {
  FileStorage storage;
  const std::string path = (scratch_dir() / ("perdure-test-" + std::to_string(getpid()))).string();
  ASSERT_TRUE(storage.create(path).ok());
  EXPECT_TRUE(storage.allocate(0, 4096).ok());
  ASSERT_TRUE(storage.map(8192).ok());
  EXPECT_TRUE(storage.allocate(8192, 4096).ok());
  EXPECT_EQ(storage.size(), 12'288U);
  storage.discard_new();
}

TEST_F(File, PathsThatDoNotFit) {
  FileStorage storage;
  const std::string longest(PATH_MAX - 4, 'x');  // too long only with the suffix of creation
  const std::string longer(PATH_MAX, 'x');
  EXPECT_EQ(storage.create(longest).code(), StatusCode::invalid_argument);
  EXPECT_EQ(storage.create(longer).code(), StatusCode::invalid_argument);
  EXPECT_EQ(storage.open(longer, FileStorage::Access::observer).code(),
            StatusCode::invalid_argument);
}

// A lock of the older kind names its process.
TEST_F(File, TheHolderOfAnotherKindOfLock) {
  FileStorage storage;
  make(storage);
  storage.close();
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t child = start_child([&] {
    const int fd = open(path_.c_str(), O_RDWR);
    struct flock lock{};
    lock.l_type = F_WRLCK;
    require(fcntl(fd, F_SETLK, &lock) == 0, "lock");
    require(write(ready[1], "x", 1) == 1, "write");
    char end = 0;
    require(read(done[0], &end, 1) == 1, "read");
  });
  char begin = 0;
  ASSERT_EQ(read(ready[0], &begin, 1), 1);
  ASSERT_TRUE(storage.open(path_, FileStorage::Access::observer).ok());
  EXPECT_EQ(storage.lock_holder(), child);
  ASSERT_EQ(write(done[1], "x", 1), 1);
  EXPECT_TRUE(wait_child(child).ok());
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) close(fd);
}

TEST_F(File, APlaceThatCannotBeToldIsAnError) {
  FileStorage storage;
  make(storage);
  layout::Identity identity;
  for (const Fault fault : {Fault::open, Fault::fstat, Fault::statfs}) {
    const Failing failing(fault, 1, true);
    EXPECT_EQ(storage.identity(identity).code(), StatusCode::io) << fault_name(fault);
  }
  EXPECT_TRUE(storage.identity(identity).ok());
}

// Many leaves in one partition. If any allocation fails while they are read, the open or the close
// reports it, and the next open finds everything.
TEST_F(File, RecoveryOfManyLeavesWithoutMemory) {
  const TempPath path;
  constexpr std::uint64_t kEntries = 12'000;
  MapOptions one = maps();
  one.phast.partition_bits = 0;
  const PoolOptions options{
      .durability = Durability::process, .max_size = 16_MiB, .recovery_threads = 1};
  {
    Pool pool = open_pool(path, options);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("numbers", one));
    for (std::uint64_t i = 0; i < kEntries; ++i) must(map.insert(mix(i), i));
    must(pool.close());
  }
  std::uint64_t k = 1;
  for (bool fired = true; fired; ++k) {
    {
      const Failing failing(Fault::nothrow_new, k, true);
      auto pool = Pool::open(path, options);
      fired = faults_fired() != 0;
      EXPECT_TRUE(pool.has_value() || code_of(pool) == StatusCode::out_of_memory) << k;
      if (!pool) continue;
      // An engine that serves at once reads the rest now.
      const Status closed = pool->close();
      EXPECT_TRUE(closed.ok() || closed == StatusCode::out_of_memory) << k;
    }
    ASSERT_LT(k, 10'000U);
  }
  EXPECT_GT(k, 8U) << "nothing is allocated";
  Pool pool = open_pool(path, options);
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("numbers", one));
  for (std::uint64_t i = 0; i < kEntries; ++i) ASSERT_EQ(must(map.get(mix(i))), i);
  expect_sound(pool);
}

// The figure counts the existing structures, whatever failed before.
TEST_F(File, DramIsCountedAfterFailures) {
  const Pretended same({.same_random = true});  // heights decide which classes are used
  const auto heap_dram = [](std::uint64_t k) {
    const TempPath path;
    PoolOptions options = with(Durability::process);
    options.background_threads = 0;  // work ahead of need must not depend on timing
    Pool pool = open_pool(path, options);
    auto map = must(pool.map<std::uint64_t, std::string_view>("records", maps()));
    {
      const Failing failing(Fault::nothrow_new, k, false);
      for (std::uint64_t i = 0; i < 60; ++i) {
        const std::string value(i % 12 * 16, 'v');  // blocks of many classes
        while (!map.put(mix(i), value).ok()) {
        }
      }
      if (k != 0 && faults_fired() == 0) return std::uint64_t{0};
    }
    return must(pool.stats()).heap_dram_bytes;
  };
  const std::uint64_t expected = heap_dram(0);
  std::uint64_t k = 1;
  for (; const std::uint64_t bytes = heap_dram(k); ++k) EXPECT_EQ(bytes, expected) << k;
  EXPECT_GT(k, 8U);
}

TEST_F(File, CreationBesideOthers) {
  // A process was killed while it created the pool: the lock is free.
  {
    std::ofstream(path_ + ".creating") << "half";
  }
  FileStorage storage;
  make(storage);
  FileStorage again;
  EXPECT_EQ(again.create(path_).code(), StatusCode::exists);
  std::filesystem::remove(path_);
  // Another process takes the name while the pool is made.
  FileStorage late;
  ASSERT_TRUE(late.create(path_).ok());
  FileStorage meanwhile;
  EXPECT_EQ(meanwhile.create(path_).code(), StatusCode::busy);
  {
    std::ofstream(path_) << "other";
  }
  EXPECT_EQ(late.publish().code(), StatusCode::exists);
  late.discard_new();
  EXPECT_EQ(read_bytes(path_), "other");
  std::filesystem::remove(path_);
  // The file can neither be made nor opened.
  FileStorage refused;
  {
    const Failing failing(Fault::open, 1, true, EEXIST);
    EXPECT_EQ(refused.create(path_).code(), StatusCode::io);
  }
  {
    // The folder exists, and takes no new files.
    const Failing failing(Fault::open, 1, true, ENOENT);
    EXPECT_EQ(refused.create(path_).code(), StatusCode::io);
  }
  EXPECT_EQ(refused.create(path_ + ".folder/pool").code(), StatusCode::not_found);
  for (const int error : {EACCES, EROFS, EMFILE}) {
    const Failing failing(Fault::open, 1, true, error);
    EXPECT_EQ(refused.open(path_, FileStorage::Access::owner).code(), StatusCode::io);
  }
  std::filesystem::create_symlink(path_ + ".nowhere", path_);
  EXPECT_EQ(refused.create(path_).code(), StatusCode::not_found);
}

// If nothing guarantees `power`, the name is there even if its folder cannot be synced. A file in
// the working folder has no folder in its path.
TEST_F(File, AFolderThatCannotBeOpened) {
  struct Row {
    Fault fault;
    int error;
    std::uint32_t file_system;
    StatusCode code;
  };
  for (const Row& row : {Row{Fault::open, EACCES, kTmpfs, StatusCode::ok},
                         Row{Fault::open, EMFILE, kTmpfs, StatusCode::io},
                         Row{Fault::open, EACCES, kXfs, StatusCode::io},
                         Row{Fault::fsync, EINVAL, kTmpfs, StatusCode::ok},
                         Row{Fault::fsync, EIO, kTmpfs, StatusCode::io},
                         Row{Fault::fsync, EINVAL, kXfs, StatusCode::io}}) {
    const Pretended pretended({.file_system = row.file_system, .disk = true});
    FileStorage storage;
    ASSERT_TRUE(storage.create(path_).ok());
    {
      const Failing failing(row.fault, 1, true, row.error);
      EXPECT_EQ(storage.publish().code(), row.code) << row.error;
    }
    EXPECT_EQ(std::filesystem::remove(path_), row.code == StatusCode::ok);
  }
  const ChildEnd end = run_child([&] {
    require(chdir(scratch_dir().c_str()) == 0, "chdir");
    const std::string name = "perdure-test-" + std::to_string(getpid()) + ".bare";
    FileStorage bare;
    require(bare.create(name).ok() && bare.publish().ok(), "create");
    require(std::filesystem::remove(name), "remove");
  });
  EXPECT_TRUE(end.ok()) << end;
}

TEST_F(File, ALockThatIsHeldNamesItsOwner) {
  Pool pool = open_pool(path_, with(Durability::process));
  const auto second = Pool::open(path_, with(Durability::process));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), StatusCode::busy);
  EXPECT_NE(second.error().message().find(std::to_string(getpid())), std::string_view::npos);
  // A file system without a name for the host, or without locks.
  FileStorage storage;
  {
    const Failing failing(Fault::lock, 1, true, EACCES);
    EXPECT_EQ(storage.open(path_, FileStorage::Access::owner).code(), StatusCode::busy);
  }
  storage.close();
  {
    const Failing failing(Fault::lock, 1, true);
    EXPECT_EQ(storage.open(path_, FileStorage::Access::owner).code(), StatusCode::io);
  }
  {
    const Failing failing(Fault::lock, 1, true);
    EXPECT_EQ(storage.lock_holder(), 0);
  }
  storage.close();
  {  // where there are no locks, no process can own the file
    const Failing failing(Fault::lock, 1, true);
    EXPECT_TRUE(storage.open(path_, FileStorage::Access::reader).ok());
  }
}

}  // namespace
}  // namespace perdure::test
