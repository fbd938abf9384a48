// A map under test next to a std::map. A seeded generator draws the operations, and another process
// can repeat them: the SIGKILL test replays in the parent what the killed child had acknowledged.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/any_map.h"

namespace perdure::test {

enum class Distribution { uniform, ascending, descending, clustered, hot, equal_heads };
inline constexpr Distribution kDistributions[] = {
    Distribution::uniform,   Distribution::ascending, Distribution::descending,
    Distribution::clustered, Distribution::hot,       Distribution::equal_heads};
inline const char* distribution_name(Distribution distribution) {
  switch (distribution) {
    case Distribution::uniform:
      return "uniform";
    case Distribution::ascending:
      return "ascending";
    case Distribution::descending:
      return "descending";
    case Distribution::clustered:
      return "clustered";
    case Distribution::hot:
      return "hot";
    case Distribution::equal_heads:
      return "equal_heads";
  }
  return "unknown";
}

// Key numbers of a small universe: most operations meet a key that was used before.
class KeyNumbers {
 public:
  KeyNumbers(Distribution distribution, std::uint64_t universe)
      : distribution_(distribution), universe_(universe) {}
  std::uint64_t next(Rng& rng) {
    ++drawn_;
    switch (distribution_) {
      case Distribution::ascending:
        return (drawn_ + rng.below(20)) % universe_;
      case Distribution::descending:
        return (universe_ - 1 - drawn_ % universe_ + rng.below(20)) % universe_;
      case Distribution::clustered:
        if (drawn_ % 500 == 0) cluster_ = rng.below(universe_);
        return (cluster_ + rng.below(100)) % universe_;
      case Distribution::hot:
        return rng.one_in(10) ? rng.below(universe_) : rng.below(5) * 1'000 % universe_;
      default:
        return rng.below(universe_);
    }
  }
  Distribution distribution() const { return distribution_; }

