// YCSB's core workloads A to F: the hash, the mixes and the choice of keys, as in CoreWorkload.java
// of YCSB 0.17.0 and its workload files. Check vectors are in tests/bench/ycsb_test.cc.
//
// docs/design/benchmark.md states the differences. A record is one value of the configured length,
// not ten fields of 100 bytes. The random stream is our own, because YCSB's cannot be seeded. A
// thread draws from the loaded records and its own insertions, because the operations are made
// before the clock starts.
#pragma once

#include <cstdint>
#include <optional>

#include "bench/workloads/distributions.h"
#include "bench/workloads/random.h"

namespace perdure::bench {

// FNV-1a-64| of the eight octets of a number, least significant first.
constexpr std::uint64_t ycsb_hash(std::uint64_t number) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (int i = 0; i < 8; ++i) {
    hash = (hash ^ (number & 0xff)) * 1099511628211ULL;
    number >>= 8;
  }
  return (hash >> 63) != 0 ? 0 - hash : hash;
}

enum class YcsbOperation : std::uint8_t { read, update, insert, scan, read_modify_write };

// Shares of the operations; they add up to 1.
struct YcsbMix {
  double read = 0;
  double update = 0;
  double insert = 0;
  double scan = 0;
  double read_modify_write = 0;
  bool latest = false;  // requests favour the newest records; otherwise scrambled zipfian
};
inline constexpr std::uint64_t kYcsbMaxScanLength = 100;

// The mix of workload 'a' to 'f'.
const YcsbMix& ycsb_mix(char letter) noexcept;

struct YcsbRequest {
  YcsbOperation operation = YcsbOperation::read;
  // below `loaded`: a loaded record; otherwise this thread's own insertion
  std::uint64_t position = 0;
  std::uint64_t scan_length = 0;  // for scans: 1 to 100
};

// The requests of one thread over `loaded` records.
class YcsbChooser {
 public:
  // `operations` is the count of the whole phase, because YCSB sizes the key range by the possible
  // insertions.
  YcsbChooser(char letter, std::uint64_t loaded, std::uint64_t operations);

  // Restarts the same distribution without insertions and with a new random stream.
  void restart(std::uint64_t seed) noexcept;
  YcsbRequest next() noexcept;
  std::uint64_t inserted() const noexcept { return inserted_; }

 private:
  YcsbOperation choose_operation() noexcept;
  std::uint64_t choose_position() noexcept;

  YcsbMix mix_;
  std::uint64_t loaded_;
  std::uint64_t inserted_ = 0;
  Random random_{0};
  ScrambledZipfian scrambled_;
  std::optional<Latest> first_latest_;  // as constructed: restart need not sum zeta again
  std::optional<Latest> latest_;
};

}  // namespace perdure::bench
