// The log of epochs in real files: large epochs over several segments, a process that goes on after
// another, a restart and a close.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cut/epoch_log.h"
#include "cut/folding.h"
#include "format/layout.h"
#include "platform/real_platform.h"
#include "testing/disk/forwarding_files.h"
#include "tests/support/file_limit.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

// A pool stores nothing where the marks lie.
static_assert(layout::kMarkStride == layout::kHeaderBytes);
static_assert(sizeof(layout::Header) <= layout::kMarkOffset);
static_assert(layout::kMarkOffset + sizeof(layout::BaseMark) <= layout::kBatchLog);

constexpr std::uint64_t kBytes = 8 << 20;
constexpr LogShape kShape{.segment_bytes = 4 << 20, .batch = 8192};
using Log = EpochLog;
using Reader = LogReader;

class LogFiles : public ::testing::Test {
 protected:
  LogFiles() : pool_(kBytes / kLine) {
    std::filesystem::create_directory(folder_.str());
    base_ = must(files_.open(base_path_, FileSystem::Open::fresh));
    must(files_.allocate(base_, 0, kBytes / 2));
  }
  ~LogFiles() override { files_.close(base_); }

  // Not where the marks lie.
  void store(std::uint64_t line) {
    const std::uint64_t offset = line % (kPage / kLine);
    if (line < 2 * kPage / kLine && offset >= 48 && offset < 56) return;
    for (std::uint64_t& word : pool_[line].words) word = random_();
    dirty_.insert(line);
  }
  Status try_cut(Log& log) {
    std::uint32_t count = 0;
    for (const std::uint64_t line : dirty_) {
      if (count++ % kShape.batch == 0) {
        if (Status s = log.make_room(); !s.ok()) return s;
      }
      log.add(line, pool_[line]);
    }
    Status s = log.commit(kBytes, ++clock_);
    if (s.ok()) dirty_.clear();
    return s;
  }
  void cut(Log& log) { must(try_cut(log)); }
  void epochs(Log& log, int count) {
    for (int i = 0; i < count; ++i) {
      const std::uint64_t stores = i % 3 == 0 ? 50'000 : 100;
      for (std::uint64_t k = 0; k < stores; ++k) store(random_() % pool_.size());
      cut(log);
    }
  }
  // The base with the epochs of the log that count.
  std::vector<LineWords> restored(Reader* reader) {
    std::vector<LineWords> pool(kBytes / kLine);
    (void)must(files_.read(base_, pool.data(), kBytes, 0));
    const layout::BaseMark none{};
    for (const std::uint64_t copy : {0, 1})
      std::memcpy(
          reinterpret_cast<char*>(pool.data()) + copy * layout::kMarkStride + layout::kMarkOffset,
          &none, sizeof(none));
    if (reader == nullptr) return pool;
    must(reader->replay(
        [&](std::uint64_t line, const LineWords& content) { pool[line] = content; }));
    return pool;
  }
  bool same(const std::vector<LineWords>& pool) const {
    return std::memcmp(pool.data(), pool_.data(), kBytes) == 0;
  }
  // A small piece: a fold has several.
  Status fold(Log& log) {
    Folding folding(files_, base_, base_path_, log_path_, log, 100);
    return folding.fold_all(copy_);
  }
  std::size_t names() const {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(log_path_)) ++n;
    return n;
  }
  std::uint64_t bytes_on_disk() const {
    std::uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(log_path_))
      bytes += entry.file_size();
    return bytes;
  }

  RealFileSystem files_;
  TempPath folder_;
  std::string base_path_ = folder_.str() + "/base";
  std::string log_path_ = folder_.str() + "/log";
  FileSystem::File base_ = -1;
  std::vector<LineWords> pool_;
  std::set<std::uint64_t> dirty_;
  std::mt19937_64 random_{5};
  std::uint64_t clock_ = 0;
  std::function<Expected<bool>(std::uint64_t, std::byte*)> copier_ = [this](std::uint64_t page,
                                                                            std::byte* to) {
    std::memcpy(to, pool_.data() + page * (kPage / kLine), kPage);
    return true;
  };
  PageContent copy_{copier_};
};

