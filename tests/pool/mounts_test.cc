// test: tsan
// Pools on file systems that are mounted again, as the layers of a container are at its restart.
// The mounts are made in a namespace of their own; that needs root.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "format/header.h"
#include "format/layout.h"
#include "platform/platform.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

namespace fs = std::filesystem;

// ---- the comparison ----

constexpr std::uint8_t kBoot = 7;
layout::Identity place(std::uint64_t device, std::uint64_t inode, std::uint64_t filesystem_id,
                       std::uint8_t boot = kBoot) {
  return {.boot_id = {boot}, .device = device, .inode = inode, .filesystem_id = filesystem_id};
}
bool copied(const layout::Identity& there, const layout::Identity& here) {
  layout::Header header{};
  header.identity = there;
  return is_copy(header, here);
}

TEST(Place, ADiskIsComparedByItsNumber) {
  const std::uint64_t disk = makedev(254, 1);
  EXPECT_FALSE(copied(place(disk, 12, 5), place(disk, 12, 5)));
  EXPECT_TRUE(copied(place(disk, 12, 5), place(disk, 13, 5))) << "another file";
  EXPECT_TRUE(copied(place(disk, 12, 5), place(disk, 12, 6))) << "another file system";
  EXPECT_TRUE(copied(place(disk, 12, 5), place(makedev(7, 0), 12, 5))) << "a clone of the disk";
  EXPECT_FALSE(copied(place(disk, 12, 5), place(makedev(7, 0), 12, 5, kBoot + 1)))
      << "a restart may give the disk another number";
  EXPECT_TRUE(copied(place(disk, 12, 5), place(makedev(0, 40), 12, 5)));
  EXPECT_TRUE(copied(place(makedev(0, 40), 12, 5), place(disk, 12, 5)));
}
TEST(Place, ANumberFromAMountIsNotCompared) {
  const std::uint64_t before = makedev(0, 40);
  const std::uint64_t after = makedev(0, 41);
  EXPECT_FALSE(copied(place(before, 12, 5), place(after, 12, 5)));
  EXPECT_TRUE(copied(place(before, 12, 5), place(after, 13, 5))) << "another file";
  EXPECT_TRUE(copied(place(before, 12, 5), place(after, 12, 6))) << "such as a snapshot of btrfs";
  EXPECT_FALSE(copied(place(before, 12, 0), place(before, 12, 0)));
  EXPECT_TRUE(copied(place(before, 12, 0), place(after, 12, 0))) << "nothing else tells them apart";
}

// ---- mounts ----

// The functions below run in children. They throw, because EXPECT is for the test's own process.

void enter_namespace() {
  require(::unshare(CLONE_NEWNS) == 0, "unshare");
  require(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "private mounts");
}
void mount_memory(const std::string& on) {
  fs::create_directories(on);
  require(::mount("tmpfs", on.c_str(), "tmpfs", 0, nullptr) == 0, "tmpfs on " + on);
}

// The writable layer of a container is the folder `upper`.
class Overlay {
 public:
  explicit Overlay(std::string folder, std::string upper = "/upper")
      : folder_(std::move(folder)), upper_(std::move(upper)) {
    for (const std::string& name : {std::string("/lower"), upper_, upper_ + "-work"}) {
      fs::create_directories(folder_ + name);
    }
    fs::create_directories(root());
    begin();
  }
  // Mounts it again, under another device number.
  void restart() {
    struct stat before{}, after{};
    require(::stat(root().c_str(), &before) == 0, "stat");
    end();
    mount_memory(folder_ + "/other-" + std::to_string(restarts_++));  // takes the number
    begin();
    require(::stat(root().c_str(), &after) == 0, "stat");
    require(before.st_dev != after.st_dev, "the device number stayed");
  }
  void end() const { require(::umount(root().c_str()) == 0, "umount"); }
  std::string root() const { return folder_ + "/root"; }

 private:
  void begin() const {
    const std::string options = "lowerdir=" + folder_ + "/lower,upperdir=" + folder_ + upper_ +
                                ",workdir=" + folder_ + upper_ + "-work";
    require(::mount("overlay", root().c_str(), "overlay", 0, options.c_str()) == 0,
            "overlay of " + options);
  }

  std::string folder_, upper_;
  int restarts_ = 0;
};

