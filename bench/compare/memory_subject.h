// A structure in DRAM under the driver. `Structure` adapts one library:
//
//   kName, version()           what the report says
//   kMallocs                   whether malloc's own figures count its memory
//   Structure(capacity, threads)
//   insert, update, erase, read(key, visit)   key: std::uint64_t or std::string_view
//   scan(key, limit, visit)    only if it keeps an order: visit(key, value) returns nothing
//   size(), load_factor()
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bench/compare/foreign.h"

namespace perdure::bench {

// A key as it comes from the driver, without a copy.
template <class K, class Ref>
auto view_of(const Ref& ref) noexcept {
  if constexpr (std::is_same_v<K, std::string>) {
    return ref.bytes;
  } else {
    return ref.word;
  }
}

template <class Structure, class K, class V>
class MemorySession : public Session {
  struct Tally {
    ScanTally& tally;
    void operator()(const K& key, const V& value) const {
      tally.add(borrowed<KeyRef>(key), borrowed<ValueRef>(value));
    }
  };

 public:
  explicit MemorySession(Structure& structure) : structure_(structure) {}

  Outcome insert(const KeyRef& key, const ValueRef& value) override {
    return outcome_of(structure_.insert(view_of<K>(key), owned<V>(value)));
  }
  Outcome update(const KeyRef& key, const ValueRef& value) override {
    return outcome_of(structure_.update(view_of<K>(key), owned<V>(value)));
  }
  Outcome erase(const KeyRef& key) override {
    return outcome_of(structure_.erase(view_of<K>(key)));
  }
  Outcome read(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit) override {
    return outcome_of(structure_.read(view_of<K>(key),
                                      [&](const V& value) { visit(borrowed<ValueRef>(value)); }));
  }
  Outcome scan(const KeyRef& from, std::uint64_t limit, ScanTally& tally) override {
    if constexpr (requires { structure_.scan(view_of<K>(from), limit, Tally{tally}); }) {
      structure_.scan(view_of<K>(from), limit, Tally{tally});
      return Outcome::yes;
    } else {
      return fail("the engine keeps no order");
    }
  }

 private:
  static Outcome outcome_of(bool yes) noexcept { return yes ? Outcome::yes : Outcome::no; }

  Structure& structure_;
};

template <class Structure, class K, class V>
class MemorySubject : public Subject {
 public:
  explicit MemorySubject(const ForeignOptions& options)
      : capacity_(options.capacity), threads_(options.threads) {}

  std::string name() const override { return Structure::kName; }
  std::string medium() const override { return "dram"; }
  std::string durability() const override { return "none"; }
  std::string version() const override { return Structure::version(); }
  bool persistent() const override { return false; }

  Result<void> create() override {
    heap_before_ = heap_bytes();
    structure_ = std::make_unique<Structure>(capacity_, threads_);
    return {};
  }
  Result<void> reopen() override { return {}; }
  Result<void> close() override { return {}; }
  void remove() override { structure_.reset(); }
  std::unique_ptr<Session> session() override {
    return std::make_unique<MemorySession<Structure, K, V>>(*structure_);
  }
  Footprint footprint() override {
    const std::uint64_t now = heap_bytes();
    Footprint footprint{
        .entries = structure_->size(), .pm_bytes = 0, .load_factor = structure_->load_factor()};
    if (Structure::kMallocs) footprint.dram_bytes = now > heap_before_ ? now - heap_before_ : 0;
    return footprint;
  }

 private:
  std::uint64_t capacity_;
  std::uint32_t threads_;
  std::unique_ptr<Structure> structure_;
  std::uint64_t heap_before_ = 0;
};

}  // namespace perdure::bench