TEST_F(LogFiles, SegmentsGrow) {
  const std::uint8_t id[16] = {1};
  Log log(files_, base_, log_path_, folder_.str(), kShape);
  must(log.read_marks());
  must(log.begin(id));
  std::vector<std::uint64_t> sizes;
  while (sizes.size() < 5) {
    for (int i = 0; i < 100; ++i) store(random_() % pool_.size());
    cut(log);
    const std::uint64_t all = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
    if (log.bytes() > all) sizes.push_back(log.bytes() - all);
  }
  EXPECT_EQ(sizes, (std::vector<std::uint64_t>{1 << 20, 1 << 20, 2 << 20, 4 << 20, 4 << 20}));
  EXPECT_EQ(bytes_on_disk(), log.bytes());
  EXPECT_EQ(log.used_bytes(), log.bytes());
  // The base has all: the segment that is written stays, and one for the next.
  must(fold(log));
  EXPECT_EQ(log.bytes(), std::uint64_t{8} << 20);
  EXPECT_EQ(log.used_bytes(), std::uint64_t{4} << 20);
}

// From some moment on no file becomes longer than so many bytes.
class LittleSpace final : public disk::ForwardingFiles {
 public:
  explicit LittleSpace(FileSystem& files) noexcept : ForwardingFiles(files) {}
  Status allocate(File file, std::uint64_t at, std::uint64_t n) noexcept override {
    if (at + n > most_ && must(files_.size(file)) < at + n) return StatusCode::pool_full;
    return files_.allocate(file, at, n);
  }
  void begin(std::uint64_t most) { most_ = most; }

 private:
  std::uint64_t most_ = ~std::uint64_t{0};
};

// The next segment should be longer.
TEST_F(LogFiles, WithLittleSpaceASegmentIsAsLongAsItCanBe) {
  const std::uint8_t id[16] = {1};
  LittleSpace files(files_);
  must(files_.allocate(base_, 0, kBytes));
  Log log(files, base_, log_path_, folder_.str(), kShape);
  must(log.read_marks());
  must(log.begin(id));
  const auto cut_until = [&](std::uint64_t bytes) {
    for (int cuts = 0; log.bytes() < bytes && cuts < 1000; ++cuts) {
      for (int i = 0; i < 100; ++i) store(random_() % pool_.size());
      cut(log);
    }
  };
  cut_until(2_MiB);  // 1 and 1
  files.begin(1_MiB);
  cut_until(3_MiB);
  EXPECT_EQ(log.bytes(), 3_MiB) << "a new one";
  must(fold(log));
  EXPECT_EQ(log.bytes(), 2_MiB) << "the last one, and one for the next";
  files.begin(0);
  for (int folds = 0; folds < 3; ++folds) {
    for (int cuts = 0; log.used_bytes() < 2_MiB && cuts < 1000; ++cuts) {
      for (int i = 0; i < 100; ++i) store(random_() % pool_.size());
      cut(log);
    }
    EXPECT_EQ(log.bytes(), 2_MiB) << "the free one";
    must(fold(log));
  }
}

// A disk with little space. As ext4, it gives a file what it has before it says that it is full.
class FullDisk final : public disk::ForwardingFiles {
 public:
  explicit FullDisk(FileSystem& files) noexcept : ForwardingFiles(files) {}
  Status allocate(File file, std::uint64_t at, std::uint64_t n) noexcept override {
    const std::uint64_t size = must(files_.size(file));
    const std::uint64_t asked = at + n > size ? at + n - size : 0;
    const std::uint64_t given = std::min(free_, asked);
    free_ -= given;
    if (given != 0) must(files_.allocate(file, size, given));
    return given == asked ? Status() : Status(StatusCode::pool_full);
  }
  Status remove(std::string_view path) noexcept override {
    if (auto file = files_.open(path, Open::reading)) {
      free_ += must(files_.size(*file));
      files_.close(*file);
    }
    return files_.remove(path);
  }
  void have(std::uint64_t bytes) { free_ = bytes; }
  void have_more(std::uint64_t bytes) { free_ += bytes; }