PoolOptions small(Durability durability) {
  return {.durability = durability,
          .buffered = {.interval_ms = 3'600'000},
          .max_size = 4_MiB,
          .recovery_threads = 1};
}
Map<std::uint64_t, std::uint64_t> numbers(Pool& pool) {
  return must(pool.map<std::uint64_t, std::uint64_t>("m", {.phast = {.partition_bits = 0}}));
}
void put_and_kill(const std::string& path, Durability durability, std::uint64_t key) {
  const ChildEnd end = run_child([&] {
    Pool pool = open_pool(path, small(durability));
    must(numbers(pool).put(key, mix(key)));
    ::kill(::getpid(), SIGKILL);
  });
  require(end.signal == SIGKILL, "the process was not killed");
}
void require_keys(const std::string& path, Durability durability, std::uint64_t keys) {
  Pool pool = open_pool(path, {.mode = OpenMode::existing, .recovery_threads = 1});
  require(must(pool.info()).durability == durability, "another durability");
  auto map = numbers(pool);
  for (std::uint64_t key = 0; key < keys; ++key) {
    require(must(map.get(key)) == std::optional(mix(key)), "key " + std::to_string(key));
  }
  must(pool.close());
}
void require_refused(const std::string& path, StatusCode code, const std::string& words,
                     PoolOptions options = {}) {
  options.mode = OpenMode::existing;
  const auto pool = Pool::open(path, options);
  require(!pool.has_value(), "opened");
  const std::string text = describe(pool.error());
  require(pool.error().code() == code && text.find(words) != std::string::npos, text);
}

class Mounts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!run_child([] { enter_namespace(); }).ok()) GTEST_SKIP() << "this user cannot mount";
    fs::create_directories(folder_);
  }
  ~Mounts() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  const std::string folder_ = fs::absolute(on_disk("-mounts")).string();
};

void live_through_restarts(const std::string& folder, Durability durability) {
  Overlay overlay(folder);
  const std::string path = overlay.root() + "/pool";
  for (std::uint64_t key = 0; key < 3; ++key) {
    put_and_kill(path, durability, key);
    overlay.restart();
  }
  require_keys(path, durability, 3);
}

TEST_F(Mounts, AKilledPoolInAContainerThatRestarts) {
  const ChildEnd end = run_child([&] {
    enter_namespace();
    mount_memory(folder_);
    live_through_restarts(folder_, Durability::process);
  });
  EXPECT_TRUE(end.ok()) << end;
}
TEST_F(Mounts, AKilledPoolInAContainerThatRestartsOnADisk) {
  const ChildEnd possible = run_child([&] {
    enter_namespace();
    Overlay overlay(folder_);
    Pool pool = open_pool(overlay.root() + "/pool", small(Durability::buffered));
    must(pool.close());
  });
  if (!possible.ok()) GTEST_SKIP() << "the build folder is not on a disk that can be such a layer";
  fs::remove_all(folder_);
  const ChildEnd end = run_child([&] {
    enter_namespace();
    live_through_restarts(folder_, Durability::buffered);
  });
  EXPECT_TRUE(end.ok()) << end;
}

// What is noticed without a restart is noticed after it.
TEST_F(Mounts, ACopyInAContainerThatRestarts) {
  const ChildEnd end = run_child([&] {
    enter_namespace();
    mount_memory(folder_);
    Overlay overlay(folder_);
    put_and_kill(overlay.root() + "/pool", Durability::process, 0);
    fs::copy_file(overlay.root() + "/pool", overlay.root() + "/copy");
    require_refused(overlay.root() + "/copy", StatusCode::untrusted, "is a copy");
    overlay.restart();
    require_refused(overlay.root() + "/copy", StatusCode::untrusted, "is a copy");
    overlay.end();
    // Another container gets a copy of the layer.
    fs::copy(folder_ + "/upper", folder_ + "/clone", fs::copy_options::recursive);
    const Overlay other(folder_, "/clone");
    require_refused(other.root() + "/pool", StatusCode::untrusted, "is a copy");
    other.end();
    overlay = Overlay(folder_);
    require_keys(overlay.root() + "/pool", Durability::process, 1);
  });
  EXPECT_TRUE(end.ok()) << end;
}

// ---- the durability of a new pool ----

Durability of_new_pool(const std::string& path) {
  Pool pool = open_pool(path, small(Durability::automatic));
  const Durability durability = must(pool.info()).durability;
  must(pool.close());
  return durability;
}

TEST_F(Mounts, AnOverlayOverMemoryIsLostWithTheMachine) {
  const ChildEnd end = run_child([&] {
    enter_namespace();
    mount_memory(folder_);
    const Overlay overlay(folder_);
    const std::string path = overlay.root() + "/pool";
    require(of_new_pool(path) == Durability::process, "not process");
    require(must(Pool::inspect(path)).medium == Medium::volatile_ram, "not memory");
    require_refused(path, StatusCode::unsupported, "its files are lost with the machine",
                    small(Durability::buffered));
  });
  EXPECT_TRUE(end.ok()) << end;
}

// ---- a full disk under the live image ----

PoolOptions in_memory(const std::string& folder) {
  PoolOptions options = small(Durability::buffered);
  options.buffered.memory_directory = folder;
  options.handle_sigbus = true;
  return options;
}

