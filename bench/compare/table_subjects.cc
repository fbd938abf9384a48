// Concurrent hash tables in DRAM: libcuckoo, oneTBB's, Boost's. They show what a lookup costs
// without persistence. Each starts with the capacity of the run and grows by its own rules.
#include <oneapi/tbb/concurrent_hash_map.h>
#include <oneapi/tbb/version.h>

#include <boost/unordered/concurrent_flat_map.hpp>
#include <boost/version.hpp>
#include <libcuckoo/cuckoohash_map.hh>

#include "bench/compare/memory_subject.h"

namespace perdure::bench {
namespace {

template <class K, class V>
class Cuckoo {
 public:
  static constexpr const char* kName = "libcuckoo";
  static constexpr bool kMallocs = true;
  static std::string version() { return "0.3.1"; }

  Cuckoo(std::uint64_t capacity, std::uint32_t)
      : map_(capacity != 0 ? capacity : libcuckoo::DEFAULT_SIZE) {}
  bool insert(const auto& key, V value) { return map_.insert(K(key), std::move(value)); }
  bool update(const auto& key, V value) { return map_.update(K(key), std::move(value)); }
  bool erase(const auto& key) { return map_.erase(K(key)); }
  template <class F>
  bool read(const auto& key, F&& visit) {
    return map_.find_fn(K(key), visit);
  }
  std::uint64_t size() const { return map_.size(); }
  std::optional<double> load_factor() const { return map_.load_factor(); }

 private:
  libcuckoo::cuckoohash_map<K, V> map_;
};

template <class K, class V>
class Tbb {
  using Map = oneapi::tbb::concurrent_hash_map<K, V>;

 public:
  static constexpr const char* kName = "tbb";
  static constexpr bool kMallocs = false;  // its own allocator reports no sizes
  static std::string version() { return TBB_runtime_version(); }

  Tbb(std::uint64_t capacity, std::uint32_t) {
    if (capacity != 0) map_.rehash(capacity);
  }
  bool insert(const auto& key, V value) { return map_.insert({K(key), std::move(value)}); }
  bool update(const auto& key, V value) {
    typename Map::accessor found;
    if (!map_.find(found, K(key))) return false;
    found->second = std::move(value);
    return true;
  }
  bool erase(const auto& key) { return map_.erase(K(key)); }
  template <class F>
  bool read(const auto& key, F&& visit) {
    typename Map::const_accessor found;
    if (!map_.find(found, K(key))) return false;
    visit(found->second);
    return true;
  }
  std::uint64_t size() const { return map_.size(); }
  std::optional<double> load_factor() const { return {}; }

 private:
  Map map_;
};

template <class K, class V>
class BoostFlat {
 public:
  static constexpr const char* kName = "boost_flat";
  static constexpr bool kMallocs = true;
  static std::string version() { return BOOST_LIB_VERSION; }

  BoostFlat(std::uint64_t capacity, std::uint32_t) : map_(capacity) {}
  bool insert(const auto& key, V value) { return map_.try_emplace(K(key), std::move(value)); }
  bool update(const auto& key, V value) {
    return map_.visit(K(key), [&](auto& entry) { entry.second = std::move(value); }) != 0;
  }
  bool erase(const auto& key) { return map_.erase(K(key)) != 0; }
  template <class F>
  bool read(const auto& key, F&& visit) {
    return map_.cvisit(K(key), [&](const auto& entry) { visit(entry.second); }) != 0;
  }
  std::uint64_t size() const { return map_.size(); }
  std::optional<double> load_factor() const { return map_.load_factor(); }

 private:
  boost::concurrent_flat_map<K, V> map_;
};

template <class K, class V>
using CuckooSubject = MemorySubject<Cuckoo<K, V>, K, V>;
template <class K, class V>
using TbbSubject = MemorySubject<Tbb<K, V>, K, V>;
template <class K, class V>
using BoostFlatSubject = MemorySubject<BoostFlat<K, V>, K, V>;

}  // namespace

std::unique_ptr<Subject> make_libcuckoo_subject(const ForeignOptions& options) {
  return make_typed<CuckooSubject>(options);
}
std::unique_ptr<Subject> make_tbb_subject(const ForeignOptions& options) {
  return make_typed<TbbSubject>(options);
}
std::unique_ptr<Subject> make_boost_flat_subject(const ForeignOptions& options) {
  return make_typed<BoostFlatSubject>(options);
}

}  // namespace perdure::bench
