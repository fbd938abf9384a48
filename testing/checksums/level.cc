// The checksums of a level hashing map: records, lines, descriptor, root block.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "index/closed_sum.h"
#include "index/level/layout.h"
#include "index/record.h"
#include "testing/checksums/checksums.h"
#include "util/crc32c.h"

namespace perdure::testing {

namespace {

using level::layout::ArrayLine;
using level::layout::Descriptor;
using level::layout::Line;
using level::layout::Root;

class Fixer : MapFixer {
 public:
  using MapFixer::MapFixer;

  void run() {
    if (!bytes_.inside(root_, sizeof(Root))) return;
    auto root = bytes_.load<Root>(root_);
    root.fixed_crc = crc32c(0, &root, offsetof(Root, fixed_crc));
    records_ = (root.flags & (level::layout::kBytesKeys | level::layout::kRecordValues)) != 0;
    word_records_ = (root.flags & level::layout::kWordRecords) != 0;
    arrays_ = (root.flags & level::layout::kArrayLines) != 0;
    if (bytes_.inside(root.descriptor, sizeof(Descriptor))) {
      auto descriptor = bytes_.load<Descriptor>(root.descriptor);
      descriptor.crc =
          crc32c(0, reinterpret_cast<const char*>(&descriptor) + sizeof(descriptor.crc),
                 sizeof(descriptor) - sizeof(descriptor.crc));
      bytes_.store(root.descriptor, descriptor);
      const std::uint64_t closed[2] = {root.descriptor, descriptor.generation};
      fix_levels(descriptor, root.geometry);
      root.closed = crc32c(0, closed, sizeof(closed)) | std::uint64_t{short_sum(sum_)} << 32;
    }
    bytes_.store(root_, root);
  }

 private:
  void fix_levels(const Descriptor& descriptor, std::uint64_t bucket_lines) {
    const std::uint32_t levels = std::min<std::uint32_t>(descriptor.levels, level::kMaxLevels);
    for (std::uint32_t i = 0; i < levels && i <= descriptor.top_log; ++i) {
      const std::uint32_t log = descriptor.top_log - i;
      if (log > level::kMaxLog || bucket_lines > bytes_.size()) continue;
      const std::uint64_t begin = descriptor.offsets[i];
      const std::uint64_t lines = std::min(bucket_lines << log, bytes_.size() / sizeof(Line));
      if (!bytes_.inside(begin, lines * sizeof(Line))) continue;
      for (std::uint64_t n = 0; n < lines && !arrays_; ++n) fix_line(begin + n * sizeof(Line));
      if (arrays_) fix_array_lines(begin, lines, bucket_lines);
    }
  }

  // Their checksums lie behind them, a word per bucket.
  void fix_array_lines(std::uint64_t begin, std::uint64_t lines, std::uint64_t bucket_lines) {
    const std::uint64_t checks = begin + lines * sizeof(ArrayLine);
    if (bucket_lines == 0 || bucket_lines > 2) return;
    if (!bytes_.inside(checks, lines / bucket_lines * sizeof(std::uint64_t))) return;
    const ArrayLine zero{};
    for (std::uint64_t n = 0; n < lines; ++n) {
      const auto line = bytes_.load<ArrayLine>(begin + n * sizeof(ArrayLine));
      const bool used = std::memcmp(&line, &zero, sizeof(line)) != 0;
      const std::uint32_t crc = used ? crc32c(0, &line, sizeof(line)) : 0;
      bytes_.store(checks + n / bucket_lines * 8 + n % bucket_lines * sizeof(crc), crc);
    }
    for (std::uint64_t at = checks; at < checks + lines / bucket_lines * 8; at += 8) add(at);
  }

  void fix_line(std::uint64_t at) {
    auto line = bytes_.load<Line>(at);
    std::uint32_t values = 0;
    for (std::uint32_t i = 0; i < Line::kSlots && records_; ++i) {
      if ((line.tokens >> i & 1) == 0 || !bytes_.fix_record(line.slots[i].value)) continue;
      const auto word = bytes_.load<RecordPrefix>(line.slots[i].value).value;
      // A chain of checksums from 0 on equals the checksum of the words in a row.
      if (word_records_) values = crc32c(values, &word, sizeof(word));
    }
    const Line zero{};
    const bool used = std::memcmp(&line, &zero, offsetof(Line, crc)) != 0;
    line.crc = (used ? crc32c(0, &line, offsetof(Line, crc)) : 0) | std::uint64_t{values} << 32;
    bytes_.store(at, line);
    add(at + offsetof(Line, crc));
  }
  void add(std::uint64_t check) { sum_ += closed_term(check, bytes_.load<std::uint64_t>(check)); }

  bool records_ = false;
  bool word_records_ = false;
  bool arrays_ = false;
  std::uint64_t sum_ = 0;  // of the lines' checksums
};

}  // namespace

namespace fixers {
void level(PoolBytes& bytes, std::uint64_t root) { Fixer(bytes, root).run(); }
}  // namespace fixers

}  // namespace perdure::testing