 private:
  Distribution distribution_;
  std::uint64_t universe_;
  std::uint64_t drawn_ = 0;
  std::uint64_t cluster_ = 0;
};

// The key with a number. Ascending numbers are ascending keys.
template <class K>
OwnedKey<K> model_key(std::uint64_t number, Distribution distribution) {
  if constexpr (std::same_as<K, std::string_view>) {
    char digits[24];
    std::snprintf(digits, sizeof digits, "%08llu", static_cast<unsigned long long>(number));
    if (distribution == Distribution::equal_heads) return std::string("customer:") + digits;
    if (number == 0) return "";
    // Number 7 is a prefix of 8, and 8 of 9, with lengths on both sides of the head.
    if (number < 30) return std::string(number, '\0');
    return digits + std::string(number % 23, 'x');
  } else if constexpr (std::is_signed_v<K>) {
    return static_cast<K>(number) - 1'000;
  } else {
    // Ascending and equal heads stay dense, in one partition. The others spread over all
    // partitions.
    const bool dense =
        distribution == Distribution::ascending || distribution == Distribution::equal_heads;
    return dense ? static_cast<K>(number) : static_cast<K>(number * 0x0000'4000'0000'0001ULL);
  }
}

template <class V>
Owned<V> model_value(std::uint64_t salt) {
  if constexpr (std::same_as<V, std::string_view>) {
    const std::uint64_t bits = mix(salt);
    // Mostly small, some beyond a line, a few beyond the largest size class.
    const std::size_t size = bits % 100 < 70   ? bits / 100 % 40
                             : bits % 100 < 98 ? bits / 100 % 700
                                               : bits / 100 % 20'000;
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((salt + i * 7) & 0xff);
    return bytes;
  } else {
    return static_cast<V>(mix(salt));
  }
}

enum class OpKind : std::uint8_t {
  insert,
  upsert,
  update,
  erase,
  find,
  contains,
  find_many,
  scan,
  iterate,
};
struct Op {
  OpKind kind;
  std::uint64_t key;    // number
  std::uint64_t salt;   // of the value
  std::uint64_t extra;  // bounds, limit, direction
};

// The share of removals: a growing, a steady and a shrinking phase.
struct Mix {
  unsigned erase_percent = 15;
};

inline Op draw_op(Rng& rng, KeyNumbers& numbers, const Mix& mix_of) {
  Op op{};
  op.key = numbers.next(rng);
  op.salt = rng();
  op.extra = rng();
  const std::uint64_t dice = rng.below(100);
  if (dice < mix_of.erase_percent) {
    op.kind = OpKind::erase;
  } else if (dice < 60) {
    op.kind = static_cast<OpKind>(rng.below(3));
  } else if (dice < 80) {
    op.kind = OpKind::find;
  } else if (dice < 85) {
    op.kind = OpKind::contains;
  } else if (dice < 90) {
    op.kind = OpKind::find_many;
  } else if (dice < 98) {
    op.kind = OpKind::scan;
  } else {
    op.kind = OpKind::iterate;
  }
  return op;
}

template <class T>
std::uint64_t digest_of(const T& value, std::uint64_t salt) {
  if constexpr (std::same_as<T, std::string> || std::same_as<T, std::string_view>) {
    return mix(std::hash<std::string_view>{}(value) + salt);
  } else {
    return mix(static_cast<std::uint64_t>(value) + salt);
  }
}

// Both sides of an operation return a digest of everything that the caller sees. Equal digests mean
// equal results.
template <class K, class V>
class Model {
 public:
  using OwnedK = OwnedKey<K>;
  using OwnedV = Owned<V>;

  // Scans of an engine without order visit every entry.
  Model(Distribution distribution, bool ordered) : distribution_(distribution), ordered_(ordered) {}

  OwnedK key(std::uint64_t number) const { return model_key<K>(number, distribution_); }

  std::uint64_t apply(const Op& op) {
    const OwnedK k = key(op.key);
    switch (op.kind) {
      case OpKind::insert:
        return map_.try_emplace(k, model_value<V>(op.salt)).second;
      case OpKind::upsert:
        return map_.insert_or_assign(k, model_value<V>(op.salt)).second;
      case OpKind::update: {
        auto found = map_.find(k);
        if (found == map_.end()) return 0;
        found->second = model_value<V>(op.salt);
        return 1;
      }
      case OpKind::erase:
        return map_.erase(k);
      case OpKind::find: {
        auto found = map_.find(k);
        return found == map_.end() ? 0 : digest_of(found->second, 1);
      }
      case OpKind::contains:
        return map_.contains(k);
      case OpKind::find_many: {
        std::uint64_t sum = 0;
        for (const std::uint64_t number : many(op)) {
          auto found = map_.find(key(number));
          if (found != map_.end()) sum = mix(sum + digest_of(found->second, number));
        }
        return sum;
      }
      case OpKind::scan:
      case OpKind::iterate: {
        if (!ordered_) {
          std::uint64_t sum = 0;
          for (const auto& entry : map_) sum += entry_digest(entry.first, entry.second);
          return sum;
        }
        auto begin = map_.lower_bound(k);
        auto end = open_end(op) ? map_.end() : map_.lower_bound(key(op.key + width(op)));
        std::uint64_t sum = 0;
        std::uint64_t left = limit(op);
        auto take = [&](const auto& entry) {
          sum = mix(sum + digest_of(entry.first, 1) + digest_of(entry.second, 2));
          return --left != 0;
        };
        if (left == 0) return 0;
        if (reverse(op)) {
          while (end != begin && take(*--end)) {
          }
        } else {
          while (begin != end && take(*begin++)) {
          }
        }
        return sum;
      }
    }
    return 0;
  }

  std::uint64_t apply(const Op& op, AnyMap<K, V>& map) const {
    const OwnedK owned = key(op.key);
    const K k(owned);
    switch (op.kind) {
      case OpKind::insert:
        return was_absent(map.insert(k, V(model_value<V>(op.salt))));
      case OpKind::upsert:
        return was_absent(map.put(k, V(model_value<V>(op.salt))));
      case OpKind::update:
        return was_present(map.update(k, V(model_value<V>(op.salt))));
      case OpKind::erase:
        return was_present(map.erase(k));
      case OpKind::find: {
        const auto found = must(map.get(k));
        return found ? digest_of(*found, 1) : 0;
      }
      case OpKind::contains:
        return was_present(map.contains(k));
      case OpKind::find_many: {
        const std::vector<std::uint64_t> numbers = many(op);
        std::vector<OwnedK> owned_keys;
        for (const std::uint64_t number : numbers) owned_keys.push_back(key(number));
        const std::vector<K> keys(owned_keys.begin(), owned_keys.end());
        std::vector<std::optional<OwnedV>> values(keys.size());
        must(map.get_many(keys, values));
        std::uint64_t sum = 0;
        for (std::size_t i = 0; i < keys.size(); ++i) {
          if (values[i]) sum = mix(sum + digest_of(*values[i], numbers[i]));
        }
        return sum;
      }
      case OpKind::scan:
      case OpKind::iterate: {
        if (!ordered_) {
          std::uint64_t sum = 0;
          must(map.for_each(
              [&](const K& seen_key, const V& value) { sum += entry_digest(seen_key, value); }));
          return sum;
        }
        OrderedMap<K, V>& ordered = *map.ordered();
        const OwnedK owned_to = key(op.key + width(op));
        ScanOptions<K> options;
        options.from = k;
        if (!open_end(op)) options.to = K(owned_to);
        options.limit = limit(op);
        options.reverse = reverse(op);
        std::uint64_t sum = 0;
        if (op.kind == OpKind::scan) {
          must(ordered.scan(options, [&](const K& seen_key, const V& seen_value) {
            sum = mix(sum + digest_of(seen_key, 1) + digest_of(seen_value, 2));
          }));
        } else {
          auto it = ordered.scan(options);
          for (; it.valid(); it.next()) {
            sum = mix(sum + digest_of(it.key(), 1) + digest_of(it.value(), 2));
          }
          must(it.status());
        }
        return sum;
      }
    }
    return 0;
  }

  // Full comparison: by find, by every entry, by forward and by reverse scan. Returns "" if equal.
  std::string difference(AnyMap<K, V>& map) const {
    for (const auto& [k, value] : map_) {
      const auto found = must(map.get(K(k)));
      if (!found) return "find misses key " + show(k);
      if (*found != value) return "find gives a wrong value for key " + show(k);
    }
    std::string wrong = difference_of_entries(map);
    for (const bool reverse : {false, true}) {
      if (!wrong.empty() || !ordered_) break;
      wrong = difference_of_scan(*map.ordered(), reverse);
    }
    const MapStats stats = map.stats();
    if (wrong.empty() && stats.entries != map_.size()) {
      return "stats().entries is " + std::to_string(stats.entries) + ", not " +
             std::to_string(map_.size());
    }
    return wrong;
  }

  std::map<OwnedK, OwnedV>& entries() { return map_; }
  Distribution distribution() const { return distribution_; }

 private:
  static std::vector<std::uint64_t> many(const Op& op) {
    std::vector<std::uint64_t> numbers(op.extra % 90);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = op.key + mix(op.extra + i) % (i % 4 == 0 ? 2 : 60);
    }
    return numbers;
  }
  static std::uint64_t width(const Op& op) { return op.extra / 16 % 300; }
  static bool open_end(const Op& op) { return op.extra % 8 == 0; }
  static bool reverse(const Op& op) { return op.extra / 8 % 2 == 0; }
  static std::uint64_t limit(const Op& op) {
    return op.extra / 8'192 % 3 == 0 ? ~std::uint64_t{0} : op.extra / 65'536 % 150;
  }
  template <class Key, class Value>
  static std::uint64_t entry_digest(const Key& key, const Value& value) {
    return mix(digest_of(key, 1) + digest_of(value, 2));
  }
  // In any order, but each once.
  std::string difference_of_entries(AnyMap<K, V>& map) const {
    std::string wrong;
    std::set<OwnedK> seen;
    must(map.for_each([&](const K& k, const V& value) {
      const OwnedK owned(k);
      const auto expected = map_.find(owned);
      if (expected == map_.end() || !seen.insert(owned).second) {
        wrong = "for_each delivers key " + show(owned) + ", which is absent, or twice";
      } else if (value != V(expected->second)) {
        wrong = "for_each delivers a wrong value for key " + show(owned);
      }
      return wrong.empty();
    }));
    return wrong.empty() && seen.size() != map_.size() ? "for_each ends early" : wrong;
  }
  std::string difference_of_scan(OrderedMap<K, V>& map, bool reverse) const {
    std::string wrong;
    auto next_up = map_.begin();
    auto next_down = map_.rbegin();
    std::uint64_t seen = 0;
    must(map.scan(ScanOptions<K>{.reverse = reverse}, [&](const K& k, const V& value) {
      if (seen++ >= map_.size()) {
        wrong = "scan delivers more entries than exist, e.g. key " + show(OwnedK(k));
        return false;
      }
      const auto& expected = reverse ? *next_down++ : *next_up++;
      if (k != K(expected.first)) {
        wrong = "scan delivers " + show(OwnedK(k)) + " instead of " + show(expected.first);
      } else if (value != V(expected.second)) {
        wrong = "scan delivers a wrong value for key " + show(expected.first);
      }
      return wrong.empty();
    }));
    if (wrong.empty() && seen != map_.size()) wrong = "scan ends early";
    return wrong.empty() ? "" : (reverse ? "reverse " : "forward ") + wrong;
  }

  static std::string show(const OwnedK& k) { return ::testing::PrintToString(k); }

  Distribution distribution_;
  bool ordered_;
  std::map<OwnedK, OwnedV> map_;
};

}  // namespace perdure::test
