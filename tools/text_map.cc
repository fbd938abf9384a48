#include "text_map.h"

#include <charconv>
#include <cstddef>
#include <limits>

#include <fmt/format.h>

namespace perdure::cli {

namespace {

constexpr std::uint64_t kSignBit = 1ULL << 63;

// The number that `text` is, if it is written in the one way that this number has.
template <class T>
std::optional<T> parse_canonical(Bytes text) {
  T number{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest != text.data() + text.size()) return std::nullopt;
  return fmt::format("{}", number) == text ? std::optional(number) : std::nullopt;
}

std::uint64_t largest(unsigned bytes) {
  return bytes >= 8 ? ~std::uint64_t{0} : (1ULL << (8 * bytes)) - 1;
}

std::string integer_name(bool is_signed, unsigned bytes) {
  return fmt::format("{}{}", is_signed ? 'i' : 'u', 8 * bytes);
}

bool parse_integer_type(Bytes name, bool& is_signed, std::uint8_t& bytes) {
  for (const std::uint8_t n : {1, 2, 4, 8}) {
    for (const bool s : {false, true}) {
      if (name != integer_name(s, n)) continue;
      is_signed = s;
      bytes = n;
      return true;
    }
  }
  return false;
}

std::string array_name(unsigned bytes) { return fmt::format("array:{}", bytes); }

// Of `least` to `most` bytes.
bool parse_array_type(Bytes name, std::uint64_t least, std::uint64_t most, std::uint8_t& bytes) {
  for (std::uint64_t n = least; n <= most; ++n) {
    if (name != array_name(static_cast<unsigned>(n))) continue;
    bytes = static_cast<std::uint8_t>(n);
    return true;
  }
  return false;
}

}  // namespace

bool parse_key_type(Bytes name, detail::MapSpec& spec) {
  spec.key_kind = KeyKind::bytes;
  spec.is_signed = false;
  spec.key_bytes = 0;
  if (name == "bytes") return true;
  spec.key_kind = KeyKind::array;
  if (parse_array_type(name, 1, kMaxArrayKeyBytes, spec.key_bytes)) return true;
  spec.key_kind = KeyKind::integer;
  return parse_integer_type(name, spec.is_signed, spec.key_bytes);
}

bool parse_value_type(Bytes name, detail::MapSpec& spec) {
  spec.value_kind = ValueKind::bytes;
  spec.value_bytes = 0;
  if (name == "bytes") return true;
  spec.value_kind = ValueKind::array;
  if (parse_array_type(name, kLeastArrayValueBytes, kMaxArrayValueBytes, spec.value_bytes)) {
    return true;
  }
  spec.value_kind = ValueKind::word;
  bool is_signed = false;
  return parse_integer_type(name, is_signed, spec.value_bytes) && !is_signed;
}

std::string key_type_name(const MapInfo& map) {
  if (map.key_kind == KeyKind::bytes) return "bytes";
  return map.key_kind == KeyKind::array ? array_name(map.key_bytes)
                                        : integer_name(map.is_signed, map.key_bytes);
}

std::string value_type_name(const MapInfo& map) {
  if (map.value_kind == ValueKind::bytes) return "bytes";
  if (map.value_kind == ValueKind::array) return array_name(map.value_bytes);
  const unsigned n = map.value_bytes;
  return n == 1 || n == 2 || n == 4 || n == 8 ? integer_name(false, n) : fmt::format("{} bytes", n);
}

Expected<detail::Key> TextMap::key_of(Bytes text) const {
  if (info().key_kind == KeyKind::bytes) return detail::Key{.bytes = text};
  if (info().key_kind == KeyKind::array) {
    if (text.size() == info().key_bytes) return detail::Key{.bytes = text};
    return fail(StatusCode::invalid_argument,
                "'%s' is no key of map '%s', whose keys have %u bytes each",
                std::string(text.substr(0, 60)).c_str(), info().name.c_str(), info().key_bytes);
  }
  const unsigned bits = 8U * info().key_bytes;
  if (info().is_signed) {
    const auto number = parse_canonical<std::int64_t>(text);
    const std::int64_t most = std::numeric_limits<std::int64_t>::max() >> (64 - bits);
    if (number && *number <= most && *number >= -most - 1) {
      return detail::Key{.word = static_cast<std::uint64_t>(*number) ^ kSignBit};
    }
  } else {
    const auto number = parse_canonical<std::uint64_t>(text);
    if (number && *number <= largest(info().key_bytes)) return detail::Key{.word = *number};
  }
  return fail(StatusCode::invalid_argument,
              "'%s' is no key of map '%s', whose keys are decimal numbers of type %s",
              std::string(text.substr(0, 60)).c_str(), info().name.c_str(),
              key_type_name(info()).c_str());
}

Expected<detail::Value> TextMap::value_of(Bytes text) const {
  if (info().value_kind == ValueKind::bytes) return detail::Value{.bytes = text};
  if (info().value_kind == ValueKind::array) {
    if (text.size() == info().value_bytes) return detail::Value{.bytes = text};
    return fail(StatusCode::invalid_argument,
                "'%s' is no value of map '%s', whose values have %u bytes each",
                std::string(text.substr(0, 60)).c_str(), info().name.c_str(), info().value_bytes);
  }
  const auto number = parse_canonical<std::uint64_t>(text);
  if (number && *number <= largest(info().value_bytes)) {
    return detail::Value{.word = *number, .word_size = info().value_bytes};
  }
  return fail(StatusCode::invalid_argument,
              "'%s' is no value of map '%s', whose values are decimal numbers of type %s",
              std::string(text.substr(0, 60)).c_str(), info().name.c_str(),
              value_type_name(info()).c_str());
}

Bytes TextMap::text_of(const detail::Key& key, std::string& storage) const {
  if (info().key_kind != KeyKind::integer) return key.bytes;
  storage = info().is_signed ? fmt::format("{}", static_cast<std::int64_t>(key.word ^ kSignBit))
                             : fmt::format("{}", key.word);
  return storage;
}

Bytes TextMap::text_of(const detail::Value& value, std::string& storage) const {
  if (value.word_size == 0) return value.bytes;
  storage = fmt::format("{}", value.word & largest(value.word_size));
  return storage;
}

Status TextMap::accepts(Bytes key_text, Bytes value_text) const {
  if (auto key = key_of(key_text); !key) return std::move(key.error());
  if (auto value = value_of(value_text); !value) return std::move(value.error());
  return {};
}

Expected<bool> TextMap::upsert(Bytes key_text, Bytes value_text) {
  auto key = key_of(key_text);
  if (!key) return fail(std::move(key.error()));
  auto value = value_of(value_text);
  if (!value) return fail(std::move(value.error()));
  return map_.index->upsert(*key, *value);
}

Expected<bool> TextMap::erase(Bytes key_text) {
  auto key = key_of(key_text);
  if (!key) return fail(std::move(key.error()));
  return map_.index->erase(*key);
}

Expected<bool> TextMap::read(Bytes key_text, FunctionRef<void(Bytes)> visit) {
  auto key = key_of(key_text);
  if (!key) return fail(std::move(key.error()));
  return map_.index->read(*key, [&](const detail::Value& value) {
    std::string storage;
    visit(text_of(value, storage));
  });
}

Expected<std::optional<std::string>> TextMap::find(Bytes key) {
  std::optional<std::string> out;
  auto found = read(key, [&](Bytes value) { out.emplace(value); });
  if (!found) return fail(std::move(found.error()));
  return out;
}

Expected<detail::ScanRange> TextMap::bounds_of(const Range& range, detail::PrefixEnd& end) const {
  if (info().key_kind != KeyKind::integer) {
    return scan_range(ScanOptions<Bytes>{.from = range.from,
                                         .to = range.to,
                                         .prefix = range.prefix,
                                         .limit = range.limit,
                                         .reverse = range.reverse},
                      end);
  }
  if (!range.prefix.empty()) {
    return fail(StatusCode::invalid_argument,
                "--prefix is for keys that are bytes; those of map '%s' are of type %s, use --from "
                "and --to",
                info().name.c_str(), key_type_name(info()).c_str());
  }
  detail::ScanRange bounds{.reverse = range.reverse, .limit = range.limit};
  for (const auto& [text, bound] :
       {std::pair(&range.from, &bounds.from), std::pair(&range.to, &bounds.to)}) {
    if (!*text) continue;
    auto key = key_of(**text);
    if (!key) return fail(std::move(key.error()));
    *bound = *key;
  }
  return bounds;
}

Expected<std::uint64_t> TextMap::deliver(const Range& range, Scan scan, Visit visit) const {
  detail::PrefixEnd end;
  auto bounds = bounds_of(range, end);
  if (!bounds) return fail(std::move(bounds.error()));
  std::uint64_t visited = 0;
  if (range.limit == 0) return visited;
  std::string key_text;
  std::string value_text;
  auto done = scan(*bounds, [&](std::span<const detail::Entry> entries) {
    for (const detail::Entry& entry : entries) {
      ++visited;
      if (!visit(text_of(entry.key, key_text), text_of(entry.value, value_text))) return false;
      if (visited == range.limit) return false;
    }
    return true;
  });
  if (!done) return fail(std::move(done.error()));
  return visited;
}

Expected<std::uint64_t> TextMap::scan(const Range& range, Visit visit) {
  if (map_.ordered == nullptr) {
    return fail(StatusCode::unsupported,
                "map '%s' is of engine %s, which keeps no order; perdure dump prints all its "
                "entries",
                info().name.c_str(), std::string(engine_name(info().engine)).c_str());
  }
  return deliver(
      range, [&](const auto& bounds, auto each) { return map_.ordered->scan(bounds, each); },
      visit);
}

Expected<std::uint64_t> TextMap::for_each(Visit visit) {
  std::uint64_t visited = 0;
  std::string key_text;
  std::string value_text;
  auto done = map_.index->for_each([&](std::span<const detail::Entry> entries) {
    for (const detail::Entry& entry : entries) {
      ++visited;
      if (!visit(text_of(entry.key, key_text), text_of(entry.value, value_text))) return false;
    }
    return true;
  });
  if (!done) return fail(std::move(done.error()));
  return visited;
}

// ---- versions -----------------------------------------------------------------------------------

Status TextMap::keeps_versions() const {
  if (map_.versioned != nullptr) return {};
  return Status::format(StatusCode::unsupported,
                        "map '%s' is of engine %s, which keeps no versions; make one with --engine "
                        "pskiplist",
                        info().name.c_str(), std::string(engine_name(info().engine)).c_str());
}

Expected<Version> TextMap::tag() {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  return map_.versioned->tag();
}

Expected<VersionRange> TextMap::versions() {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  return map_.versioned->versions();
}

Expected<bool> TextMap::read_at(Bytes key_text, Version version, FunctionRef<void(Bytes)> visit) {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  auto key = key_of(key_text);
  if (!key) return fail(std::move(key.error()));
  return map_.versioned->read_at(*key, version, [&](const detail::Value& value) {
    std::string storage;
    visit(text_of(value, storage));
  });
}

Expected<std::uint64_t> TextMap::scan_at(Version version, const Range& range, Visit visit) {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  return deliver(
      range,
      [&](const auto& bounds, auto each) { return map_.versioned->scan_at(version, bounds, each); },
      visit);
}

Expected<std::uint64_t> TextMap::history(Bytes key_text, VisitVersion visit) {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  auto key = key_of(key_text);
  if (!key) return fail(std::move(key.error()));
  std::uint64_t visited = 0;
  std::string storage;
  auto done = map_.versioned->history(*key, [&](const detail::VersionedValue& entry) {
    ++visited;
    std::optional<Bytes> value;
    if (entry.value) value = text_of(*entry.value, storage);
    return visit(entry.version, value);
  });
  if (!done) return fail(std::move(done.error()));
  return visited;
}

Expected<std::uint64_t> TextMap::diff(Version from, Version to, const Range& range,
                                      VisitDifference visit) {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  detail::PrefixEnd end;
  auto bounds = bounds_of(range, end);
  if (!bounds) return fail(std::move(bounds.error()));
  std::uint64_t visited = 0;
  std::string texts[3];
  auto done = map_.versioned->diff(from, to, *bounds, [&](const detail::Difference& difference) {
    ++visited;
    std::optional<Bytes> before;
    std::optional<Bytes> after;
    if (difference.before) before = text_of(*difference.before, texts[0]);
    if (difference.after) after = text_of(*difference.after, texts[1]);
    return visit(text_of(difference.key, texts[2]), before, after);
  });
  if (!done) return fail(std::move(done.error()));
  return visited;
}

Expected<Version> TextMap::trim(Version version) {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  return map_.versioned->trim(version);
}

Status TextMap::rollback(Version version) {
  if (Status s = keeps_versions(); !s.ok()) return s;
  return map_.versioned->rollback(version);
}

}  // namespace perdure::cli
