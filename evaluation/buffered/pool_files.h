// PoolFiles: a pool with keys of 16 bytes and values of 100 in a folder, and the processes that use
// it. Each use has its own process, so that none finds what another has left in memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "bench/harness/in_process.h"
#include "bench/workloads/random.h"
#include "evaluation/figures.h"
#include "perdure/perdure.h"

namespace perdure::buffered {

using Bytes = std::string_view;
using Clock = std::chrono::steady_clock;
using bench::in_process;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The records of an open pool, which are numbered.
class Records {
 public:
  Records(Pool& pool, std::uint64_t count)
      : map_(paper::must(pool.ordered_map<Bytes, Bytes>("bench"))), count_(count) {}
  void load() {
    for (std::uint64_t i = 0; i < count_; ++i) put(i);
  }
  void put_random() { put(random_.below(count_)); }

 private:
  void put(std::uint64_t record);

  OrderedMap<Bytes, Bytes> map_;
  std::uint64_t count_;
  std::uint64_t puts_ = 0;
  bench::Random random_{1};
  std::string value_ = std::string(100, 'v');
};

// That the disk of a folder has transferred since it was found. Zero: the system does not say.
struct DeviceBytes {
  std::uint64_t read, written;
};
DeviceBytes device_bytes(const std::string& folder);

class PoolFiles {
 public:
  // `number`: of one of several pools of this process.
  PoolFiles(const std::string& folder, Durability durability, std::uint32_t number = 0);
  ~PoolFiles();
  PoolFiles(const PoolFiles&) = delete;
  PoolFiles& operator=(const PoolFiles&) = delete;

  // `log_bytes`: the bound of the log.
  Pool open(std::uint64_t log_bytes = 0) const;
  void fill(std::uint64_t records) const;
  // Without its live image, whose loss it accepts: as after a power failure.
  struct Restored {
    double seconds;
    std::uint64_t live;  // bytes of the image
    DeviceBytes device;
  };
  Restored restore() const;
  // Bytes per second of a disk that gives the pool's file and its log, and gets so many bytes at
  // the same time, in blocks of 1 MiB.
  double disk_rate(std::uint64_t written) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Durability durability_;
};

}  // namespace perdure::buffered
