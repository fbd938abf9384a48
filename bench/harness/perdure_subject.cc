#include "bench/harness/perdure_subject.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/harness/cleanup.h"
#include "bench/workloads/work.h"
#include "perdure/pool.h"
#include "perdure/write_batch.h"

namespace perdure::bench {
namespace {

// An error of the caller is a usage error; every other error is the machine's or the file's. The
// library's messages usually name the file; the name of a bare code does not.
Failure to_failure(const Status& status, std::string_view path) {
  const bool usage =
      status.code() == StatusCode::invalid_argument || status.code() == StatusCode::unsupported;
  const std::string_view message = status.message();
  return {usage ? kExitUsage : kExitIo, message.find(path) != std::string_view::npos
                                            ? std::string(message)
                                            : fmt::format("{}: {}", path, message)};
}

// Copies the bytes into an array.
template <class T>
T array_of(std::string_view bytes) noexcept {
  T array{};
  std::memcpy(&array, bytes.data(), std::min(bytes.size(), sizeof(T)));
  return array;
}

template <MapKey K>
K to_map_key(const KeyRef& key) noexcept {
  if constexpr (IntegerKey<K>) {
    return key.word;
  } else if constexpr (ArrayKey<K>) {
    return array_of<K>(key.bytes);
  } else {
    return key.bytes;
  }
}

template <MapValue V>
V to_map_value(const ValueRef& value) noexcept {
  if constexpr (WordValue<V>) {
    return value.word;
  } else if constexpr (ArrayValue<V>) {
    return array_of<V>(value.bytes);
  } else {
    return value.bytes;
  }
}

ValueRef from_map(std::uint64_t word) noexcept { return {.word = word}; }
ValueRef from_map(std::string_view bytes) noexcept { return {.bytes = bytes}; }
template <std::size_t N>
ValueRef from_map(const std::array<char, N>& bytes) noexcept {
  return {.bytes = {bytes.data(), N}};
}
KeyRef from_map_key(std::uint64_t word) noexcept { return {.word = word}; }
KeyRef from_map_key(std::string_view bytes) noexcept { return {.bytes = bytes}; }
template <std::size_t N>
KeyRef from_map_key(const std::array<char, N>& bytes) noexcept {
  return {.bytes = {bytes.data(), N}};
}

template <MapKey K, MapValue V>
class MapSession : public Session {
 public:
  MapSession(Pool& pool, bool sync, Map<K, V>* map, OrderedMap<K, V>* ordered,
             VersionedMap<K, V>* versioned)
      : pool_(pool), sync_(sync), map_(map), ordered_(ordered), versioned_(versioned) {}

  Outcome insert(const KeyRef& key, const ValueRef& value) override {
    return durable(absent(map_->insert(to_map_key<K>(key), to_map_value<V>(value))));
  }
  Outcome update(const KeyRef& key, const ValueRef& value) override {
    return durable(present(map_->update(to_map_key<K>(key), to_map_value<V>(value))));
  }
  Outcome modify(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit,
                 const ValueRef& value) override {
    return durable(present(map_->modify(to_map_key<K>(key), [&](const std::optional<V>& before) {
      if (before) visit(from_map(*before));
      return before ? std::optional<V>(to_map_value<V>(value)) : before;
    })));
  }
  Outcome erase(const KeyRef& key) override {
    return durable(present(map_->erase(to_map_key<K>(key))));
  }

  Outcome read(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit) override {
    return present(map_->read(to_map_key<K>(key), [&](const V& value) { visit(from_map(value)); }));
  }

  Outcome write_many(OpKind kind, std::span<const KeyRef> keys,
                     std::span<const ValueRef> values) override {
    if (kind == OpKind::batch) return durable(commit(keys, values));
    mutations_.resize(keys.size());
    const MutationKind mutation = kind == OpKind::insert   ? MutationKind::insert
                                  : kind == OpKind::update ? MutationKind::update
                                                           : MutationKind::erase;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      mutations_[i] = {.kind = mutation, .key = to_map_key<K>(keys[i])};
      if (kind != OpKind::erase) mutations_[i].value = to_map_value<V>(values[i]);
    }
    bool expected = true;
    const Status s = map_->write_many(mutations_, [&](std::size_t, const Found& found) {
      expected &= kind == OpKind::insert ? found.absent() : found.present();
    });
    if (!s.ok()) return fail(std::string(s.message()));
    return durable(expected ? Outcome::yes : Outcome::no);
  }

