// test: tsan, three engines, nightly
// Power failures of a whole pool with durability `buffered`, whose base and log are on a simulated
// disk. The power fails at every call, and again during the recovery: the pool opens as it was at
// one cut, not older than the last one that sync() returned for, and can be used and closed. Each
// engine.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pool/pool_impl.h"
#include "testing/disk/disk_explorer.h"
#include "testing/disk/forwarding_files.h"
#include "tests/support/engines.h"
#include "tests/support/other_boot.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using detail::PoolImpl;
using disk::DiskExploration;
using disk::DiskReport;
using disk::SimFileSystem;

using Content = std::map<std::uint64_t, std::string>;

PoolOptions options() {
  return {.durability = Durability::buffered,
          .buffered = {.interval_ms = 3'600'000},
          .max_size = 4_MiB,
          .recovery_threads = 1,
          .background_threads = 0};
}

// A simulated file system in which the pool has the name "pool", whatever its path is.
class Named final : public disk::ForwardingFiles {
 public:
  Named(SimFileSystem& files, const std::string& path) : ForwardingFiles(files), path_(path) {
    folder_ = path.substr(0, path.rfind('/'));
  }
  Expected<File> open(std::string_view p, Open how) noexcept override {
    return files_.open(name(p), how);
  }
  Expected<File> borrow(std::string_view p, int descriptor) noexcept override {
    return files_.borrow(name(p), descriptor);
  }
  Status hold(std::string_view p, bool alone) noexcept override {
    return files_.hold(name(p), alone);
  }
  Status rename(std::string_view from, std::string_view to) noexcept override {
    return files_.rename(name(from), name(to));
  }
  Status remove(std::string_view p) noexcept override { return files_.remove(name(p)); }
  Status make_folder(std::string_view p) noexcept override { return files_.make_folder(name(p)); }
  Status remove_folder(std::string_view p) noexcept override {
    return files_.remove_folder(name(p));
  }
  Status sync_folder(std::string_view p, AnySite site) noexcept override {
    return files_.sync_folder(name(p), site);
  }
  Status list(std::string_view p, FunctionRef<void(std::string_view)> visit) noexcept override {
    return files_.list(name(p), visit);
  }

 private:
  std::string name(std::string_view p) const {
    if (p == folder_) return ".";
    if (p.starts_with(path_)) return "pool" + std::string(p.substr(path_.size()));
    return std::string(p);
  }
  std::string path_, folder_;
};

// The real file at a path is only locked.
class Place {
 public:
  Place() : path_("power") { write_bytes(path_, "locked"); }
  const std::string& path() const { return path_; }
  ~Place() {
    for (const char* suffix : {"-live", "-live-dirty"}) ::unlink((path_ + suffix).c_str());
  }

 private:
  TempPath path_;
};

// After a power failure the marks are of another boot. The file at `path` stands for the base.
void restart_machine(SimFileSystem& files, const std::string& path) {
  struct stat info{};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  set_clock_of_image(path + "-live");
  const auto base = must(files.open("pool", FileSystem::Open::existing));
  for (std::uint64_t i = 0; i < 2; ++i) {
    const std::uint64_t at = i * layout::kMarkStride + layout::kMarkOffset;
    layout::BaseMark mark{};
    (void)must(files.read(base, &mark, sizeof(mark), at));
    if (!put_into_other_boot(mark)) continue;
    mark.live.inode = info.st_ino;
    mark.crc = layout::mark_crc(mark);
    must(files.write(base, &mark, sizeof(mark), at));
  }
  must(files.sync(base, kNoSite));
}

MapOptions map_options() {
  return {.engine = chosen_engine().engine, .phast = {.partition_bits = 0}};
}

class Power {
 public:
  // `before`: in which mode the base was open the last time. It keeps its marks, or has none.
  explicit Power(Durability before = Durability::buffered, bool marked = true) {
    const std::string path = on_disk("-power");
    PoolOptions first = options();
    first.durability = before;
    {
      Pool pool = must(Pool::open(path, first));
      must(pool.map<std::uint64_t, std::string_view>("map", map_options()));
      must(pool.close());
    }
    empty_ = read_bytes(path);
    ::unlink(path.c_str());
    for (std::uint64_t i = 0; i < 2 && !marked; ++i) {
      std::memset(empty_.data() + i * layout::kMarkStride + layout::kMarkOffset, 0,
                  sizeof(layout::BaseMark));
    }
  }

