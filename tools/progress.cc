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

std::string Progress::line(std::uint64_t bytes, std::uint64_t records,
                           std::uint64_t acknowledged) const {
  const double elapsed = std::max(seconds(), 1e-9);
  const auto rate = static_cast<std::uint64_t>(static_cast<double>(records) / elapsed);
  const std::string tail =
      fmt::format("{} records/s  acknowledged {}", with_commas(rate), with_commas(acknowledged));
  if (total_ == 0) return fmt::format("{}  {}", human_bytes(bytes), tail);
  return fmt::format("{}  {}", bar(bytes), tail);
}

std::string Progress::bar(std::uint64_t bytes) const {
  const double elapsed = std::max(seconds(), 1e-9);
  const double part = static_cast<double>(bytes) / static_cast<double>(total_);
  const std::size_t filled = std::min(kBarWidth, static_cast<std::size_t>(part * kBarWidth));
  const std::string hashes = std::string(filled, '#') + std::string(kBarWidth - filled, '.');
  // The bytes of an earlier run have cost this one no time.
  const double left = bytes > start_ ? elapsed * static_cast<double>(total_ - bytes) /
                                           static_cast<double>(bytes - start_)
                                     : 0;
  const auto eta = static_cast<std::uint64_t>(left);
  return fmt::format("[{}] {:3.0f}%  {} of {}  ETA {}:{:02}", hashes, 100 * part,
                     human_bytes(bytes), human_bytes(total_), eta / 60, eta % 60);
}

void Progress::show(std::uint64_t bytes, std::uint64_t records, std::uint64_t acknowledged) {
  if (visible_) print(line(bytes, records, acknowledged));
}

void Progress::show_bytes(std::uint64_t bytes, std::uint64_t total) {
  if (!visible_ || total == 0 || seconds() - shown_at_ < 0.1) return;
  shown_at_ = seconds();
  total_ = total;
  print(bar(bytes));
}

void Progress::print(const std::string& text) {
  // A line that wraps could not be rewritten.
  say(fmt::format("\r\033[K{}", text.substr(0, terminal_columns() - 1)));
  std::fflush(stderr);
}

void Progress::clear() {
  if (visible_) say("\r\033[K");
}

}  // namespace perdure::cli
