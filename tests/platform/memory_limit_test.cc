// The memory limit of a container, as the kernel writes it: both versions of cgroups, the groups
// above, and what a container sees.
#include "platform/memory_limit.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/support.h"

namespace perdure::test {
namespace {

class Limits : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_.str() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // A group of version 2; `limit` as in memory.max.
  void second(const std::string& group, const std::string& limit, std::uint64_t used,
              std::uint64_t file = 0, std::uint64_t shmem = 0) const {
    const std::string folder = "/sys/fs/cgroup" + group;
    write(folder + "/memory.max", limit + "\n");
    write(folder + "/memory.current", std::to_string(used) + "\n");
    write(folder + "/memory.stat", "anon 4096\nfile " + std::to_string(file) +
                                       "\nkernel 8192\nshmem " + std::to_string(shmem) +
                                       "\nslab_reclaimable 0\nfile_mapped 77\n");
  }
  void first(const std::string& group, std::uint64_t limit, std::uint64_t used, std::uint64_t cache,
             std::uint64_t shmem) const {
    const std::string folder = "/sys/fs/cgroup/memory" + group;
    write(folder + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    write(folder + "/memory.usage_in_bytes", std::to_string(used) + "\n");
    write(folder + "/memory.stat", "cache 1\nshmem 1\ntotal_cache " + std::to_string(cache) +
                                       "\ntotal_shmem " + std::to_string(shmem) + "\n");
  }
  void process(const std::string& groups, const std::string& mounts) const {
    write("/proc/self/cgroup", groups);
    write("/proc/self/mountinfo", "22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n" + mounts);
  }
  static std::string mebi(std::uint64_t n) { return std::to_string(n << 20); }
  MemoryLimit limit() const { return memory_limit(root_.c_str()); }

  const TempPath root_{"cgroups"};
  const std::string second_ =
      "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
  const std::string first_ =
      "31 22 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
      "32 22 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
};

TEST_F(Limits, NoneIsKnown) {
  EXPECT_EQ(limit().bytes, 0U) << "there is no /proc";
  process("0::/\n", "");
  EXPECT_EQ(limit().bytes, 0U);
  process("0::/user/app\n", second_);
  second("/user/app", "max", 500);
  EXPECT_EQ(limit().bytes, 0U);
  EXPECT_EQ(limit().room, ~std::uint64_t{0});
}

TEST_F(Limits, TheGroupWithTheLeastRoomCounts) {
  process("0::/user/app\n", second_);
  second("/user", mebi(800), 700_MiB);
  second("/user/app", mebi(400), 100_MiB);
  EXPECT_EQ(limit().bytes, 800_MiB);
  EXPECT_EQ(limit().room, 0U) << "an eighth stays free";
  second("/user", mebi(800), 400_MiB);
  EXPECT_EQ(limit().bytes, 400_MiB);
  EXPECT_EQ(limit().room, 250_MiB);
  second("/user/app", mebi(4000), 100_MiB);
  EXPECT_EQ(limit().bytes, 800_MiB);
  EXPECT_EQ(limit().room, 300_MiB);
}

TEST_F(Limits, TheReserveHasBounds) {
  process("0::/\n", second_);
  second("", mebi(40), 0);
  EXPECT_EQ(limit().room, 32_MiB);
  second("", mebi(40), 36_MiB);
  EXPECT_EQ(limit().room, 0U);
  second("", mebi(16'384), 0);
  EXPECT_EQ(limit().room, 16'128_MiB);
}

TEST_F(Limits, TheCacheOfFilesIsRoomButFilesInMemoryAreNot) {
  process("0::/\n", second_);
  second("", mebi(800), 700_MiB, 600_MiB, 200_MiB);
  EXPECT_EQ(limit().room, 400_MiB);
  second("", mebi(800), 2'000_MiB);  // the limit was lowered
  EXPECT_EQ(limit().room, 0U);
}

TEST_F(Limits, VersionOne) {
  process("4:memory:/docker/abc\n1:cpu:/\n0::/\n", first_);
  first("/docker/abc", 800_MiB, 600_MiB, 500_MiB, 100_MiB);
  first("", 9'223'372'036'854'771'712U, 5_GiB, 0, 0);
  EXPECT_EQ(limit().bytes, 800_MiB);
  EXPECT_EQ(limit().room, 500_MiB);
}

// The path is that of the machine, and the mount shows the container's own group only.
TEST_F(Limits, InAContainer) {
  process("4:memory:/docker/abc\n",
          "32 22 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  first("", 800_MiB, 600_MiB, 0, 0);
  EXPECT_EQ(limit().room, 100_MiB);
  process("4:memory:/docker/abcdef\n",
          "32 22 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  EXPECT_EQ(limit().room, 100_MiB) << "another group than that of the mount: its top";
}

}  // namespace
}  // namespace perdure::test
