#include "fuzz/map_ops.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "fuzz/bases.h"

namespace perdure::fuzz {

namespace {

constexpr std::uint64_t kMaxVisits = 1000;  // a scan of a damaged map may never end

// A planted bug: assumes that a value is short.
void plant(const UntypedValue& value) {
  const std::vector<char> buffer(100);
  if (!value.bytes.empty() && buffer.data()[value.bytes.size()] == 1) std::abort();
}

// Keeps the compiler from removing loads.
volatile std::uint64_t& sink() {
  static volatile std::uint64_t value = 0;
  return value;
}

}  // namespace

Status HeldVersion::hold(UntypedMap& map, std::uint64_t version) {
  auto snapshot = map.snapshot(version);
  if (!snapshot) return std::move(snapshot.error());
  snapshot_.emplace(std::move(*snapshot));
  map_ = map.info().name;
  return {};
}
std::optional<std::uint64_t> HeldVersion::version_of(const UntypedMap& map) const {
  if (!held() || map_ != std::string_view(map.info().name)) return std::nullopt;
  return snapshot_->version();
}

void MapOps::run(Op op, std::uint8_t choice, Reader& input) {
  const std::uint8_t more = input.byte();
  switch (op) {
    case Op::get:
      return get(key_of(more));
    case Op::get_many:
      return get_many(more);
    case Op::insert:
      return write(op, key_of(more), value_of(more));
    case Op::put:
    case Op::update:
      return write(op, key_of(more), value_of(input.byte()));
    case Op::erase:
      return erase(key_of(more));
    case Op::fill:
    case Op::clear:
      return fill(op, choice, more);
    case Op::scan:
      return map_.ordered() ? scan(more) : for_each();
    case Op::for_each:
      return for_each();
    case Op::write_many:
      return write_many(more, input);
    case Op::exchange:
      return exchange(key_of(more), input);
    case Op::erase_range:
      return erase_range(more, input.byte());
    case Op::batch:
      return commit(more, input);
    default:
      if (map_.versioned()) on_versions(op, more, input);
  }
}

MapOps::OwnKey MapOps::key_of(std::uint8_t choice) const {
  if (map_.info().key_kind != KeyKind::integer) return {.word = 0, .bytes = text_of(choice)};
  // Cuts the word to the size of the map's type. A damaged map may have a type of any size.
  const std::uint64_t word = word_of(choice);
  const unsigned bytes = map_.info().key_bytes;
  const unsigned unused = bytes == 0 || bytes > 8 ? 0 : 64 - 8 * bytes;
  if (!map_.info().is_signed) return {.word = word << unused >> unused, .bytes = {}};
  const std::int64_t number = static_cast<std::int64_t>(word << unused) >> unused;
  return {.word = static_cast<std::uint64_t>(number) ^ 1ULL << 63, .bytes = {}};
}

UntypedValue MapOps::value_of(std::uint8_t choice) {
  if (map_.info().value_kind == ValueKind::word) {
    return {.word = choice, .word_size = map_.info().value_bytes};
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

// Usually a version near the first or the last; sometimes one that cannot exist.
std::uint64_t MapOps::version_of(std::uint8_t choice) const {
  constexpr std::uint8_t kNear = 240;
  const VersionRange all = map_.versions().value_or(VersionRange{});
  const std::uint64_t steps = choice / 2U % 24;
  if (choice < kNear) return choice % 2 == 0 ? all.first + steps : all.last + 1 - steps;
  const std::uint64_t odd[] = {0, all.first - 1, all.last + 2, ~std::uint64_t{0}};
  return odd[choice % std::size(odd)];
}

void MapOps::refused(const Status& status) const {
  PERDURE_EXPECT(!status.message().empty(), "an error has no message");
  switch (status.code()) {
    case StatusCode::pool_full:
    case StatusCode::out_of_memory:
    case StatusCode::read_only:
    case StatusCode::hash_overflow:
      return;
    case StatusCode::corruption:
    case StatusCode::invalid_argument:  // the kind is one that only damage writes
    case StatusCode::busy:
      if (oracle_ == nullptr) return;
      [[fallthrough]];
    default:
      PERDURE_EXPECT(false, "failed with the undocumented %s: %s", status_code_name(status.code()),
                     std::string(status.message()).c_str());
  }
}

bool MapOps::comparable(const Status& result, bool readable) const {
  if (oracle_ == nullptr) {
    if (!result.ok()) refused(result);
    return false;  // there is nothing to compare with
  }
  if (readable) {
    PERDURE_EXPECT(result.ok(), "a read fails with %s", std::string(result.message()).c_str());
    return true;
  }
  PERDURE_EXPECT(result == StatusCode::invalid_argument,
                 "a version outside the readable range is read");
  return false;
}

std::string MapOps::look(const UntypedValue& value) const {
  std::uint64_t sum = value.word;
  for (const char c : value.bytes) sum += static_cast<unsigned char>(c);
  if (planted(Plant::memory)) plant(value);
  sink() = sum;
  return oracle_ != nullptr ? encoded(value) : std::string();
}
Oracle::Value MapOps::look(const std::optional<UntypedValue>& value) const {
  return value ? Oracle::Value(look(*value)) : std::nullopt;
}

// --- at present ---

void MapOps::get(const OwnKey& key) {
  Oracle::Value seen;
  const Found found = map_.read(key.view(), [&](const UntypedValue& value) { seen = look(value); });
  if (!comparable(found.status(), true)) return;
  PERDURE_EXPECT(found.present() == seen.has_value(),
                 "read() finds a key, but passes no value, or the reverse");
  PERDURE_EXPECT(seen == oracle_->now(name_of(key)), "another value than was written");
}

void MapOps::get_many(std::uint8_t choice) {
  constexpr unsigned kKeys = 24;
  std::vector<OwnKey> own;
  std::vector<UntypedKey> keys;
  for (unsigned i = 0; i < kKeys; ++i) own.push_back(key_of(static_cast<std::uint8_t>(choice + i)));
  for (const OwnKey& key : own) keys.push_back(key.view());
  std::vector<Oracle::Value> seen(kKeys);
  const auto found = map_.read_many(
      keys, [&](std::size_t i, const UntypedValue& value) { seen[i] = look(value); });
  if (!comparable(found, true)) return;
  for (unsigned i = 0; i < kKeys; ++i) {
    PERDURE_EXPECT(seen[i] == oracle_->now(name_of(own[i])), "another value than was written");
  }
}

void MapOps::write(Op op, const OwnKey& key, const UntypedValue& value) {
  const Found done = op == Op::insert ? map_.insert(key.view(), value)
                     : op == Op::put  ? map_.put(key.view(), value)
                                      : map_.update(key.view(), value);
  if (!done.ok()) return refused(done.status());
  if (oracle_ == nullptr) return;
  const bool had = oracle_->now(name_of(key)).has_value();
  PERDURE_EXPECT(done.present() == had, "a write reports a key as %s", had ? "absent" : "present");
  const bool written = op == Op::put || had == (op == Op::update);
  if (written) oracle_->write(name_of(key), encoded(value));
}

void MapOps::erase(const OwnKey& key) {
  // A planted bug in maps without versions: erases nothing.
  const bool skip = planted(Plant::result) && !map_.versioned();
  const Found done = skip ? map_.contains(key.view()) : map_.erase(key.view());
  if (!done.ok()) return refused(done.status());
  if (oracle_ == nullptr) return;
  PERDURE_EXPECT(done.present() == oracle_->now(name_of(key)).has_value(),
                 "erase reports a present key as absent, or the reverse");
  if (done.present()) oracle_->write(name_of(key), std::nullopt);
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

// The keys go up in steps, and may return. Kinds and lengths of values follow a pattern.
void MapOps::write_many(unsigned n, Reader& input) {
  static constexpr MutationKind kKinds[] = {MutationKind::put, MutationKind::insert,
                                            MutationKind::update, MutationKind::erase};
  const unsigned first = input.byte(), step = input.byte(), kinds = input.byte();
  std::vector<OwnKey> keys(n);
  std::vector<std::string> values(n);
  std::vector<UntypedMutation> mutations(n);
  for (unsigned i = 0; i < n; ++i) {
    keys[i] = key_of(static_cast<std::uint8_t>(first + i * step));
    mutations[i] = {.kind = kKinds[kinds >> i % 4 * 2 & 3], .key = keys[i].view()};
    mutations[i].value = value_of(static_cast<std::uint8_t>(kinds + i * 7));
    values[i] = value_;
    if (mutations[i].value.word_size == 0) mutations[i].value.bytes = values[i];
  }
  (void)map_.write_many(mutations, [&](std::size_t i, const Found& done) {
    if (!done.ok()) return refused(done.status());
    if (oracle_ == nullptr) return;
    const auto& [kind, key, value] = mutations[i];
    const std::string name = name_of(keys[i]);
    const bool had = oracle_->now(name).has_value();
    PERDURE_EXPECT(done.present() == had, "write_many reports a key as %s",
                   had ? "absent" : "present");
    if (kind == MutationKind::erase) {
      if (had) oracle_->write(name, std::nullopt);
    } else if (kind == MutationKind::put || had == (kind == MutationKind::update)) {
      oracle_->write(name, encoded(value));
    }
  });
}

// Puts and erases; sometimes on the condition that the first key has the value that it has, or that
// it has another one.
void MapOps::commit(unsigned n, Reader& input) {
  const unsigned first = input.byte(), step = input.byte(), kinds = input.byte();
  WriteBatch batch;
  bool met = true;
  if (kinds % 4 == 3) {
    const OwnKey key = key_of(static_cast<std::uint8_t>(first));
    Oracle::Value before;
    const Found found =
        map_.read(key.view(), [&](const UntypedValue& value) { before = look(value); });
    if (!comparable(found.status(), true)) return;
    const UntypedValue guess = value_of(static_cast<std::uint8_t>(kinds));
    batch.require(map_, key.view(), guess);
    met = before == Oracle::Value(encoded(guess));
  }
  std::map<std::string, Oracle::Value> changes;  // the last one of each key counts
  for (unsigned i = 0; i < n; ++i) {
    const OwnKey key = key_of(static_cast<std::uint8_t>(first + i * step));
    if ((kinds >> i % 8 & 1) != 0) {
      batch.erase(map_, key.view());
      changes[name_of(key)] = std::nullopt;
    } else {
      const UntypedValue value = value_of(static_cast<std::uint8_t>(kinds + i * 7));
      batch.put(map_, key.view(), value);
      changes[name_of(key)] = encoded(value);
    }
  }
  const Status s = pool_.commit(batch);
  if (oracle_ != nullptr && !met) {
    PERDURE_EXPECT(!s.ok(), "a requirement that is not met is passed over");
    return s == StatusCode::conflict ? void() : refused(s);
  }
  if (!s.ok()) return s == StatusCode::conflict && oracle_ == nullptr ? void() : refused(s);
  if (oracle_ == nullptr) return;
  for (const auto& [name, value] : changes) {
    if (value != oracle_->now(name)) oracle_->write(name, value);
  }
}

// Expects nothing, what the key has, or some value.
void MapOps::exchange(const OwnKey& key, Reader& input) {
  const std::uint8_t expects = input.byte(), wants = input.byte();
  std::optional<UntypedValue> expected, desired;
  std::string bytes;
  const auto keep = [&](const UntypedValue& value) {
    (void)look(value);
    bytes = value.bytes;
    expected = value;
    expected->bytes = bytes;
  };
  if (expects % 4 == 1) keep(value_of(expects));
  if (expects % 4 > 1) {
    const Found found = map_.read(key.view(), keep);
    if (!comparable(found.status(), true) && !found.ok()) return;
  }
  if (wants % 8 != 0) desired = value_of(wants);
  const Exchanged done = map_.compare_exchange(key.view(), expected, desired);
  if (!done.ok()) return refused(done.status());
  if (oracle_ == nullptr) return;
  const Oracle::Value before = oracle_->now(name_of(key));
  PERDURE_EXPECT(done.exchanged() == (before == look(expected)), "an exchange was %s",
                 done.exchanged() ? "made" : "refused");
  if (done.exchanged() && (expected || desired)) oracle_->write(name_of(key), look(desired));
}

void MapOps::erase_range(std::uint8_t choice, std::uint64_t limit) {
  Bounds bounds;
  bounds_of(choice, bounds);
  bounds.range.limit = bounds.expected.limit = limit;  // a damaged map may have no end
  const auto erased = map_.erase_range(bounds.range);
  if (!map_.ordered()) {
    PERDURE_EXPECT(!erased && erased.error() == StatusCode::unsupported,
                   "a range of a map without an order is erased");
    return;
  }
  if (!erased) return refused(erased.error());
  if (oracle_ == nullptr) return;
  const Oracle::Entries gone = oracle_->scan(oracle_->open(), bounds.expected);
  PERDURE_EXPECT(*erased == gone.size(), "erase_range erased %llu entries of %zu",
                 static_cast<unsigned long long>(*erased), gone.size());
  for (const auto& [name, value] : gone) oracle_->write(name, std::nullopt);
}

void MapOps::scan(std::uint8_t choice) {
  Bounds bounds;
  bounds_of(choice, bounds);
  Oracle::Entries seen;
  const auto done = map_.scan(bounds.range, [&](const UntypedKey& key, const UntypedValue& value) {
    seen.emplace_back(encoded(map_.info(), key), look(value));
    return seen.size() < kMaxVisits;
  });
  if (!comparable(done, true)) return;
  PERDURE_EXPECT(seen == oracle_->scan(oracle_->open(), bounds.expected),
                 "a scan misses an entry, or shows one that is absent");
  iterate(bounds);
}

// Goes forward and back through an iterator.
void MapOps::iterate(const Bounds& bounds) {
  const Oracle::Entries expected = oracle_->scan(oracle_->open(), bounds.expected);
  Oracle::Entries seen;
  UntypedIterator it = map_.scan(bounds.range);
  for (; it.valid(); it.next()) seen.emplace_back(encoded(map_.info(), it.key()), look(it.value()));
  PERDURE_EXPECT(it.status().ok() && seen == expected, "an iterator differs from a scan");
  seen.clear();
  for (it.last(); it.valid(); it.prev()) {
    seen.emplace_back(encoded(map_.info(), it.key()), look(it.value()));
  }
  std::ranges::reverse(seen);
  PERDURE_EXPECT(it.status().ok() && seen == expected, "an iterator differs backwards");
}

void MapOps::for_each() {
  Oracle::Entries seen;
  const auto done = map_.for_each([&](const UntypedKey& key, const UntypedValue& value) {
    seen.emplace_back(encoded(map_.info(), key), look(value));
    return seen.size() < kMaxVisits;
  });
  if (!comparable(done, true)) return;
  if (!map_.ordered()) std::ranges::sort(seen);
  PERDURE_EXPECT(seen == oracle_->scan(oracle_->open(), {}),
                 "for_each misses an entry, or shows one that is absent");
}

// --- at versions ---

void MapOps::on_versions(Op op, std::uint8_t choice, Reader& input) {
  switch (op) {
    case Op::get_at:
      return get_at(key_of(choice), version_of(input.byte()));
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

void MapOps::get_at(const OwnKey& key, std::uint64_t version) {
  Oracle::Value seen;
  const Found found =
      map_.read(key.view(), version, [&](const UntypedValue& value) { seen = look(value); });
  if (!comparable(found.status(), oracle_ != nullptr && oracle_->readable(version))) return;
  PERDURE_EXPECT(found.present() == seen.has_value(),
                 "read() finds a key, but passes no value, or the reverse");
  PERDURE_EXPECT(seen == oracle_->at(name_of(key), version), "version %llu has changed",
                 static_cast<unsigned long long>(version));
}

void MapOps::scan_at(std::uint64_t version, const Bounds& bounds) {
  Oracle::Entries seen;
  const auto visit = [&](const UntypedKey& key, const UntypedValue& value) {
    seen.emplace_back(encoded(map_.info(), key), look(value));
    return seen.size() < kMaxVisits;
  };
  // A planted bug: scans the present state instead of the version.
  const bool present = planted(Plant::result) && oracle_ != nullptr && oracle_->readable(version);
  const auto done =
      present ? map_.scan(bounds.range, visit) : map_.scan_at(version, bounds.range, visit);
  if (!comparable(done, oracle_ != nullptr && oracle_->readable(version))) return;
  PERDURE_EXPECT(seen == oracle_->scan(version, bounds.expected),
                 "the snapshot of version %llu has changed",
                 static_cast<unsigned long long>(version));
}

void MapOps::history(const OwnKey& key) {
  Oracle::History seen;
  const auto done =
      map_.history(key.view(), [&](Version version, const std::optional<UntypedValue>& value) {
        seen.emplace_back(version, look(value));
        return seen.size() < kMaxVisits;
      });
  if (!comparable(done, true)) return;
  PERDURE_EXPECT(oracle_->could_be_history(name_of(key), seen), "a history of %zu entries is wrong",
                 seen.size());
}

void MapOps::diff(std::uint64_t from, std::uint64_t to, const Bounds& bounds) {
  std::vector<Oracle::Difference> seen;
  const auto done = map_.diff(
      from, to, bounds.range,
      [&](const UntypedKey& key, const std::optional<UntypedValue>& before,
          const std::optional<UntypedValue>& after) {
        seen.push_back(
            {.key = encoded(map_.info(), key), .before = look(before), .after = look(after)});
        return seen.size() < kMaxVisits;
      });
  const bool readable = oracle_ != nullptr && oracle_->readable(from) && oracle_->readable(to);
  if (!comparable(done, readable)) return;
  PERDURE_EXPECT(seen == oracle_->diff(from, to, bounds.expected),
                 "the diff of versions %llu and %llu is wrong",
                 static_cast<unsigned long long>(from), static_cast<unsigned long long>(to));
}

void MapOps::tag() {
  const auto version = map_.tag();
  if (!version) return refused(version.error());
  if (oracle_ == nullptr) return;
  PERDURE_EXPECT(*version == oracle_->open(), "tag returned %llu, but %llu was open",
                 static_cast<unsigned long long>(*version),
                 static_cast<unsigned long long>(oracle_->open()));
  oracle_->tag();
}

void MapOps::trim(std::uint64_t version) {
  const auto held = held_.version_of(map_);
  const auto horizon = map_.trim(version);
  if (!horizon && (oracle_ == nullptr || horizon.error() == StatusCode::read_only)) {
    return refused(horizon.error());
  }
  if (!comparable(horizon, oracle_ != nullptr && version <= oracle_->open())) return;
  oracle_->trim(std::min(version, held.value_or(version)));
  PERDURE_EXPECT(*horizon == oracle_->versions().first, "trim returned the horizon %llu, not %llu",
                 static_cast<unsigned long long>(*horizon),
                 static_cast<unsigned long long>(oracle_->versions().first));
}

void MapOps::roll_back(std::uint64_t version) {
  const auto held = held_.version_of(map_);
  const Status done = map_.rollback(version);
  if (oracle_ == nullptr || done == StatusCode::read_only) {
    if (!done.ok()) refused(done);
    return;
  }
  const StatusCode expected = !oracle_->readable(version)  ? StatusCode::invalid_argument
                              : held.value_or(0) > version ? StatusCode::busy
                                                           : StatusCode::ok;
  PERDURE_EXPECT(done == expected, "a rollback to version %llu returned %s",
                 static_cast<unsigned long long>(version), status_code_name(done.code()));
  if (done.ok()) oracle_->roll_back(version);
}

void MapOps::pin(std::uint64_t version) {
  if (held_.held()) return held_.let_go();
  const Status done = held_.hold(map_, version);
  const bool readable = oracle_ != nullptr && oracle_->readable(version);
  (void)comparable(done, readable);
}

void MapOps::verify() {
  for_each();
  if (!map_.versioned() || oracle_ == nullptr) return;
  const VersionRange range = map_.versions().value_or(VersionRange{});
  PERDURE_EXPECT(range.first == oracle_->versions().first && range.last == oracle_->versions().last,
                 "the range of readable versions is wrong");
  for (const std::uint64_t version : oracle_->states()) {
    if (version != oracle_->open()) scan_at(version, {});
  }
}

}  // namespace perdure::fuzz
