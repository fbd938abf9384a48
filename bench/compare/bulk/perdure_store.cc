// perdure: a Store of engine phast in durability `buffered`. A transaction is a WriteBatch, or the
// call itself if it puts one key. A durable one ends with sync(). A pop scans for one entry and
// erases it: each is atomic by itself, and all are durable with the sync() at the end.
#include <fmt/core.h>

#include <optional>

#include "bench/compare/bulk/store.h"
#include "bench/workloads/data.h"
#include "perdure/store.h"
#include "perdure/write_batch.h"

namespace perdure::bench {
namespace {

void must(const Status& status) {
  if (!status.ok()) stop(kExitIo, fmt::format("perdure: {}", status.message()));
}
template <class T>
T must(Expected<T> result) {
  if (!result) must(result.error());
  return std::move(*result);
}

class PerdureReader : public BulkReader {
 public:
  explicit PerdureReader(Store& store) : store_(store) {}

  bool read(std::string_view key, FunctionRef<void(std::string_view)> visit) override {
    const Found found = store_.read(key, visit);
    must(found.status());
    return found.present();
  }
  void scan(std::string_view from, std::uint64_t limit,
            FunctionRef<void(const Entry&)> visit) override {
    must(store_.scan({.from = from, .limit = limit},
                     [&](std::string_view key, std::string_view value) { visit({key, value}); }));
  }

 private:
  Store& store_;
};

class PerdureStore : public BulkStore {
 public:
  explicit PerdureStore(const std::string& folder) : path_(folder + "/store.perdure") {}

  void open() override {
    store_.emplace(must(Store::open(
        path_, {.map = {.engine = Engine::phast}, .pool = {.durability = Durability::buffered}})));
  }
  void close() override {
    must(store_->close());
    store_.reset();
  }
  void put(std::uint64_t count, EntrySource entries) override {
    if (count == 1) {
      const Entry entry = entries(0);
      must(store_->put(entry.key, entry.value).status());
    } else {
      WriteBatch batch;
      for (std::uint64_t i = 0; i < count; ++i) {
        const Entry entry = entries(i);
        batch.put(*store_, entry.key, entry.value);
      }
      must(store_->pool().commit(batch));
    }
    end();
  }
  void erase(std::uint64_t count, KeySource keys) override {
    WriteBatch batch;
    for (std::uint64_t i = 0; i < count; ++i) batch.erase(*store_, keys(i));
    must(store_->pool().commit(batch));
    end();
  }
  void erase_if(std::string_view from, std::string_view to,
                FunctionRef<bool(const Entry&)> chosen) override {
    WriteBatch batch;
    must(store_->scan({.from = from, .to = to}, [&](std::string_view key, std::string_view value) {
      if (chosen({key, value})) batch.erase(*store_, key);
    }));
    must(store_->pool().commit(batch));
    end();
  }
  void pop(FunctionRef<bool(std::string_view)> goes_on) override {
    bool last = false;
    std::string key;  // a callback of a scan must not change the map
    const auto copy = [&](std::string_view found, std::string_view) { key.assign(found); };
    for (bool more = true; more; last = !last) {
      if (must(store_->scan({.limit = 1, .reverse = last}, copy)) == 0) break;
      more = goes_on(key);
      must(store_->erase(key).status());
    }
    end();
  }
  std::uint64_t size() override { return must(store_->size()); }
  void compact() override { must(store_->pool().compact()); }
  std::unique_ptr<BulkReader> reader() override { return std::make_unique<PerdureReader>(*store_); }

 private:
  void end() {
    if (commit_ == Commit::durable) must(store_->sync());
  }

  std::string path_;
  std::optional<Store> store_;
};

}  // namespace

std::unique_ptr<BulkStore> make_perdure_bulk(const std::string& folder) {
  return std::make_unique<PerdureStore>(folder);
}

}  // namespace perdure::bench
