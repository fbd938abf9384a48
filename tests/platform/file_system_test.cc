// The files under a log: the real ones, and that the simulated ones do the same.
#include "platform/file_system.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "testing/disk/sim_files.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using disk::SimFileSystem;
using Open = FileSystem::Open;

StatusCode names_in(FileSystem& files, const std::string& folder, std::vector<std::string>& names) {
  const Status listed =
      files.list(folder, [&](std::string_view name) { names.emplace_back(name); });
  std::ranges::sort(names);
  return listed.code();
}

// The same calls on both, with prefixes of their own.
class Both {
 public:
  explicit Both(std::string folder) : folder_(std::move(folder)) {}

  void check(StatusCode real, StatusCode sim, const std::string& what) {
    require(real == sim,
            what + ": " + status_code_name(real) + ", simulated " + status_code_name(sim));
  }
  template <class... Site>
  void on_name(Status (FileSystem::*call)(std::string_view, Site...), const std::string& name,
               Site... site) {
    check((real_.*call)(folder_ + "/" + name, site...).code(), (sim_.*call)(name, site...).code(),
          name);
  }
  void rename(const std::string& from, const std::string& to) {
    check(real_.rename(folder_ + "/" + from, folder_ + "/" + to).code(),
          sim_.rename(from, to).code(), from + " to " + to);
  }
  void hold(const std::string& name) {
    check(real_.hold(folder_ + "/" + name, false).code(), sim_.hold(name, false).code(), name);
  }
  // A folder gets a name that is free.
  void move(const std::string& from, const std::string& to) {
    if (!std::filesystem::exists(folder_ + "/" + to)) rename(from, to);
  }
  void let_go() {
    real_.let_go();
    sim_.let_go();
  }
  // Opens, changes, reads and closes a file.
  void use(const std::string& name, Open how, std::uint64_t offset, const std::string& text,
           std::uint64_t allocated) {
    auto real = real_.open(folder_ + "/" + name, how);
    auto sim = sim_.open(name, how);
    check(real ? StatusCode::ok : real.error().code(), sim ? StatusCode::ok : sim.error().code(),
          name);
    if (!real) return;
    must(real_.write(*real, text.data(), text.size(), offset));
    must(sim_.write(*sim, text.data(), text.size(), offset));
    if (allocated != 0) {
      must(real_.allocate(*real, allocated / 2, allocated));
      must(sim_.allocate(*sim, allocated / 2, allocated));
    }
    must(real_.sync(*real, kNoSite));
    must(sim_.sync(*sim, kNoSite));
    const std::uint64_t size = must(real_.size(*real));
    require(size == must(sim_.size(*sim)), name + ": size");
    std::string real_text(size + 10, '?');
    std::string sim_text(size + 10, '?');
    require(must(real_.read(*real, real_text.data(), size + 10, 0)) == size, "read");
    require(must(sim_.read(*sim, sim_text.data(), size + 10, 0)) == size, "simulated read");
    require(real_text == sim_text, name + ": content");
    real_.close(*real);
    sim_.close(*sim);
  }
  void compare(const std::string& folder) {
    std::vector<std::string> real;
    std::vector<std::string> sim;
    check(names_in(real_, folder_ + "/" + folder, real), names_in(sim_, folder, sim), folder);
    require(real == sim, "the names in " + folder);
  }

 private:
  std::string folder_;
  RealFileSystem real_;
  SimFileSystem sim_;
};

class FileSystemTest : public testing::Test {
 protected:
  FileSystemTest() { std::filesystem::create_directory(path_.str()); }
  std::string at(const std::string& name) const { return path_.str() + "/" + name; }

  TempPath path_;
  RealFileSystem files_;
};

