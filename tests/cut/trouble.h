// A disk that is slow, full, or on which a call fails, and pools with durability `buffered` on it.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "pool/pool_impl.h"
#include "testing/disk/forwarding_files.h"
#include "tests/support/buffered_files.h"
#include "tests/support/support.h"

namespace perdure::test {

using detail::PoolImpl;

// Real files. The n-th call that changes something fails, and all later ones of this process too
// (as if it was killed), or only this one.
class Disk final : public disk::ForwardingFiles {
 public:
  Disk() noexcept : ForwardingFiles(real_) {}
  void fail_at(std::uint64_t n, bool for_good) {
    failing_ = n;
    for_good_ = for_good;
    calls_ = 0;
  }
  void be_slow(std::uint32_t us) { us_ = us; }
  // Files that are there keep their space.
  void be_full(bool full) { full_ = full; }
  // Writes to the file at this path fail, but for marks; "": none.
  void break_file(const std::string& path) { broken_ = path.empty() ? 0 : inode_of(path); }
  // They wait until it is another file.
  void hold_file(const std::string& path) { held_ = path.empty() ? 0 : inode_of(path); }
  // Calls `then` in the n-th sync from now on.
  void in_sync(unsigned n, std::function<void()> then) {
    then_ = std::move(then);
    syncs_ = n;
  }
  std::uint64_t calls() const { return calls_; }
  bool has_failed() const { return failing_ != 0 && calls_ >= failing_; }

  Expected<File> open(std::string_view path, Open how) noexcept override {
    if (how == Open::fresh && fails()) return fail(error());
    return files_.open(path, how);
  }
  Status write(File file, const void* bytes, std::size_t n, std::uint64_t at) noexcept override {
    while (held_ != 0 && n >= kPage && inode_of(file) == held_) ::usleep(1000);
    if (broken_ != 0 && n >= kPage && inode_of(file) == broken_) return error();
    if (watched_ != 0 && inode_of(file) == watched_) most_ = std::max(most_, unsynced_ += n);
    return fails() ? error() : files_.write(file, bytes, n, at);
  }
  Status allocate(File file, std::uint64_t at, std::uint64_t n) noexcept override {
    if (full_ && must(files_.size(file)) < at + n) {
      return Status::format(StatusCode::pool_full, "planted: no space");
    }
    return fails() ? error() : files_.allocate(file, at, n);
  }
  Status punch(File file, std::uint64_t at, std::uint64_t n) noexcept override {
    return fails() ? error() : files_.punch(file, at, n);
  }
  // From here on: the most bytes that were written to it between two syncs.
  void watch_file(const std::string& path) {
    most_ = unsynced_ = 0;
    watched_ = inode_of(path);
  }
  std::uint64_t most_unsynced() const { return most_; }
  Status sync(File file, AnySite site) noexcept override {
    if (us_ != 0) ::usleep(us_);
    if (watched_ != 0 && inode_of(file) == watched_) unsynced_ = 0;
    if (syncs_ != 0 && --syncs_ == 0) then_();
    return fails() ? error() : files_.sync(file, site);
  }
  Status rename(std::string_view from, std::string_view to) noexcept override {
    return fails() ? error() : files_.rename(from, to);
  }
  Status remove(std::string_view path) noexcept override {
    return fails() ? error() : files_.remove(path);
  }
  Status make_folder(std::string_view path) noexcept override {
    return fails() ? error() : files_.make_folder(path);
  }
  Status remove_folder(std::string_view path) noexcept override {
    return fails() ? error() : files_.remove_folder(path);
  }
  Status sync_folder(std::string_view path, AnySite site) noexcept override {
    return fails() ? error() : files_.sync_folder(path, site);
  }

 private:
  RealFileSystem real_;
  bool fails() noexcept {
    const std::uint64_t call = ++calls_;
    return failing_ != 0 && (for_good_ ? call >= failing_ : call == failing_);
  }
  static Status error() { return Status::format(StatusCode::io, "planted"); }
  static ino_t inode_of(const std::string& path) {
    struct stat info{};
    return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
  }
  static ino_t inode_of(File file) {
    struct stat info{};
    return ::fstat(file, &info) == 0 ? info.st_ino : 0;
  }

  std::atomic<std::uint64_t> calls_{0};
  std::uint64_t failing_ = 0;
  bool for_good_ = false;
  std::atomic<std::uint32_t> us_{0};
  std::atomic<bool> full_{false};
  std::atomic<ino_t> broken_{0};
  std::atomic<ino_t> held_{0};
  std::atomic<ino_t> watched_{0};
  std::uint64_t most_ = 0, unsynced_ = 0;
  unsigned syncs_ = 0;
  std::function<void()> then_;
};

class Trouble : public BufferedFiles {
 protected:
  static PoolOptions options(std::uint32_t interval_ms = 3'600'000) {
    return {.durability = Durability::buffered,
            .buffered = {.interval_ms = interval_ms},
            .max_size = 4_MiB,
            .recovery_threads = 1,
            .background_threads = interval_ms == 3'600'000 ? 0U : 1U};
  }
  // Bytes of the files of the log.
  std::uint64_t log_size() const {
    std::uint64_t bytes = 0;
    std::error_code gone;
    for (const fs::directory_entry& file : fs::directory_iterator(path() + "-log", gone)) {
      const std::uint64_t size = file.file_size(gone);
      if (!gone) bytes += size;
    }
    return bytes;
  }
  // The next process finds the last of `n` puts of put_until().
  void close_and_expect(Pool& pool, std::uint64_t n);

  const std::string path_ = path();
  Disk disk_;
};

inline PoolOptions larger(std::uint64_t log_bytes = 0) {
  return {.durability = Durability::buffered,
          .buffered = {.interval_ms = 2, .log_bytes = log_bytes},
          .max_size = 60_MiB,
          .recovery_threads = 1};
}
inline constexpr std::uint64_t kMany = 20'000;  // keys
// Puts until the condition holds, and returns their number. All of them have to be acknowledged.
template <class M, class F>
std::uint64_t put_until(M& map, std::uint64_t from, F&& over) {
  for (std::uint64_t i = from;; ++i) {
    must(map.put(i % kMany, i));
    if (i % 512 == 0 && over()) return i + 1;
  }
}

template <class M>
void expect_last_of(M& map, std::uint64_t n) {
  for (std::uint64_t i = n - std::min(n, kMany); i < n; ++i) {
    ASSERT_EQ(must(map.get(i % kMany)), std::optional(i)) << n;
  }
}

inline void Trouble::close_and_expect(Pool& pool, std::uint64_t n) {
  must(pool.close());
  Pool again = must(Pool::open(path_, {}));
  auto map = later(again);
  expect_last_of(map, n);
  expect_sound(again);
}

}  // namespace perdure::test
