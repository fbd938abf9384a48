#include "bench/harness/calibrate.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "bench/workloads/keys.h"
#include "bench/workloads/random.h"
#include "platform/real_platform.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace perdure::bench {
namespace {

constexpr std::uint64_t kBytes = 1ULL << 30;
constexpr unsigned kLineBits = 24;  // 2^24 lines of 64 bytes: 1 GiB
constexpr std::uint64_t kLines = 1ULL << kLineBits;
constexpr std::size_t kRuns = 5;
constexpr std::uint64_t kOperations = 1ULL << 20;  // per run
constexpr std::size_t kSyncs = 201;
constexpr std::uint64_t kTransfers = 1ULL << 16;  // per run

struct alignas(64) Line {
  std::uint64_t next;  // load: the next line of the chain
  std::uint64_t word;  // persist and cas: the word that they write
};
static_assert(sizeof(Line) == 64 && kLines * sizeof(Line) == kBytes);

// Returns the nanoseconds that `body` takes.
template <class Body>
double timed(Body body) {
  const std::uint64_t begin = RealPlatform::now_ns();
  body();
  return static_cast<double>(RealPlatform::now_ns() - begin);
}

// The mapped file. It is unlinked as soon as it is open, and therefore never remains.
class Area {
 public:
  Area() = default;
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;
  ~Area() {
    if (base_ != MAP_FAILED) ::munmap(base_, kBytes);
  }

  Result<void> open(const std::string& beside) {
    const std::string path = fmt::format("{}.calibrate.{}", beside, ::getpid());
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return failed(path, errno);
    ::unlink(path.c_str());
    const bool synced = measure_sync(fd);
    const int sync_error = errno;
    if (!synced) {
      ::close(fd);
      return failed(path, sync_error);
    }
    const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(kBytes));
    if (error == 0) base_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const int map_error = errno;
    ::close(fd);
    if (error != 0) return failed(path, error);
    if (base_ == MAP_FAILED) return failed(path, map_error);
    ::madvise(base_, kBytes, MADV_NOHUGEPAGE);
    return {};
  }
  Line* lines() const noexcept { return static_cast<Line*>(base_); }
  double sync_ns() const noexcept { return sync_ns_; }

  // Asks for huge pages, as a growing pool does; the content stays. Returns false if the system
  // gives none, or not for the whole area.
  bool make_huge() noexcept {
    ::madvise(base_, kBytes, MADV_HUGEPAGE);
    ::madvise(base_, kBytes, MADV_COLLAPSE);
    return huge_bytes() == kBytes;
  }

 private:
  // Bytes of the area in huge pages, from /proc/self/smaps.
  std::uint64_t huge_bytes() const {
    std::ifstream maps("/proc/self/smaps");
    const std::string begin = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(base_));
    bool within = false;
    std::uint64_t kibibytes = 0;
    for (std::string line; std::getline(maps, line);) {
      if (within && line.starts_with("VmFlags:")) break;
      within |= line.starts_with(begin);
      std::istringstream fields(line);
      std::string name;
      std::uint64_t value = 0;
      if (!within || !(fields >> name >> value)) continue;
      // The first is for tmpfs, the second for other files.
      if (name == "ShmemPmdMapped:" || name == "FilePmdMapped:") kibibytes += value;
    }
    return kibibytes << 10;
  }

  // The file's first page is written again and again, so that no sync allocates a block. False: see
  // errno.
  bool measure_sync(int fd) {
    const std::array<char, 4096> page = {};
    std::array<double, 1 + kSyncs> times = {};  // the first one allocates
    for (double& time : times) {
      bool done = false;
      time = timed([&] {
        done = ::pwrite(fd, page.data(), page.size(), 0) == static_cast<ssize_t>(page.size()) &&
               ::fdatasync(fd) == 0;
      });
      if (!done) return false;
    }
    std::sort(times.begin() + 1, times.end());
    sync_ns_ = times[1 + kSyncs / 2];
    return true;
  }

  static std::unexpected<Failure> failed(const std::string& path, int error) {
    return failure(kExitIo, fmt::format("{}: {}; calibration needs 1 GiB there: name another place "
                                        "with --path",
                                        path, std::string_view(std::strerror(error))));
  }

  void* base_ = MAP_FAILED;
  double sync_ns_ = 0;
};