  const std::string& empty() const { return empty_; }  // the base that work() begins with
  // What the process does. Every call of the disk may be the last before the power fails.
  void work(SimFileSystem& files) {
    const Place place;
    Named named(files, place.path());
    const auto base = must(files.open("pool", FileSystem::Open::fresh));
    // As a copy that was just made: its content is in the page cache only.
    must(files.write(base, empty_.data(), empty_.size(), 0));
    must(files.sync_folder(".", kNoSite));
    cuts_.assign(1, {});
    durable_ = 0;
    for (int process = 0; process < 2; ++process) {
      Pool pool = must(PoolImpl::open_in(named, place.path(), options()));
      auto map = must(pool.map<std::uint64_t, std::string_view>("map", map_options()));
      Content content = cuts_.back();
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        change(map, content, process * kSteps + step);
        if (step % 40 == 39 || step < 2) cut(pool, content);
        if (step == 30) come_and_go(pool, map, content);
        // The state at the fold becomes durable.
        if (step % 70 == 60) {
          cuts_.push_back(content);
          must(pool.fold_log());
          durable_ = cuts_.size() - 1;
        }
      }
      cuts_.push_back(content);
      must(pool.close());
      durable_ = cuts_.size() - 1;
    }
  }

  // Returns what is wrong with the image. While it recovers and goes on, the power may fail again.
  std::string judge(SimFileSystem& image) {
    if (!has_begun(image)) return {};
    const std::vector<Content> cuts = cuts_;
    const std::size_t durable = durable_;
    ++depth_;
    std::string wrong = go_on(image);
    --depth_;
    cuts_ = cuts;
    durable_ = durable;
    return wrong;
  }

 private:
  static constexpr std::uint64_t kSteps = 160;
  static constexpr std::uint64_t kKeys = 90, kAllKeys = 96;
  static constexpr std::uint64_t kLater = 500, kEnd = 530;  // steps after a recovery

  // Before that nothing is promised: the base need not have its content.
  bool has_begun(SimFileSystem& image) {
    auto base = image.open("pool", FileSystem::Open::existing);
    BaseMarks marks(image, base ? *base : -1);
    begun_ = begun_ || (base && marks.read().ok() && marks.mark().state == layout::BaseState::open);
    return begun_;
  }

  std::string go_on(SimFileSystem& image) {
    const Place place;
    restart_machine(image, place.path());
    Named named(image, place.path());
    Content content;
    {
      auto pool = PoolImpl::open_in(named, place.path(), options());
      if (!pool) return "does not open: " + describe(pool.error());
      auto map = must(pool->map<std::uint64_t, std::string_view>("map", map_options()));
      content = content_of(map);
      if (std::string wrong = is_a_cut(content); !wrong.empty()) return wrong;
      const CheckReport report = must(pool->check({.deep = true}));
      if (!report.ok()) return std::string(report.first());
      for (std::uint64_t step = kLater; step < kLater + 20; ++step) change(map, content, step);
      cut(*pool, content);
      for (std::uint64_t step = kLater + 20; step < kEnd; ++step) change(map, content, step);
      cuts_.push_back(content);
      must(pool->close());
      durable_ = cuts_.size() - 1;
    }
    Pool pool = must(PoolImpl::open_in(named, place.path(), options()));
    auto map = must(pool.map<std::uint64_t, std::string_view>("map", map_options()));
    return content_of(map) == content ? "" : "after a close it is another pool";
  }

  static void change(Content& content, std::uint64_t step) {
    const std::uint64_t key = mix(step) % kKeys;
    if (step % 4 == 3) {
      content.erase(key);
    } else {
      content[key] = std::to_string(step) + std::string(mix(step) % 300, 'v');
    }
  }
  template <class M>
  static void change(M& map, Content& content, std::uint64_t step) {
    const std::uint64_t key = mix(step) % kKeys;
    change(content, step);
    if (content.contains(key)) {
      must(map.put(key, content[key]));
    } else {
      (void)must(map.erase(key));
    }
  }
  // Large values, whose extents are then given back, also in the base.
  template <class M>
  void come_and_go(Pool& pool, M& map, Content& content) {
    for (std::uint64_t key = kKeys; key < kAllKeys; ++key) {
      content[key] = std::string(20'000 + key, 'l');
      must(map.put(key, content[key]));
    }
    cut(pool, content);
    for (std::uint64_t key = kKeys; key < kAllKeys; ++key) {
      content.erase(key);
      (void)must(map.erase(key));
    }
    cuts_.push_back(content);
    (void)must(pool.compact());
    durable_ = cuts_.size() - 1;
  }
  void cut(Pool& pool, const Content& content) {
    cuts_.push_back(content);
    must(pool.sync());
    durable_ = cuts_.size() - 1;
  }
  template <class M>
  static Content content_of(M& map) {
    Content content;
    for (std::uint64_t key = 0; key < kAllKeys; ++key) {
      if (auto value = must(map.get(key))) content[key] = *value;
    }
    return content;
  }
  std::string is_a_cut(const Content& content) const {
    for (std::size_t i = durable_; i < cuts_.size(); ++i) {
      if (cuts_[i] == content) return {};
      // The power failed at the end of a recovery, which had gone on.
      Content later = cuts_[i];
      for (std::uint64_t step = kLater; depth_ == 1 && step < kEnd; ++step) change(later, step);
      if (later == content) return {};
    }
    for (std::size_t i = 0; i < durable_; ++i) {
      if (cuts_[i] == content) {
        return "cut " + std::to_string(i) + ", but " + std::to_string(durable_) + " was durable";
      }
    }
    return "is no cut: " + std::to_string(content.size()) + " entries";
  }

  std::string empty_;
  std::vector<Content> cuts_;
  std::size_t durable_ = 0;  // the last in cuts_ that is
  bool begun_ = false;       // a mark has been durable that says "open"
  unsigned depth_ = 0;       // of failures during a recovery
};

