// std::map in DRAM: the cost of an ordered map without persistence. Threads share one mutex.
#include <map>
#include <mutex>
#include <optional>

#include "bench/compare/foreign.h"

namespace perdure::bench {
namespace {

template <class K, class V>
struct Shared {
  std::map<K, V, std::less<>> map;
  std::mutex mutex;
  bool locked = false;

  std::unique_lock<std::mutex> lock() {
    return locked ? std::unique_lock(mutex) : std::unique_lock<std::mutex>();
  }
};

template <class K, class V>
class MapSession : public Session {
 public:
  explicit MapSession(Shared<K, V>& shared) : shared_(shared) {}

  Outcome insert(const KeyRef& key, const ValueRef& value) override {
    const auto lock = shared_.lock();
    return outcome_of(shared_.map.try_emplace(owned<K>(key), owned<V>(value)).second);
  }
  Outcome update(const KeyRef& key, const ValueRef& value) override {
    const auto lock = shared_.lock();
    const auto it = find(key);
    if (it == shared_.map.end()) return Outcome::no;
    it->second = owned<V>(value);
    return Outcome::yes;
  }
  Outcome erase(const KeyRef& key) override {
    const auto lock = shared_.lock();
    const auto it = find(key);
    if (it == shared_.map.end()) return Outcome::no;
    shared_.map.erase(it);
    return Outcome::yes;
  }
  Outcome read(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit) override {
    const auto lock = shared_.lock();
    const auto it = find(key);
    if (it == shared_.map.end()) return Outcome::no;
    visit(borrowed<ValueRef>(it->second));
    return Outcome::yes;
  }
  Outcome scan(const KeyRef& from, std::uint64_t limit, ScanTally& tally) override {
    const auto lock = shared_.lock();
    auto it = shared_.map.lower_bound(view(from));
    for (; limit > 0 && it != shared_.map.end(); --limit, ++it) {
      tally.add(borrowed<KeyRef>(it->first), borrowed<ValueRef>(it->second));
    }
    return Outcome::yes;
  }

 private:
  static Outcome outcome_of(bool yes) noexcept { return yes ? Outcome::yes : Outcome::no; }
  static auto view(const KeyRef& key) noexcept {
    if constexpr (std::is_same_v<K, std::string>) {
      return key.bytes;
    } else {
      return key.word;
    }
  }
  auto find(const KeyRef& key) { return shared_.map.find(view(key)); }

  Shared<K, V>& shared_;
};

template <class K, class V>
class StdMapSubject : public Subject {
 public:
  explicit StdMapSubject(const ForeignOptions& options) { shared_.locked = options.threads > 1; }

  std::string name() const override { return "std_map"; }
  std::string medium() const override { return "dram"; }
  std::string durability() const override { return "none"; }
  std::string version() const override { return "libstdc++ " + std::to_string(__GLIBCXX__); }
  bool persistent() const override { return false; }

  Result<void> create() override {
    heap_before_ = heap_bytes();
    return {};
  }
  Result<void> reopen() override { return {}; }
  Result<void> close() override { return {}; }
  void remove() override { shared_.map.clear(); }
  std::unique_ptr<Session> session() override {
    return std::make_unique<MapSession<K, V>>(shared_);
  }
  Footprint footprint() override {
    const std::uint64_t now = heap_bytes();
    return {.entries = shared_.map.size(),
            .pm_bytes = 0,
            .dram_bytes = now > heap_before_ ? now - heap_before_ : 0};
  }

 private:
  Shared<K, V> shared_;
  std::uint64_t heap_before_ = 0;
};

}  // namespace

std::unique_ptr<Subject> make_std_map_subject(const ForeignOptions& options) {
  return make_typed<StdMapSubject>(options);
}

}  // namespace perdure::bench
