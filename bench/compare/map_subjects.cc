// Maps in DRAM that are made for one thread: std::map, absl::btree_map, absl::flat_hash_map. They
// show what order and lookup cost without persistence. Two and more threads share one mutex.
#include <absl/base/options.h>
#include <absl/container/btree_map.h>
#include <absl/container/flat_hash_map.h>
#include <absl/strings/string_view.h>

#include <map>
#include <mutex>

#include "bench/compare/memory_subject.h"

namespace perdure::bench {
namespace {

std::string absl_version() { return "lts " + std::to_string(ABSL_LTS_RELEASE_VERSION); }

// A key as the map's library takes it for lookups. Debian's Abseil has its own string_view.
template <class Text>
std::uint64_t as_key(std::uint64_t word) noexcept {
  return word;
}
template <class Text>
Text as_key(std::string_view bytes) noexcept {
  return {bytes.data(), bytes.size()};
}

// `Text` is the library's string_view.
template <class Map, class Text>
class Locked {
  using V = Map::mapped_type;

 public:
  static constexpr bool kMallocs = true;

  Locked(std::uint64_t capacity, std::uint32_t threads) : shared_(threads > 1) {
    if constexpr (requires { map_.reserve(capacity); }) map_.reserve(capacity);
  }
  bool insert(const auto& key, V value) {
    const auto guard = lock();
    return map_.try_emplace(typename Map::key_type(key), std::move(value)).second;
  }
  bool update(const auto& key, V value) {
    const auto guard = lock();
    const auto it = map_.find(as_key<Text>(key));
    if (it == map_.end()) return false;
    it->second = std::move(value);
    return true;
  }
  bool erase(const auto& key) {
    const auto guard = lock();
    const auto it = map_.find(as_key<Text>(key));
    if (it == map_.end()) return false;
    map_.erase(it);
    return true;
  }
  template <class F>
  bool read(const auto& key, F&& visit) {
    const auto guard = lock();
    const auto it = map_.find(as_key<Text>(key));
    if (it == map_.end()) return false;
    visit(it->second);
    return true;
  }
  template <class F>
  void scan(const auto& from, std::uint64_t limit, F&& visit)
    requires requires(Map map) { map.lower_bound(as_key<Text>(from)); }
  {
    const auto guard = lock();
    auto it = map_.lower_bound(as_key<Text>(from));
    for (; limit > 0 && it != map_.end(); --limit, ++it) visit(it->first, it->second);
  }
  std::uint64_t size() const { return map_.size(); }
  std::optional<double> load_factor() const {
    if constexpr (requires { map_.load_factor(); }) return map_.load_factor();
    return {};
  }

 private:
  std::unique_lock<std::mutex> lock() {
    return shared_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
  }

  Map map_;
  std::mutex mutex_;
  bool shared_;
};

template <class K, class V>
struct StdMap : Locked<std::map<K, V, std::less<>>, std::string_view> {
  using Locked<std::map<K, V, std::less<>>, std::string_view>::Locked;
  static constexpr const char* kName = "std_map";
  static std::string version() { return "libstdc++ " + std::to_string(__GLIBCXX__); }
};
template <class K, class V>
struct AbslBtree : Locked<absl::btree_map<K, V>, absl::string_view> {
  using Locked<absl::btree_map<K, V>, absl::string_view>::Locked;
  static constexpr const char* kName = "absl_btree";
  static std::string version() { return absl_version(); }
};
template <class K, class V>
struct AbslFlat : Locked<absl::flat_hash_map<K, V>, absl::string_view> {
  using Locked<absl::flat_hash_map<K, V>, absl::string_view>::Locked;
  static constexpr const char* kName = "absl_flat";
  static std::string version() { return absl_version(); }
};

template <class K, class V>
using StdMapSubject = MemorySubject<StdMap<K, V>, K, V>;
template <class K, class V>
using AbslBtreeSubject = MemorySubject<AbslBtree<K, V>, K, V>;
template <class K, class V>
using AbslFlatSubject = MemorySubject<AbslFlat<K, V>, K, V>;

}  // namespace

std::unique_ptr<Subject> make_std_map_subject(const ForeignOptions& options) {
  return make_typed<StdMapSubject>(options);
}
std::unique_ptr<Subject> make_absl_btree_subject(const ForeignOptions& options) {
  return make_typed<AbslBtreeSubject>(options);
}
std::unique_ptr<Subject> make_absl_flat_subject(const ForeignOptions& options) {
  return make_typed<AbslFlatSubject>(options);
}

}  // namespace perdure::bench
