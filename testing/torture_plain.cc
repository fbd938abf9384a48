// The plain target: the public API over a real file.
#include <cstring>

#include "index/engine_table.h"
#include "perdure/perdure.h"
#include "testing/engine_list.h"
#include "testing/torture_runner.h"

namespace perdure::testing {

namespace {

std::uint64_t word_of(const std::string& text) {
  std::uint64_t word = 0;
  std::memcpy(&word, text.data(), 8);
  return word;
}

template <class K, class V>
class PlainTarget : public TortureTarget {
 public:
  PlainTarget(Pool pool, Map<K, V> map, std::optional<VersionedMap<K, V>> versioned)
      : pool_(std::move(pool)), map_(std::move(map)), versioned_(std::move(versioned)) {}

  Expected<bool> upsert(const std::string& key, const std::string& value) override {
    return map_->upsert(key_of(key), value_of(value));
  }
  Expected<bool> insert(const std::string& key, const std::string& value) override {
    return map_->insert(key_of(key), value_of(value));
  }
  Expected<bool> update(const std::string& key, const std::string& value) override {
    return map_->update(key_of(key), value_of(value));
  }
  Expected<bool> erase(const std::string& key) override { return map_->erase(key_of(key)); }
  Expected<bool> find(const std::string& key, std::string& value) override {
    return text_of(map_->find(key_of(key)), value);
  }
  std::string check(std::uint64_t& entries) override {
    auto visited = map_->for_each([](const K&, const V&) {});
    if (!visited) return std::string(visited.error().message());
    entries = *visited;
    auto report = pool_.check({.deep = true});
    if (!report) return std::string(report.error().message());
    return std::string(report->first());
  }
  Status sync() override { return pool_.sync(); }
  Status compact() override {
    auto bytes = pool_.compact();
    return bytes ? Status() : std::move(bytes.error());
  }
  Status close() override {
    map_.reset();
    versioned_.reset();
    return pool_.close();
  }
  bool keeps_versions() const override { return versioned_.has_value(); }
  Expected<std::uint64_t> tag() override { return versioned_->tag(); }
  VersionRange versions() override { return versioned_->versions(); }
  Expected<bool> find_at(const std::string& key, std::uint64_t version,
                         std::string& value) override {
    return text_of(versioned_->find(key_of(key), version), value);
  }

 private:
  static K key_of(const std::string& key) {
    if constexpr (std::same_as<K, std::string_view>) {
      return key;
    } else {
      return __builtin_bswap64(word_of(key));
    }
  }
  static V value_of(const std::string& value) {
    if constexpr (std::same_as<V, std::string_view>) {
      return value;
    } else {
      return word_of(value);
    }
  }
  // Whether there is a value, and it as text.
  static Expected<bool> text_of(Expected<std::optional<detail::Owned<V>>> found,
                                std::string& value) {
    if (!found) return fail(std::move(found.error()));
    if (!found->has_value()) return false;
    if constexpr (std::same_as<V, std::string_view>) {
      value = **found;
    } else {
      value.assign(reinterpret_cast<const char*>(&**found), 8);
    }
    return true;
  }

  Pool pool_;
  std::optional<Map<K, V>> map_;
  std::optional<VersionedMap<K, V>> versioned_;  // the same one, if its engine keeps versions
};

template <class K, class V>
Expected<std::unique_ptr<TortureTarget>> open_plain(const TortureOptions& options,
                                                    const std::string& file) {
  const EngineUnderTest* row = find_engine_under_test(options.engine);
  if (row == nullptr) return fail(StatusCode::invalid_argument);
  auto pool = Pool::open(file, {.durability = options.durability, .max_size = 32_MiB});
  if (!pool) return fail(std::move(pool.error()));
  auto map = pool->map<K, V>("torture", {.engine = row->engine});
  if (!map) return fail(std::move(map.error()));
  std::optional<VersionedMap<K, V>> versioned;
  if (find_engine(row->engine)->versioned) {
    auto same = pool->versioned_map<K, V>("torture", {.engine = row->engine});
    if (!same) return fail(std::move(same.error()));
    versioned.emplace(std::move(*same));
  }
  return std::unique_ptr<TortureTarget>(
      std::make_unique<PlainTarget<K, V>>(std::move(*pool), std::move(*map), std::move(versioned)));
}

}  // namespace

TortureOpen plain_target() {
  return [](const TortureOptions& options, const std::string& file) {
    return options.keys == "integer"
               ? open_plain<std::uint64_t, std::uint64_t>(options, file)
               : open_plain<std::string_view, std::string_view>(options, file);
  };
}

}  // namespace perdure::testing