  Outcome read_batch(std::span<const KeyRef> keys,
                     FunctionRef<void(std::size_t, const ValueRef&)> visit) override {
    std::array<K, kBatchLength> batch;
    for (std::size_t i = 0; i < keys.size(); ++i) batch[i] = to_map_key<K>(keys[i]);
    auto found = map_->get_many(std::span<const K>(batch.data(), keys.size()), found_);
    if (!found) return fail(std::string(found.error().message()));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (found_[i]) visit(i, from_map(*found_[i]));
    }
    return Outcome::yes;
  }

  Outcome scan(const KeyRef& from, std::uint64_t limit, ScanTally& tally) override {
    if (ordered_ == nullptr) return fail("the engine keeps no order");
    auto visited = ordered_->scan(
        ScanOptions<K>{.from = to_map_key<K>(from), .limit = limit},
        [&](const K& key, const V& value) { tally.add(from_map_key(key), from_map(value)); });
    return done(visited);
  }

  Outcome tag() override {
    return versioned_ != nullptr ? durable(done(versioned_->tag())) : keeps_no_versions();
  }
  VersionRange versions() override {
    return versioned_ != nullptr ? versioned_->versions() : Session::versions();
  }
  Outcome read_at(const KeyRef& key, Version version,
                  FunctionRef<void(const ValueRef&)> visit) override {
    if (versioned_ == nullptr) return keeps_no_versions();
    return present(versioned_->read(to_map_key<K>(key), version,
                                    [&](const V& value) { visit(from_map(value)); }));
  }
  Outcome history(const KeyRef& key, FunctionRef<void(Version, const ValueRef*)> visit) override {
    if (versioned_ == nullptr) return keeps_no_versions();
    bool any = false;
    const auto all = versioned_->history(
        to_map_key<K>(key), [&](Version version, const std::optional<V>& value) {
          any = true;
          const ValueRef shown = value ? from_map(*value) : ValueRef{};
          visit(version, value ? &shown : nullptr);
        });
    return all && !any ? Outcome::no : done(all);
  }
  Outcome scan_at(Version version, ScanTally& tally) override {
    if (versioned_ == nullptr) return keeps_no_versions();
    return done(versioned_->scan_at(version, {}, [&](const K& key, const V& value) {
      tally.add(from_map_key(key), from_map(value));
    }));
  }

 private:
  // `yes`: whether the caller counts this as success.
  Outcome outcome(const Found& found, bool yes) {
    if (!found.ok()) return fail(std::string(found.status().message()));
    return yes ? Outcome::yes : Outcome::no;
  }
  Outcome present(const Found& found) { return outcome(found, found.present()); }
  Outcome absent(const Found& found) { return outcome(found, found.absent()); }
  // With --sync, waits until all that was done before is durable.
  Outcome durable(Outcome outcome) {
    if (!sync_ || outcome != Outcome::yes) return outcome;
    const Status s = pool_.sync();
    return s.ok() ? outcome : fail(std::string(s.message()));
  }
  Outcome commit(std::span<const KeyRef> keys, std::span<const ValueRef> values) {
    batch_.clear();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      batch_.put(*map_, to_map_key<K>(keys[i]), to_map_value<V>(values[i]));
    }
    const Status s = pool_.commit(batch_);
    return s.ok() ? Outcome::yes : fail(std::string(s.message()));
  }
  template <class T>
  Outcome done(const Expected<T>& result) {
    return result ? Outcome::yes : fail(std::string(result.error().message()));
  }

  Pool& pool_;
  bool sync_;
  Map<K, V>* map_;
  OrderedMap<K, V>* ordered_;      // null: the engine keeps no order
  VersionedMap<K, V>* versioned_;  // null: no workload needs versions
  std::array<std::optional<Owned<V>>, kBatchLength> found_;
  std::vector<Mutation<K, V>> mutations_;
  WriteBatch batch_;
};

