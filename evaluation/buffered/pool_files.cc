#include "evaluation/buffered/pool_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "bench/harness/cleanup.h"

namespace perdure::buffered {
namespace {

using paper::must;
using paper::require;

constexpr std::uint64_t kMost = 64_GiB;

// The log of a pool says how long the restore has taken.
void take_restore_ms(void* ms, LogLevel, std::string_view message) {
  constexpr std::string_view kBefore = "restored from its log in ";
  const std::size_t at = message.find(kBefore);
  if (at == std::string_view::npos) return;
  message.remove_prefix(at + kBefore.size());
  std::from_chars(message.data(), message.data() + message.size(), *static_cast<double*>(ms));
}

constexpr std::size_t kBlock = 1_MiB;

std::unique_ptr<void, decltype(&std::free)> make_block() {
  return {std::aligned_alloc(4_KiB, kBlock), &std::free};
}

// Past the page cache. Returns the bytes.
std::uint64_t read_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  require(fd >= 0, "a file cannot be read past the page cache");
  const auto block = make_block();
  std::uint64_t bytes = 0;
  for (;;) {
    const ssize_t n = ::read(fd, block.get(), kBlock);
    require(n >= 0, "a file cannot be read");
    bytes += static_cast<std::uint64_t>(n);
    if (static_cast<std::size_t>(n) < kBlock) break;
  }
  ::close(fd);
  return bytes;
}

void write_file(const std::string& path, std::uint64_t bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
  require(fd >= 0, "a file cannot be written past the page cache");
  const auto block = make_block();
  std::memset(block.get(), 1, kBlock);
  for (std::uint64_t done = 0; done < bytes; done += kBlock) {
    require(::write(fd, block.get(), kBlock) == static_cast<ssize_t>(kBlock),
            "a file cannot be written");
  }
  ::close(fd);
}

// So that the next read is one of the disk.
void forget(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(fd >= 0 && ::fdatasync(fd) == 0 && ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0,
          "the page cache keeps a file");
  ::close(fd);
}

std::vector<std::string> with_log(const std::string& path) {
  std::vector<std::string> files = {path};
  for (const auto& entry : std::filesystem::directory_iterator(path + "-log")) {
    files.push_back(entry.path());
  }
  return files;
}

}  // namespace

void Records::put(std::uint64_t record) {
  std::array<char, 17> key;
  std::snprintf(key.data(), key.size(), "%016llx",
                static_cast<unsigned long long>(bench::mix64(record)));
  ++puts_;
  std::memcpy(value_.data(), &puts_, sizeof(puts_));
  must(map_.put(Bytes(key.data(), 16), value_).status());
}

PoolFiles::PoolFiles(const std::string& folder, Durability durability, std::uint32_t number)
    : path_(fmt::format("{}/perdure-buffered.{}.{}.pool", folder, ::getpid(), number)),
      durability_(durability) {
  bench::remove_on_signal(path_);
}

PoolFiles::~PoolFiles() {
  bench::remove_pool_files(path_);
  bench::remove_on_signal("");
}

Pool PoolFiles::open(std::uint64_t log_bytes) const {
  return must(Pool::open(
      path_, {.durability = durability_, .buffered = {.log_bytes = log_bytes}, .max_size = kMost}));
}

void PoolFiles::fill(std::uint64_t records) const {
  in_process<bool>([&](std::optional<Pool>& pool) {
    pool.emplace(open());
    Records(*pool, records).load();
    must(pool->close());
    pool.reset();
    return true;
  });
}

DeviceBytes device_bytes(const std::string& folder) {
  constexpr std::uint64_t kSector = 512;
  struct stat info{};
  require(::stat(folder.c_str(), &info) == 0, "the folder is missing");
  const std::string name =
      fmt::format("/sys/dev/block/{}:{}/stat", major(info.st_dev), minor(info.st_dev));
  std::ifstream file(name);
  std::array<std::uint64_t, 7> fields{};
  for (std::uint64_t& field : fields) file >> field;
  return {.read = fields[2] * kSector, .written = fields[6] * kSector};
}

PoolFiles::Restored PoolFiles::restore() const {
  std::filesystem::remove(path_ + "-live");
  std::filesystem::remove(path_ + "-live-dirty");
  for (const std::string& file : with_log(path_)) forget(file);
  return in_process<Restored>([&](std::optional<Pool>& pool) {
    double ms = 0;
    const DeviceBytes before = device_bytes(path_);
    pool.emplace(must(Pool::open(path_, {.mode = OpenMode::existing,
                                         .accept_untrusted = true,
                                         .log = &take_restore_ms,
                                         .log_context = &ms})));
    const DeviceBytes after = device_bytes(path_);
    const std::uint64_t live = must(pool->stats()).live_bytes;
    require(ms != 0, "nothing was restored");
    must(pool->close());
    pool.reset();
    return Restored{
        .seconds = ms / 1000,
        .live = live,
        .device = {.read = after.read - before.read, .written = after.written - before.written}};
  });
}

double PoolFiles::disk_rate(std::uint64_t written) const {
  const std::vector<std::string> files = with_log(path_);
  for (const std::string& file : files) forget(file);
  const std::string other = path_ + "-live";  // what removes the pool removes it
  std::uint64_t bytes = written;
  const Clock::time_point begin = Clock::now();
  std::thread writer([&] { write_file(other, written); });
  for (const std::string& file : files) bytes += read_file(file);
  writer.join();
  const double rate = static_cast<double>(bytes) / seconds_since(begin);
  std::filesystem::remove(other);
  return rate;
}

}  // namespace perdure::buffered
