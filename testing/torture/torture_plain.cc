// The plain target: the public API over a real file.
#include <cstring>

#include "perdure/perdure.h"
#include "testing/engines/engine_list.h"
#include "testing/torture/torture_runner.h"

namespace perdure::testing {

namespace {

std::uint64_t word_of(const std::string& text) {
  std::uint64_t word = 0;
  std::memcpy(&word, text.data(), 8);
  return word;
}

// Converts to the result of an index: for insert, whether the key was absent; otherwise, whether it
// was present.
Expected<bool> absent(Found found) {
  if (!found.ok()) return fail(std::move(found).status());
  return found.absent();
}
Expected<bool> present(Found found) {
  if (!found.ok()) return fail(std::move(found).status());
  return found.present();
}
Expected<bool> exchanged(Exchanged done) {
  if (!done.ok()) return fail(std::move(done).status());
  return done.exchanged();
}

template <class K, class V, class M = Map<K, V>>
class PlainTarget : public TortureTarget {
 public:
  PlainTarget(Pool pool, M map) : pool_(std::move(pool)), map_(std::move(map)) {}

  Expected<bool> upsert(const std::string& key, const std::string& value) override {
    return absent(map_->put(key_of(key), value_of(value)));
  }
  Expected<bool> insert(const std::string& key, const std::string& value) override {
    return absent(map_->insert(key_of(key), value_of(value)));
  }
  Expected<bool> update(const std::string& key, const std::string& value) override {
    return present(map_->update(key_of(key), value_of(value)));
  }
  Expected<bool> erase(const std::string& key) override {
    return present(map_->erase(key_of(key)));
  }
  Expected<bool> update_if(const std::string& key, const std::string& expected,
                           const std::string& value) override {
    return exchanged(map_->compare_exchange(key_of(key), value_of(expected), value_of(value)));
  }
  Expected<bool> erase_if(const std::string& key, const std::string& expected) override {
    return exchanged(map_->compare_exchange(key_of(key), value_of(expected), std::nullopt));
  }
  Expected<TortureTarget::Text> modify(const std::string& key, const Next& next) override {
    TortureTarget::Text before;
    if constexpr (std::integral<V>) {
      // A counter: next() adds 1.
      auto number = map_->fetch_add(key_of(key), 1);
      if (!number) return fail(std::move(number.error()));
      if (*number != 0) before = text_of(*number);
    } else {
      std::string after;
      const Found found = map_->modify(key_of(key), [&](const std::optional<V>& value) {
        before = value.transform(text_of<V>);
        after = next(before);
        return std::optional<V>(after);
      });
      if (!found.ok()) return fail(found.status());
    }
    return before;
  }
  void write_many(const std::vector<TortureTarget::Write>& writes, const Done& done) override {
    std::vector<Mutation<K, V>> mutations;
    for (const auto& [kind, key, value] : writes) {
      mutations.push_back({.kind = kind, .key = key_of(key)});
      if (kind != MutationKind::erase) mutations.back().value = value_of(value);
    }
    (void)map_->write_many(mutations, [&](std::size_t i, const Found& found) {
      const MutationKind kind = writes[i].kind;
      const bool makes = kind == MutationKind::insert || kind == MutationKind::put;
      done(i, makes ? absent(found) : present(found));
    });
  }
  Expected<bool> commit(const std::vector<TortureTarget::Write>& required,
                        const std::vector<TortureTarget::Write>& writes) override {
    WriteBatch batch;
    for (const auto& [kind, key, value] : required) {
      if (kind == MutationKind::erase) {
        batch.require_absent(*map_, key_of(key));
      } else {
        batch.require(*map_, key_of(key), value_of(value));
      }
    }
    for (const auto& [kind, key, value] : writes) {
      if (kind == MutationKind::erase) {
        batch.erase(*map_, key_of(key));
      } else {
        batch.put(*map_, key_of(key), value_of(value));
      }
    }
    Status s = pool_.commit(batch);
    if (!s.ok() && s != StatusCode::conflict) return fail(std::move(s));
    return s.ok();
  }
  Expected<bool> find(const std::string& key, std::string& value) override {
    auto found = map_->get(key_of(key));
    if (!found) return fail(std::move(found.error()));
    if (!found->has_value()) return false;
    value = text_of(V(**found));
    return true;
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
    return pool_.close();
  }

