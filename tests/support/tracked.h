// Self-checking keys, after leveldb's <key, gen, hash>. Each key has one writer at a time and goes
// through numbered versions. Presence and value are functions of key and version. Two counters per
// key bound what a reader may see: `acked` was acknowledged before the read began; `started` is the
// newest version that can have begun before the read ended. The reader itself detects every other
// result: older, newer, torn, another key's, or a wrong absence.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/any_map.h"

namespace perdure::test {

// The first few violations of a run, from all threads. gtest reports them at the end.
class Violations {
 public:
  void add(const std::string& what) {
    std::lock_guard lock(mutex_);
    ++count_;
    if (first_.size() < 10) first_.push_back(what);
  }
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
  void expect_none() const {
    EXPECT_EQ(count_.load(), 0U) << seed_note();
    for (const std::string& what : first_) ADD_FAILURE() << what;
  }

 private:
  std::mutex mutex_;
  std::atomic<std::uint64_t> count_{0};
  std::vector<std::string> first_;
};

// Runs the bodies at once, one thread each. An exception is a violation.
class Team {
 public:
  explicit Team(Violations& violations) : violations_(violations) {}
  ~Team() { join(); }
  void start(std::function<void()> body) {
    threads_.emplace_back([this, body = std::move(body)] {
      while (!go_.load()) std::this_thread::yield();
      try {
        body();
      } catch (const std::exception& error) {
        violations_.add(error.what());
      }
    });
  }
  void join() {
    go_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  Violations& violations_;
  std::atomic<bool> go_{false};
  std::vector<std::thread> threads_;
};

// The placement of the keys: spread over all partitions, dense in a few leaves, or many in one
// partition.
enum class Layout { spread, dense, one_partition };

template <class K>
OwnedKey<K> tracked_key(std::uint64_t i, Layout layout) {
  if constexpr (std::same_as<K, std::string_view>) {
    char text[40];
    const auto number = static_cast<unsigned long long>(i);
    switch (layout) {
      case Layout::spread:
        // The first byte decides the partition. The order is that of the numbers.
        std::snprintf(text, sizeof text, "%c%08llu", static_cast<char>(1 + i / 16 % 255), number);
        return text;
      case Layout::dense:
        std::snprintf(text, sizeof text, "k%04llu", number);
        return text;
      case Layout::one_partition:
        std::snprintf(text, sizeof text, "customer:%010llu", number);
        return text;
    }
    return "";
  } else {
    switch (layout) {
      case Layout::spread:
        return static_cast<K>(mix(i));
      case Layout::dense:
        return static_cast<K>(i);
      case Layout::one_partition:
        return static_cast<K>(i * 64);
    }
    return K{};
  }
}

inline bool version_present(std::uint64_t key, std::uint32_t version) {
  return version != 0 && mix(key * 31 + version) % 4 != 0;
}

template <class V>
Owned<V> version_value(std::uint64_t key, std::uint32_t version) {
  const std::uint64_t hash = mix((key << 24) ^ version);
  if constexpr (std::same_as<V, std::string_view>) {
    // The length changes with the version, across size classes. Some values have several pages.
    const std::size_t size = hash % 64 == 0 ? 5'000 + hash % 9'000 : 16 + hash % 240;
    std::string bytes = std::to_string(key) + "/" + std::to_string(version) + "/";
    bytes.resize(size, static_cast<char>('!' + hash % 90));
    return bytes;
  } else {
    return (std::uint64_t{version} << 32) | (hash & 0xffff'ffff);
  }
}
// Returns the version that a value claims, if it is whole and belongs to the key.
template <class V>
std::optional<std::uint32_t> version_of(std::uint64_t key, const V& value) {
  std::uint32_t version = 0;
  if constexpr (std::same_as<V, std::string_view>) {
    unsigned long long seen_key = 0;
    unsigned seen_version = 0;
    const std::string head(value.substr(0, 40));
    if (std::sscanf(head.c_str(), "%llu/%u/", &seen_key, &seen_version) != 2) return std::nullopt;
    version = seen_version;
  } else {
    version = static_cast<std::uint32_t>(value >> 32);
  }
  if (V(version_value<V>(key, version)) != value) return std::nullopt;
  return version;
}

template <class K, class V>
class Tracked {
 public:
  Tracked(std::size_t keys, Layout layout, Violations& violations)
      : violations_(violations), keys_(keys) {
    for (std::size_t i = 0; i < keys; ++i) keys_[i].key = tracked_key<K>(i, layout);
    // Scans come in key order: the rank gives a key's number.
    by_rank_.resize(keys);
    for (std::size_t i = 0; i < keys; ++i) by_rank_[i] = i;
    std::sort(by_rank_.begin(), by_rank_.end(),
              [&](std::size_t a, std::size_t b) { return keys_[a].key < keys_[b].key; });
  }
  std::size_t size() const { return keys_.size(); }
  K key(std::size_t i) const { return K(keys_[i].key); }

  // Takes a key to its next version. Only one thread at a time may advance a key.
  void advance(Map<K, V>& map, std::size_t i, Rng& rng) {
    State& state = keys_[i];
    const std::uint32_t now = state.acked.load(std::memory_order_relaxed);
    const std::uint32_t next = now + 1;
    const bool was = version_present(i, now);
    const bool will = version_present(i, next);
    state.started.store(next);
    bool result = false;
    bool expected = false;
    const char* what = "";
    if (!will) {
      what = "erase";
      result = was_present(map.erase(key(i)));
      expected = was;
    } else {
      const auto owned = version_value<V>(i, next);
      if (rng.one_in(2)) {
        what = "upsert";
        result = was_absent(map.put(key(i), V(owned)));
        expected = !was;
      } else if (was) {
        if (rng.one_in(4) && was_absent(map.insert(key(i), V(owned))))
          fail(i, "insert over a present key");
        what = "update";
        result = was_present(map.update(key(i), V(owned)));
        expected = true;
      } else {
        if (rng.one_in(4) && was_present(map.update(key(i), V(owned))))
          fail(i, "update of an absent key");
        what = "insert";
        result = was_absent(map.insert(key(i), V(owned)));
        expected = true;
      }
    }
    if (result != expected) fail(i, std::string(what) + " returned a wrong result");
    state.acked.store(next);
  }

  void check_find(Map<K, V>& map, std::size_t i) {
    const std::uint32_t low = acked(i);
    const auto found = must(map.get(key(i)));
    check(i, low, started(i), found ? std::optional(V(*found)) : std::nullopt, "find");
  }
  void check_read(Map<K, V>& map, std::size_t i) {
    const std::uint32_t low = acked(i);
    bool whole = true;
    std::uint32_t version = 0;
    const bool found = was_present(map.read(key(i), [&](const V& value) {
      const auto seen = version_of<V>(i, value);
      std::this_thread::yield();  // a view must stay whole until the callback returns
      whole = seen.has_value() && version_of<V>(i, value) == seen;
      version = seen.value_or(0);
    }));
    if (!whole) return fail(i, "read: torn, foreign or freed value");
    check_version(i, low, started(i), found ? std::optional(version) : std::nullopt, "read");
  }
  void check_find_many(Map<K, V>& map, const std::vector<std::size_t>& numbers) {
    std::vector<K> keys;
    std::vector<std::uint32_t> low;
    for (const std::size_t i : numbers) {
      keys.push_back(key(i));
      low.push_back(acked(i));
    }
    std::vector<std::optional<Owned<V>>> values(numbers.size());
    must(map.get_many(keys, values));
    for (std::size_t at = 0; at < numbers.size(); ++at) {
      const std::size_t i = numbers[at];
      check(i, low[at], started(i), values[at] ? std::optional(V(*values[at])) : std::nullopt,
            "find_many");
    }
  }
  // Ranks [first, last) in one direction, or all entries of an engine without order.
  void check_scan(AnyMap<K, V>& map, std::size_t first, std::size_t last, bool reverse) {
    if (map.ordered() == nullptr) return check_entries(map);
    if (first < last) check_range(*map.ordered(), first, last, reverse);
  }
  // No foreign key; every key that was present throughout occurs; and each once, except keys that
  // were removed and inserted again.
  void check_entries(Map<K, V>& map) {
    std::vector<std::uint32_t> low(size());
    for (std::size_t i = 0; i < size(); ++i) low[i] = acked(i);
    std::vector<bool> delivered(size());
    must(map.for_each([&](const K& seen, const V& value) {
      const auto rank = std::lower_bound(by_rank_.begin(), by_rank_.end(), seen,
                                         [&](std::size_t i, const K& k) { return key(i) < k; });
      if (rank == by_rank_.end() || key(*rank) != seen) {
        violations_.add("for_each delivers a key that was never inserted");
        return false;
      }
      if (delivered[*rank] && always_present(*rank, low[*rank], started(*rank))) {
        fail(*rank, "for_each: twice");
      }
      delivered[*rank] = true;
      check(*rank, low[*rank], started(*rank), value, "for_each");
      return true;
    }));
    if (violations_.any()) return;
    for (std::size_t i = 0; i < size(); ++i) {
      if (!delivered[i]) check_version(i, low[i], started(i), std::nullopt, "for_each");
    }
  }
  // Without writers: exactly the acknowledged state.
  void check_final(AnyMap<K, V>& map) {
    std::uint64_t present = 0;
    for (std::size_t i = 0; i < size(); ++i) {
      keys_[i].started.store(acked(i));
      present += version_present(i, acked(i)) ? 1 : 0;
      check_find(map, i);
    }
    check_scan(map, 0, size(), false);
    check_scan(map, 0, size(), true);
    EXPECT_EQ(map.count(), present);
  }

 private:
  struct State {
    OwnedKey<K> key{};
    std::atomic<std::uint32_t> started{0};
    std::atomic<std::uint32_t> acked{0};
  };

  // Strictly ordered, no foreign key, and every key that was present throughout.
  void check_range(OrderedMap<K, V>& map, std::size_t first, std::size_t last, bool reverse) {
    std::vector<std::uint32_t> low(last - first);
    for (std::size_t rank = first; rank < last; ++rank) low[rank - first] = acked(by_rank_[rank]);
    ScanOptions<K> options;
    options.from = key(by_rank_[first]);
    if (last < size()) options.to = key(by_rank_[last]);
    options.reverse = reverse;
    std::size_t next = reverse ? last : first;  // ranks from here on are still to come
    must(map.scan(options, [&](const K& seen, const V& value) {
      std::size_t rank = next;
      bool known = false;
      // Skipped keys must have been absent at some moment.
      while (reverse ? rank > first : rank < last) {
        const std::size_t at = reverse ? rank - 1 : rank;
        if (key(by_rank_[at]) == seen) {
          known = true;
          break;
        }
        check_version(by_rank_[at], low[at - first], started(by_rank_[at]), std::nullopt,
                      reverse ? "reverse scan" : "scan");
        rank = reverse ? rank - 1 : rank + 1;
      }
      if (!known) {
        violations_.add("scan delivers a key twice, out of order, out of bounds or never inserted");
        return false;
      }
      const std::size_t at = reverse ? rank - 1 : rank;
      check(by_rank_[at], low[at - first], started(by_rank_[at]), value, "scan");
      next = reverse ? rank - 1 : rank + 1;
      return true;
    }));
    if (violations_.any()) return;
    while (reverse ? next > first : next < last) {
      const std::size_t at = reverse ? next - 1 : next;
      check_version(by_rank_[at], low[at - first], started(by_rank_[at]), std::nullopt, "scan end");
      next = reverse ? next - 1 : next + 1;
    }
  }
  std::uint32_t acked(std::size_t i) const { return keys_[i].acked.load(); }
  std::uint32_t started(std::size_t i) const { return keys_[i].started.load(); }
  void fail(std::size_t i, const std::string& what) {
    violations_.add(what + ", key number " + std::to_string(i) + ", acknowledged version " +
                    std::to_string(acked(i)) + ", started " + std::to_string(started(i)));
  }
  static bool always_present(std::size_t i, std::uint32_t low, std::uint32_t high) {
    for (std::uint32_t v = low; v <= high; ++v) {
      if (!version_present(i, v)) return false;
    }
    return true;
  }
  void check(std::size_t i, std::uint32_t low, std::uint32_t high, std::optional<V> value,
             const char* by) {
    if (!value) return check_version(i, low, high, std::nullopt, by);
    const auto version = version_of<V>(i, *value);
    if (!version) return fail(i, std::string(by) + ": torn or foreign value");
    check_version(i, low, high, version, by);
  }
  void check_version(std::size_t i, std::uint32_t low, std::uint32_t high,
                     std::optional<std::uint32_t> version, const char* by) {
    if (version) {
      if (*version < low)
        fail(i, std::string(by) + ": older than acknowledged: " + std::to_string(*version) + " < " +
                    std::to_string(low));
      if (*version > high) fail(i, std::string(by) + ": a version that was never written");
      if (!version_present(i, *version)) fail(i, std::string(by) + ": a version that is absent");
      return;
    }
    if (always_present(i, low, high)) {
      fail(i, std::string(by) + ": absent, but present in all of versions " + std::to_string(low) +
                  " to " + std::to_string(high));
    }
  }

  Violations& violations_;
  std::deque<State> keys_;
  std::vector<std::size_t> by_rank_;
};

}  // namespace perdure::test
