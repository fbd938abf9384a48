// Live images that a killed process has left, and what they were at moments of its life. Shared by
// the suites that open them changed.
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cut/live_chunks.h"
#include "platform/dirty_log.h"
#include "platform/file_storage.h"
#include "tests/support/buffered_files.h"
#include "tests/support/inject.h"

namespace perdure::test {

using Content = std::map<std::uint64_t, std::string>;
// What records became since the last sync(); without a value: erased.
using SinceSync = std::map<std::uint64_t, std::vector<std::optional<std::string>>>;

// What a process does with its pool. Without a pool: what a pool must have after it.
class Deeds {
 public:
  explicit Deeds(Pool* pool, std::string folder = "") : pool_(pool), folder_(std::move(folder)) {
    if (pool_ != nullptr) map_.emplace(records_of(*pool_));
  }
  static Map<std::uint64_t, Bytes> records_of(Pool& pool) {
    return must(pool.map<std::uint64_t, Bytes>("records", small_map()));
  }
  static bool try_put(Pool& pool) {
    auto records = pool.map<std::uint64_t, Bytes>("records", small_map());
    return records && records->put(0, "0").ok();
  }
  void put(std::uint64_t from, std::uint64_t to, std::uint64_t round) {
    for (std::uint64_t key = from; key < to; ++key) {
      std::string value = std::to_string(key) + ":" + std::to_string(round);
      store(key, value.append(mix(key + round) % 700, 'v'));
    }
  }
  // Values that take extents of their own.
  void put_large(std::uint64_t from, std::uint64_t to, char c) {
    for (std::uint64_t key = from; key < to; ++key) store(key, std::string(30'000, c));
  }
  void erase(std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t key = from; key < to; ++key) {
      content_.erase(key);
      since_sync_[key].emplace_back();
      if (map_) must(map_->erase(key));
    }
  }
  void sync() {
    if (pool_ != nullptr) must(pool_->sync());
    set_synced();
  }
  void fold() {
    if (pool_ != nullptr) must(pool_->fold_log());
    set_synced();
  }
  void compact() {
    if (pool_ != nullptr) (void)must(pool_->compact());
    set_synced();
  }
  // Keeps the live image as it is now.
  void copy_image() {
    const std::string to = folder_ + "-moments/" + std::to_string(moments_++);
    if (pool_ == nullptr) return;
    fs::copy_file(folder_ + "/pool-live", to);
    fs::copy_file(folder_ + "/pool-live-dirty", to + "-dirty");
  }
  void take(const Content& content) { content_ = synced_ = content; }
  const SinceSync& since_sync() const { return since_sync_; }
  const Content& content() const { return content_; }
  const Content& synced() const { return synced_; }
  std::size_t moments() const { return moments_; }

 private:
  void store(std::uint64_t key, const std::string& value) {
    content_[key] = value;
    since_sync_[key].emplace_back(value);
    if (map_) must(map_->put(key, value));
  }
  void set_synced() {
    synced_ = content_;
    since_sync_.clear();
  }

  Pool* pool_;
  std::string folder_;
  std::optional<Map<std::uint64_t, Bytes>> map_;
  Content content_, synced_;
  SinceSync since_sync_;
  std::size_t moments_ = 0;
};
using Work = std::function<void(Deeds&)>;

// The two files of a live image.
struct ImageFiles {
  std::string image, dirty;

  bool operator==(const ImageFiles&) const = default;
  layout::LiveHead head() const {
    layout::LiveHead head;
    std::memcpy(&head, image.data() + layout::kMarkOffset, sizeof(head));
    return head;
  }
  void set_head(layout::LiveHead head) {
    head.crc = layout::live_head_crc(head);
    std::memcpy(image.data() + layout::kMarkOffset, &head, sizeof(head));
  }
  bool is_live(std::uint64_t at) const {
    const layout::LiveHead now = head();
    const std::uint64_t chunk = at / now.chunk_bytes;
    return at >= now.covered || (now.live[chunk / 64] >> chunk % 64 & 1) != 0;
  }
  // A page of another moment. What the file did not have then is zero.
  static void put_page(std::string& to, const std::string& from, std::uint64_t page) {
    const std::uint64_t at = page * kPage;
    const std::uint64_t n = std::min<std::uint64_t>(kPage, to.size() - at);
    const std::uint64_t there = from.size() > at ? std::min(n, from.size() - at) : 0;
    std::memcpy(to.data() + at, from.data() + at, there);
    std::memset(to.data() + at + there, 0, n - there);
  }
  // The lines that the next process takes for dirty; `max_bytes` of the pool.
  std::vector<bool> dirty_lines(std::uint64_t max_bytes) const {
    const TempPath copy("dirty");
    write_bytes(copy, dirty);
    FileStorage file;
    must(file.open(copy, FileStorage::Access::owner));
    must(file.map(DirtyLog<RealPlatform>::bytes_for(max_bytes)));
    DirtyLog<RealPlatform> log(file, max_bytes);
    std::vector<bool> lines(image.size() / kLine);
    if (!log.inherit().ok()) return lines;
    for (std::uint64_t line = 0; line < lines.size(); ++line) lines[line] = log.has(line);
    return lines;
  }
};

// A pool of some chunks that a process has left, with all its files.
class LeftImages : public BufferedFiles {
 protected:
  static constexpr std::uint64_t kRecords = 1'800;
  static constexpr std::uint64_t kMaxBytes = 8_MiB;

