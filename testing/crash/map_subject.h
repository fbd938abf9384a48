// MapSubject: one or several maps of an engine in a pool, for the crash explorer.
//
// Traits name the engine: `kEngine`; `kBytes`, whether its keys are byte strings; `Map`, its
// template over SimPlatform, with very small nodes, which a dozen operations fill, split and empty;
// and create(context, kinds, setup), which makes a map and returns its root. `kArrays`, if present
// and true: keys are arrays of 16 bytes, values of 15.
//
// With one map, a model's key is the map's key. With several, its first byte is the map's number,
// and the rest is the key. Integer keys are 8 bytes, big-endian, in a model. An array holds the 8
// bytes of a model and their beginning once more: if its two halves differ, the text is one that no
// model has.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "index/engine_table.h"
#include "perdure/cursor.h"
#include "perdure/index.h"
#include "pool/batch_items.h"
#include "testing/crash/subject.h"
#include "testing/crash/synthetic_subject.h"
#include "testing/sim/root_line.h"
#include "testing/sim/sim_pool.h"

namespace perdure::testing {

struct MapSetup {
  ValueKind values = ValueKind::word;  // word: values are 8 bytes
  std::uint32_t maps = 1;
  Durability mode = Durability::power;
  SimMedium medium = SimMedium::line;
  bool sync_at_close = true;
  bool background_thread = true;  // false: mutations do its work
  PoolShape shape = kTinyShape;
  bool old_words = false;   // a closed pool has the word of a batch that is done, as a copy may
  std::uint32_t piece = 0;  // not 0: each batch that closes the gate has pieces of so many
};

template <class Traits>
class MapSubject : public Subject, private PoolMaps {
 public:
  using Map = typename Traits::Map;
  static constexpr bool kBytes = Traits::kBytes;
  static constexpr bool kArrays = requires { requires Traits::kArrays; };

  explicit MapSubject(const MapSetup& setup = {}) : setup_(setup), maps_(setup.maps) {}

  Status create(SimMemory& memory) override {
    memory.set_medium(setup_.medium);
    return SimPool::create(memory, setup_.shape, setup_.mode);
  }

  Status open(SimMemory& memory, std::uint64_t boot) override {
    memory_ = &memory;
    boot_ = boot;
    if (setup_.old_words) store_old_word();
    if (Status s = open_maps(); !s.ok()) return s;
    for (std::uint32_t i = 0; i < setup_.maps; ++i) {
      if (maps_[i] != nullptr) continue;
      if (Status s = make_map(i); !s.ok()) return s;
    }
    return {};
  }

