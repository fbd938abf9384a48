#include "testing/disk/toy_log.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "util/crc32c.h"

namespace perdure::disk {

struct ToyLog::Header {
  std::uint64_t number = 0;  // the one with the larger number counts
  std::uint64_t folding = 0;
  std::uint64_t folded = 0;
  std::uint32_t chain = 0;  // of the record of epoch `folded`
  std::uint32_t crc = 0;
};

struct ToyLog::Record {
  std::uint64_t epoch;
  std::uint64_t term;
  std::uint64_t count;
  std::uint32_t before;  // checksum of the record of the epoch before
  std::uint32_t crc;
  struct Change {
    std::uint64_t word;
    std::uint64_t value;
  };
  Change changes[(kRecord - 32) / sizeof(Change)];

  std::uint32_t checksum() const {
    Record copy = *this;
    copy.crc = 0;
    return crc32c(1, &copy, sizeof(copy));
  }
};

namespace {

std::string name_of(std::uint64_t number) {
  const std::string digits = std::to_string(number);
  return "log/" + std::string(4 - digits.size(), '0') + digits;
}
constexpr const char* kUnnamed = "log/new";  // a segment until it has its name
constexpr std::size_t kHeaderBytes = 2 * kSector;

}  // namespace

void ToyLog::put(std::size_t word, std::uint64_t value) {
  words_[word] = value;
  changed_.insert(word);
}

Status ToyLog::write_header(std::uint64_t folding, std::uint64_t folded, std::uint32_t chain) {
  // Not over the one that counts. A number is used once, also if the write fails.
  ++headers_;
  Header header{.number = headers_, .folding = folding, .folded = folded, .chain = chain, .crc = 0};
  header.crc = crc32c(2, &header, offsetof(Header, crc));
  const std::uint64_t place = 1 - header_;
  if (Status put = files_.write(base_, &header, sizeof(header), place * kSector); !put.ok())
    return put;
  if (Status synced = files_.sync(base_, kNoSite); !synced.ok()) return synced;
  header_ = place;
  return {};
}

Status ToyLog::write_words() {
  for (std::size_t i = 0; i < kWords; ++i) {
    if (Status put = files_.write(base_, &words_[i], 8, kHeaderBytes + i * kStride); !put.ok())
      return put;
  }
  return {};
}

Status ToyLog::create() {
  auto base = files_.open("base.new", FileSystem::Open::fresh);
  if (!base) return base.error();
  base_ = *base;
  if (Status put = write_words(); !put.ok()) return put;
  if (Status put = write_header(0, 0, 0); !put.ok()) return put;
  if (Status made = files_.make_folder("log"); !made.ok()) return made;
  if (Status made = new_segment(); !made.ok()) return made;
  if (Status synced = files_.sync_folder(".", kNoSite); !synced.ok()) return synced;
  // A base that has its name has all that it needs.
  if (Status named = files_.rename("base.new", "base"); !named.ok()) return named;
  return files_.sync_folder(".", kNoSite);
}

Status ToyLog::new_segment() {
  if (segment_ >= 0) old_.emplace_back(number_, epoch_);
  segment_ = -1;
  const std::string name = name_of(++number_);
  const auto unused =
      std::ranges::find_if(old_, [&](const auto& old) { return old.second <= folded_; });
  if (unused != old_.end()) {
    const std::string before = name_of(unused->first);
    old_.erase(unused);
    if (Status named = files_.rename(before, name); !named.ok()) return named;
  } else {
    if (Status gone = files_.remove(kUnnamed); !gone.ok() && gone.code() != StatusCode::not_found)
      return gone;
    auto fresh = files_.open(kUnnamed, FileSystem::Open::fresh);
    if (!fresh) return fresh.error();
    if (Status done = files_.allocate(*fresh, 0, kRecord * kRecords); !done.ok()) return done;
    if (Status done = files_.sync(*fresh, kNoSite); !done.ok()) return done;
    if (Status named = files_.rename(kUnnamed, name); !named.ok()) return named;
  }
  if (bug_ != ToyBug::leaves_name_of_segment_unsynced) {
    if (Status synced = files_.sync_folder("log", kNoSite); !synced.ok()) return synced;
  }
  auto segment = files_.open(name, FileSystem::Open::existing);
  if (!segment) return segment.error();
  segment_ = *segment;
  used_ = 0;
  return {};
}

Status ToyLog::cut() {
  if (changed_.empty()) return {};
  if (segment_ < 0 || used_ == kRecords) {
    if (Status made = new_segment(); !made.ok()) return made;
  }
  Record record{};
  record.epoch = epoch_ + 1;
  record.term = term_;
  record.before = chain_;
  for (const std::size_t word : changed_)
    record.changes[record.count++] = {.word = word, .value = words_[word]};
  record.crc = record.checksum();
  Status done = files_.write(segment_, &record, sizeof(record), used_ * kRecord);
  if (done.ok() && bug_ != ToyBug::acknowledges_before_sync) done = files_.sync(segment_, kNoSite);
  if (!done.ok() && bug_ == ToyBug::retries_a_failed_sync) done = files_.sync(segment_, kNoSite);
  if (!done.ok()) {
    if (bug_ != ToyBug::keeps_the_term) ++term_;
    used_ = kRecords;  // nothing follows it in this segment
    return done;
  }
  ++used_;
  ++epoch_;
  chain_ = record.crc;
  changed_.clear();
  return {};
}

Status ToyLog::fold() {
  const std::uint64_t folding = epoch_;
  if (folding == folded_ || !changed_.empty()) return {};
  if (bug_ != ToyBug::folds_what_it_has_not_verified) {
    std::vector<Record> records;
    std::vector<std::string> names;
    if (Status read = read_records(records, names); !read.ok()) return read;
    for (std::uint64_t epoch = folded_ + 1; epoch <= folding; ++epoch) {
      if (std::ranges::none_of(records, [&](const Record& r) { return r.epoch == epoch; }))
        return {StatusCode::corruption};
    }
    if (Status marked = write_header(folding, folded_, folded_chain_); !marked.ok()) return marked;
  }
  if (Status put = write_words(); !put.ok()) return put;
  if (bug_ == ToyBug::removes_segments_before_fold) {
    for (const auto& [number, last] : std::exchange(old_, {})) (void)files_.remove(name_of(number));
    if (Status synced = files_.sync_folder("log", kNoSite); !synced.ok()) return synced;
  }
  if (bug_ != ToyBug::says_folded_before_words) {
    if (Status synced = files_.sync(base_, kNoSite); !synced.ok()) return synced;
  }
  if (Status put = write_header(folding, folding, chain_); !put.ok()) return put;
  folded_ = folding;
  folded_chain_ = chain_;
  return {};
}

Status ToyLog::read_records(std::vector<Record>& out, std::vector<std::string>& names) {
  if (Status listed = files_.list("log", [&](std::string_view name) { names.emplace_back(name); });
      !listed.ok())
    return listed;
  std::ranges::sort(names);
  for (const std::string& name : names) {
    auto segment = files_.open("log/" + name, FileSystem::Open::existing);
    if (!segment) return segment.error();
    for (std::size_t i = 0; i < kRecords; ++i) {
      Record record{};
      auto got = files_.read(*segment, &record, sizeof(record), i * kRecord);
      if (!got) return got.error();
      const bool whole = *got == sizeof(record) && record.crc == record.checksum();
      const bool plausible = record.epoch != 0 && record.count <= kWords;
      if (whole || (bug_ == ToyBug::accepts_torn_records && plausible)) out.push_back(record);
    }
    files_.close(*segment);
  }
  return {};
}

void ToyLog::apply(const Record& record) {
  for (std::uint64_t k = 0; k < record.count; ++k)
    words_[record.changes[k].word % kWords] = record.changes[k].value;
  epoch_ = record.epoch;
  chain_ = record.crc;
}

Status ToyLog::replay(const std::vector<Record>& records, const Header& header) {
  epoch_ = header.folded;
  chain_ = header.chain;
  for (bool found = true; found;) {
    const Record* next = nullptr;
    for (const Record& record : records) {
      if (record.epoch != epoch_ + 1 || record.before != chain_) continue;
      if (next == nullptr || record.term > next->term) next = &record;
    }
    found = next != nullptr;
    if (found) apply(*next);
  }
  if (bug_ == ToyBug::accepts_old_records)
    std::ranges::for_each(records, [&](const Record& record) { apply(record); });
  for (const Record& record : records) term_ = std::max(term_, record.term);
  return epoch_ < header.folding ? Status(StatusCode::untrusted) : Status();
}

Status ToyLog::read_header(Header& header) {
  for (std::uint64_t i = 0; i < 2; ++i) {
    Header each;
    auto got = files_.read(base_, &each, sizeof(each), i * kSector);
    if (!got) return got.error();
    if (*got != sizeof(each) || each.crc != crc32c(2, &each, offsetof(Header, crc))) continue;
    if (each.number <= header.number) continue;
    header = each;
    header_ = i;
  }
  headers_ = header.number;
  return header.number == 0 ? Status(StatusCode::corruption) : Status();
}

Status ToyLog::recover() {
  auto base = files_.open("base", FileSystem::Open::existing);
  if (!base) return base.error();
  base_ = *base;
  Header header;
  if (Status read = read_header(header); !read.ok()) return read;
  for (std::size_t i = 0; i < kWords; ++i) {
    auto word = files_.read(base_, &words_[i], 8, kHeaderBytes + i * kStride);
    if (!word) return word.error();
  }
  folded_ = header.folded;
  folded_chain_ = header.chain;
  std::vector<Record> records;
  std::vector<std::string> names;
  if (Status read = read_records(records, names); !read.ok()) return read;
  if (Status replayed = replay(records, header); !replayed.ok()) return replayed;
  for (const std::string& name : names) {
    if (name == "new") continue;
    number_ = std::max<std::uint64_t>(number_, std::stoull(name));
    old_.emplace_back(std::stoull(name), epoch_);
  }
  ++term_;
  return new_segment();
}

}  // namespace perdure::disk