  // In memory, which is faster than a disk, and looks like one.
  explicit LeftImages(bool in_memory = true) {
    if (!in_memory) return;
    fs::remove_all(folder_);
    folder_ = (scratch_dir() / ("perdure-test-" + std::to_string(::getpid()) + "-left")).string();
    fs::create_directory(folder_);
    pretend({.file_system = kXfs});
  }
  ~LeftImages() override {
    pretend({});
    std::error_code ignored;
    fs::remove_all(folder_ + "-moments", ignored);
  }
  // Nothing happens by itself.
  static PoolOptions by_hand() {
    PoolOptions options = buffered(3'600'000);
    options.max_size = kMaxBytes;
    options.background_threads = 0;
    return options;
  }
  static PoolOptions accepting() {
    PoolOptions options = by_hand();
    options.accept_untrusted = true;
    return options;
  }
  // A closed pool. Its header says `process`.
  void make_closed() {
    PoolOptions first = by_hand();
    first.durability = Durability::process;
    Pool pool = must(Pool::open(path(), first));
    Deeds deeds(&pool);
    deeds.put(0, kRecords, 0);
    must(pool.close());
    before_ = deeds.content();
  }
  // A process goes on with the pool, and is killed after the work.
  void leave(const Work& work) {
    fs::remove_all(folder_ + "-moments");
    fs::create_directory(folder_ + "-moments");
    in_killed_process(
        [&](Pool& pool) {
          Deeds deeds(&pool, folder_);
          work(deeds);
        },
        by_hand());
    Deeds model(nullptr);
    model.take(before_);
    work(model);
    content_ = before_ = model.content();
    synced_ = model.synced();
    since_sync_ = model.since_sync();
    moments_.clear();
    for (std::size_t i = 0; i < model.moments(); ++i)
      moments_.push_back(read_image(folder_ + "-moments/" + std::to_string(i)));
    keep();
  }
  static ImageFiles read_image(const std::string& at) {
    return {.image = read_bytes(at), .dirty = read_bytes(at + "-dirty")};
  }
  void write_image(const ImageFiles& files) const {
    write_bytes(path("pool-live"), files.image);
    write_bytes(path("pool-live-dirty"), files.dirty);
  }

  // --- all files ---
  using Files = std::map<std::string, std::string>;
  Files read_files() const {
    Files files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (!entry.is_regular_file()) continue;
      files[fs::relative(entry.path(), folder_)] = read_bytes(entry.path());
    }
    return files;
  }
  void keep_base() { left_ = read_files(); }
  void keep() {
    keep_base();
    image_ = read_image(path("pool-live"));
  }
  // The base keeps its inode.
  void put_back() const {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      if (!left_.contains(name) && name != "pool-log") fs::remove_all(entry.path());
    }
    fs::create_directory(path("pool-log"));
    fs::permissions(path("pool-log"), fs::perms::owner_all);
    for (const auto& entry : fs::directory_iterator(path("pool-log"))) {
      if (!left_.contains("pool-log/" + entry.path().filename().string())) fs::remove(entry.path());
    }
    for (const auto& [name, bytes] : left_) write_bytes(path(name), bytes);
  }
  // Without the live image.
  static Files durable_files(Files files) {
    std::erase_if(files, [](const auto& file) { return file.first.starts_with("pool-live"); });
    return files;
  }

  // Returns what is wrong with a pool that is open. `or_since`: what records may have instead.
  static std::string wrong(Pool& pool, const Content& right, const SinceSync& or_since = {}) {
    auto records = pool.map<std::uint64_t, Bytes>("records", small_map());
    if (!records) return describe(records.error());
    for (std::uint64_t key = 0; key < kRecords; ++key) {
      const auto got = records->get(key);
      if (!got) return describe(got.error());
      const auto at = right.find(key);
      const auto since = or_since.find(key);
      const bool is_right =
          got->has_value() ? at != right.end() && **got == at->second : at == right.end();
      if (is_right) continue;
      if (since == or_since.end() || std::ranges::count(since->second, *got) == 0)
        return "record " + std::to_string(key);
    }
    return unsound(pool);
  }
  static std::string unsound(Pool& pool) {
    const auto report = pool.check({.deep = true});
    if (!report) return describe(report.error());
    return report->ok() ? "" : std::string(report->first());
  }
  std::string wrong_after_open(const Content& right, const PoolOptions& options = by_hand()) {
    auto pool = Pool::open(path(), options);
    if (!pool) return describe(pool.error());
    std::string wrong_content = wrong(*pool, right);
    if (const Status s = pool->close(); !s.ok()) return describe(s);
    return wrong_content;
  }
  std::size_t images_aside() const {
    std::size_t n = 0;
    for (const auto& entry : fs::directory_iterator(folder_))
      n += entry.path().filename().string().starts_with("pool-live.unknown-") ? 1 : 0;
    return n;
  }

  Content before_, content_, synced_;
  SinceSync since_sync_;
  std::vector<ImageFiles> moments_;
  Files left_;
  ImageFiles image_;
};

}  // namespace perdure::test