// A copy that was just made is in the page cache only. It must be durable before a mark, which is
// in one of its sectors, can say "open".
void expect_durable_when_open(Durability before, bool marked) {
  SimFileSystem files;
  std::uint64_t looked = 0;
  Power power(before, marked);
  files.before_change([&] {
    const auto base = files.open("pool", FileSystem::Open::existing);
    BaseMarks marks(files, base ? *base : -1);
    if (looked != 0 || !base || !marks.read().ok()) return;
    if (marks.mark().state != layout::BaseState::open) return;
    ++looked;
    SimFileSystem durable =
        files.after_power_failure(std::vector<std::uint32_t>(files.undecided().size(), 0));
    std::string bytes(power.empty().size(), '\0');
    const auto kept = must(durable.open("pool", FileSystem::Open::existing));
    EXPECT_EQ(must(durable.read(kept, bytes.data(), bytes.size(), 0)), bytes.size());
    // Headers and marks were written.
    EXPECT_TRUE(bytes.substr(layout::kDirectoryOffset) ==
                power.empty().substr(layout::kDirectoryOffset));
  });
  power.work(files);
  EXPECT_EQ(looked, 1U);
}
TEST(Power, TheBaseIsDurableBeforeItsMarkSaysOpen) {
  for (const Durability before : {Durability::buffered, Durability::process}) {
    SCOPED_TRACE(durability_name(before));
    expect_durable_when_open(before, true);
    expect_durable_when_open(before, false);  // the first open in this mode did not come to a mark
  }
}

TEST(Power, ThePoolIsAsAtACut) {
  Power power;
  const bool thorough = chosen_engine().engine == Engine::phast || at_length();
  const DiskExploration exploration{
      .all_below = thorough ? 8U : 2U,
      .random = static_cast<std::uint32_t>(scaled(40, thorough ? 2 : 1, 1)),
      .alone = static_cast<std::uint32_t>(scaled(20, 1, 1)),
      .second_failure = thorough ? static_cast<std::uint32_t>(scaled(40, 400, 400)) : 0,
      .replay = disk::replayed()};
  const DiskReport report = disk::explore_disk(
      exploration, [&](SimFileSystem& files) { power.work(files); },
      [&](SimFileSystem& image) { return power.judge(image); });
  EXPECT_EQ(report.failures, 0U) << report.first_failure;
  if (!disk::replayed().empty()) return;
  EXPECT_GT(report.images, scaled(300, 150));
  std::printf("%llu points, %llu images, %llu of them of a second failure\n",
              static_cast<unsigned long long>(report.points),
              static_cast<unsigned long long>(report.images),
              static_cast<unsigned long long>(report.second_images));
}

}  // namespace
}  // namespace perdure::test
