// A map as the command line sees it: keys and values are text, whatever the map's types are.
//
// Byte strings stand for themselves, and so do arrays, which have one length. Integer keys are
// canonical decimal numbers ("-7", never "07" or "+7"), so that equal keys have equal texts; word
// values are the decimal number that their bytes make, little-endian.
#pragma once

#include <perdure/perdure.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace perdure::cli {

using Bytes = std::string_view;

// Types as --key and --value name them: bytes, u8 .. u64, for keys i8 .. i64 too, array:N. Puts
// them into `types`; false if there is no such type.
bool parse_key_type(Bytes name, MapTypes& types);
bool parse_value_type(Bytes name, MapTypes& types);
std::string key_type_name(const MapInfo& map);    // "bytes", "u64", "i32", "array:16"
std::string value_type_name(const MapInfo& map);  // "bytes", "u64"; "3 bytes" where no integer fits

class TextMap {
 public:
  struct Range {
    std::optional<std::string> from = {};
    std::optional<std::string> to = {};
    std::string prefix = {};
    std::uint64_t limit = ~std::uint64_t{0};
    bool reverse = false;
  };
  using Visit = FunctionRef<bool(Bytes key, Bytes value)>;  // false: enough
  using VisitVersion = FunctionRef<bool(Version version, std::optional<Bytes> value)>;
  using VisitDifference =
      FunctionRef<bool(Bytes key, std::optional<Bytes> before, std::optional<Bytes> after)>;

  explicit TextMap(UntypedMap map) : map_(std::move(map)) {}

  const MapInfo& info() const noexcept { return map_.info(); }
  // Whether these texts are a key and a value of a map with those types, and why not.
  static Status accepts(const MapInfo& info, Bytes key, Bytes value);
  MapStats stats() { return map_.stats(); }
  // A text that is no key or value of this map's types: invalid_argument.
  Found put(Bytes key, Bytes value);
  Found erase(Bytes key);
  Found read(Bytes key, FunctionRef<void(Bytes)> visit);
  Expected<std::optional<std::string>> get(Bytes key);
  // In key order. Returns how many entries were visited; `unsupported`, naming the engine, if it
  // keeps no order.
  Expected<std::uint64_t> scan(const Range& range, Visit visit);
  // All entries, in key order if the engine keeps one.
  Expected<std::uint64_t> for_each(Visit visit);

  // As VersionedMap has them; `unsupported`, naming the engine, if it keeps no versions.
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