  Expected<bool> apply(const Op& op) override {
    // Reclaims at once: a short workload then reuses leaves and records.
    pool_->epochs().drain_all();
    switch (op.kind) {
      case OpKind::sync: {
        if (Status s = pool_->core().sync(); !s.ok()) return fail(std::move(s));
        return true;
      }
      case OpKind::compact: {
        if (auto done = call(op); !done) return done;
        pool_->epochs().drain_all();
        auto bytes = pool_->heap().punch_free();
        if (!bytes) return fail(std::move(bytes.error()));
        return true;
      }
      case OpKind::drop:
        return drop(map_of(op.key));
      case OpKind::background: {
        const std::uint32_t self =
            std::exchange(SimPlatform::world().thread, SimPlatform::kBackgroundSlot);
        background();
        SimPlatform::world().thread = self;
        return true;
      }
      default:
        break;
    }
    return call(op);
  }
  Expected<bool> call(const Op& op) override {
    if (op.kind == OpKind::compact) {
      for (const auto& map : maps_) {
        if (auto done = map->compact(); !done) return done;
        for (Expected<bool> more = true; more && *more;) {
          more = map->compact_some();
          if (!more) return more;
        }
      }
      return true;
    }
    if (op.kind == OpKind::many) {
      bool odd = false;
      Status s = write_many(op.parts, [&](std::size_t, bool result) { odd ^= result; });
      if (!s.ok()) return fail(std::move(s));
      return odd;
    }
    if (op.kind == OpKind::batch) {
      Status s = commit(op.parts);
      if (!s.ok()) return fail(std::move(s));
      return true;
    }
    perdure::detail::Index& index = maps_[map_of(op.key)]->index();
    const std::string key_text = stored(op.key, 2 * kHalf);
    const std::string value_text = stored(op.value, 2 * kHalf - 1);
    const perdure::detail::Key key = key_of(key_text);
    const perdure::detail::Value value = value_of(value_text);
    switch (op.kind) {
      case OpKind::insert:
        return index.insert(key, value);
      case OpKind::upsert:
        return index.put(key, value);
      case OpKind::update:
        return index.update(key, value);
      case OpKind::erase:
        return index.erase(key);
      case OpKind::update_if:
      case OpKind::erase_if: {
        const std::string expected_text = stored(op.expected, 2 * kHalf - 1);
        const perdure::detail::Value expected = value_of(expected_text);
        return op.kind == OpKind::erase_if ? index.erase_if(key, expected)
                                           : index.update_if(key, expected, value);
      }
      default:
        return index.read(key, [](const perdure::detail::Value&) {});
    }
  }
  Status commit(const std::vector<Op>& parts) {
    using Items = perdure::detail::BatchItems;
    Items items;
    for (const Op& part : parts) {
      const std::string key = stored(part.key, 2 * kHalf);
      const std::string value = stored(part.value, 2 * kHalf - 1);
      const bool puts = part.kind != OpKind::erase;
      const bool added = items.add({.index = &maps_[map_of(part.key)]->index(),
                                    .kind = puts ? Items::Kind::put : Items::Kind::erase,
                                    .key = key_of(key),
                                    .value = puts ? value_of(value) : perdure::detail::Value()});
      if (!added) return StatusCode::out_of_memory;
    }
    PieceLimits limits;
    if (setup_.piece != 0) limits = {.whole = 0, .piece = setup_.piece, .bytes = 1};
    ItemsCommit<SimPlatform> commit(pool_->core(), items, limits);
    Status s = commit.find_targets([this](const perdure::detail::Index& index) {
      for (std::uint32_t i = 0; i < setup_.maps; ++i) {
        if (maps_[i] != nullptr && &maps_[i]->index() == &index) return target(i);
      }
      return BatchTarget{};
    });
    if (s.ok()) s = commit.sort();
    if (!s.ok()) return s;
    // Both ways.
    auto beside = parts.size() % 2 == 0 ? commit.do_beside() : Expected<bool>(false);
    if (!beside) return std::move(beside.error());
    besides_ += *beside ? 1 : 0;
    if (*beside) return {};
    LatchGuard guard(maintenance_);
    return commit.do_alone();
  }
  bool batches_in_pieces() const override { return setup_.piece != 0; }
  // How many batches did not close the gate.
  std::uint64_t besides() const { return besides_.load(); }
  Status read_together(const std::vector<Op>& parts,
                       std::vector<std::optional<std::string>>& values) override {
    LatchGuard guard(maintenance_);
    const GateHold<SimPlatform> hold(pool_->epochs());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::string value;
      auto found = ask(parts[i], value);
      if (!found) return std::move(found.error());
      if (*found) values[i] = std::move(value);
    }
    return {};
  }
  // All parts are of one map.
  Status write_many(const std::vector<Op>& parts,
                    const std::function<void(std::size_t, bool)>& done) override {
    using Kind = MutationKind;
    std::vector<std::string> texts;
    texts.reserve(2 * parts.size());
    std::vector<perdure::detail::Mutation> mutations;
    for (const Op& part : parts) {
      const Kind kind = part.kind == OpKind::insert   ? Kind::insert
                        : part.kind == OpKind::upsert ? Kind::put
                        : part.kind == OpKind::update ? Kind::update
                                                      : Kind::erase;
      texts.push_back(stored(part.key, 2 * kHalf));
      texts.push_back(stored(part.value, 2 * kHalf - 1));
      mutations.push_back(
          {.kind = kind, .key = key_of(texts[texts.size() - 2]), .value = value_of(texts.back())});
    }
    Status failure;
    maps_[map_of(parts.front().key)]->index().write_many(mutations,
                                                         [&](std::size_t i, Expected<bool> result) {
                                                           if (result) {
                                                             done(i, *result);
                                                           } else {
                                                             failure = std::move(result.error());
                                                           }
                                                         });
    return failure;
  }
  // Scans the first map only.
  using Subject::scan;
  Status scan(bool reverse, const std::string& bound, const Deliver& deliver) override {
    const std::string text = stored(bound, 2 * kHalf);
    perdure::detail::ScanRange range{.reverse = reverse};
    if (!bound.empty()) (reverse ? range.to : range.from) = key_of(text);
    const auto visit = [&](std::span<const perdure::detail::Entry> entries) {
      for (const auto& entry : entries) deliver(text_of(entry.key), text_of(entry.value));
      return true;
    };
    auto done = ordered() ? index().scan(range, visit) : maps_.front()->index().for_each(visit);
    return done ? Status() : std::move(done.error());
  }
  Expected<std::optional<std::string>> iterate(bool reverse, const std::string& turn,
                                               const Deliver& there, const Deliver& back) override {
    // Very small batches: most steps leave one.
    perdure::detail::Cursor it = cursor(reverse, {.first = 2, .most = 3});
    std::optional<std::string> turned;
    for (; it.valid() && !turned; turned ? void() : it.next()) {
      const std::string key = text_of(it.entry().key);
      there(key, text_of(it.entry().value));
      if (!turn.empty() && (reverse ? key <= turn : key >= turn)) turned = key;
    }
    if (!it.status().ok()) return fail(it.status());
    for (turned ? it.prev() : it.last(); it.valid(); it.prev()) {
      back(text_of(it.entry().key), text_of(it.entry().value));
    }
    if (!it.status().ok()) return fail(it.status());
    return turned;
  }
  void reclaim() override { pool_->epochs().drain_all(); }
  void background() override { (void)pool_->core().background().run_some(); }
  Expected<bool> lookup(const std::string& key, std::string& value) override {
    const std::string text = stored(key, 2 * kHalf);
    perdure::detail::Index& index = maps_[map_of(key)]->index();
    if (!kBytes && !kArrays && setup_.values == ValueKind::word) {
      using Got = perdure::detail::Index::Got;
      perdure::detail::Value found{.word_size = 8};
      const Got got = index.get_word(key_of(text).word, found.word);
      if (got == Got::present) value = text_of(found);
      if (got != Got::failed) return got == Got::present;
    }
    return index.read(key_of(text),
                      [&](const perdure::detail::Value& found) { value = text_of(found); });
  }
  Status contents(Contents& out) override {
    for (std::uint32_t i = 0; i < setup_.maps; ++i) {
      auto done = maps_[i]->index().for_each([&](std::span<const perdure::detail::Entry> entries) {
        for (const perdure::detail::Entry& entry : entries) {
          std::string key = text_of(entry.key);
          if (setup_.maps > 1) key.insert(key.begin(), static_cast<char>(i));
          out.emplace_back(std::move(key), text_of(entry.value));
        }
        return true;
      });
      if (!done) return std::move(done.error());
    }
    return {};
  }
  bool ordered() const override { return maps_.front()->ordered() != nullptr; }
  void check(std::vector<std::string>& violations) override {
    auto& core = pool_->core();
    const bool swept = core.sweep().finish();
    const BackgroundHold<SimPlatform> hold(core.background());
    if (!swept || !core.sweep().failure().ok()) {
      violations.push_back("sweep: " + std::string(core.sweep().failure().message()));
      return;
    }
    core.verify([&](const char* what) { violations.emplace_back(what); });
    if (const std::uint64_t doubled = core.header().max_bytes / setup_.shape.max_bytes;
        core.header().max_bytes % setup_.shape.max_bytes != 0 || !std::has_single_bit(doubled)) {
      violations.emplace_back("the pool has a maximum that it was not given");
    }
    for (const auto& map : maps_) {
      Findings report;
      map->index().check({.deep = true}, report);
      violations.insert(violations.end(), report.violations.begin(), report.violations.end());
    }
    if (ordered()) check_iterator(violations);
    pool_->audit(
        [&]() -> Status {
          for (const auto& map : maps_) {
            if (Status s = map->audit(); !s.ok()) return s;
          }
          return {};
        },
        violations);
  }
  Status close() override { return close_maps(); }
  Status resize(SimMemory& memory, std::uint64_t boot) override {
    layout::Header header;
    Status s = read_header(memory.base(), memory.size(), header);
    return s.ok() ? SimPool(memory, setup_.mode).resize(boot, 2 * header.max_bytes) : s;
  }

