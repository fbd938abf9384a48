// Replays inputs without libFuzzer. A file is a corpus (.hex: one input a line, in hexadecimal; `#`
// begins a comment), or one input as libFuzzer writes it.
//
//   fuzz_open_replay fuzz/corpus/open.hex               replays all inputs
//   fuzz_open_replay crash-1a2b...                      replays one, raw bytes
//   fuzz_open_replay --unpack DIR fuzz/corpus/open.hex  writes a file per input, for libFuzzer
//
// Exits with 0 if it finds nothing. A finding aborts the process; the last line names the input.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

// Returns false if `line` is not hexadecimal.
bool parse_hex(std::string_view line, Bytes& out) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (line.size() % 2 != 0) return false;
  for (std::size_t i = 0; i < line.size(); i += 2) {
    const int high = digit(line[i]);
    const int low = digit(line[i + 1]);
    if (high < 0 || low < 0) return false;
    out.push_back(static_cast<std::uint8_t>(high * 16 + low));
  }
  return true;
}

struct Named {
  std::string name;
  Bytes bytes;
};

bool read_inputs(const std::string& path, std::vector<Named>& out) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return false;
  if (!path.ends_with(".hex")) {
    out.push_back({path, Bytes(std::istreambuf_iterator<char>(in), {})});
    return true;
  }
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::string name = path + ":" + std::to_string(number);
    line.erase(std::min(line.find('#'), line.size()));
    while (!line.empty() && line.back() == ' ') line.pop_back();
    if (line.empty()) continue;
    Bytes bytes;
    if (!parse_hex(line, bytes)) {
      std::fprintf(stderr,
                   "%s: not an even number of lower-case hexadecimal digits; correct the line\n",
                   name.c_str());
      return false;
    }
    out.push_back({name, std::move(bytes)});
  }
  return true;
}

void unpack(const std::string& folder, const std::vector<Named>& inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::ofstream out(folder + "/" + std::to_string(i), std::ios::binary);
    out.write(reinterpret_cast<const char*>(inputs[i].bytes.data()),
              static_cast<std::streamsize>(inputs[i].bytes.size()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Named> inputs;
  std::string folder;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--unpack" && i + 1 < argc) {
      folder = argv[++i];
    } else if (!read_inputs(argument, inputs)) {
      std::fprintf(stderr, "%s: cannot be read; give a corpus (.hex) or an input\n",
                   argument.c_str());
      return 2;
    }
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "usage: %s [--unpack DIR] FILE...\n", argv[0]);
    return 2;
  }
  if (!folder.empty()) {
    unpack(folder, inputs);
    return 0;
  }
  for (const Named& input : inputs) {
    std::printf("%s\n", input.name.c_str());
    std::fflush(stdout);  // the last line must name the input that aborts
    LLVMFuzzerTestOneInput(input.bytes.data(), input.bytes.size());
  }
  std::printf("replayed=%zu\n", inputs.size());
  return 0;
}
