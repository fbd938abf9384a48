// Our store: engine pskiplist.
#include <perdure/perdure.h>
#include <sys/stat.h>

#include <optional>
#include <stdexcept>
#include <utility>

#include "evaluation/versions/store.h"

namespace perdure::paper::versions {

namespace {

void must(const Found& found) {
  if (!found.ok()) throw std::runtime_error(std::string(found.status().message()));
}
template <class T>
T must(Expected<T> done) {
  if (!done) throw std::runtime_error(std::string(done.error().message()));
  return std::move(*done);
}

class PerdureStore final : public Store {
 public:
  explicit PerdureStore(std::string path) : path_(std::move(path)) { open(0); }

  std::uint64_t insert(std::uint64_t key, std::uint64_t value) override {
    must(map_->put(key, value));
    return must(map_->tag());
  }
  std::uint64_t remove(std::uint64_t key) override {
    must(map_->erase(key));
    return must(map_->tag());
  }
  bool find(std::uint64_t key, std::uint64_t version, std::uint64_t& value) override {
    const Found found = map_->read(key, version, [&](std::uint64_t was) { value = was; });
    must(found);
    return found.present();
  }
  std::uint64_t history(std::uint64_t key,
                        FunctionRef<void(std::uint64_t, std::uint64_t, bool)> visit) override {
    std::uint64_t entries = 0;
    auto done = map_->history(key, [&](Version version, const std::optional<std::uint64_t>& value) {
      visit(version, value.value_or(0), !value);
      ++entries;
    });
    if (!done) throw std::runtime_error(std::string(done.error().message()));
    return entries;
  }
  std::uint64_t snapshot(std::uint64_t version,
                         FunctionRef<void(std::uint64_t, std::uint64_t)> visit) override {
    return must(map_->scan_at(version, {}, visit));
  }
  bool reopen(unsigned threads) override {
    map_.reset();
    if (Status s = pool_->close(); !s.ok()) throw std::runtime_error(std::string(s.message()));
    open(threads);
    return true;
  }
  std::uint64_t medium_bytes() override { return map_->stats().pm_bytes; }
  std::uint64_t dram_bytes() override { return map_->stats().dram_bytes; }

 private:
  void open(unsigned threads) {
    pool_.emplace(
        must(Pool::open(path_, {.durability = Durability::emulated, .recovery_threads = threads})));
    map_.emplace(must(pool_->versioned_map<std::uint64_t, std::uint64_t>("paper")));
  }

  std::string path_;
  std::optional<Pool> pool_;
  std::optional<VersionedMap<std::uint64_t, std::uint64_t>> map_;
};

}  // namespace

std::unique_ptr<Store> make_perdure(const std::string& path) {
  return std::make_unique<PerdureStore>(path);
}

}  // namespace perdure::paper::versions
