#include "bench/compare/bulk/bulk.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "bench/workloads/data.h"
#include "bench/workloads/random.h"

namespace perdure::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kKeyBytes = 24;
constexpr std::size_t kValueBytes = 150;
constexpr std::uint64_t kRangeLength = 10;
// Sorted keys come behind all random ones: the greatest random key, and a number of 8 bytes.
constexpr std::size_t kSortedKeyBytes = kKeyBytes + sizeof(std::uint64_t);
const std::string kBehindAll(kSortedKeyBytes + 1, '\xff');
// A third of the random keys.
const std::string kMiddleFrom(kKeyBytes, '\x55');
const std::string kMiddleTo(kKeyBytes, '\xaa');
// In seconds. Some stores become slower with each pop, because they pass what they have removed.
constexpr double kLongestPops = 5;

// The place of a row. A name that no row has does not compile.
consteval std::size_t row(std::string_view name) {
  std::size_t at = 0;
  while (kBulkRows.at(at).name != name) ++at;
  return at;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The last 8 bytes of a key. They identify it, and its value is a function of them.
std::uint64_t word_of(std::string_view key) noexcept {
  std::uint64_t word = 0;
  if (key.size() >= sizeof(word)) {
    std::memcpy(&word, key.data() + key.size() - sizeof(word), sizeof(word));
  }
  return word;
}
std::uint64_t value_word(std::uint64_t key_word, std::uint64_t place) noexcept {
  return mix64(key_word + place + 1);
}

// Makes entries, one at a time.
class Maker {
 public:
  Entry random(std::uint64_t i) noexcept { return {random_key(i), value()}; }
  std::string_view random_key(std::uint64_t i) noexcept {
    constexpr std::uint64_t kWords = kKeyBytes / sizeof(std::uint64_t);
    for (std::uint64_t j = 0; j < kWords; ++j) put(key_, j, mix64(kWords * i + j + 1));
    return key_view_ = {key_.data(), kKeyBytes};
  }
  Entry sorted(std::uint64_t i) noexcept {
    key_.fill('\xff');
    put(key_, kKeyBytes / sizeof(i), __builtin_bswap64(i));
    key_view_ = {key_.data(), kSortedKeyBytes};
    return {key_view_, value()};
  }
  // The value of the key that was made last.
  std::string_view value() noexcept {
    const std::uint64_t word = word_of(key_view_);
    for (std::uint64_t j = 0; j * sizeof(j) < kValueBytes; ++j) put(value_, j, value_word(word, j));
    return {value_.data(), kValueBytes};
  }

 private:
  template <std::size_t N>
  static void put(std::array<char, N>& bytes, std::uint64_t place, std::uint64_t word) noexcept {
    std::memcpy(bytes.data() + place * sizeof(word), &word, sizeof(word));
  }

  std::array<char, kSortedKeyBytes> key_ = {};
  std::array<char, (kValueBytes / sizeof(std::uint64_t) + 1) * sizeof(std::uint64_t)> value_ = {};
  std::string_view key_view_;
};

// Whether the value can be that of the key, by its first 8 bytes.
bool belongs(const Entry& entry) noexcept {
  std::uint64_t first = 0;
  if (entry.value.size() != kValueBytes) return false;
  std::memcpy(&first, entry.value.data(), sizeof(first));
  return first == value_word(word_of(entry.key), 0);
}

// Identifies a set of keys.
struct Tally {
  std::uint64_t entries = 0;
  std::uint64_t words = 0;   // sum
  std::uint64_t middle = 0;  // entries of the middle third

  void add(std::string_view key, std::uint64_t times = 1) noexcept {
    entries += times;
    words += times * word_of(key);
    if (key >= kMiddleFrom && key < kMiddleTo) middle += times;
  }
  void remove(std::string_view key) noexcept { add(key, ~std::uint64_t{0}); }  // -1 times
  bool operator==(const Tally&) const = default;
};

std::uint64_t disk_bytes(const fs::path& folder) {
  std::uint64_t sum = 0;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
    struct stat info{};
    if (::lstat(entry.path().c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
      sum += static_cast<std::uint64_t>(info.st_blocks) * 512;  // the unit of st_blocks
    }
  }
  return sum;
}

// Bytes of this process that are not those of a file: they cannot be given up without a swap.
std::uint64_t own_memory() {
  std::uint64_t sum = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "RssAnon: %llu kB", &kib) == 1 ||
        std::sscanf(line.c_str(), "RssShmem: %llu kB", &kib) == 1) {
      sum += std::uint64_t{kib} << 10;
    }
  }
  return sum;
}

// Looks at the memory of the process while it lives.
class MemoryWatch {
 public:
  MemoryWatch() : thread_([this](const std::stop_token& stop) { watch(stop); }) {}
  // Ends the watch.
  std::uint64_t peak() {
    thread_.request_stop();
    thread_.join();
    return peak_;
  }