 protected:
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
  static std::string key_text_of(const K& key) {
    if constexpr (std::same_as<K, std::string_view>) {
      return std::string(key);
    } else {
      return text_of(__builtin_bswap64(key));
    }
  }
  template <class T>
  static std::string text_of(const T& value) {
    if constexpr (std::same_as<T, std::string_view>) {
      return std::string(value);
    } else {
      return {reinterpret_cast<const char*>(&value), 8};
    }
  }

  Pool pool_;
  std::optional<M> map_;
};

template <class K, class V>
class PlainVersionedTarget : public PlainTarget<K, V, VersionedMap<K, V>> {
  using Base = PlainTarget<K, V, VersionedMap<K, V>>;
  using Base::map_;

 public:
  using Base::Base;
  bool keeps_versions() const override { return true; }
  Expected<std::uint64_t> tag() override { return map_->tag(); }
  VersionRange versions() override { return map_->versions(); }
  Expected<bool> find_at(const std::string& key, std::uint64_t version,
                         std::string& value) override {
    return present(map_->read(Base::key_of(key), version,
                              [&](const V& found) { value = Base::text_of(found); }));
  }
  Expected<void> scan_at(std::uint64_t version, const TortureTarget::VisitEntry& visit) override {
    auto visited = map_->scan_at(version, {}, [&](const K& key, const V& value) {
      visit(Base::key_text_of(key), Base::text_of(value));
    });
    if (!visited) return fail(std::move(visited.error()));
    return {};
  }
  Expected<void> history(const std::string& key,
                         const TortureTarget::VisitVersion& visit) override {
    return map_->history(Base::key_of(key),
                         [&](std::uint64_t version, const std::optional<V>& value) {
                           visit(version, value.transform(Base::template text_of<V>));
                         });
  }
  Expected<void> diff(std::uint64_t from, std::uint64_t to,
                      const TortureTarget::VisitDifference& visit) override {
    return map_->diff(
        from, to, {},
        [&](const K& key, const std::optional<V>& before, const std::optional<V>& after) {
          visit(Base::key_text_of(key), before.transform(Base::template text_of<V>),
                after.transform(Base::template text_of<V>));
        });
  }
  Expected<std::uint64_t> trim(std::uint64_t version) override { return map_->trim(version); }
  Status rollback(std::uint64_t version) override { return map_->rollback(version); }
};

template <class K, class V>
Expected<std::unique_ptr<TortureTarget>> open_plain(const TortureOptions& options,
                                                    const std::string& file) {
  const EngineUnderTest* row = find_engine_under_test(options.engine);
  if (row == nullptr) return fail(StatusCode::invalid_argument);
  PoolOptions pool_options{.durability = Durability::process, .max_size = 32_MiB};
  if (options.durability != Durability::automatic) pool_options.durability = options.durability;
  auto pool = Pool::open(file, pool_options);
  if (!pool) return fail(std::move(pool.error()));
  if (keeps_versions(row->engine)) {
    auto map = pool->versioned_map<K, V>("torture", {.engine = row->engine});
    if (!map) return fail(std::move(map.error()));
    return std::unique_ptr<TortureTarget>(
        std::make_unique<PlainVersionedTarget<K, V>>(std::move(*pool), std::move(*map)));
  }
  auto map = pool->map<K, V>("torture", {.engine = row->engine});
  if (!map) return fail(std::move(map.error()));
  return std::unique_ptr<TortureTarget>(
      std::make_unique<PlainTarget<K, V>>(std::move(*pool), std::move(*map)));
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
