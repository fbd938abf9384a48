// Reads blocks of checked TSV lines from a file descriptor, and assigns each line to one worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::cli {

struct Line {
  std::size_t begin;  // of the key
  std::size_t tab;
  std::size_t end;  // of the value; the newline is at this place
};

// Whole lines of the input. Workers share it and change only `next`.
struct Block {
  std::string text;
  std::uint64_t lines_before = 0;  // input lines before this block
  std::uint64_t offset = 0;        // of text[0] in the input, in bytes
  std::vector<Line> lines;
  // For each worker the indexes of its lines in `lines`, ascending. Lines with equal keys have the
  // same worker, so that the last one wins for any number of threads. Skipped lines have no worker.
  std::vector<std::vector<std::uint32_t>> shares;
  // For each worker its first line that is not done, or lines.size() if all are done. All lines
  // before the smallest of them are durable.
  std::unique_ptr<std::atomic<std::uint32_t>[]> next;

  std::uint32_t done_lines() const;           // the smallest `next`
  std::uint64_t end_of(std::uint32_t) const;  // the input offset behind the first n lines
};

struct BadLine {
  std::uint64_t number;  // the first line is 1
  std::string what;      // what is wrong; what to do
};

struct InputOptions {
  unsigned workers = 1;
  bool skip_bad = false;
  std::uint64_t skip_lines = 0;    // lines to skip, from the start of the input
  std::uint64_t lines_before = 0;  // lines before the position of the descriptor
  std::uint64_t offset = 0;
  std::uint64_t cut_every =
      0;  // a block ends with every line whose number is a multiple of it; 0: never
};

class LineReader {
 public:
  LineReader(int fd, const InputOptions& options)
      : fd_(fd), options_(options), lines_(options.lines_before), offset_(options.offset) {}

  // Returns the next block. Returns null at the end of the input, at a bad line, after a failed
  // read, or when a signal asked to stop. Waits for input.
  std::unique_ptr<Block> next();

  const std::optional<BadLine>& bad_line() const noexcept { return bad_line_; }
  int read_error() const noexcept { return read_error_; }  // an errno, or 0
  std::uint64_t bad_lines_skipped() const noexcept { return bad_skipped_; }

 private:
  bool read_more(std::string& text);
  void split(Block& block, std::size_t size);
  std::optional<std::string> line_error(std::string_view line, std::size_t tab) const;
  void add_line(Block& block, Line line);

  int fd_;
  InputOptions options_;
  std::uint64_t lines_;   // delivered, from the start of the input
  std::uint64_t offset_;  // of rest_
  std::string rest_;      // lines behind a cut, and the beginning of an unfinished one
  bool at_end_ = false;
  int read_error_ = 0;
  std::optional<BadLine> bad_line_;
  std::uint64_t bad_skipped_ = 0;
};

}  // namespace perdure::cli
