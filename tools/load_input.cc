#include "load_input.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>

#include <fmt/format.h>

#include "commands.h"
#include "tsv.h"

namespace perdure::cli {

namespace {

constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::uint64_t kBadLinesShown = 10;

}  // namespace

std::uint32_t Block::done_lines() const {
  auto done = static_cast<std::uint32_t>(lines.size());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    // Acquire: a thread that reads that a line is done may report that it is durable.
    done = std::min(done, next[i].load(std::memory_order_acquire));
  }
  return done;
}

std::uint64_t Block::end_of(std::uint32_t count) const {
  if (count == 0) return offset;
  return offset + std::min(lines[count - 1].end + 1, text.size());
}

// Appends the input that is available. Returns false at the end, or after an error or a signal.
bool LineReader::read_more(std::string& text) {
  for (;;) {
    if (interrupted()) return false;
    // With a time limit, because a signal may arrive between the check above and a read that never
    // ends.
    pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&waiting, 1, 200);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const std::size_t size = text.size();
    text.resize(size + kReadBytes);
    const ssize_t got = ::read(fd_, text.data() + size, kReadBytes);
    const int error = errno;
    text.resize(size + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got > 0) return true;
    if (got == 0) at_end_ = true;
    if (got < 0 && error == EINTR) continue;
    if (got < 0) read_error_ = error;
    return false;
  }
}

std::unique_ptr<Block> LineReader::next() {
  if (bad_line_) return nullptr;
  auto block = std::make_unique<Block>();
  block->text = std::move(rest_);
  rest_.clear();
  std::size_t searched = 0;
  std::size_t size = std::string::npos;  // of the whole lines
  for (;;) {
    const std::size_t newline = std::string_view(block->text).substr(searched).rfind('\n');
    if (newline != std::string_view::npos) {
      size = searched + newline + 1;
      break;
    }
    searched = block->text.size();
    // Without this limit a file that is no TSV would be read into memory whole.
    constexpr std::size_t kLongestKey = 2 * kMaxKeyBytes + 1;
    const bool no_key =
        searched > kLongestKey &&
        std::string_view(block->text).substr(0, kLongestKey).find('\t') == std::string_view::npos;
    if (no_key || searched > kLongestKey + 2 * kMaxValueBytes) {
      bad_line_ = BadLine{lines_ + 1, "it is longer than any entry; name a TSV file"};
      return nullptr;
    }
    if (at_end_ || !read_more(block->text)) {
      if (!at_end_) return nullptr;
      size = block->text.size();  // the last line may lack its newline
      break;
    }
  }
  if (size == std::string::npos || size == 0) return nullptr;
  split(*block, size);
  if (block->lines.empty()) return nullptr;
  return block;
}

void LineReader::split(Block& block, std::size_t size) {
  block.lines_before = lines_;
  block.offset = offset_;
  block.shares.resize(options_.workers);
  const std::string_view text = std::string_view(block.text).substr(0, size);
  std::size_t begin = 0;
  while (begin < size) {
    const std::size_t end = std::min(text.find('\n', begin), size);
    const std::string_view line = text.substr(begin, end - begin);
    const std::size_t tab = line.find('\t');
    const std::uint64_t number = lines_ + 1;
    if (number <= options_.skip_lines) {
      block.lines.push_back({begin, begin, end});
    } else if (auto what = line_error(line, tab); !what) {
      add_line(block, {begin, begin + tab, end});
    } else if (options_.skip_bad) {
      if (++bad_skipped_ <= kBadLinesShown) {
        say(fmt::format("skipped line {}: {}\n", number, *what));
      }
      block.lines.push_back({begin, begin, end});
    } else {
      bad_line_ = BadLine{number, *what};
      break;
    }
    ++lines_;
    begin = end + 1;
    if (options_.cut_every != 0 && lines_ % options_.cut_every == 0) break;
  }
  const std::size_t whole = bad_line_ ? size : std::min(begin, size);
  rest_.assign(block.text, whole);
  block.text.resize(whole);
  offset_ += whole;
  block.next = std::make_unique<std::atomic<std::uint32_t>[]>(options_.workers);
  for (unsigned i = 0; i < options_.workers; ++i) {
    const auto& share = block.shares[i];
    block.next[i] = share.empty() ? static_cast<std::uint32_t>(block.lines.size()) : share[0];
  }
}

std::optional<std::string> LineReader::line_error(std::string_view line, std::size_t tab) const {
  if (tab == std::string_view::npos) return "there is no tab between key and value; add one";
  const std::string_view key = line.substr(0, tab);
  const std::string_view value = line.substr(tab + 1);
  if (auto what = field_error(key)) return what;
  if (auto what = field_error(value)) return what;
  if (key.size() > kMaxKeyBytes && unescaped_size(key) > kMaxKeyBytes) {
    return fmt::format("the key has more than {} bytes; shorten it", kMaxKeyBytes);
  }
  if (value.size() > kMaxValueBytes && unescaped_size(value) > kMaxValueBytes) {
    return fmt::format("the value has more than {} bytes; split it", kMaxValueBytes);
  }
  return std::nullopt;
}

void LineReader::add_line(Block& block, Line line) {
  // The escaped form of a key is unique, so equal keys have equal hashes.
  const std::string_view key =
      std::string_view(block.text).substr(line.begin, line.tab - line.begin);
  const std::size_t worker =
      options_.workers == 1 ? 0 : std::hash<std::string_view>{}(key) % options_.workers;
  block.shares[worker].push_back(static_cast<std::uint32_t>(block.lines.size()));
  block.lines.push_back(line);
}

}  // namespace perdure::cli