 private:
  std::uint64_t free_ = std::uint64_t{1} << 40;
};

class FullDisks : public LogFiles {
 protected:
  enum class Start : std::uint8_t { begun, killed, restarted };
  // A log with two segments and stores that are in no epoch, on a disk that is full.
  void begin(Start start, int stores) {
    must(files_.allocate(base_, 0, kBytes));
    open();
    must(log_->begin({1}));
    while (log_->bytes() < 2_MiB) few();
    must(fold(*log_));
    if (start == Start::restarted) few();
    if (start != Start::begun) go_on(start);
    disk_.have(0);
    for (int i = 0; i < stores; ++i) store(random_() % pool_.size());
  }
  void few() {
    for (int i = 0; i < 100; ++i) store(random_() % pool_.size());
    cut(*log_);
  }
  void open() {
    log_.emplace(disk_, base_, log_path_, folder_.str(), kShape);
    must(log_->read_marks());
  }
  void go_on(Start start) {
    const EpochId durable = log_->durable();
    open();
    const layout::BaseMark mark = log_->marks().mark();
    const bool restarts = start == Start::restarted;
    Reader reader(disk_, log_path_);
    must(reader.scan(mark));
    must(reader.replay([&](std::uint64_t line, const LineWords&) { dirty_.insert(line); }));
    must(log_->go_on(reader,
                     restarts ? EpochId{.epoch = mark.folded, .seal = mark.folded_seal} : durable));
  }
  // As the stream of cuts does.
  Status try_again() {
    if (auto folded = log_->fold_durable(); !folded) return folded.error();
    log_->resume();
    return try_cut(*log_);
  }
  void expect_whole() {
    Reader reader(files_, log_path_);
    must(reader.scan(log_->marks().mark()));
    EXPECT_TRUE(same(restored(&reader)));
    must(fold(*log_));
    must(log_->close());
    EXPECT_TRUE(same(restored(nullptr)));
  }

  FullDisk disk_{files_};
  std::optional<Log> log_;
};

