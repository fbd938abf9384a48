// cli: parses a list of arguments, one a line, as those of `perdure`, or of its benchmark if the
// first is `bench`. It also parses each argument as a size, a count and a type. It runs no command:
// the parser returns an action, or a text and an exit status.
#include <string>
#include <vector>

#include "bench/harness/options.h"
#include "fuzz/target.h"
#include "tools/command_line.h"

namespace perdure::fuzz {

namespace {

constexpr std::size_t kMaxArguments = 24;

std::vector<std::string> split(Input input) {
  std::vector<std::string> out(1);
  for (const std::uint8_t c : input) {
    if (c == '\n') {
      if (out.size() == kMaxArguments) break;
      out.emplace_back();
    } else if (c != '\0') {
      out.back() += static_cast<char>(c);
    }
  }
  return out;
}

void check_numbers(const std::string& text) {
  const auto size = cli::parse_size(text);
  const auto bytes = bench::parse_bytes(text);
  (void)bench::parse_count(text);
  (void)engine_named(text);
  PERDURE_EXPECT(!size || (!text.empty() && text[0] >= '0' && text[0] <= '9'), "'%s' is a size",
                 text.c_str());
  PERDURE_EXPECT(!size || !bytes || *size == *bytes, "'%s' is parsed as two sizes", text.c_str());
  if (planted() && size) {  // the planted bug: assumes that a size is small
    const std::vector<char> table(4096);
    if (table.data()[*size < table.size() ? *size : table.size()] == 1) std::abort();
  }
  MapTypes types;
  if (!cli::parse_key_type(text, types) || !cli::parse_value_type(text, types)) return;
  const MapInfo info{.key_kind = types.key_kind,
                     .value_kind = types.value_kind,
                     .is_signed = types.is_signed,
                     .key_bytes = types.key_bytes,
                     .value_bytes = types.value_bytes};
  PERDURE_EXPECT(cli::key_type_name(info) == text && cli::value_type_name(info) == text,
                 "'%s' becomes '%s'", text.c_str(), cli::key_type_name(info).c_str());
}

}  // namespace

void fuzz_one(Input input) {
  std::vector<std::string> words = split(input);
  for (const std::string& word : words) check_numbers(word);
  const bool bench = words[0] == "bench";
  if (!bench) words.insert(words.begin(), "perdure");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  const int argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  if (bench) {
    const auto parsed = bench::parse_options(bench::Program::bench, argc, argv.data());
    PERDURE_EXPECT(parsed || (!parsed.error().message.empty() &&
                              parsed.error().exit_status == cli::exit_usage),
                   "exit status %d", parsed.error().exit_status);
    return;
  }
  const cli::CommandLine line = cli::parse_command_line(argc, argv.data());
  const bool talks = !line.out.empty() || !line.error.empty();
  PERDURE_EXPECT(line.action ? !talks : talks,
                 "the parser returned an action and a text, or neither");
  PERDURE_EXPECT(line.action || line.status == (line.out.empty() ? cli::exit_usage : 0),
                 "exit status %d", line.status);
}

}  // namespace perdure::fuzz