 private:
  void watch(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      peak_ = std::max(peak_, own_memory());
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  std::uint64_t peak_ = 0;
  std::jthread thread_;
};

class BulkRun {
 public:
  BulkRun(BulkStore& store, const fs::path& folder, const BulkCounts& counts)
      : store_(store), folder_(folder), counts_(counts) {}

  BulkFigures run() {
    MemoryWatch memory;
    store_.open();
    write_phases();
    read_phases();
    erase_phases();
    pop_phase();
    compact_phase();
    timed(row("sorted inserts"), counts_.sorted, [&] {
      store_.append(counts_.sorted, [&](std::uint64_t i) { return added(maker_.sorted(i)); });
    });
    count_ += counts_.sorted;
    verify("the sorted inserts");
    store_.close();
    figures_[row("memory at its peak, MiB")] = static_cast<double>(memory.peak());
    return figures_;
  }

 private:
  template <class Body>
  void timed(std::size_t row, std::uint64_t operations, Body body) {
    const auto start = Clock::now();
    body();
    figures_[row] = static_cast<double>(operations) / seconds_since(start);
  }
  void expect(bool holds, std::string_view what) {
    if (!holds) stop(kExitViolation, what);
  }
  Entry added(const Entry& entry) {
    expected_.add(entry.key);
    return entry;
  }
  // Transactions that put entries with new random keys.
  void put_new(std::uint64_t transactions, std::uint64_t size) {
    count_ += transactions * size;
    for (std::uint64_t t = 0; t < transactions; ++t) {
      store_.put(size, [&](std::uint64_t) { return added(maker_.random(made_++)); });
    }
  }

  void write_phases();
  void read_phases();
  void read_random(BulkReader& reader, std::uint64_t from, std::uint64_t count);
  void read_with_threads(std::size_t row, std::uint64_t threads);
  void read_ranges(BulkReader& reader);
  void erase_phases();
  void erase_every_other(std::size_t row, std::string_view from, std::string_view to,
                         std::uint64_t present);
  void pop_phase();
  void compact_phase();
  void verify(std::string_view after);

  BulkStore& store_;
  const fs::path& folder_;
  const BulkCounts& counts_;
  Maker maker_;
  std::uint64_t made_ = 0;   // entries with random keys so far
  std::uint64_t count_ = 0;  // entries that the store must have
  Tally expected_;           // of the entries that went into it and did not come out
  BulkFigures figures_ = {};
};

void BulkRun::verify(std::string_view after) {
  Tally seen;
  bool sound = true;
  std::string before;
  store_.reader()->scan("", kNoLimit, [&](const Entry& entry) {
    sound = sound && belongs(entry) && entry.key > before;
    before.assign(entry.key);
    seen.add(entry.key);
  });
  expect(sound, fmt::format("after {}: a wrong value or a wrong order", after));
  expect(seen == expected_ && seen.entries == count_,
         fmt::format("after {}: {} entries, and not the {} that must be there, or not all of them",
                     after, seen.entries, count_));
}

void BulkRun::write_phases() {
  timed(row("bulk load"), counts_.records, [&] { put_new(1, counts_.records); });
  verify("the bulk load");
  timed(row("individual writes"), counts_.singles, [&] { put_new(counts_.singles, 1); });
  timed(row("batch writes"), counts_.batches * counts_.batch,
        [&] { put_new(counts_.batches, counts_.batch); });
  verify("the batch writes");
  store_.set_commit(Commit::soon);
  timed(row("nosync writes"), counts_.unsynced, [&] { put_new(counts_.unsynced, 1); });
  store_.set_commit(Commit::durable);
  verify("the nosync writes");
}

void BulkRun::read_random(BulkReader& reader, std::uint64_t from, std::uint64_t count) {
  Maker maker;
  for (std::uint64_t i = from; i < from + count; ++i) {
    const Entry wanted = maker.random(i);
    bool same = false;
    const bool present =
        reader.read(wanted.key, [&](std::string_view value) { same = value == wanted.value; });
    expect(present && same, "a read missed a key or returned another value");
  }
}

void BulkRun::read_with_threads(std::size_t row, std::uint64_t threads) {
  const std::uint64_t share = made_ / threads;
  Clock::time_point begin;
  std::barrier start(static_cast<std::ptrdiff_t>(threads),
                     [&]() noexcept { begin = Clock::now(); });
  std::vector<std::jthread> running;
  for (std::uint64_t t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      const auto reader = store_.reader();
      start.arrive_and_wait();
      read_random(*reader, t * share, share);
    });
  }
  running.clear();  // waits for them
  figures_[row] = static_cast<double>(share * threads) / seconds_since(begin);
}