template <MapKey K, MapValue V>
class PerdureSubject : public Subject {
 public:
  explicit PerdureSubject(const PerdureOptions& options) : options_(options) {}

  std::string name() const override { return std::string(engine_name(options_.engine)); }
  std::string medium() const override { return medium_; }
  std::string durability() const override { return durability_; }
  std::string version() const override { return std::string(perdure::version()); }
  std::string file() const override { return options_.path; }
  bool counted() const override { return true; }

  Result<void> create() override;
  Result<void> reopen() override { return open(false); }
  Result<void> close() override;
  void remove() override {
    if (created_) remove_pool_files(options_.path);
  }

  std::unique_ptr<Session> session() override {
    OrderedMap<K, V>* const ordered = in_order();
    return std::make_unique<MapSession<K, V>>(
        *pool_, options_.sync, ordered != nullptr ? static_cast<Map<K, V>*>(ordered) : &*map_,
        ordered, versioned_ ? &*versioned_ : nullptr);
  }
  Footprint footprint() override;

 private:
  Result<void> remove_old();
  Result<void> open(bool create);
  Result<void> open_map(const MapOptions& options);
  OrderedMap<K, V>* in_order() noexcept {
    if (versioned_) return &*versioned_;
    return ordered_ ? &*ordered_ : nullptr;
  }

  PerdureOptions options_;
  bool created_ = false;
  std::string medium_;
  std::string durability_;
  std::optional<Pool> pool_;
  // Exactly one has a value: the richest type that the engine supports; versions only if needed.
  std::optional<VersionedMap<K, V>> versioned_;
  std::optional<OrderedMap<K, V>> ordered_;
  std::optional<Map<K, V>> map_;
};

// Replaces a pool only if the benchmark's map is its only map.
template <MapKey K, MapValue V>
Result<void> PerdureSubject<K, V>::remove_old() {
  const std::string& path = options_.path;
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    return failure(kExitIo, fmt::format("{}: {}", path, std::string_view(std::strerror(errno))));
  }
  auto info = Pool::inspect(path);
  // A run that was killed before it made its map leaves a pool without maps.
  const bool ours =
      S_ISREG(status.st_mode) && info.has_value() &&
      (info->maps.empty() || (info->maps.size() == 1 && info->maps[0].name == kBenchMap));
  if (!ours) {
    return failure(kExitIo,
                   fmt::format("{}: exists and is not a pool of perdure bench; it was left "
                               "as it is: name another file with --path",
                               path));
  }
  if (info->in_use) {
    return failure(kExitIo,
                   fmt::format("{}: in use by process {} on {}; wait for it, or name another "
                               "file with --path",
                               path, info->owner_pid, info->owner_host));
  }
  if (::unlink(path.c_str()) != 0) {
    return failure(kExitIo, fmt::format("{}: {}", path, std::string_view(std::strerror(errno))));
  }
  remove_pool_files(path);  // of a run that was killed
  return {};
}

template <MapKey K, MapValue V>
Result<void> PerdureSubject<K, V>::create() {
  if (auto removed = remove_old(); !removed) return removed;
  auto opened = open(true);
  // If opening fails after the file was made (the engine keeps no order, for example), the file
  // must not remain.
  if (!opened && created_) {
    pool_.reset();
    remove();
  }
  return opened;
}

template <MapKey K, MapValue V>
Result<void> PerdureSubject<K, V>::open(bool create) {
  const OpenMode mode = create ? OpenMode::create_new : OpenMode::existing;
  auto pool = Pool::open(options_.path, {.mode = mode,
                                         .durability = options_.durability,
                                         .buffered = {.interval_ms = options_.interval_ms},
                                         .max_size = options_.max_size,
                                         .recovery_threads = options_.recovery_threads,
                                         .background_threads = options_.background_threads,
                                         .write_latency_ns = options_.write_latency_ns,
                                         .interleave = options_.interleave});
  if (!pool) return std::unexpected(to_failure(pool.error(), options_.path));
  pool_.emplace(std::move(*pool));
  created_ = true;
  auto mapped = open_map({.engine = options_.engine, .mode = mode, .capacity = options_.capacity});
  if (!mapped) return mapped;
  const auto info = pool_->info();
  if (!info) return std::unexpected(to_failure(info.error(), options_.path));
  medium_ = medium_name(info->medium);
  durability_ = durability_name(info->durability);
  return {};
}

