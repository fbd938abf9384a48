// The block devices that accept `power` by msync, on an invented sysfs.
#include "platform/medium.h"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace perdure {
namespace {

namespace fs = std::filesystem;

class BlockDevice : public ::testing::Test {
 protected:
  BlockDevice() {
    std::string name = (fs::temp_directory_path() / "perdure-sys.XXXXXX").string();
    root_ = mkdtemp(name.data());
    fs::create_directories(root_ / "dev/block");
  }
  ~BlockDevice() override { fs::remove_all(root_); }

  // Makes device 8:1 this one.
  void is(const std::string& name) {
    fs::create_symlink("../../devices/somewhere/" + name, root_ / "dev/block/8:1");
  }
  void mapped(const std::string& uuid, const std::vector<std::string>& parts) {
    is("dm-3");
    const fs::path device = root_ / "block/dm-3";
    fs::create_directories(device / "dm");
    fs::create_directories(device / "slaves");
    std::ofstream(device / "dm/uuid") << uuid << '\n';
    for (const std::string& part : parts) std::ofstream(device / "slaves" / part);
  }
  std::string verdict() const { return judge_block_device(root_.c_str(), makedev(8, 1)); }

  const std::string volume_ = "LVM-" + std::string(64, 'a');
  fs::path root_;
};

TEST_F(BlockDevice, Disks) {
  for (const char* name : {"sda1", "nvme0n1p2", "vdb"}) {
    fs::remove(root_ / "dev/block/8:1");
    is(name);
    EXPECT_EQ(verdict(), "") << name;
  }
}
TEST_F(BlockDevice, OthersAreRefused) {
  for (const char* name : {"loop0", "md127", "zram0", "nbd0", "mmcblk0"}) {
    fs::remove(root_ / "dev/block/8:1");
    is(name);
    EXPECT_NE(verdict(), "") << name;
  }
}
TEST_F(BlockDevice, UnknownIsRefused) { EXPECT_NE(verdict(), ""); }
TEST_F(BlockDevice, LinearVolume) {
  mapped(volume_, {"sda2", "nvme0n1p1"});
  EXPECT_EQ(verdict(), "");
}
TEST_F(BlockDevice, VolumeOnAnotherMappedDevice) {
  mapped(volume_, {"sda2", "dm-1"});
  EXPECT_NE(verdict(), "") << "thin, cached, mirrored, a snapshot, or encrypted below";
}
TEST_F(BlockDevice, InnerVolume) {
  mapped(volume_ + "-tpool", {"sda2"});
  EXPECT_NE(verdict(), "");
}
TEST_F(BlockDevice, Encryption) {
  mapped("CRYPT-LUKS2-" + std::string(32, '0') + "-root", {"sda2"});
  EXPECT_NE(verdict(), "");
}
TEST_F(BlockDevice, NamesWithoutAFolder) {
  fs::create_symlink("sda", root_ / "dev/block/8:1");
  EXPECT_EQ(verdict(), "");
}
TEST_F(BlockDevice, VolumeThatCannotBeTold) {
  is("dm-3");
  EXPECT_NE(verdict(), "") << "no uuid";
  fs::create_directories(root_ / "block/dm-3/dm");
  std::ofstream(root_ / "block/dm-3/dm/uuid") << "";
  EXPECT_NE(verdict(), "") << "an empty one";
  std::ofstream(root_ / "block/dm-3/dm/uuid") << volume_;
  EXPECT_NE(verdict(), "") << "no parts";
}
TEST(Medium, OfNoFile) {
  const MediumReport report = detect(-1);
  EXPECT_EQ(report.medium, Medium::page);
  EXPECT_FALSE(report.msync_is_ordered);
}
TEST_F(BlockDevice, VolumeWithoutParts) {
  mapped(volume_, {});
  EXPECT_NE(verdict(), "");
}

}  // namespace
}  // namespace perdure
