#include "bench/workloads/real_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "bench/workloads/keys.h"
#include "bench/workloads/path_keys.h"
#include "bench/workloads/random.h"
#include "bench/workloads/syllables.h"
#include "bench/workloads/text_writer.h"

namespace perdure::bench {
namespace {

constexpr std::array<std::string_view, 7> kNames = {"ids",  "times", "paths", "urls",
                                                    "uuid", "words", "file"};
constexpr std::string_view kFilePrefix = "file:";

// ids: one of kIdRun numbers is a gap; the first is at most kMostFirstId.
constexpr std::uint64_t kIdRun = 16;
constexpr std::uint64_t kMostFirstId = 1000;

// times: kEvents in every kPeriodNs.
constexpr std::uint64_t kEvents = 8;
constexpr std::uint64_t kPeriodNs = 800'000;
constexpr std::uint64_t kBegin2026Ns = 1'767'225'600'000'000'000;  // 2026-01-01 00:00 UTC
constexpr std::uint64_t kFourWeeksNs = 28ULL * 24 * 3600 * 1'000'000'000;
constexpr unsigned kMostCompressed = 12;  // powers of two
// Two events are at least so far apart, so that there is a missing time in between.
constexpr std::uint64_t kLeastGapNs = 2;
static_assert((kPeriodNs >> kMostCompressed) > kLeastGapNs * (kEvents + 2));

// Quantiles of the exponential distribution with the mean 2^16.
std::array<std::uint32_t, 256> exponential_quantiles() {
  std::array<std::uint32_t, 256> quantiles{};
  for (std::size_t i = 0; i < quantiles.size(); ++i) {
    const double rest = 1 - (static_cast<double>(i) + 0.5) / static_cast<double>(quantiles.size());
    quantiles[i] = static_cast<std::uint32_t>(-std::log(rest) * 65536);
  }
  return quantiles;
}
const std::array<std::uint32_t, 256> kExponential = exponential_quantiles();

constexpr std::size_t kMaxUrlLength = 224;
constexpr std::size_t kUuidLength = 36;
constexpr std::uint64_t kHosts = 4096;
constexpr unsigned kArticleBits = 17;
constexpr unsigned kUrlBits = 36;  // of the article and of the id together
constexpr std::uint64_t kFirstArticle = 10'000;
constexpr std::array<Piece, 16> kSections = {
    "blog",   "news",    "docs",     "products", "articles", "politics", "technology", "sport",
    "health", "culture", "business", "world",    "opinion",  "reviews",  "recipes",    "events"};
constexpr std::array<std::string_view, 4> kParameters = {
    "?id=", "?ref=", "?page=", "?utm_source=newsletter&id="};

}  // namespace

RealKeys::RealKeys(RealKind kind, std::uint64_t seed, std::shared_ptr<const KeyFile> file) noexcept
    : kind_(kind), seed_(mix64(seed)), file_(std::move(file)) {}

std::string_view RealKeys::name() const noexcept { return kNames[static_cast<std::size_t>(kind_)]; }

std::uint64_t RealKeys::word(std::uint64_t index) const noexcept {
  if (kind_ == RealKind::ids) return id(index, false);
  if (kind_ == RealKind::times) return time(index);
  return 2 * index;
}

std::uint64_t RealKeys::missing_word(std::uint64_t index) const noexcept {
  if (kind_ == RealKind::ids) return id(index, true);
  if (kind_ == RealKind::times) {
    const std::uint64_t before = time(index);
    return before + 1 + mix64(before ^ seed_) % (time(index + 1) - before - 1);
  }
  return 2 * index + 1;
}

std::size_t RealKeys::max_length() const noexcept {
  switch (kind_) {
    case RealKind::paths:
      return kMaxPathLength;
    case RealKind::urls:
      return kMaxUrlLength;
    case RealKind::uuid:
      return kUuidLength;
    case RealKind::words:
      return kMaxWordLength;
    case RealKind::file:
      return file_->max_length();
    default:
      return sizeof(std::uint64_t);
  }
}

std::size_t RealKeys::write(std::uint64_t word, char* out) const noexcept {
  switch (kind_) {
    case RealKind::paths:
      return write_path(word, seed_, out);
    case RealKind::urls:
      return write_url(word, out);
    case RealKind::uuid:
      return write_uuid(word, out);
    case RealKind::words:
      return write_word(word, seed_, out);
    case RealKind::file:
      return write_line(word, out);
    default:
      return 0;
  }
}

std::uint64_t RealKeys::id(std::uint64_t index, bool gap) const noexcept {
  const std::uint64_t run = index / (kIdRun - 1);
  const std::uint64_t place = index % (kIdRun - 1);
  const std::uint64_t absent = mix64(run + seed_) % kIdRun;
  const std::uint64_t first = 1 + seed_ % kMostFirstId + run * kIdRun;
  return first + (gap ? absent : place + (place >= absent ? 1 : 0));
}

// The gaps of a period are drawn and scaled to its length, so no time needs the ones before.
std::uint64_t RealKeys::time(std::uint64_t index) const noexcept {
  const std::uint64_t period = index / kEvents;
  const std::uint64_t place = index % kEvents;
  const std::uint64_t draw = mix64(period + seed_);
  const auto compressed = static_cast<unsigned>(std::countr_zero(draw | 1ULL << kMostCompressed));
  const std::uint64_t length = kPeriodNs >> compressed;
  std::uint64_t before = 0;  // the gaps up to the event
  std::uint64_t all = kExponential[draw >> 56];
  std::uint64_t bytes = mix64(draw);
  for (std::uint64_t i = 0; i < kEvents; ++i, bytes >>= 8) {
    all += kExponential[bytes & 0xff];
    if (i == place) before = all;
  }
  const std::uint64_t pause = (draw >> 16 & 0xffffffff) * (kPeriodNs - length) >> 32;
  const std::uint64_t spread = length - kLeastGapNs * (kEvents + 1);
  return kBegin2026Ns + seed_ % kFourWeeksNs + period * kPeriodNs + pause + kLeastGapNs * place +
         spread * before / all;
}

std::size_t RealKeys::write_url(std::uint64_t number, char* out) const noexcept {
  // Host, section and month are those of the pair of the present key and the missing one.
  const std::uint64_t shared = mix64(number / 2 + seed_);
  const std::uint64_t own = mix64(number - seed_);
  const std::uint64_t distinct = mix_bits(number + seed_, kUrlBits);
  // The fourth power of a uniform number: the share of the first n hosts is the fourth root of
  // n / kHosts.
  const std::uint64_t square = (shared >> 32) * (shared >> 32) >> 32;
  const std::uint64_t rank = (square * square >> 32) * kHosts >> 32;
  const std::uint64_t host = (rank * 0x9e3779b1 + seed_) % kHosts;
  const std::uint64_t section = (host + (shared & shared >> 3 & 7)) % kSections.size();
  const std::uint64_t month = shared >> 6 & shared >> 13 & 127;  // recent ones are frequent
  TextWriter writer(out);
  writer.put("https://www.example-");
  writer.put_number(host);
  writer.put(".org/");
  writer.put_short(kSections[section]);
  writer.put('/');
  writer.put_number(2025 - month / 12);
  writer.put(month % 12 < 3 ? "/1" : "/0");
  writer.put("210987654321"[month % 12]);
  writer.put('/');
  std::uint64_t words = own;
  for (std::uint64_t left = 2 + (own >> 60 & 3); left > 0; --left, words >>= 6) {
    writer.put_short(kTopics[words % kTopics.size()]);
    writer.put('-');
  }
  writer.put_number(kFirstArticle + (distinct & ((1ULL << kArticleBits) - 1)));
  writer.put(kParameters[own >> 40 & 3]);
  writer.put_number(distinct >> kArticleBits);
  return writer.size();
}

// 62 of the random bits are a bijection of the number.
std::size_t RealKeys::write_uuid(std::uint64_t number, char* out) const noexcept {
  const std::uint64_t distinct = mix_bits(number + seed_, 62);
  const std::array<char, 16> front = hex_low_first(mix64(number ^ seed_));
  const std::array<char, 16> back = hex_low_first(distinct >> 2);
  std::memcpy(out, front.data(), 8);
  out[8] = '-';
  std::memcpy(out + 9, front.data() + 8, 4);
  std::memcpy(out + 13, "-4", 2);
  std::memcpy(out + 15, front.data() + 12, 3);
  out[18] = '-';
  out[19] = "89ab"[distinct & 3];
  std::memcpy(out + 20, back.data(), 3);
  out[23] = '-';
  std::memcpy(out + 24, back.data() + 3, 12);
  return kUuidLength;
}

// The process that is killed asks for keys beyond the last line, and must not touch one that is
// present.
std::size_t RealKeys::write_line(std::uint64_t number, char* out) const noexcept {
  const std::uint64_t index = number / 2;
  if (number % 2 != 0 || index >= file_->lines()) {
    return file_->write_absent(index % file_->lines(), out);
  }
  const std::string_view line = file_->line(index);
  std::memcpy(out, line.data(), line.size());
  return line.size();
}

Result<RealKeys> make_real_keys(std::string_view text, std::uint64_t seed) {
  if (text.starts_with(kFilePrefix) && text.size() > kFilePrefix.size()) {
    auto file = KeyFile::read(std::string(text.substr(kFilePrefix.size())));
    if (!file) return std::unexpected(file.error());
    return RealKeys(RealKind::file, seed, *file);
  }
  const auto* const name = std::ranges::find(kNames, text);
  if (name == kNames.end() || text == kNames.back()) {
    return failure(kExitUsage, fmt::format("unknown keys '{}'; known: ids times paths urls uuid "
                                           "words file:F",
                                           text));
  }
  return RealKeys(static_cast<RealKind>(name - kNames.begin()), seed);
}

}  // namespace perdure::bench