template <MapKey K, MapValue V>
Result<void> PerdureSubject<K, V>::open_map(const MapOptions& options) {
  if (options_.needs_versions) {
    auto versioned = pool_->versioned_map<K, V>(kBenchMap, options);
    if (!versioned) return std::unexpected(to_failure(versioned.error(), options_.path));
    versioned_.emplace(std::move(*versioned));
    return {};
  }
  auto ordered = pool_->ordered_map<K, V>(kBenchMap, options);
  if (ordered) {
    ordered_.emplace(std::move(*ordered));
    return {};
  }
  if (ordered.error() != StatusCode::unsupported || options_.needs_order) {
    return std::unexpected(to_failure(ordered.error(), options_.path));
  }
  auto map = pool_->map<K, V>(kBenchMap, options);
  if (!map) return std::unexpected(to_failure(map.error(), options_.path));
  map_.emplace(std::move(*map));
  return {};
}

template <MapKey K, MapValue V>
Result<void> PerdureSubject<K, V>::close() {
  versioned_.reset();
  ordered_.reset();
  map_.reset();
  if (!pool_) return {};
  const Status status = pool_->close();
  pool_.reset();
  if (!status.ok()) return std::unexpected(to_failure(status, options_.path));
  return {};
}

template <MapKey K, MapValue V>
Footprint PerdureSubject<K, V>::footprint() {
  const MapStats map = in_order() != nullptr ? in_order()->stats() : map_->stats();
  const auto pool = pool_->stats();
  if (!pool) return {};  // there is no memory for a few hundred bytes
  std::optional<CutCosts> cuts;
  if (pool->log_bound_bytes != 0) {
    cuts = CutCosts{.cuts = pool->cuts,
                    .log_bytes = pool->log_written_bytes,
                    .folds = pool->folds,
                    .fold_bytes = pool->fold_written_bytes,
                    .longest_stop_ns = pool->longest_stop_ns};
  }
  // The pool has no other map: all DRAM of the heap is this map's.
  return {.entries = map.entries,
          .pm_bytes = pool->assigned_bytes,
          .dram_bytes = map.dram_bytes + pool->heap_dram_bytes,
          .load_factor = map.load_factor,
          .resizes = {map.resizes.begin(), map.resizes.end()},
          .cuts = cuts};
}

}  // namespace

PerdureOptions perdure_options(const BenchOptions& options, Engine engine) {
  return {.path = options.path,
          .engine = engine,
          .key = options.key,
          .value = options.value,
          .durability = options.durability,
          .max_size = options.max_size,
          .write_latency_ns = options.write_latency_ns,
          .interval_ms = options.interval_ms,
          .sync = options.sync,
          .capacity = options.capacity,
          .recovery_threads = options.recovery_threads,
          .background_threads = options.background_threads,
          .interleave = options.interleave,
          .needs_order = std::ranges::any_of(options.workloads, needs_order),
          .needs_versions = std::ranges::any_of(options.workloads, needs_versions)};
}

std::unique_ptr<Subject> make_perdure_subject(const PerdureOptions& options) {
  using Bytes = std::string_view;
  using Word = std::uint64_t;
  if (options.key.is_array) {
    return std::make_unique<
        PerdureSubject<std::array<char, kMaxArrayKeyBytes>, std::array<char, kMaxArrayValueBytes>>>(
        options);
  }
  if (options.key.is_string) {
    if (options.value.is_string) return std::make_unique<PerdureSubject<Bytes, Bytes>>(options);
    return std::make_unique<PerdureSubject<Bytes, Word>>(options);
  }
  if (options.value.is_string) return std::make_unique<PerdureSubject<Word, Bytes>>(options);
  return std::make_unique<PerdureSubject<Word, Word>>(options);
}

}  // namespace perdure::bench