void BulkRun::read_ranges(BulkReader& reader) {
  std::uint64_t cut_short = 0;
  for (std::uint64_t i = 0; i < counts_.scans; ++i) {
    const std::string_view from = maker_.random_key(i);
    bool sound = true;
    std::uint64_t seen = 0;
    reader.scan(from, kRangeLength, [&](const Entry& entry) {
      sound = sound && belongs(entry) && (seen++ != 0 || entry.key == from);
    });
    expect(sound && seen != 0, "a range read returned another entry");
    cut_short += seen != kRangeLength;
  }
  expect(cut_short < kRangeLength, "a range read returned too few entries");  // but at the end
}

void BulkRun::read_phases() {
  std::uint64_t size = 0;
  timed(row("len()"), 1, [&] { size = store_.size(); });
  expect(size == count_, fmt::format("len() is {} instead of {}", size, count_));
  const auto reader = store_.reader();
  for (const std::size_t at : {row("random reads"), row("random reads, again")}) {
    timed(at, counts_.reads, [&] { read_random(*reader, 0, counts_.reads); });
  }
  for (const std::size_t at : {row("random range reads"), row("random range reads, again")}) {
    timed(at, counts_.scans, [&] { read_ranges(*reader); });
  }
  read_with_threads(row("random reads, 4 threads"), 4);
  read_with_threads(row("random reads, 8 threads"), 8);
}

// Removes every other entry of a range that has `present` ones, then puts in as many new ones.
void BulkRun::erase_every_other(std::size_t row, std::string_view from, std::string_view to,
                                std::uint64_t present) {
  std::uint64_t seen = 0;
  timed(row, present / 2, [&] {
    store_.erase_if(from, to, [&](const Entry& entry) {
      const bool chosen = seen++ % 2 != 0;
      if (chosen) expected_.remove(entry.key);
      return chosen;
    });
  });
  const std::string_view name = kBulkRows[row].name;
  count_ -= present / 2;
  expect(seen == present, fmt::format("{} saw {} entries instead of {}", name, seen, present));
  verify(name);
  put_new(1, seen / 2);
}

void BulkRun::erase_phases() {
  const std::uint64_t removed = made_ / 2;
  timed(row("removals"), removed, [&] {
    store_.erase(removed, [&](std::uint64_t i) {
      const std::string_view key = maker_.random_key(i);
      expected_.remove(key);
      return key;
    });
  });
  count_ -= removed;
  verify("the removals");
  erase_every_other(row("retain"), "", kBehindAll, count_);
  erase_every_other(row("extract_if"), kMiddleFrom, kMiddleTo, expected_.middle);
}

void BulkRun::pop_phase() {
  std::uint64_t popped = 0;
  double seconds = 0;
  std::string first;
  std::string last = kBehindAll;
  const auto start = Clock::now();
  store_.pop([&](std::string_view key) {
    const bool is_first = popped++ % 2 == 0;
    expect(is_first ? key > first : key < last, "a pop did not return the next entry");
    (is_first ? first : last).assign(key);
    expected_.remove(key);
    seconds = seconds_since(start);
    return popped != counts_.pops && seconds < kLongestPops;
  });
  figures_[row("pop")] = static_cast<double>(popped) / seconds;
  count_ -= popped;
  verify("the pops");
  put_new(1, popped);
}

void BulkRun::compact_phase() {
  figures_[row("files, MiB")] = static_cast<double>(disk_bytes(folder_));
  const auto start = Clock::now();
  store_.compact();
  figures_[row("compaction, s")] = seconds_since(start);
  put_new(1, 1);
  figures_[row("files when compacted, MiB")] = static_cast<double>(disk_bytes(folder_));
  verify("the compaction");
  store_.close();
  figures_[row("files when closed, MiB")] = static_cast<double>(disk_bytes(folder_));
  store_.open();
  verify("the second open");
}

}  // namespace

BulkCounts::BulkCounts(std::uint64_t wanted)
    : records(wanted),
      singles(std::clamp<std::uint64_t>(wanted / 20, 1, 1000)),
      batch(std::clamp<std::uint64_t>(wanted / 200, 1, 1000)),
      unsynced(std::clamp<std::uint64_t>(wanted / 4, 1, 50'000)),
      reads(std::min<std::uint64_t>(wanted, 1'000'000)),
      scans(std::min<std::uint64_t>(wanted, 500'000)),
      pops(std::clamp<std::uint64_t>(wanted / 10, 1, 500'000)),
      sorted(std::clamp<std::uint64_t>(wanted / 5, 1, 1'000'000)) {}

BulkFigures run_bulk(BulkStore& store, const fs::path& folder, const BulkCounts& counts) {
  return BulkRun(store, folder, counts).run();
}

}  // namespace perdure::bench