  SimPool& pool() { return *pool_; }
  perdure::detail::OrderedIndex& index(std::uint32_t map = 0) { return *maps_[map]->ordered(); }
  perdure::detail::VersionedIndex& versioned() { return *maps_.front()->versioned(); }
  EngineStats stats(std::uint32_t map = 0) {
    EngineStats out;
    maps_[map]->index().stats(out);
    return out;
  }

 protected:
  perdure::detail::Key key_of(const std::string& key) const {
    const std::string_view bytes = std::string_view(key).substr(setup_.maps > 1 ? 1 : 0);
    if (kBytes || kArrays) return {.bytes = bytes};
    return {.word = integer_of(std::string(bytes))};
  }
  static std::string text_of(const perdure::detail::Key& key) {
    if (kArrays) return of_model(key.bytes);
    return kBytes ? std::string(key.bytes) : integer_key(key.word);
  }
  static std::string text_of(const perdure::detail::Value& value) {
    if (kArrays) return of_model(value.bytes);
    if (value.word_size == 0) return std::string(value.bytes);
    return std::string(reinterpret_cast<const char*>(&value.word), 8);
  }

 private:
  // pool.L3: the word names no batch that the pool could do.
  void store_old_word() {
    layout::Header header;
    if (!read_header(memory_->base(), memory_->size(), header).ok() ||
        header.close_state == layout::CloseState::dirty ||
        (header.incompatible & layout::kBatches) == 0) {
      return;
    }
    memory_->sync(0, memory_->size(), "a copy");
    const std::uint64_t record = header.data_offset;
    const std::uint64_t crc = crc32c(0x5A, &record, sizeof(record)) & 0xFFFF;
    memory_->store(reinterpret_cast<std::uint64_t*>(memory_->base() + layout::kBatchLog),
                   record | crc << 48);
    memory_->sync(layout::kBatchLog / kPage * kPage, kPage, "a copy");
  }
  perdure::detail::Cursor cursor(bool reverse, perdure::detail::BatchSize size = {}) {
    return perdure::detail::Cursor(perdure::detail::Handle<perdure::detail::OrderedIndex>(&index()),
                                   !kBytes && !kArrays, {.reverse = reverse}, size);
  }
  // Checks that an iterator of the first map delivers the same as a scan, in both directions.
  void check_iterator(std::vector<std::string>& violations) {
    Contents scanned;
    Status s = scan(false, {}, [&](const std::string& key, const std::string& value) {
      scanned.emplace_back(key, value);
    });
    Contents walked;
    const auto take = [&](const perdure::detail::Entry& entry) {
      walked.emplace_back(text_of(entry.key), text_of(entry.value));
    };
    perdure::detail::Cursor it = cursor(false);
    for (; it.valid(); it.next()) take(it.entry());
    bool same = s.ok() && it.status().ok() && walked == scanned;
    walked.clear();
    for (it.last(); it.valid(); it.prev()) take(it.entry());
    same = same && it.status().ok() &&
           std::equal(walked.rbegin(), walked.rend(), scanned.begin(), scanned.end());
    if (!same) violations.emplace_back("an iterator does not deliver what a scan does");
  }
  EngineContext<SimPlatform> context() {
    return {
        .platform = pool_->platform(),
        .heap = pool_->heap(),
        .epochs = pool_->epochs(),
        .background = pool_->core().background(),
        .threads = 2,
        .after_kill = pool_->core().after_kill().done() ? nullptr : &pool_->core().after_kill()};
  }
  static std::string name_of(std::uint32_t map) { return "map" + std::to_string(map); }
  Status make_map(std::uint32_t number) {
    MapKinds kinds{.key = kBytes ? KeyKind::bytes : KeyKind::integer, .value = setup_.values};
    if constexpr (kArrays) kinds = {KeyKind::array, ValueKind::array, 2 * kHalf, 2 * kHalf - 1};
    auto root = Traits::create(context(), kinds, setup_);
    if (!root && root.error() == StatusCode::pool_full) {
      pool_->epochs().drain_all();
      pool_->heap().reclaim();
      root = Traits::create(context(), kinds, setup_);
    }
    if (!root) return std::move(root.error());
    const layout::Root line = root_line(name_of(number), Traits::kEngine, kinds, *root);
    if (Status s = pool_->core().add_root(line); !s.ok()) return s;
    // A new map is recovered like any other. Its blocks are allocated and need no marks.
    auto instance = Map::open(context(), *root);
    if (!instance) return std::move(instance.error());
    maps_[number] = std::move(*instance);
    auto recovered = maps_[number]->recover(false);
    if (!recovered) return std::move(recovered.error());
    maps_[number]->start();
    return {};
  }
  // Recovers all maps before anything is freed or made.
  Status open_maps() {
    pool_ = std::make_unique<SimPool>(*memory_, setup_.mode);
    pool_->core().background().set_threads(setup_.background_thread ? 1 : 0);
    const EngineRow* row = find_engine(Traits::kEngine);
    if (row != nullptr && row->at_once) pool_->restart_at_once();
    return pool_->open(boot_, *this);
  }
  Status recover(const OpenReport& report, bool& /*whole*/) override {
    for (std::uint32_t i = 0; i < setup_.maps; ++i) {
      auto slot = pool_->core().find_root(name_of(i));
      if (!slot) return std::move(slot.error());
      if (*slot == pool_->core().root_slots()) continue;
      layout::Root root{};
      auto used = pool_->core().read_root(*slot, root);
      if (!used) return std::move(used.error());
      auto instance = Map::open(context(), root.root);
      if (!instance) return std::move(instance.error());
      maps_[i] = std::move(*instance);
      auto recovered = maps_[i]->recover(report.was_clean);
      if (!recovered) return std::move(recovered.error());
      if (*recovered == Recovered::marking) pool_->core().sweep().add(*maps_[i]);
    }
    return {};
  }
  // Of no map: the map is not in the directory.
  BatchTarget target(std::uint32_t number) {
    layout::Root line{};
    auto slot = pool_->core().find_root(name_of(number));
    if (!slot || *slot == pool_->core().root_slots()) return {};
    auto used = pool_->core().read_root(*slot, line);
    return used && *used ? BatchTarget{maps_[number].get(), *slot, line.root} : BatchTarget{};
  }
  EngineInstance* map_at(std::uint32_t slot, std::uint64_t root) override {
    for (std::uint32_t i = 0; i < setup_.maps; ++i) {
      const BatchTarget there = target(i);
      if (there.map != nullptr && there.slot == slot && there.root == root) return there.map;
    }
    return nullptr;
  }
  Status complete() override {
    for (const auto& map : maps_) {
      if (map == nullptr) continue;
      if (Status s = map->complete(); !s.ok()) return s;
    }
    return {};
  }
  void serve() override {
    for (const auto& map : maps_) {
      if (map != nullptr) map->start();
    }
  }
  Status close_maps() {
    pool_->core().background().stop();
    pool_->epochs().drain_all();
    Status s;
    for (const auto& map : maps_) {
      if (map != nullptr && s.ok()) s = map->close();
    }
    if (s.ok()) s = pool_->core().close(setup_.sync_at_close);
    for (auto& map : maps_) map.reset();
    dropped_.clear();
    return s;
  }
  // Drops a map as PoolImpl::drop does, and makes it again.
  Expected<bool> drop(std::uint32_t number) {
    auto slot = pool_->core().find_root(name_of(number));
    if (!slot) return fail(std::move(slot.error()));
    if (!pool_->core().sweep().finish()) return fail(pool_->core().sweep().failure());
    if (Status s = pool_->core().drop_root(*slot); !s.ok()) return fail(std::move(s));
    {
      const BackgroundHold<SimPlatform> hold(pool_->core().background());
      maps_[number]->release_blocks();
    }
    dropped_.push_back(std::move(maps_[number]));
    if (Status s = make_map(number); !s.ok()) return fail(std::move(s));
    return true;
  }