// Little by little is enough once it is enough: no try takes space that the next one cannot use.
TEST_F(FullDisks, EachTryHasTheSpaceOfTheOneBefore) {
  for (const Start start : {Start::begun, Start::killed, Start::restarted}) {
    SCOPED_TRACE(static_cast<int>(start));
    begin(start, 50'000);
    const std::uint64_t before = bytes_on_disk();
    const std::uint64_t lines = dirty_.size() * kLine;
    std::uint64_t freed = 0;
    Status cut = try_cut(*log_);
    EXPECT_EQ(cut, StatusCode::pool_full);
    for (; !cut.ok() && freed < 4 * lines; cut = try_again()) {
      EXPECT_EQ(cut, StatusCode::pool_full);
      EXPECT_EQ(bytes_on_disk(), log_->bytes());
      EXPECT_LE(bytes_on_disk(), before + freed);
      disk_.have_more(512_KiB);
      freed += 512_KiB;
    }
    EXPECT_TRUE(cut.ok()) << freed;
    EXPECT_LE(freed, lines + 2_MiB);
    EXPECT_EQ(bytes_on_disk(), log_->bytes());
    disk_.have(64_MiB);
    expect_whole();
  }
}

// The base has all that it left.
TEST_F(FullDisks, ASegmentOfAProcessBeforeIsUsed) {
  begin(Start::killed, 100);
  cut(*log_);
  expect_whole();
}

// Some writes fail with io for a while.
class FailingParts final : public disk::ForwardingFiles {
 public:
  FailingParts(FileSystem& files, File base) noexcept : ForwardingFiles(files), base_(base) {}
  enum class What : std::uint8_t { nothing, parts, heads, marks };
  void fail(What what) { what_ = what; }
  Status write(File file, const void* bytes, std::size_t n, std::uint64_t at) noexcept override {
    if (what_ == What::parts && file != base_ && n >= kPage) return StatusCode::io;
    return files_.write(file, bytes, n, at);
  }
  Status sync(File file, AnySite site) noexcept override {
    const bool fails = file == base_ ? what_ == What::marks : what_ == What::heads;
    Status s = files_.sync(file, site);
    return fails ? Status(StatusCode::io) : s;
  }

 private:
  const File base_;
  What what_ = What::nothing;
};

TEST_F(LogFiles, TriesThatFailDoNotAddUp) {
  using What = FailingParts::What;
  const std::uint8_t id[16] = {1};
  FailingParts files(files_, base_);
  must(files_.allocate(base_, 0, kBytes));
  Log log(files, base_, log_path_, folder_.str(), kShape);
  must(log.read_marks());
  must(log.begin(id));
  const auto few = [&] {
    for (int i = 0; i < 100; ++i) store(random_() % pool_.size());
  };
  for (const What what : {What::parts, What::heads, What::marks}) {
    SCOPED_TRACE(static_cast<int>(what));
    few();
    cut(log);
    const std::uint64_t before = log.bytes();
    const std::size_t names_before = names();
    files.fail(what);
    few();
    log.resume();  // the next one begins a segment
    for (int tries = 0; tries < 10; ++tries, log.resume()) {
      EXPECT_EQ(try_cut(log), StatusCode::io);
      EXPECT_LE(names(), names_before + 2);
      EXPECT_LE(bytes_on_disk(), before + 8_MiB);
    }
    files.fail(What::nothing);
    cut(log);
    Reader reader(files_, log_path_);
    must(reader.scan(log.marks().mark()));
    EXPECT_TRUE(same(restored(&reader)));
    must(fold(log));
  }
}

// Copies of a pool with its log have the same mark.
TEST(LiveIds, EachFileHasItsOwn) {
  layout::BaseMark mark{};
  fill_random(mark.live.live_id);
  fill_random(mark.log_id);
  const auto id_of = [&](std::uint64_t inode, std::uint64_t file_system) {
    layout::LivePlace place{};
    place.inode = inode;
    place.filesystem_id = file_system;
    derive_live_id(mark, place);
    return std::string(reinterpret_cast<const char*>(place.live_id), sizeof(place.live_id));
  };
  const std::string own = id_of(5, 7);
  EXPECT_EQ(id_of(5, 7), own);
  EXPECT_NE(id_of(6, 7), own);
  EXPECT_NE(id_of(5, 8), own);
  fill_random(mark.live.live_id);
  EXPECT_NE(id_of(5, 7), own);
}

// Segments grow up to the limit of the process, and no call goes beyond it: that would end the
// program.
TEST_F(LogFiles, WithinTheLimitOfTheProcessSegmentsAreAsLongAsTheyCanBe) {
  const std::uint8_t id[16] = {1};
  must(files_.allocate(base_, 0, kBytes));
  Log log(files_, base_, log_path_, folder_.str(), kShape);
  must(log.read_marks());
  must(log.begin(id));
  const FileLimit limit(3_MiB);
  EXPECT_EQ(files_.allocate(base_, kBytes, kPage), StatusCode::pool_full);
  EXPECT_EQ(files_.write(base_, "x", 1, 3_MiB), StatusCode::pool_full);
  while (log.bytes() < 10_MiB) {
    for (int i = 0; i < 100; ++i) store(random_() % pool_.size());
    cut(log);
  }
  std::uintmax_t longest = 0;
  for (const auto& entry : std::filesystem::directory_iterator(log_path_))
    longest = std::max(longest, entry.file_size());
  EXPECT_EQ(longest, 2_MiB);
}

// The first segment has room for the first part, however long that is.
TEST_F(LogFiles, ALongPartGetsALongSegment) {
  const std::uint8_t id[16] = {1};
  Log log(files_, base_, log_path_, folder_.str(), kShape);
  must(log.read_marks());
  must(log.begin(id));
  for (int i = 0; i < 50'000; ++i) store(random_() % pool_.size());
  cut(log);
  EXPECT_GE(log.bytes(), std::uint64_t{2} << 20);
  Reader reader(files_, log_path_);
  must(reader.scan(log.marks().mark()));
  EXPECT_TRUE(same(restored(&reader)));
}

TEST_F(LogFiles, GoesOnRestartsAndCloses) {
  const std::uint8_t id[16] = {1};
  EpochId durable;
  {
    Log log(files_, base_, log_path_, folder_, kShape);
    must(log.read_marks());
    EXPECT_TRUE(log.marks().none());
    must(log.begin(id));
    epochs(log, 5);
    must(fold(log));
    EXPECT_TRUE(same(restored(nullptr)));
    EXPECT_LE(names(), 2);  // that which is written, and a spare one
    epochs(log, 4);
    durable = log.durable();
  }
  {  // after a kill
    Log log(files_, base_, log_path_, folder_, kShape);
    must(log.read_marks());
    Reader reader(files_, log_path_);
    must(reader.scan(log.marks().mark()));
    EXPECT_EQ(reader.end().epoch, durable.epoch);
    EXPECT_EQ(reader.end().unix_ns, clock_);
    EXPECT_TRUE(same(restored(&reader)));
    must(log.go_on(reader, durable));
    epochs(log, 4);
    must(log.confirm(0));
  }
  {  // after a restart of the machine
    Log log(files_, base_, log_path_, folder_, kShape);
    must(log.read_marks());
    const layout::BaseMark mark = log.marks().mark();
    Reader reader(files_, log_path_);
    must(reader.scan(mark));
    EXPECT_TRUE(same(restored(&reader)));
    must(reader.replay([&](std::uint64_t line, const LineWords&) { dirty_.insert(line); }));
    must(log.go_on(reader, {.epoch = mark.folded, .seal = mark.folded_seal}));
    EXPECT_EQ(fold(log), StatusCode::invalid_argument);  // no epoch has them
    EXPECT_EQ(log.close(), StatusCode::invalid_argument);
    cut(log);
    EXPECT_EQ(log.close(), StatusCode::invalid_argument);
    must(fold(log));
    must(log.close());
    EXPECT_TRUE(same(restored(nullptr)));
    EXPECT_FALSE(std::filesystem::exists(log_path_));
    EXPECT_EQ(log.commit(kBytes, 0), StatusCode::invalid_argument);
  }
  Log log(files_, base_, log_path_, folder_, kShape);
  must(log.read_marks());
  EXPECT_EQ(log.marks().mark().state, layout::BaseState::closed);
  EXPECT_GT(log.marks().mark().folded, durable.epoch);
}

// 64 lines or more of an epoch cost at most twice their bytes.
TEST_F(LogFiles, WritesLittleMoreThanTheLines) {
  const std::uint8_t id[16] = {2};
  Log log(files_, base_, log_path_, folder_, kShape);
  must(log.read_marks());
  must(log.begin(id));
  for (const std::uint64_t lines : {64, 1'000, 20'000}) {
    dirty_.clear();
    while (dirty_.size() < lines) store(random_() % pool_.size());
    const std::uint64_t before = log.written();
    cut(log);
    EXPECT_LE(log.written() - before, 2 * kLine * lines) << lines;
    std::printf("%llu lines: %.2f times their bytes\n", static_cast<unsigned long long>(lines),
                static_cast<double>(log.written() - before) / static_cast<double>(kLine * lines));
  }
}

}  // namespace
}  // namespace perdure::test
