#include "bench/workloads/ycsb.h"

#include <array>

namespace perdure::bench {
namespace {

constexpr std::array<YcsbMix, 6> kMixes = {{
    {.read = 0.5, .update = 0.5},
    {.read = 0.95, .update = 0.05},
    {.read = 1},
    {.read = 0.95, .insert = 0.05, .latest = true},
    {.insert = 0.05, .scan = 0.95},
    {.read = 0.5, .read_modify_write = 0.5},
}};

// YCSB's fudge factor: room for twice the expected insertions, and one more because the range is
// inclusive.
std::uint64_t item_count(const YcsbMix& mix, std::uint64_t loaded, std::uint64_t operations) {
  return loaded + static_cast<std::uint64_t>(static_cast<double>(operations) * mix.insert * 2.0) +
         1;
}

}  // namespace

const YcsbMix& ycsb_mix(char letter) noexcept {
  return kMixes[static_cast<std::size_t>(letter - 'a')];
}

YcsbChooser::YcsbChooser(char letter, std::uint64_t loaded, std::uint64_t operations)
    : mix_(ycsb_mix(letter)), loaded_(loaded), scrambled_(item_count(mix_, loaded, operations)) {
  if (mix_.latest) first_latest_.emplace(loaded - 1);
  latest_ = first_latest_;
}

void YcsbChooser::restart(std::uint64_t seed) noexcept {
  random_ = Random(seed);
  inserted_ = 0;
  latest_ = first_latest_;
}

YcsbOperation YcsbChooser::choose_operation() noexcept {
  double u = random_.unit();
  if (u < mix_.read) return YcsbOperation::read;
  u -= mix_.read;
  if (u < mix_.update) return YcsbOperation::update;
  u -= mix_.update;
  if (u < mix_.insert) return YcsbOperation::insert;
  if (mix_.scan > 0) return YcsbOperation::scan;
  if (mix_.read_modify_write > 0) return YcsbOperation::read_modify_write;
  return YcsbOperation::read;  // only rounding leads here: the shares are used up
}

std::uint64_t YcsbChooser::choose_position() noexcept {
  const std::uint64_t last = loaded_ + inserted_ - 1;
  if (mix_.latest) return latest_->next(last, random_);
  std::uint64_t position = 0;
  do {
    position = scrambled_.next(random_);
  } while (position > last);
  return position;
}

YcsbRequest YcsbChooser::next() noexcept {
  YcsbRequest request{.operation = choose_operation()};
  if (request.operation == YcsbOperation::insert) {
    request.position = loaded_ + inserted_++;
    return request;
  }
  request.position = choose_position();
  if (request.operation == YcsbOperation::scan) {
    request.scan_length = 1 + random_.below(kYcsbMaxScanLength);
  }
  return request;
}

}  // namespace perdure::bench