template <class Run>
double median_of_runs(Run run, std::uint64_t operations = kOperations) {
  std::array<double, kRuns> results = {};
  for (double& result : results) result = run() / static_cast<double>(operations);
  std::ranges::sort(results);
  return results[kRuns / 2];
}

// Two threads take turns at a word. The scheduler places them, as it does in a benchmark.
double transfers() {
  alignas(64) std::atomic<std::uint64_t> turn{0};
  const auto take = [&](std::uint64_t first) {
    for (std::uint64_t mine = first; mine < kTransfers; mine += 2) {
      for (unsigned spins = 0; turn.load(std::memory_order_acquire) != mine;) {
        RealPlatform::pause(spins++);
      }
      turn.store(mine + 1, std::memory_order_release);
    }
  };
  return timed([&] {
    std::jthread other(take, 1);
    take(0);
  });
}

// The costs of random lines of an area. Line::next chains the lines.
class LineCosts {
 public:
  explicit LineCosts(Line* lines) : lines_(lines) {
    platform_.configure(FlushMode::cache_line, best_flush_instruction(), 0);
  }

  double load() {
    return median_of_runs([&] {
      return timed([&] {
        for (std::uint64_t i = 0; i < kOperations; ++i)
          position_ = platform_.load(lines_[position_].next);
      });
    });
  }
  double persist() {
    Random random(position_);  // uses the position: the compiler must not remove the loads
    return median_of_runs([&] {
      return timed([&] {
        for (std::uint64_t i = 0; i < kOperations; ++i) {
          Line& line = lines_[random.next() % kLines];
          platform_.store(line.word, i);
          platform_.flush(&line.word, sizeof(line.word), "bench.calibrate"_site);
          (void)platform_.fence("bench.calibrate"_site);
        }
      });
    });
  }
  double compare_and_swap() {
    Random random(position_);
    return median_of_runs([&] {
      return timed([&] {
        for (std::uint64_t i = 0; i < kOperations; ++i) {
          Line& line = lines_[random.next() % kLines];
          std::uint64_t expected = line.word;
          platform_.compare_exchange(line.word, expected, expected + 1);
        }
      });
    });
  }

 private:
  Line* lines_;
  RealPlatform platform_;
  std::uint64_t position_ = 0;
};

}  // namespace

Result<Calibration> calibrate(const std::string& path, Progress& progress) {
  constexpr std::uint64_t kSteps = 8;
  progress.start("calibrating", kSteps);
  Area area;
  if (auto opened = area.open(path); !opened) return std::unexpected(opened.error());
  Line* const lines = area.lines();

  // The first pass goes page by page, because page faults in random order would take longer than
  // the measurement. Then a bijection orders all lines into one cycle.
  for (std::uint64_t i = 0; i < kLines; ++i) lines[i] = {};
  for (std::uint64_t i = 0; i < kLines; ++i) {
    lines[mix_bits(i, kLineBits)].next = mix_bits((i + 1) % kLines, kLineBits);
  }
  progress.show(1);

  Calibration result{.sync_ns = area.sync_ns()};
  LineCosts costs(lines);
  result.load_ns = costs.load();
  progress.show(2);
  result.persist_ns = costs.persist();
  progress.show(3);
  result.cas_ns = costs.compare_and_swap();
  progress.show(4);
  if (area.make_huge()) {
    result.load_huge_ns = costs.load();
    progress.show(5);
    result.persist_huge_ns = costs.persist();
    progress.show(6);
    result.cas_huge_ns = costs.compare_and_swap();
    progress.show(7);
  }
  if (std::thread::hardware_concurrency() > 1) {
    result.transfer_ns = median_of_runs(transfers, kTransfers);
  }
  progress.clear();
  return result;
}

}  // namespace perdure::bench
