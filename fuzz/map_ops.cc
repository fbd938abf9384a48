#include "fuzz/map_ops.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "fuzz/bases.h"

namespace perdure::fuzz {

namespace {

constexpr std::uint64_t kMaxVisits = 1000;  // a damaged map may go on for ever

// A planted bug: a value is believed to be short.
void plant(const detail::Value& value) {
  const std::vector<char> buffer(100);
  if (!value.bytes.empty() && buffer.data()[value.bytes.size()] == 1) std::abort();
}

// Keeps loads from being optimised away.
volatile std::uint64_t& sink() {
  static volatile std::uint64_t value = 0;
  return value;
}

}  // namespace

Status HeldVersion::hold(detail::VersionedIndex& index, std::uint64_t version) {
  Status s = index.pin(pin_, version);
  if (s.ok()) index_ = &index;
  return s;
}
void HeldVersion::let_go() noexcept {
  if (held()) index_->unpin(pin_);
}
std::optional<std::uint64_t> HeldVersion::version_of(
    const detail::VersionedIndex& index) const noexcept {
  if (!held() || index_ != &index) return std::nullopt;
  return pin_.version;
}

void MapOps::run(Op op, std::uint8_t choice, Reader& input) {
  const std::uint8_t more = input.byte();
  switch (op) {
    case Op::find:
      return find(key_of(more));
    case Op::find_many:
      return find_many(more);
    case Op::insert:
      return write(op, key_of(more), value_of(more));
    case Op::upsert:
    case Op::update:
      return write(op, key_of(more), value_of(input.byte()));
    case Op::erase:
      return erase(key_of(more));
    case Op::fill:
    case Op::clear:
      return fill(op, choice, more);
    case Op::scan:
      return map_.ordered != nullptr ? scan(more) : for_each();
    case Op::for_each:
      return for_each();
    default:
      if (map_.versioned != nullptr) on_versions(op, more, input);
  }
}

MapOps::OwnKey MapOps::key_of(std::uint8_t choice) const {
  if (map_.info.key_kind != KeyKind::integer) return {.word = 0, .bytes = text_of(choice)};
  const std::uint64_t sign = map_.info.is_signed ? 1ULL << 63 : 0;
  return {.word = word_of(choice) ^ sign, .bytes = {}};
}

detail::Value MapOps::value_of(std::uint8_t choice) {
  if (map_.info.value_kind == ValueKind::word) {
    return {.word = choice, .word_size = map_.info.value_bytes};
  }
  value_.assign(choice < 250 ? choice : (choice - 249U) * 3000U, 'v');
  return {.bytes = value_};
}

void MapOps::bounds_of(std::uint8_t choice, Bounds& out) const {
  out.from = key_of(choice);
  out.to = key_of(static_cast<std::uint8_t>(choice * 7));
  out.range.reverse = out.expected.reverse = choice % 2 != 0;
  if (choice % 4 != 0) {
    out.range.from = out.from.view();
    out.expected.from = name_of(out.from);
  }
  if (choice % 3 != 0) {
    out.range.to = out.to.view();
    out.expected.to = name_of(out.to);
  }
}

// Mostly one of the first or of the last; sometimes one that there cannot be.
std::uint64_t MapOps::version_of(std::uint8_t choice) const {
  constexpr std::uint8_t kNear = 240;
  const VersionRange all = map_.versioned->versions();
  const std::uint64_t steps = choice / 2U % 24;
  if (choice < kNear) return choice % 2 == 0 ? all.first + steps : all.last + 1 - steps;
  const std::uint64_t odd[] = {0, all.first - 1, all.last + 2, ~std::uint64_t{0}};
  return odd[choice % std::size(odd)];
}

void MapOps::refused(const Status& status) const {
  PERDURE_EXPECT(!status.message().empty(), "an error without a word");
  switch (status.code()) {
    case StatusCode::pool_full:
    case StatusCode::out_of_memory:
    case StatusCode::read_only:
    case StatusCode::hash_overflow:
      return;
    case StatusCode::corruption:
    case StatusCode::invalid_argument:  // of a kind that only damage says
    case StatusCode::busy:
      if (oracle_ == nullptr) return;
      [[fallthrough]];
    default:
      PERDURE_EXPECT(false, "answered %s: %s", status_code_name(status.code()),
                     std::string(status.message()).c_str());
  }
}

template <class T>
bool MapOps::answered(const Expected<T>& result, bool readable) const {
  if (oracle_ == nullptr) {
    if (!result) refused(result.error());
    return false;  // nothing to compare with
  }
  if (readable) {
    PERDURE_EXPECT(result.has_value(), "a reader is answered %s",
                   std::string(result.error().message()).c_str());
    return true;
  }
  PERDURE_EXPECT(!result.has_value() && result.error() == StatusCode::invalid_argument,
                 "a version that cannot be read is answered");
  return false;
}

std::string MapOps::look(const detail::Value& value) const {
  std::uint64_t sum = value.word;
  for (const char c : value.bytes) sum += static_cast<unsigned char>(c);
  if (planted(Plant::memory)) plant(value);
  sink() = sum;
  return oracle_ != nullptr ? encoded(value) : std::string();
}
Oracle::Value MapOps::look(const std::optional<detail::Value>& value) const {
  return value ? Oracle::Value(look(*value)) : std::nullopt;
}

// --- at present ---

void MapOps::find(const OwnKey& key) {
  Oracle::Value seen;
  const auto found =
      map_.index->read(key.view(), [&](const detail::Value& value) { seen = look(value); });
  if (!answered(found, true)) return;
  PERDURE_EXPECT(*found == seen.has_value(), "found, and shown, differ");
  PERDURE_EXPECT(seen == oracle_->now(name_of(key)), "another value than was written");
}

void MapOps::find_many(std::uint8_t choice) {
  constexpr unsigned kKeys = 24;
  std::vector<OwnKey> own;
  std::vector<detail::Key> keys;
  for (unsigned i = 0; i < kKeys; ++i) own.push_back(key_of(static_cast<std::uint8_t>(choice + i)));
  for (const OwnKey& key : own) keys.push_back(key.view());
  std::vector<Oracle::Value> seen(kKeys);
  const auto found = map_.index->read_many(
      keys, [&](std::size_t i, const detail::Value& value) { seen[i] = look(value); });
  if (!answered(found, true)) return;
  for (unsigned i = 0; i < kKeys; ++i) {
    PERDURE_EXPECT(seen[i] == oracle_->now(name_of(own[i])), "another value than was written");
  }
}

void MapOps::write(Op op, const OwnKey& key, const detail::Value& value) {
  detail::Index& index = *map_.index;
  const auto done = op == Op::insert   ? index.insert(key.view(), value)
                    : op == Op::upsert ? index.upsert(key.view(), value)
                                       : index.update(key.view(), value);
  if (!done) return refused(done.error());
  if (oracle_ == nullptr) return;
  const bool had = oracle_->now(name_of(key)).has_value();
  PERDURE_EXPECT(*done == (op == Op::update ? had : !had), "a write takes the key for %s",
                 had ? "absent" : "present");
  if (op == Op::upsert || *done) oracle_->write(name_of(key), encoded(value));
}

void MapOps::erase(const OwnKey& key) {
  // A planted bug, where no versions are kept: nothing is erased.
  const bool skip = planted(Plant::answer) && map_.versioned == nullptr;
  const auto done = skip ? map_.index->read(key.view(), [](const detail::Value&) {})
                         : map_.index->erase(key.view());
  if (!done) return refused(done.error());
  if (oracle_ == nullptr) return;
  PERDURE_EXPECT(*done == oracle_->now(name_of(key)).has_value(), "erase found what was not there");
  if (*done) oracle_->write(name_of(key), std::nullopt);
}

void MapOps::fill(Op op, std::uint8_t first, unsigned n) {
  for (unsigned i = 0; i < n; ++i) {
    const auto choice = static_cast<std::uint8_t>(first + i);
    if (op == Op::fill) {
      write(Op::insert, key_of(choice), value_of(choice % 32));
    } else {
      erase(key_of(choice));
    }
  }
}

void MapOps::scan(std::uint8_t choice) {
  Bounds bounds;
  bounds_of(choice, bounds);
  Oracle::Entries seen;
  const auto done = map_.ordered->scan(bounds.range, [&](std::span<const detail::Entry> entries) {
    for (const detail::Entry& entry : entries) {
      seen.emplace_back(encoded(map_.info, entry.key), look(entry.value));
    }
    return seen.size() < kMaxVisits;
  });
  if (!answered(done, true)) return;
  PERDURE_EXPECT(seen == oracle_->scan(oracle_->open(), bounds.expected),
                 "a scan misses what is there, or finds what is not");
}

void MapOps::for_each() {
  Oracle::Entries seen;
  const auto done = map_.index->for_each([&](std::span<const detail::Entry> entries) {
    for (const detail::Entry& entry : entries) {
      seen.emplace_back(encoded(map_.info, entry.key), look(entry.value));
    }
    return seen.size() < kMaxVisits;
  });
  if (!answered(done, true)) return;
  if (map_.ordered == nullptr) std::ranges::sort(seen);
  PERDURE_EXPECT(seen == oracle_->scan(oracle_->open(), {}),
                 "going through all misses what is there, or finds what is not");
}

// --- at versions ---

void MapOps::on_versions(Op op, std::uint8_t choice, Reader& input) {
  switch (op) {
    case Op::find_at:
      return find_at(key_of(choice), version_of(input.byte()));
    case Op::history:
      return history(key_of(choice));
    case Op::tag:
      return tag();
    case Op::trim:
      return trim(version_of(choice));
    case Op::rollback:
      return roll_back(version_of(choice));
    case Op::pin:
      return pin(version_of(choice));
    default:
      break;
  }
  const std::uint64_t version = version_of(choice);
  Bounds bounds;
  bounds_of(input.byte(), bounds);
  if (const std::uint8_t limit = input.byte(); limit < 64) {
    bounds.range.limit = bounds.expected.limit = limit;
  }
  if (op == Op::scan_at) return scan_at(version, bounds);
  diff(version, version_of(input.byte()), bounds);
}

void MapOps::find_at(const OwnKey& key, std::uint64_t version) {
  Oracle::Value seen;
  const auto found = map_.versioned->read_at(
      key.view(), version, [&](const detail::Value& value) { seen = look(value); });
  if (!answered(found, oracle_ != nullptr && oracle_->readable(version))) return;
  PERDURE_EXPECT(*found == seen.has_value(), "found, and shown, differ");
  PERDURE_EXPECT(seen == oracle_->at(name_of(key), version), "version %llu has changed",
                 static_cast<unsigned long long>(version));
}

void MapOps::scan_at(std::uint64_t version, const Bounds& bounds) {
  Oracle::Entries seen;
  const std::uint64_t most = std::min(bounds.range.limit, kMaxVisits);
  const auto visit = [&](std::span<const detail::Entry> entries) {
    for (const detail::Entry& entry : entries) {
      if (seen.size() >= most) break;
      seen.emplace_back(encoded(map_.info, entry.key), look(entry.value));
    }
    return seen.size() < most;
  };
  // A planted bug: what the map holds, in place of what it held.
  const bool present = planted(Plant::answer) && oracle_ != nullptr && oracle_->readable(version);
  const auto done = present ? map_.versioned->scan(bounds.range, visit)
                            : map_.versioned->scan_at(version, bounds.range, visit);
  if (!answered(done, oracle_ != nullptr && oracle_->readable(version))) return;
  PERDURE_EXPECT(seen == oracle_->scan(version, bounds.expected),
                 "the snapshot of version %llu has changed",
                 static_cast<unsigned long long>(version));
}

void MapOps::history(const OwnKey& key) {
  Oracle::History seen;
  const auto done = map_.versioned->history(key.view(), [&](const detail::VersionedValue& entry) {
    seen.emplace_back(entry.version, look(entry.value));
    return seen.size() < kMaxVisits;
  });
  if (!answered(done, true)) return;
  PERDURE_EXPECT(oracle_->could_be_history(name_of(key), seen), "a history of %zu entries is wrong",
                 seen.size());
}

void MapOps::diff(std::uint64_t from, std::uint64_t to, const Bounds& bounds) {
  std::vector<Oracle::Difference> seen;
  const auto done =
      map_.versioned->diff(from, to, bounds.range, [&](const detail::Difference& difference) {
        seen.push_back({.key = encoded(map_.info, difference.key),
                        .before = look(difference.before),
                        .after = look(difference.after)});
        return seen.size() < kMaxVisits;
      });
  const bool readable = oracle_ != nullptr && oracle_->readable(from) && oracle_->readable(to);
  if (!answered(done, readable)) return;
  PERDURE_EXPECT(seen == oracle_->diff(from, to, bounds.expected),
                 "versions %llu and %llu differ otherwise", static_cast<unsigned long long>(from),
                 static_cast<unsigned long long>(to));
}

void MapOps::tag() {
  const auto version = map_.versioned->tag();
  if (!version) return refused(version.error());
  if (oracle_ == nullptr) return;
  PERDURE_EXPECT(*version == oracle_->open(), "tagged %llu, but %llu was open",
                 static_cast<unsigned long long>(*version),
                 static_cast<unsigned long long>(oracle_->open()));
  oracle_->tag();
}

void MapOps::trim(std::uint64_t version) {
  const auto held = held_.version_of(*map_.versioned);
  const auto horizon = map_.versioned->trim(version);
  if (!horizon && (oracle_ == nullptr || horizon.error() == StatusCode::read_only)) {
    return refused(horizon.error());
  }
  if (!answered(horizon, oracle_ != nullptr && version <= oracle_->open())) return;
  oracle_->trim(std::min(version, held.value_or(version)));
  PERDURE_EXPECT(*horizon == oracle_->versions().first, "trimmed below %llu, not below %llu",
                 static_cast<unsigned long long>(*horizon),
                 static_cast<unsigned long long>(oracle_->versions().first));
}

void MapOps::roll_back(std::uint64_t version) {
  const auto held = held_.version_of(*map_.versioned);
  const Status done = map_.versioned->rollback(version);
  if (oracle_ == nullptr || done == StatusCode::read_only) {
    if (!done.ok()) refused(done);
    return;
  }
  const StatusCode expected = !oracle_->readable(version)  ? StatusCode::invalid_argument
                              : held.value_or(0) > version ? StatusCode::busy
                                                           : StatusCode::ok;
  PERDURE_EXPECT(done == expected, "a rollback to version %llu is answered %s",
                 static_cast<unsigned long long>(version), status_code_name(done.code()));
  if (done.ok()) oracle_->roll_back(version);
}

void MapOps::pin(std::uint64_t version) {
  if (held_.held()) return held_.let_go();
  const Status done = held_.hold(*map_.versioned, version);
  const bool readable = oracle_ != nullptr && oracle_->readable(version);
  (void)answered(done.ok() ? Expected<void>() : fail(Status(done)), readable);
}

void MapOps::verify() {
  for_each();
  if (map_.versioned == nullptr || oracle_ == nullptr) return;
  const VersionRange range = map_.versioned->versions();
  PERDURE_EXPECT(range.first == oracle_->versions().first && range.last == oracle_->versions().last,
                 "other versions can be read");
  for (const std::uint64_t version : oracle_->states()) {
    if (version != oracle_->open()) scan_at(version, {});
  }
}

}  // namespace perdure::fuzz
