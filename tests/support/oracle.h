// OracleIndex: the contract of detail::OrderedIndex over a std::map. The suites also run on it,
// which shows that they test the contract and not the habits of an engine.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "index/findings.h"
#include "index/tombstone.h"
#include "perdure/index.h"

namespace perdure::test {

class OracleIndex final : public detail::OrderedIndex, public tombstone::Allocated {
 public:
  explicit OracleIndex(bool byte_keys) : byte_keys_(byte_keys) {}

  Expected<bool> insert(const detail::Key& key, const detail::Value& value) override {
    if (!legal(key, value)) return fail(StatusCode::invalid_argument);
    std::unique_lock lock(mutex_);
    return map_.try_emplace(own(key), own(value)).second;
  }
  Expected<bool> put(const detail::Key& key, const detail::Value& value) override {
    if (!legal(key, value)) return fail(StatusCode::invalid_argument);
    std::unique_lock lock(mutex_);
    return map_.insert_or_assign(own(key), own(value)).second;
  }
  Expected<bool> update(const detail::Key& key, const detail::Value& value) override {
    if (!legal(key, value)) return fail(StatusCode::invalid_argument);
    std::unique_lock lock(mutex_);
    auto found = map_.find(own(key));
    if (found == map_.end()) return false;
    found->second = own(value);
    return true;
  }
  Expected<bool> erase(const detail::Key& key) override {
    if (!legal(key, {})) return fail(StatusCode::invalid_argument);
    std::unique_lock lock(mutex_);
    return map_.erase(own(key)) != 0;
  }
  Expected<bool> update_if(const detail::Key& key, const detail::Value& expected,
                           const detail::Value& value) override {
    if (!legal(key, value)) return fail(StatusCode::invalid_argument);
    std::unique_lock lock(mutex_);
    auto found = map_.find(own(key));
    if (found == map_.end() || !detail::same_value(view(found->second), expected)) return false;
    found->second = own(value);
    return true;
  }
  Expected<bool> erase_if(const detail::Key& key, const detail::Value& expected) override {
    if (!legal(key, {})) return fail(StatusCode::invalid_argument);
    std::unique_lock lock(mutex_);
    auto found = map_.find(own(key));
    if (found == map_.end() || !detail::same_value(view(found->second), expected)) return false;
    map_.erase(found);
    return true;
  }
  Expected<bool> read(const detail::Key& key,
                      FunctionRef<void(const detail::Value&)> visit) override {
    if (!legal(key, {})) return fail(StatusCode::invalid_argument);
    std::shared_lock lock(mutex_);
    auto found = map_.find(own(key));
    if (found == map_.end()) return false;
    visit(view(found->second));
    return true;
  }
  Expected<std::uint64_t> read_many(
      std::span<const detail::Key> keys,
      FunctionRef<void(std::size_t, const detail::Value&)> visit) override {
    std::uint64_t present = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      auto found = read(keys[i], [&](const detail::Value& value) { visit(i, value); });
      if (!found) return fail(std::move(found.error()));
      present += *found ? 1 : 0;
    }
    return present;
  }
  Expected<void> scan(const detail::ScanRange& range,
                      FunctionRef<bool(std::span<const detail::Entry>)> visit) override {
    std::shared_lock lock(mutex_);
    std::vector<detail::Entry> entries;
    auto at = range.from ? map_.lower_bound(own(*range.from)) : map_.begin();
    const auto end = range.to ? map_.lower_bound(own(*range.to)) : map_.end();
    if (range.from && range.to && !(own(*range.from) < own(*range.to))) at = end;
    for (; at != end; ++at) entries.push_back({view(at->first), view(at->second)});
    if (range.reverse) std::reverse(entries.begin(), entries.end());
    // Batches of an odd size, as leaves have.
    constexpr std::size_t kBatch = 23;
    const std::span<const detail::Entry> all(entries);
    for (std::size_t begin = 0; begin < all.size(); begin += kBatch) {
      if (!visit(all.subspan(begin, std::min(kBatch, all.size() - begin)))) break;
    }
    return {};
  }
  Expected<std::uint64_t> size() override {
    std::shared_lock lock(mutex_);
    return map_.size();
  }
  void stats(EngineStats& out) override {
    std::shared_lock lock(mutex_);
    out.entries = map_.size();
  }
  void check(const CheckOptions&, Findings& report) override { report.entries += map_.size(); }

 private:
  struct OwnKey {
    std::uint64_t word;
    std::string bytes;
    auto operator<=>(const OwnKey&) const = default;
  };
  struct OwnValue {
    std::uint64_t word;
    std::uint32_t word_size;
    std::string bytes;
  };

  bool legal(const detail::Key& key, const detail::Value& value) const {
    return key.bytes.size() <= kMaxKeyBytes && value.bytes.size() <= kMaxValueBytes;
  }
  OwnKey own(const detail::Key& key) const {
    return {byte_keys_ ? 0 : key.word, std::string(key.bytes)};
  }
  static OwnValue own(const detail::Value& value) {
    return {value.word, value.word_size, std::string(value.bytes)};
  }
  static detail::Key view(const OwnKey& key) { return {key.word, key.bytes}; }
  static detail::Value view(const OwnValue& value) {
    return {value.word, value.bytes, value.word_size};
  }

  const bool byte_keys_;
  std::shared_mutex mutex_;
  std::map<OwnKey, OwnValue> map_;
};

}  // namespace perdure::test
