#include "fuzz/oracle.h"

#include <cstring>
#include <iterator>
#include <set>

#include "fuzz/target.h"

namespace perdure::fuzz {

std::string encoded(const MapInfo& info, const UntypedKey& key) {
  if (info.key_kind != KeyKind::integer) return std::string(key.bytes);
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(key.word >> (56 - 8 * i));
  return text;
}

std::string encoded(const UntypedValue& value) {
  if (value.word_size == 0) return std::string(value.bytes);
  return std::string(reinterpret_cast<const char*>(&value.word), sizeof(value.word));
}

Oracle Oracle::of(UntypedMap& map) {
  Oracle oracle;
  std::map<std::string, std::uint64_t> words;  // keys of all versions
  const auto collect = [&](const UntypedKey& key, const UntypedValue& value) {
    words.emplace(encoded(map.info(), key), key.word);
    if (!map.versioned()) oracle.write(encoded(map.info(), key), encoded(value));
    return true;
  };
  PERDURE_EXPECT(map.for_each(collect).has_value(), "a base pool cannot be read");
  if (!map.versioned()) return oracle;
  const auto range = map.versions();
  PERDURE_EXPECT(range.has_value(), "the versions of a base pool cannot be listed");
  oracle.first_ = range->first;
  oracle.last_ = range->last;
  for (std::uint64_t version = range->first; version <= range->last; ++version) {
    PERDURE_EXPECT(map.scan_at(version, {}, collect).has_value(),
                   "a version of a base pool cannot be read");
  }
  for (const auto& [key, word] : words) {
    Writes& writes = oracle.keys_[key];
    const auto done = map.history({.word = word, .bytes = key},
                                  [&](Version version, const std::optional<UntypedValue>& value) {
                                    Value& known = writes[version];
                                    if (value) known = encoded(*value);
                                    return true;
                                  });
    PERDURE_EXPECT(done.has_value(), "a history of a base pool cannot be read");
  }
  return oracle;
}

Oracle::Value Oracle::at(const Writes& writes, std::uint64_t version) {
  const auto after = writes.upper_bound(version);
  return after == writes.begin() ? std::nullopt : std::prev(after)->second;
}

Oracle::Value Oracle::at(const std::string& key, std::uint64_t version) const {
  const auto it = keys_.find(key);
  return it == keys_.end() ? std::nullopt : at(it->second, version);
}

template <class F>
void Oracle::for_each_key(const Range& range, F&& visit) const {
  std::uint64_t left = range.limit;
  const auto step = [&](const auto& item) {
    const bool inside =
        (!range.from || item.first >= *range.from) && (!range.to || item.first < *range.to);
    if (left > 0 && inside && visit(item.first, item.second)) --left;
  };
  if (range.reverse) {
    std::for_each(keys_.rbegin(), keys_.rend(), step);
  } else {
    std::for_each(keys_.begin(), keys_.end(), step);
  }
}

Oracle::Entries Oracle::scan(std::uint64_t version, const Range& range) const {
  Entries out;
  for_each_key(range, [&](const std::string& key, const Writes& writes) {
    const Value value = at(writes, version);
    if (value) out.emplace_back(key, *value);
    return value.has_value();
  });
  return out;
}

std::vector<Oracle::Difference> Oracle::diff(std::uint64_t from, std::uint64_t to,
                                             const Range& range) const {
  std::vector<Difference> out;
  for_each_key(range, [&](const std::string& key, const Writes& writes) {
    Difference difference{key, at(writes, from), at(writes, to)};
    if (difference.before == difference.after) return false;
    out.push_back(std::move(difference));
    return true;
  });
  return out;
}

bool Oracle::could_be_history(const std::string& key, const History& said) const {
  static const Writes kNone;
  const auto it = keys_.find(key);
  const Writes& writes = it == keys_.end() ? kNone : it->second;
  Writes told;
  for (const auto& [version, value] : said) {
    const auto write = writes.find(version);
    if (write == writes.end() || write->second != value) return false;
    if (!told.empty() && told.rbegin()->first >= version) return false;
    told.emplace(version, value);
  }
  // A removal needs no entry if no readable version has the key.
  if (at(told, first_) != at(writes, first_)) return false;
  return std::ranges::all_of(writes, [&](const auto& write) {
    const auto& [version, value] = write;
    if (version <= first_) return true;
    return value ? told.contains(version) : !at(told, version);
  });
}

std::vector<std::uint64_t> Oracle::states() const {
  std::set<std::uint64_t> out = {open()};
  const auto add = [&](std::uint64_t version) {
    if (readable(version)) out.insert(version);
  };
  add(first_);
  for (const auto& [key, writes] : keys_) {
    for (const auto& [version, value] : writes) {
      add(version - 1);
      add(version);
    }
  }
  return {out.begin(), out.end()};
}

void Oracle::roll_back(std::uint64_t version) {
  for (auto& [key, writes] : keys_) writes.erase(writes.upper_bound(version), writes.end());
  last_ = open();
}

}  // namespace perdure::fuzz
