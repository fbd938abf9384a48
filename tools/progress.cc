#include "progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "commands.h"

namespace perdure::cli {

namespace {

constexpr std::size_t kBarWidth = 24;
constexpr std::size_t kLeastBar = 8;  // with its brackets

std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(std::uint64_t start, std::uint64_t total)
    : start_(start), total_(total), visible_(::isatty(STDERR_FILENO) != 0) {}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

std::vector<Progress::Part> Progress::amount(std::uint64_t bytes) const {
  if (total_ == 0) return {{1, human_bytes(bytes)}};
  const double elapsed = seconds();
  // The bytes of an earlier run have cost this one no time.
  const double left = bytes > start_ ? elapsed * static_cast<double>(total_ - bytes) /
                                           static_cast<double>(bytes - start_)
                                     : 0;
  const auto eta = static_cast<std::uint64_t>(left);
  return {{4, std::string(kLeastBar, '[')},
          {1, fmt::format("{:3.0f}%", 100 * done(bytes))},
          {3, fmt::format("{} of {}", human_bytes(bytes), human_bytes(total_))},
          {2, fmt::format("ETA {}:{:02}", eta / 60, eta % 60)}};
}

double Progress::done(std::uint64_t bytes) const {
  return total_ == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(total_);
}

void Progress::show(std::uint64_t bytes, std::uint64_t records, std::uint64_t acknowledged) {
  if (!visible_) return;
  const auto rate =
      static_cast<std::uint64_t>(static_cast<double>(records) / std::max(seconds(), 1e-9));
  std::vector<Part> parts = amount(bytes);
  parts.push_back({5, fmt::format("{} records/s", with_commas(rate))});
  parts.push_back({0, fmt::format("acknowledged {}", with_commas(acknowledged))});
  print(std::move(parts), done(bytes));
}

void Progress::show_bytes(std::uint64_t bytes, std::uint64_t total) {
  if (!visible_ || total == 0 || seconds() - shown_at_ < 0.1) return;
  shown_at_ = seconds();
  total_ = total;
  print(amount(bytes), done(bytes));
}

void Progress::print(std::vector<Part> parts, double done) {
  const std::size_t columns = terminal_columns() - 1;  // a line that wraps could not be rewritten
  const auto width = [&] {
    std::size_t sum = 0;
    for (const Part& part : parts) sum += part.text.size() + 2;
    return sum - 2;
  };
  while (parts.size() > 1 && width() > columns) {
    parts.erase(std::ranges::max_element(parts, {}, &Part::rank));
  }
  if (std::string& bar = parts.front().text; bar[0] == '[') {  // it gets what the others leave
    const std::size_t size = std::min(kBarWidth, bar.size() - 2 + columns - width());
    const auto filled = static_cast<std::size_t>(std::min(done, 1.0) * static_cast<double>(size));
    bar = fmt::format("[{}{}]", std::string(filled, '#'), std::string(size - filled, '.'));
  }
  std::string line;
  for (const Part& part : parts) line += (line.empty() ? "" : "  ") + part.text;
  fmt::print(stderr, "\r\033[K{}", line.substr(0, columns));
  std::fflush(stderr);
}

void Progress::clear() {
  if (visible_) fmt::print(stderr, "\r\033[K");
}

}  // namespace perdure::cli
