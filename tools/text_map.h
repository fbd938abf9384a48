// TextMap: a map of any types whose keys and values are text.
//
// Byte strings and arrays stand for themselves. Integer keys are canonical decimal numbers ("-7",
// never "07" or "+7"), so that equal keys have equal texts. A word value is the decimal number that
// its bytes form, little-endian.
#pragma once

#include <perdure/perdure.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace perdure::cli {

using Bytes = std::string_view;

// Parses a type as --key and --value name it: bytes, u8 to u64, array:N, and for keys i8 to i64.
// Stores it in `types`. Returns false if there is no such type.
bool parse_key_type(Bytes name, MapTypes& types);
bool parse_value_type(Bytes name, MapTypes& types);
// "bytes", "u64", "i32", "array:16". A value type without an integer of its size: "3 bytes".
std::string key_type_name(const MapInfo& map);
std::string value_type_name(const MapInfo& map);

class TextMap {
 public:
  struct Range {
    std::optional<std::string> from = {};
    std::optional<std::string> to = {};
    std::string prefix = {};
    std::uint64_t limit = ~std::uint64_t{0};
    bool reverse = false;
  };
  using Visit = FunctionRef<bool(Bytes key, Bytes value)>;  // returns false to stop
  using VisitVersion = FunctionRef<bool(Version version, std::optional<Bytes> value)>;
  using VisitDifference =
      FunctionRef<bool(Bytes key, std::optional<Bytes> before, std::optional<Bytes> after)>;

  using VisitEntry = FunctionRef<void(Bytes key, Bytes value)>;

  explicit TextMap(UntypedMap map) : map_(std::move(map)) {}

  const MapInfo& info() const noexcept { return map_.info(); }
  // ok if these texts are a key and a value of a map with those types.
  static Status accepts(const MapInfo& info, Bytes key, Bytes value);
  MapStats stats() { return map_.stats(); }
  // As Pool::salvage(), for a map of that pool.
  static Expected<CheckReport> salvage(const Pool& pool, const MapInfo& info, VisitEntry visit);
  // Errors: invalid_argument if a text is no key or no value of the map's types; those of
  // UntypedMap.
  Found put(Bytes key, Bytes value);
  Found erase(Bytes key);
  // Add to a batch. Errors: invalid_argument as above; the others are kept by the batch.
  Status put(WriteBatch& batch, Bytes key, Bytes value);
  Status erase(WriteBatch& batch, Bytes key);
  Status require(WriteBatch& batch, Bytes key, Bytes value);
  Status require_absent(WriteBatch& batch, Bytes key);
  // Adds to the number that is the key's value; an absent key has the value 0, and is inserted.
  // Returns the sum. Errors: invalid_argument if the value is no decimal number, or if the sum is
  // out of the range of the map's values, or of 64 bits.
  Expected<std::string> add(Bytes key, std::int64_t delta);
  Found read(Bytes key, FunctionRef<void(Bytes)> visit);
  Expected<std::optional<std::string>> get(Bytes key);
  // Visits the range in key order. Returns how many entries were visited.
  // Errors: unsupported, naming the engine, if it keeps no order.
  Expected<std::uint64_t> scan(const Range& range, Visit visit);
  // Visits all entries, in key order if the engine keeps one.
  Expected<std::uint64_t> for_each(Visit visit);

  // As UntypedMap.
  // Errors: unsupported, naming the engine, if it keeps no versions.
  Expected<Version> tag();
  Expected<VersionRange> versions();
  Found read(Bytes key, Version version, FunctionRef<void(Bytes)> visit);
  Expected<std::uint64_t> scan_at(Version version, const Range& range, Visit visit);
  Expected<std::uint64_t> history(Bytes key, VisitVersion visit);
  Expected<std::uint64_t> diff(Version from, Version to, const Range& range, VisitDifference visit);
  Expected<Version> trim(Version version);
  Status rollback(Version version);

 private:
  Expected<UntypedScanOptions> options_of(const Range& range) const;
  Status keeps_versions() const;
  Expected<UntypedKey> key_of(Bytes text) const;
  Bytes text_of(const UntypedKey& key, std::string& storage) const;

  UntypedMap map_;
};

}  // namespace perdure::cli
