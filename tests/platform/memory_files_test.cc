// Files in memory: what a backup there relies on.
#include "platform/memory_files.h"

#include <sys/mman.h>

#include <array>
#include <cstring>
#include <set>
#include <string>

#include "tests/support/support.h"

namespace perdure::test {
namespace {

constexpr std::size_t kRoom = 8192;

class InMemory : public ::testing::Test {
 protected:
  InMemory()
      : memory_(static_cast<std::byte*>(
            ::mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        files_("f/base", {memory_, kRoom}) {}
  ~InMemory() override { ::munmap(memory_, kRoom); }
  FileSystem::File make(std::string_view path, std::string_view text, std::uint64_t at = 0) {
    const FileSystem::File file = must(files_.open(path, FileSystem::Open::fresh));
    must(files_.write(file, text.data(), text.size(), at));
    return file;
  }
  std::string content(std::string_view path) {
    const FileSystem::File file = must(files_.open(path, FileSystem::Open::reading));
    std::string text(must(files_.size(file)), '?');
    EXPECT_EQ(must(files_.read(file, text.data(), text.size() + 1, 0)), text.size());
    return text;
  }
  StatusCode code_of_open(std::string_view path, FileSystem::Open how) {
    auto file = files_.open(path, how);
    return file ? StatusCode::ok : file.error().code();
  }

  std::byte* memory_;
  MemoryFiles files_;
};

TEST_F(InMemory, NamesLeadToContents) {
  EXPECT_EQ(code_of_open("f/a", FileSystem::Open::existing), StatusCode::not_found);
  make("f/a", "one");
  EXPECT_EQ(code_of_open("f/a", FileSystem::Open::fresh), StatusCode::exists);
  make("f/log/b", "two", 5);
  EXPECT_EQ(content("f/log/b"), std::string("\0\0\0\0\0two", 8));
  std::set<std::string> names;
  must(files_.list("f", [&](std::string_view name) { names.emplace(name); }));
  EXPECT_EQ(names, std::set<std::string>{"a"});
  make("f/c", "three");
  must(files_.rename("f/c", "f/a"));
  EXPECT_EQ(content("f/a"), "three");
  EXPECT_EQ(code_of_open("f/c", FileSystem::Open::reading), StatusCode::not_found);
  must(files_.remove("f/a"));
  EXPECT_EQ(files_.remove("f/a").code(), StatusCode::not_found);
  make("f/a", "new");
  EXPECT_EQ(content("f/a"), "new");
}

TEST_F(InMemory, AFileGrowsByZeros) {
  const FileSystem::File file = make("f/a", "one");
  for (std::uint64_t size = 3; size < 100'000; size = 2 * size + 1) {
    must(files_.allocate(file, 0, size));
    EXPECT_EQ(content("f/a"), "one" + std::string(size - 3, '\0'));
  }
  must(files_.allocate(file, 0, 10));
  EXPECT_GT(must(files_.size(file)), 10U);
}

TEST_F(InMemory, OneFileLiesWhereTheUserWantsIt) {
  const FileSystem::File file = make("f/base", "content", 100);
  EXPECT_EQ(std::memcmp(memory_ + 100, "content", 7), 0);
  EXPECT_EQ(must(files_.size(file)), 107U);
  EXPECT_EQ(files_.allocate(file, 0, kRoom + 1).code(), StatusCode::io);
  must(files_.allocate(file, 0, kRoom));
  // A second attempt finds zeros there.
  must(files_.remove("f/base"));
  make("f/base", "x");
  EXPECT_EQ(content("f/base"), "x");
  EXPECT_EQ(memory_[100], std::byte{});
}

}  // namespace
}  // namespace perdure::test