// The pages over the bits of lines, which every open makes anew. As after a write to another place,
// a store there needs space.
void take_space_of_summaries(const std::string& folder) {
  constexpr std::uint64_t kBegin = kPage + kMaxThreadSlots * 16;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (!path.ends_with("-dirty")) continue;
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    require(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kBegin, 4 * kPage) == 0,
            "no hole");
    ::close(file);
  }
}
void fill(const std::string& folder) {
  const std::string page(kPage, 'f');
  std::ofstream file(folder + "/fill", std::ios::binary);
  while (file.write(page.data(), static_cast<std::streamsize>(page.size())).flush()) {
  }
}

// Without handle_sigbus the process ends there.
TEST_F(Mounts, AnOpenThatFindsNoSpaceForItsImageChangesNothing) {
  const ChildEnd end = run_child([&] {
    enter_namespace();
    const std::string memory = folder_ + "/memory";
    fs::create_directories(memory);
    require(::mount("tmpfs", memory.c_str(), "tmpfs", 0, "size=16m") == 0, "tmpfs");
    const std::string path = folder_ + "/pool";
    const ChildEnd killed = run_child([&] {
      Pool pool = open_pool(path, in_memory(memory));
      must(numbers(pool).put(0, mix(0)));
      ::kill(::getpid(), SIGKILL);
    });
    require(killed.signal == SIGKILL, "the process was not killed");
    take_space_of_summaries(memory);
    fill(memory);
    const std::string before = read_bytes(path);
    for (int i = 0; i < 2; ++i) {
      require_refused(path, StatusCode::poisoned, "its disk is full", in_memory(memory));
    }
    require(read_bytes(path) == before, "the pool's file has changed");
    fs::remove(memory + "/fill");
    require_keys(path, Durability::buffered, 1);
  });
  EXPECT_TRUE(end.ok()) << end;
}

// ---- a file that is mounted alone, as by `docker run -v FILE:FILE` ----

void mount_alone(const std::string& file, const std::string& on) {
  write_bytes(on, "");
  require(::mount(file.c_str(), on.c_str(), nullptr, MS_BIND, nullptr) == 0, "bind " + on);
}

TEST_F(Mounts, AClosedPoolThatIsMountedAloneOpensWithoutALog) {
  const std::string alone = "its file is mounted alone";
  const ChildEnd end = run_child([&] {
    enter_namespace();
    const std::string pool = folder_ + "/pool";
    const std::string inside = folder_ + "/inside/pool";
    require(of_new_pool(pool) == Durability::buffered, "not on a disk");
    fs::create_directory(folder_ + "/inside");
    mount_alone(pool, inside);
    fs::create_symlink(inside, folder_ + "/link");
    for (const std::string& path : {inside, folder_ + "/link"}) {
      for (const Durability asked : {Durability::automatic, Durability::buffered}) {
        require_refused(path, StatusCode::unsupported, alone, {.durability = asked});
      }
    }
    must(open_pool(inside, {.mode = OpenMode::read_only}).close());
    must(open_pool(inside, small(Durability::process)).close());
    require_keys(inside, Durability::process, 0);
    require_refused(inside, StatusCode::unsupported, alone, {.durability = Durability::buffered});
    // Under its own name it is beside its log, and so is a file whose folder is mounted.
    must(open_pool(pool, small(Durability::buffered)).close());
    fs::create_directory(folder_ + "/volume");
    fs::rename(pool, folder_ + "/volume/pool");
    const std::string volume = folder_ + "/volume";
    require(::mount(volume.c_str(), volume.c_str(), nullptr, MS_BIND, nullptr) == 0, "bind");
    must(open_pool(volume + "/pool", small(Durability::buffered)).close());
  });
  EXPECT_TRUE(end.ok()) << end;
}

TEST_F(Mounts, AnOpenPoolThatIsMountedAloneNeedsItsFolder) {
  const ChildEnd end = run_child([&] {
    enter_namespace();
    const std::string pool = folder_ + "/pool";
    put_and_kill(pool, Durability::buffered, 0);
    fs::create_directory(folder_ + "/inside");
    const std::string inside = folder_ + "/inside/pool";
    mount_alone(pool, inside);
    PoolOptions accepts;
    accepts.accept_untrusted = true;
    for (const PoolOptions& options :
         {PoolOptions{}, small(Durability::process), small(Durability::buffered), accepts}) {
      require_refused(inside, StatusCode::unsupported, "mount its folder", options);
    }
    const auto look = Pool::open(inside, {.mode = OpenMode::read_only});
    require(code_of(look) == StatusCode::unsupported, "read-only");
    const auto backup = back_up(inside, folder_ + "/backup");
    require(code_of(backup) == StatusCode::unsupported, "backup");
    require(!fs::exists(inside + "-log") && !fs::exists(inside + "-live"), "files beside it");
    require_keys(pool, Durability::buffered, 1);
  });
  EXPECT_TRUE(end.ok()) << end;
}

}  // namespace
}  // namespace perdure::test