  std::uint32_t map_of(const std::string& key) const {
    return setup_.maps > 1 ? static_cast<std::uint8_t>(key[0]) : 0;
  }
  // Converts a key or a value of a model to the map's.
  static std::string stored(const std::string& text, std::size_t n) {
    return kArrays && !text.empty() ? text + text.substr(0, n - text.size()) : text;
  }
  static std::string of_model(std::string_view bytes) {
    const std::string text(bytes.substr(0, kHalf));
    return stored(text, bytes.size()) == bytes ? text : std::string(bytes);
  }
  perdure::detail::Value value_of(const std::string& value) const {
    if (setup_.values == ValueKind::bytes || kArrays) return {.bytes = value};
    perdure::detail::Value out{.word_size = 8};
    std::memcpy(&out.word, value.data(), std::min<std::size_t>(value.size(), 8));
    return out;
  }

  static constexpr std::uint8_t kHalf = 8;

  MapSetup setup_;
  std::unique_ptr<SimPool> pool_;  // must outlive the maps
  std::vector<std::unique_ptr<EngineInstance>> maps_;
  // Instances dropped since open. The limbo may hold objects that only they can finish.
  std::vector<std::unique_ptr<EngineInstance>> dropped_;
  SimMemory* memory_ = nullptr;
  std::uint64_t boot_ = 0;
  std::atomic<std::uint64_t> besides_{0};
  SimPlatform::Latch maintenance_;  // of batches that close the gate, as that of a Pool
};

}  // namespace perdure::testing
