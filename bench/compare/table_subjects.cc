// libcuckoo and oneTBB's hash map: the cost of hash tables in DRAM without persistence. Each starts
// with the capacity of the run and grows by its own rules.
#include <oneapi/tbb/concurrent_hash_map.h>
#include <oneapi/tbb/version.h>

#include <libcuckoo/cuckoohash_map.hh>

#include "bench/compare/foreign.h"

namespace perdure::bench {
namespace {

template <class K, class V>
class Cuckoo {
 public:
  static constexpr const char* kName = "libcuckoo";
  static constexpr bool kMallocs = true;
  static std::string version() { return "0.3.1"; }

  explicit Cuckoo(std::uint64_t capacity)
      : map_(capacity != 0 ? capacity : libcuckoo::DEFAULT_SIZE) {}
  bool insert(const K& key, V value) { return map_.insert(key, std::move(value)); }
  bool update(const K& key, V value) { return map_.update(key, std::move(value)); }
  bool erase(const K& key) { return map_.erase(key); }
  template <class F>
  bool read(const K& key, F&& visit) {
    return map_.find_fn(key, visit);
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

  explicit Tbb(std::uint64_t capacity) {
    if (capacity != 0) map_.rehash(capacity);
  }
  bool insert(const K& key, V value) { return map_.insert({key, std::move(value)}); }
  bool update(const K& key, V value) {
    typename Map::accessor found;
    if (!map_.find(found, key)) return false;
    found->second = std::move(value);
    return true;
  }
  bool erase(const K& key) { return map_.erase(key); }
  template <class F>
  bool read(const K& key, F&& visit) {
    typename Map::const_accessor found;
    if (!map_.find(found, key)) return false;
    visit(found->second);
    return true;
  }
  std::uint64_t size() const { return map_.size(); }
  std::optional<double> load_factor() const { return {}; }

 private:
  Map map_;
};

template <class Table, class K, class V>
class TableSession : public Session {
 public:
  explicit TableSession(Table& table) : table_(table) {}

  Outcome insert(const KeyRef& key, const ValueRef& value) override {
    return outcome_of(table_.insert(owned<K>(key), owned<V>(value)));
  }
  Outcome update(const KeyRef& key, const ValueRef& value) override {
    return outcome_of(table_.update(owned<K>(key), owned<V>(value)));
  }
  Outcome erase(const KeyRef& key) override { return outcome_of(table_.erase(owned<K>(key))); }
  Outcome read(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit) override {
    return outcome_of(
        table_.read(owned<K>(key), [&](const V& value) { visit(borrowed<ValueRef>(value)); }));
  }
  Outcome scan(const KeyRef&, std::uint64_t, ScanTally&) override {
    return fail("the engine keeps no order");
  }

 private:
  static Outcome outcome_of(bool yes) noexcept { return yes ? Outcome::yes : Outcome::no; }

  Table& table_;
};

template <class Table, class K, class V>
class TableSubject : public Subject {
 public:
  explicit TableSubject(const ForeignOptions& options) : capacity_(options.capacity) {}

  std::string name() const override { return Table::kName; }
  std::string medium() const override { return "dram"; }
  std::string durability() const override { return "none"; }
  std::string version() const override { return Table::version(); }
  bool persistent() const override { return false; }

  Result<void> create() override {
    heap_before_ = heap_bytes();
    table_ = std::make_unique<Table>(capacity_);
    return {};
  }
  Result<void> reopen() override { return {}; }
  Result<void> close() override { return {}; }
  void remove() override { table_.reset(); }
  std::unique_ptr<Session> session() override {
    return std::make_unique<TableSession<Table, K, V>>(*table_);
  }
  Footprint footprint() override {
    const std::uint64_t now = heap_bytes();
    Footprint footprint{
        .entries = table_->size(), .pm_bytes = 0, .load_factor = table_->load_factor()};
    if (Table::kMallocs) footprint.dram_bytes = now > heap_before_ ? now - heap_before_ : 0;
    return footprint;
  }

 private:
  std::uint64_t capacity_;
  std::unique_ptr<Table> table_;
  std::uint64_t heap_before_ = 0;
};

template <class K, class V>
using CuckooSubject = TableSubject<Cuckoo<K, V>, K, V>;
template <class K, class V>
using TbbSubject = TableSubject<Tbb<K, V>, K, V>;

}  // namespace

std::unique_ptr<Subject> make_libcuckoo_subject(const ForeignOptions& options) {
  return make_typed<CuckooSubject>(options);
}
std::unique_ptr<Subject> make_tbb_subject(const ForeignOptions& options) {
  return make_typed<TbbSubject>(options);
}

}  // namespace perdure::bench
