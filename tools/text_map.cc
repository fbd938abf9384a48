#include "text_map.h"

#include <charconv>
#include <cstddef>
#include <limits>

#include <fmt/format.h>

namespace perdure::cli {

namespace {

constexpr std::uint64_t kSignBit = 1ULL << 63;

// Returns the number if `text` is its canonical form.
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

// An array of `least` to `most` bytes.
bool parse_array_type(Bytes name, std::uint64_t least, std::uint64_t most, std::uint8_t& bytes) {
  for (std::uint64_t n = least; n <= most; ++n) {
    if (name != array_name(static_cast<unsigned>(n))) continue;
    bytes = static_cast<std::uint8_t>(n);
    return true;
  }
  return false;
}

}  // namespace

bool parse_key_type(Bytes name, MapTypes& types) {
  types.key_kind = KeyKind::bytes;
  types.is_signed = false;
  types.key_bytes = 0;
  if (name == "bytes") return true;
  types.key_kind = KeyKind::array;
  if (parse_array_type(name, 1, kMaxArrayKeyBytes, types.key_bytes)) return true;
  types.key_kind = KeyKind::integer;
  return parse_integer_type(name, types.is_signed, types.key_bytes);
}

bool parse_value_type(Bytes name, MapTypes& types) {
  types.value_kind = ValueKind::bytes;
  types.value_bytes = 0;
  if (name == "bytes") return true;
  types.value_kind = ValueKind::array;
  if (parse_array_type(name, kLeastArrayValueBytes, kMaxArrayValueBytes, types.value_bytes)) {
    return true;
  }
  types.value_kind = ValueKind::word;
  bool is_signed = false;
  return parse_integer_type(name, is_signed, types.value_bytes) && !is_signed;
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

namespace {

Expected<UntypedKey> key_in(const MapInfo& info, Bytes text) {
  if (info.key_kind == KeyKind::bytes) return UntypedKey{.bytes = text};
  if (info.key_kind == KeyKind::array) {
    if (text.size() == info.key_bytes) return UntypedKey{.bytes = text};
    return fail(StatusCode::invalid_argument,
                "'%s' is not a key of map '%s'; its keys have %u bytes each",
                std::string(text.substr(0, 60)).c_str(), info.name.c_str(), info.key_bytes);
  }
  const unsigned bits = 8U * info.key_bytes;
  if (info.is_signed) {
    const auto number = parse_canonical<std::int64_t>(text);
    const std::int64_t most = std::numeric_limits<std::int64_t>::max() >> (64 - bits);
    if (number && *number <= most && *number >= -most - 1) {
      return UntypedKey{.word = static_cast<std::uint64_t>(*number) ^ kSignBit};
    }
  } else {
    const auto number = parse_canonical<std::uint64_t>(text);
    if (number && *number <= largest(info.key_bytes)) return UntypedKey{.word = *number};
  }
  const std::uint64_t most = largest(info.key_bytes) >> (info.is_signed ? 1 : 0);
  return fail(
      StatusCode::invalid_argument,
      "'%s' is not a key of map '%s'; its keys are decimal numbers of type %s, from %s to "
      "%llu",
      std::string(text.substr(0, 60)).c_str(), info.name.c_str(), key_type_name(info).c_str(),
      info.is_signed ? fmt::format("{}", -static_cast<std::int64_t>(most) - 1).c_str() : "0",
      static_cast<unsigned long long>(most));
}

Expected<UntypedValue> value_in(const MapInfo& info, Bytes text) {
  if (info.value_kind == ValueKind::bytes) return UntypedValue{.bytes = text};
  if (info.value_kind == ValueKind::array) {
    if (text.size() == info.value_bytes) return UntypedValue{.bytes = text};
    return fail(StatusCode::invalid_argument,
                "'%s' is not a value of map '%s'; its values have %u bytes each",
                std::string(text.substr(0, 60)).c_str(), info.name.c_str(), info.value_bytes);
  }
  const auto number = parse_canonical<std::uint64_t>(text);
  if (number && *number <= largest(info.value_bytes)) {
    return UntypedValue{.word = *number, .word_size = info.value_bytes};
  }
  return fail(StatusCode::invalid_argument,
              "'%s' is not a value of map '%s'; its values are decimal numbers of type %s, from 0 "
              "to %llu",
              std::string(text.substr(0, 60)).c_str(), info.name.c_str(),
              value_type_name(info).c_str(),
              static_cast<unsigned long long>(largest(info.value_bytes)));
}

// Adds to a canonical decimal number. An unsigned sum may be larger than a signed number can be.
Expected<std::string> sum_of(Bytes text, std::int64_t delta) {
  const auto is_signed = parse_canonical<std::int64_t>(text);
  const auto is_unsigned = parse_canonical<std::uint64_t>(text);
  if (!is_signed && !is_unsigned) {
    return fail(StatusCode::invalid_argument, "its value '%s' is not a decimal number of 64 bits",
                std::string(text.substr(0, 60)).c_str());
  }
  std::int64_t small = 0;
  if (is_signed && !__builtin_add_overflow(*is_signed, delta, &small)) {
    return fmt::format("{}", small);
  }
  std::uint64_t large = 0;
  if (is_unsigned && !__builtin_add_overflow(*is_unsigned, delta, &large)) {
    return fmt::format("{}", large);
  }
  return fail(StatusCode::invalid_argument, "its value is %s, and the sum needs more than 64 bits",
              std::string(text).c_str());
}

Bytes text_of(const MapInfo& info, const UntypedKey& key, std::string& storage) {
  if (info.key_kind != KeyKind::integer) return key.bytes;
  storage = info.is_signed ? fmt::format("{}", static_cast<std::int64_t>(key.word ^ kSignBit))
                           : fmt::format("{}", key.word);
  return storage;
}
Bytes text_of(const UntypedValue& value, std::string& storage) {
  if (value.word_size == 0) return value.bytes;
  storage = fmt::format("{}", value.word & largest(value.word_size));
  return storage;
}
std::optional<Bytes> text_of(const std::optional<UntypedValue>& value, std::string& storage) {
  return value ? std::optional(text_of(*value, storage)) : std::nullopt;
}

}  // namespace

Expected<UntypedKey> TextMap::key_of(Bytes text) const { return key_in(info(), text); }

Bytes TextMap::text_of(const UntypedKey& key, std::string& storage) const {
  return cli::text_of(info(), key, storage);
}

Expected<CheckReport> TextMap::salvage(const Pool& pool, const MapInfo& info, VisitEntry visit) {
  std::string texts[2];
  return pool.salvage(info.name, [&](const UntypedKey& key, const UntypedValue& value) {
    visit(cli::text_of(info, key, texts[0]), cli::text_of(value, texts[1]));
  });
}

Status TextMap::accepts(const MapInfo& info, Bytes key_text, Bytes value_text) {
  if (auto key = key_in(info, key_text); !key) return std::move(key.error());
  if (auto value = value_in(info, value_text); !value) return std::move(value.error());
  return {};
}

Expected<std::string> TextMap::add(Bytes key_text, std::int64_t delta) {
  auto key = key_of(key_text);
  if (!key) return fail(std::move(key.error()));
  for (;;) {
    auto before = get(key_text);
    if (!before) return fail(std::move(before.error()));
    auto sum = sum_of(*before ? Bytes(**before) : "0", delta);
    if (!sum) {
      return fail(StatusCode::invalid_argument, "cannot add %lld to key '%s': %s",
                  static_cast<long long>(delta), std::string(key_text.substr(0, 60)).c_str(),
                  std::string(sum.error().message()).c_str());
    }
    std::optional<UntypedValue> seen;
    if (*before) {
      auto value = value_in(info(), **before);
      if (!value) return fail(std::move(value.error()));
      seen = *value;
    }
    auto value = value_in(info(), *sum);
    if (!value) return fail(std::move(value.error()));
    Exchanged done = map_.compare_exchange(*key, seen, *value);
    if (!done.ok()) return fail(std::move(done).status());
    if (done.exchanged()) return std::move(*sum);
  }
}

Found TextMap::put(Bytes key_text, Bytes value_text) {
  auto key = key_of(key_text);
  if (!key) return std::move(key.error());
  auto value = value_in(info(), value_text);
  if (!value) return std::move(value.error());
  return map_.put(*key, *value);
}

Found TextMap::erase(Bytes key_text) {
  auto key = key_of(key_text);
  if (!key) return std::move(key.error());
  return map_.erase(*key);
}

Status TextMap::put(WriteBatch& batch, Bytes key_text, Bytes value_text) {
  if (Status s = accepts(info(), key_text, value_text); !s.ok()) return s;
  batch.put(map_, *key_of(key_text), *value_in(info(), value_text));
  return {};
}

Status TextMap::erase(WriteBatch& batch, Bytes key_text) {
  auto key = key_of(key_text);
  if (!key) return std::move(key.error());
  batch.erase(map_, *key);
  return {};
}

Status TextMap::require(WriteBatch& batch, Bytes key_text, Bytes value_text) {
  if (Status s = accepts(info(), key_text, value_text); !s.ok()) return s;
  batch.require(map_, *key_of(key_text), *value_in(info(), value_text));
  return {};
}

Status TextMap::require_absent(WriteBatch& batch, Bytes key_text) {
  auto key = key_of(key_text);
  if (!key) return std::move(key.error());
  batch.require_absent(map_, *key);
  return {};
}

Found TextMap::read(Bytes key_text, FunctionRef<void(Bytes)> visit) {
  auto key = key_of(key_text);
  if (!key) return std::move(key.error());
  return map_.read(*key, [&](const UntypedValue& value) {
    std::string storage;
    visit(cli::text_of(value, storage));
  });
}

Expected<std::optional<std::string>> TextMap::get(Bytes key) {
  std::optional<std::string> out;
  auto found = read(key, [&](Bytes value) { out.emplace(value); });
  if (!found.ok()) return fail(std::move(found).status());
  return out;
}

Expected<UntypedScanOptions> TextMap::options_of(const Range& range) const {
  if (info().key_kind == KeyKind::integer && !range.prefix.empty()) {
    return fail(StatusCode::invalid_argument,
                "--prefix is for keys that are bytes; the keys of map '%s' are of type %s, so use "
                "--from and --to",
                info().name.c_str(), key_type_name(info()).c_str());
  }
  UntypedScanOptions options{
      .prefix = range.prefix, .limit = range.limit, .reverse = range.reverse};
  for (const auto& [text, bound] :
       {std::pair(&range.from, &options.from), std::pair(&range.to, &options.to)}) {
    if (!*text) continue;
    if (info().key_kind != KeyKind::integer) {
      *bound = UntypedKey{.bytes = **text};  // a bound of array keys may have any length
      continue;
    }
    auto key = key_of(**text);
    if (!key) return fail(std::move(key.error()));
    *bound = *key;
  }
  return options;
}

Expected<std::uint64_t> TextMap::scan(const Range& range, Visit visit) {
  if (!map_.ordered()) {
    return fail(StatusCode::unsupported,
                "map '%s' is of engine %s, which keeps no order; perdure dump prints all its "
                "entries",
                info().name.c_str(), std::string(engine_name(info().engine)).c_str());
  }
  auto options = options_of(range);
  if (!options) return fail(std::move(options.error()));
  std::string texts[2];
  return map_.scan(*options, [&](const UntypedKey& key, const UntypedValue& value) {
    return visit(text_of(key, texts[0]), cli::text_of(value, texts[1]));
  });
}

Expected<std::uint64_t> TextMap::for_each(Visit visit) {
  std::string texts[2];
  return map_.for_each([&](const UntypedKey& key, const UntypedValue& value) {
    return visit(text_of(key, texts[0]), cli::text_of(value, texts[1]));
  });
}

// ---- versions -----------------------------------------------------------------------------------

Status TextMap::keeps_versions() const {
  if (map_.versioned()) return {};
  return Status::format(StatusCode::unsupported,
                        "map '%s' is of engine %s, which keeps no versions; make one with --engine "
                        "pskiplist",
                        info().name.c_str(), std::string(engine_name(info().engine)).c_str());
}

Expected<Version> TextMap::tag() {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  return map_.tag();
}

Expected<VersionRange> TextMap::versions() {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  return map_.versions();
}

Found TextMap::read(Bytes key_text, Version version, FunctionRef<void(Bytes)> visit) {
  if (Status s = keeps_versions(); !s.ok()) return s;
  auto key = key_of(key_text);
  if (!key) return std::move(key.error());
  return map_.read(*key, version, [&](const UntypedValue& value) {
    std::string storage;
    visit(cli::text_of(value, storage));
  });
}

Expected<std::uint64_t> TextMap::scan_at(Version version, const Range& range, Visit visit) {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  auto options = options_of(range);
  if (!options) return fail(std::move(options.error()));
  std::string texts[2];
  return map_.scan_at(version, *options, [&](const UntypedKey& key, const UntypedValue& value) {
    return visit(text_of(key, texts[0]), cli::text_of(value, texts[1]));
  });
}

Expected<std::uint64_t> TextMap::history(Bytes key_text, VisitVersion visit) {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  auto key = key_of(key_text);
  if (!key) return fail(std::move(key.error()));
  std::string storage;
  return map_.history(*key, [&](Version version, const std::optional<UntypedValue>& value) {
    return visit(version, cli::text_of(value, storage));
  });
}

Expected<std::uint64_t> TextMap::diff(Version from, Version to, const Range& range,
                                      VisitDifference visit) {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  auto options = options_of(range);
  if (!options) return fail(std::move(options.error()));
  std::string texts[3];
  return map_.diff(from, to, *options,
                   [&](const UntypedKey& key, const std::optional<UntypedValue>& before,
                       const std::optional<UntypedValue>& after) {
                     return visit(text_of(key, texts[0]), cli::text_of(before, texts[1]),
                                  cli::text_of(after, texts[2]));
                   });
}

Expected<Version> TextMap::trim(Version version) {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  return map_.trim(version);
}

Status TextMap::rollback(Version version) {
  if (Status s = keeps_versions(); !s.ok()) return s;
  return map_.rollback(version);
}

}  // namespace perdure::cli