TEST_F(FileSystemTest, SimulatedFilesDoTheSame) {
  Both both(path_.str());
  std::mt19937_64 random(seed());
  const auto name = [&] {
    return std::string(random() % 3 == 0 ? "log/" : "") + std::to_string(random() % 4);
  };
  for (int i = 0; i < 3'000; ++i) {
    const std::string one = name();
    switch (random() % 12) {
      case 0:
        both.on_name(&FileSystem::make_folder, "log");
        break;
      case 1:
        both.on_name(&FileSystem::remove_folder, "log");
        break;
      case 2:
        both.on_name(&FileSystem::remove, one);
        break;
      case 3:
        both.rename(one, one.substr(0, one.size() - 1) + "4");
        break;
      case 4:
        both.on_name(&FileSystem::sync_folder, "log", kNoSite);
        break;
      case 5:
        both.hold("log");
        break;
      case 6:
        if (random() % 4 == 0) both.let_go();
        break;
      case 7:
        both.move(random() % 2 == 0 ? "log" : "away", random() % 2 == 0 ? "log" : "away");
        break;
      default:
        both.use(one, random() % 2 == 0 ? Open::fresh : Open::existing, random() % 3'000,
                 std::string(1 + random() % 1'500, static_cast<char>('a' + random() % 26)),
                 random() % 4 == 0 ? 1 + random() % 9'000 : 0);
    }
    for (const char* folder : {".", "log", "away"}) both.compare(folder);
  }
}

TEST_F(FileSystemTest, AFolderIsHeldAlone) {
  ASSERT_EQ(mkdir(at("log").c_str(), 0700), 0);
  RealFileSystem other;
  must(files_.hold(at("log"), true));
  must(files_.hold(at("log"), true));
  EXPECT_EQ(other.hold(at("log"), true), StatusCode::busy);
  must(other.hold(at("log"), false));
  files_.let_go();
  must(other.hold(at("log"), false));  // it is the same folder still
  RealFileSystem third;
  must(third.hold(at("log"), true));
}

// New files are for their owner alone until they get the mode of the model.
TEST_F(FileSystemTest, NewFilesResembleAModel) {
  const auto mode_of = [&](const char* name) {
    struct stat info{};
    return stat(at(name).c_str(), &info) == 0 ? info.st_mode & 07777U : 0U;
  };
  const auto model = must(files_.open(at("model"), Open::fresh));
  EXPECT_EQ(mode_of("model"), 0600U);
  ASSERT_EQ(fchmod(model, 0664), 0);
  files_.resemble(model);
  const auto file = must(files_.open(at("file"), Open::fresh));
  must(files_.make_folder(at("folder")));
  EXPECT_EQ(mode_of("file"), 0664U);
  EXPECT_EQ(mode_of("folder"), 0775U);
  ASSERT_EQ(fchmod(file, 0666), 0);
  files_.close(file);
  EXPECT_EQ(code_of(files_.open(at("file"), Open::existing)), StatusCode::untrusted);
  EXPECT_EQ(code_of(files_.open(at("file"), Open::reading)), StatusCode::untrusted);
  ASSERT_EQ(chmod(at("folder").c_str(), 0777), 0);
  EXPECT_EQ(files_.hold(at("folder"), true), StatusCode::untrusted);
  files_.close(model);
}

TEST_F(FileSystemTest, ErrorsNameTheFileAndTheReason) {
  const auto missing = files_.open(at("missing"), Open::existing);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), StatusCode::not_found);
  EXPECT_EQ(missing.error().message(), at("missing") + ": cannot open: No such file or directory");
  std::filesystem::create_symlink(at("target"), at("link"));
  const auto link = files_.open(at("link"), Open::existing);
  ASSERT_FALSE(link.has_value());
  EXPECT_EQ(link.error().code(), StatusCode::io);
  EXPECT_EQ(code_of(files_.open(at("link"), Open::fresh)), StatusCode::exists);
  ASSERT_EQ(mkfifo(at("fifo").c_str(), 0600), 0);
  const auto fifo = files_.open(at("fifo"), Open::existing);
  ASSERT_FALSE(fifo.has_value());
  EXPECT_EQ(fifo.error().message(), at("fifo") + ": is not a regular file");
  EXPECT_EQ(files_.remove(at("missing")).code(), StatusCode::not_found);
  EXPECT_EQ(files_.list(at("missing"), [](std::string_view) {}).code(), StatusCode::not_found);
  EXPECT_EQ(code_of(files_.open(std::string(5'000, 'x'), Open::existing)),
            StatusCode::invalid_argument);
  // An error of an open file has the name that it has now.
  const FileSystem::File file = must(files_.open(at("file"), Open::fresh));
  must(files_.rename(at("file"), at("renamed")));
  const Status refused = files_.allocate(file, 0, 0);
  files_.close(file);
  EXPECT_EQ(refused.code(), StatusCode::io);
  EXPECT_EQ(refused.message(), at("renamed") + ": cannot reserve space: Invalid argument");
}

TEST_F(FileSystemTest, AFullDiskIsPoolFull) {
  const std::string path = "/dev/shm/perdure-test-" + std::to_string(getpid()) + "-full";
  const FileSystem::File file = must(files_.open(path, Open::fresh));
  const Status refused = files_.allocate(file, 0, std::uint64_t{1} << 50);
  files_.close(file);
  must(files_.remove(path));
  EXPECT_EQ(refused.code(), StatusCode::pool_full) << refused.message();
  EXPECT_EQ(refused.message(), path + ": cannot reserve space: No space left on device");
}

}  // namespace
}  // namespace perdure::test
