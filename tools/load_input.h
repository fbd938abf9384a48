// From a file descriptor to blocks of checked TSV lines, each line assigned to one worker.
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
  std::size_t end;  // of the value; the newline is here
};

// Whole lines of the input. Workers share it read-only, but for `next`.
struct Block {
  std::string text;
  std::uint64_t lines_before = 0;  // input lines before this block
  std::uint64_t offset = 0;        // of text[0] in the input
  std::vector<Line> lines;
  // Per worker: the numbers, within `lines`, of its lines, ascending. Lines with equal keys have
  // the same worker, so that the last one wins whatever the number of threads is. Skipped lines
  // have none.
  std::vector<std::vector<std::uint32_t>> shares;
  // Per worker: its first line that is not done yet; lines.size() when all are. Everything before
  // the smallest of them is durable.
  std::unique_ptr<std::atomic<std::uint32_t>[]> next;

  std::uint32_t done_lines() const;           // the smallest `next`
  std::uint64_t end_of(std::uint32_t) const;  // input offset behind the first n lines
};

struct BadLine {
  std::uint64_t number;  // the first line is 1
  std::string what;      // what is wrong; what to do
};

struct InputOptions {
  unsigned workers = 1;
  bool skip_bad = false;
  std::uint64_t skip_lines = 0;    // lines to pass over, from the start of the input
  std::uint64_t lines_before = 0;  // where the descriptor stands already
  std::uint64_t offset = 0;
  std::uint64_t cut_every = 0;  // a block ends with each line whose number is a multiple; 0: none
};

class LineReader {
 public:
  LineReader(int fd, const InputOptions& options)
      : fd_(fd), options_(options), lines_(options.lines_before), offset_(options.offset) {}

  // The next block, or null at the end: of the input, at a bad line, after a failed read (see
  // below), or when a signal asked to stop. Blocks as long as the input does.
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
  std::uint64_t lines_;   // delivered so far, from the start of the input
  std::uint64_t offset_;  // of rest_
  std::string rest_;      // lines behind a cut, and the beginning of one whose end is not read yet
  bool at_end_ = false;
  int read_error_ = 0;
  std::optional<BadLine> bad_line_;
  std::uint64_t bad_skipped_ = 0;
};

}  // namespace perdure::cli
