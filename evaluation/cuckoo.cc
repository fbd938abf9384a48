#include "evaluation/cuckoo.h"

#ifdef PERDURE_HAVE_LIBCUCKOO

#include <libcuckoo/cuckoohash_map.hh>

namespace perdure::paper {
namespace {

class Cuckoo final : public Table {
  using Map = libcuckoo::cuckoohash_map<std::uint64_t, std::uint64_t>;

 public:
  explicit Cuckoo(std::uint64_t capacity) : map_(capacity) {}

  Expected<bool> insert(std::uint64_t key, std::uint64_t value) override {
    return map_.insert(key, value);
  }
  Expected<bool> update(std::uint64_t key, std::uint64_t value) override {
    return map_.update(key, value);
  }
  Expected<bool> erase(std::uint64_t key) override { return map_.erase(key); }
  Expected<bool> find(std::uint64_t key, std::uint64_t& value) override {
    return map_.find(key, value);
  }
  std::uint64_t items() override { return map_.size(); }
  std::uint64_t slots() override { return map_.capacity(); }
  Status for_each(FunctionRef<void(std::uint64_t, std::uint64_t)> visit) override {
    for (const auto& [key, value] : map_.lock_table()) visit(key, value);
    return {};
  }
  void check(Findings& report) override {
    std::uint64_t count = 0;
    for ([[maybe_unused]] const auto& item : map_.lock_table()) ++count;
    report.entries += count;
    if (count != items()) report.add("the count of items is wrong");
  }

 private:
  Map map_;
};

}  // namespace

std::unique_ptr<Table> make_cuckoo(std::uint64_t capacity) {
  return std::make_unique<Cuckoo>(capacity);
}

}  // namespace perdure::paper

#else

namespace perdure::paper {
std::unique_ptr<Table> make_cuckoo(std::uint64_t) { return nullptr; }
}  // namespace perdure::paper

#endif
