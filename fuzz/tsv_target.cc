// tsv: reads any bytes as the input of `load`. The first two bytes are options. The rest is read
// through a file and compared with a line-by-line definition. Valid fields are unescaped, escaped
// again, and looked up as keys of every type.
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "fuzz/bases.h"
#include "tools/load_input.h"
#include "tools/text_map.h"
#include "tools/tsv.h"

namespace perdure::fuzz {

namespace {

using cli::Bytes;

// One empty map per type of key. A lookup shows whether the text is a key of that type.
class Maps {
 public:
  static Maps& get() {
    static Maps maps;
    return maps;
  }
  void look_up(Bytes text) {
    for (cli::TextMap& map : maps_) {
      const auto found = map.get(text);
      PERDURE_EXPECT(found ? !found->has_value() : found.error() == StatusCode::invalid_argument,
                     "a lookup in an empty map finds a key, or fails with another code");
    }
  }

 private:
  Maps() : pool_(open()) {
    for (const char* type : {"bytes", "u8", "i16", "u32", "i64", "u64"}) {
      MapTypes types;
      PERDURE_EXPECT(cli::parse_key_type(type, types) && cli::parse_value_type("u16", types),
                     "type %s", type);
      auto map = pool_.untyped_map(type, {.phast = {.partition_bits = 0}}, types);
      PERDURE_EXPECT(map.has_value(), "a map of %s", type);
      maps_.emplace_back(std::move(*map));
    }
  }
  Pool open() {
    file_.write(Fixture::get().bases()[1]);  // empty, closed
    auto pool = open_file(file_.path(), {.mode = OpenMode::existing, .accept_untrusted = true});
    PERDURE_EXPECT(pool.has_value(), "the pool");
    return std::move(*pool);
  }

  ScratchFile file_;
  Pool pool_;
  std::vector<cli::TextMap> maps_;
};

void check_field(Bytes field) {
  // A copy of its exact size on the heap, in which AddressSanitizer sees reads beyond the end.
  const std::vector<char> copy(field.begin(), field.end());
  const Bytes text(copy.data(), copy.size());
  const auto error = cli::field_error(text);
  PERDURE_EXPECT(!error || !error->empty(), "an error has no message");
  std::string storage;
  if (planted()) (void)cli::unescape(text, storage);  // the planted bug: unescapes without a check
  if (error) return;
  const std::string bytes(cli::unescape(text, storage));
  PERDURE_EXPECT(bytes.size() == cli::unescaped_size(text), "size %zu", bytes.size());
  std::string again;
  cli::escape(bytes, again);
  PERDURE_EXPECT(again == text, "'%s' becomes '%s'", std::string(text).c_str(), again.c_str());
  Maps::get().look_up(bytes);
}

// The counts that the text has by definition.
struct Expected {
  std::uint64_t lines = 0;  // only those before the first bad line, unless bad lines are skipped
  std::uint64_t entries = 0;
  std::uint64_t bad = 0;
};
Expected count(Bytes text, const cli::InputOptions& options) {
  Expected out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const Bytes line = text.substr(0, end);
    const std::size_t tab = line.find('\t');
    const bool good = tab != Bytes::npos && !cli::field_error(line.substr(0, tab)) &&
                      !cli::field_error(line.substr(tab + 1));
    const bool passed_over = out.lines < options.skip_lines;
    if (!good && !passed_over) {
      ++out.bad;
      if (!options.skip_bad) return out;
    }
    if (good && !passed_over) ++out.entries;
    ++out.lines;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

void check_reader(Bytes text, const cli::InputOptions& options) {
  static const int fd = memfd_create("perdure-fuzz-tsv", MFD_CLOEXEC);
  PERDURE_EXPECT(fd >= 0 && ftruncate(fd, 0) == 0, "memfd");
  PERDURE_EXPECT(pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
                     lseek(fd, 0, SEEK_SET) == 0,
                 "pwrite");
  cli::LineReader reader(fd, options);
  Expected found;
  while (const auto block = reader.next()) {
    PERDURE_EXPECT(block->lines_before == found.lines,
                   "the number of lines before a block is wrong");
    PERDURE_EXPECT(text.substr(block->offset, block->text.size()) == block->text,
                   "the offset of a block is wrong");
    found.lines += block->lines.size();
    for (const auto& share : block->shares) {
      found.entries += share.size();
      for (const std::uint32_t number : share) {
        const cli::Line& line = block->lines[number];
        PERDURE_EXPECT(line.begin <= line.tab && line.tab < line.end &&
                           line.end <= block->text.size() && block->text[line.tab] == '\t',
                       "the offsets of a line are wrong");
      }
    }
    for (auto i = 0U; i < options.workers; ++i) {
      block->next[i] = static_cast<std::uint32_t>(block->lines.size());
    }
    PERDURE_EXPECT(block->end_of(block->done_lines()) <= text.size(),
                   "a block ends beyond the text");
  }
  const Expected expected = count(text, options);
  PERDURE_EXPECT(found.lines == expected.lines && found.entries == expected.entries,
                 "%llu lines and %llu entries, not %llu and %llu",
                 static_cast<unsigned long long>(found.lines),
                 static_cast<unsigned long long>(found.entries),
                 static_cast<unsigned long long>(expected.lines),
                 static_cast<unsigned long long>(expected.entries));
  PERDURE_EXPECT(reader.bad_line().has_value() == (expected.bad > 0 && !options.skip_bad) &&
                     (!options.skip_bad || reader.bad_lines_skipped() == expected.bad),
                 "the bad lines are counted wrongly");
}

}  // namespace

void fuzz_one(Input input) {
  Reader front(input);
  const std::uint8_t flags = front.byte();
  const std::uint8_t skip = front.byte();
  const Bytes text(reinterpret_cast<const char*>(front.rest().data()), front.rest().size());
  cli::InputOptions options{.workers = 1U + flags % 4, .skip_bad = (flags & 4) != 0};
  if ((flags & 8) != 0) options.skip_lines = skip;
  check_reader(text, options);
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find_first_of("\t\n", at), text.size());
    check_field(text.substr(at, end - at));
    at = end + 1;
  }
}

}  // namespace perdure::fuzz
