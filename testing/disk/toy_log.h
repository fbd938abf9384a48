// ToyLog: a few words that survive a power failure as of the last cut: the smallest program that
// writes as a pool's log does. It has one reason to exist: the explorer must notice each of the
// bugs that can be planted here before it judges the real log.
//
// FILES  `base`: two headers, of which the later one that is whole counts, as a write that
//   fails can leave a half; and all words as of an epoch; `log/N`: segments of records. A record
//   has the words that changed in an epoch.
// CUT  A record is written to the last segment, and counts once the sync of that segment has
//   returned. A segment is made under another name, or is an old one that is no longer needed; its
//   name is durable before its first record counts.
// FOLD  verifies the log up to epoch F; header: "folding to F"; the words; header: "folded to F".
//   Each is durable before the next. Only then segments that end at F or earlier go.
// FAILURE  A record whose sync failed does not count. The next one, of a higher term and in a new
//   segment, has all words that changed since the last epoch that counts.
// RECOVERY  From the epoch of the base on, of the records that follow the one before (its epoch
//   plus one, and its checksum) the one with the highest term; until there is none. Then a new
//   segment begins, with the next term.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "testing/disk/sim_files.h"

namespace perdure::disk {

enum class ToyBug : std::uint8_t {
  none,
  acknowledges_before_sync,
  retries_a_failed_sync,
  leaves_name_of_segment_unsynced,
  accepts_torn_records,
  accepts_old_records,             // of a segment that is used again
  removes_segments_before_fold,    // is durable
  says_folded_before_words,        // are durable
  folds_what_it_has_not_verified,  // without "folding to"
  keeps_the_term,                  // after a failure
};
inline constexpr ToyBug kLastToyBug = ToyBug::keeps_the_term;

class ToyLog {
 public:
  static constexpr std::size_t kWords = 24;
  static constexpr std::size_t kStride = 256;  // in the base: the words lie in 12 sectors
  static constexpr std::size_t kRecord = 1024;
  static constexpr std::size_t kRecords = 3;  // of a segment
  using Words = std::array<std::uint64_t, kWords>;

  ToyLog(FileSystem& files, ToyBug bug) : files_(files), bug_(bug) {}

  Status create();
  Status recover();
  void put(std::size_t word, std::uint64_t value);
  // Makes all words durable as they are now. After an error call it again.
  Status cut();
  Status fold();

  const Words& words() const { return words_; }

 private:
  struct Header;
  struct Record;

  Status new_segment();
  Status write_header(std::uint64_t folding, std::uint64_t folded, std::uint32_t chain);  // durably
  Status read_header(Header& header);
  Status write_words();
  Status read_records(std::vector<Record>& out, std::vector<std::string>& names);
  void apply(const Record& record);
  Status replay(const std::vector<Record>& records, const Header& header);

  FileSystem& files_;
  ToyBug bug_;
  Words words_{};
  std::set<std::size_t> changed_;  // since the last epoch that counts
  std::uint64_t epoch_ = 0;        // the last that counts
  std::uint64_t term_ = 1;
  std::uint64_t folded_ = 0;
  std::uint32_t chain_ = 0;         // checksum of the record of epoch_
  std::uint32_t folded_chain_ = 0;  // and of that of folded_
  std::uint64_t headers_ = 0;       // that were written
  std::uint64_t header_ = 1;        // the place of the one that counts
  FileSystem::File base_ = -1;
  FileSystem::File segment_ = -1;
  std::uint64_t number_ = 0;                                  // of the segment
  std::size_t used_ = 0;                                      // records in it
  std::vector<std::pair<std::uint64_t, std::uint64_t>> old_;  // (number, last epoch)
};

}  // namespace perdure::disk
