// LossyTarget: PoolCore and one engine over LossyPlatform, lossy or lossless.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include "index/engine_table.h"
#include "pool/batch_items.h"
#include "pool/opening.h"
#include "testing/sim/root_line.h"
#include "testing/torture/lossy_platform.h"
#include "testing/torture/torture_runner.h"

namespace perdure::testing {

// `E`: Map<bytes> is the engine over LossyPlatform with small nodes; create<bytes>() makes one.
template <class E, bool Bytes>
class LossyTarget : public TortureTarget, private PoolMaps {
 public:
  Status open(const TortureOptions& options, const std::string& file, LossyJournal* journal) {
    if (options.durability != Durability::automatic) durability_ = options.durability;
    const bool lossless = options.mode == "lossless";
    if (!lossless && durability_ == Durability::process) return StatusCode::invalid_argument;
    if (Status s = storage_.open(file, kCapacity, journal, lossless); !s.ok()) return s;
    platform_ = std::make_unique<LossyPlatform>(storage_, options.seed);
    platform_->stall_one_in(options.stall_one_in);
    platform_->set_durable(durability_ != Durability::process);
    if (storage_.size() == 0) {
      const std::uint8_t uuid[16] = {4, 5, 6};
      const PoolShape shape{
          .max_bytes = kCapacity, .extent_bytes = 16_KiB, .root_slots = 8, .initial_extents = 4};
      Status s = PoolCore<LossyPlatform>::create(*platform_, storage_, shape, identity(), uuid,
                                                 durability_);
      if (!s.ok()) return s;
    }
    if (Status s = open_map(); !s.ok() || map_ != nullptr) return s;
    return make_map();
  }

  Expected<bool> upsert(const std::string& key, const std::string& value) override {
    return map_->index().put(key_of(key), value_of(value));
  }
  Expected<bool> insert(const std::string& key, const std::string& value) override {
    return map_->index().insert(key_of(key), value_of(value));
  }
  Expected<bool> update(const std::string& key, const std::string& value) override {
    return map_->index().update(key_of(key), value_of(value));
  }
  Expected<bool> erase(const std::string& key) override { return map_->index().erase(key_of(key)); }
  Expected<bool> update_if(const std::string& key, const std::string& expected,
                           const std::string& value) override {
    return map_->index().update_if(key_of(key), value_of(expected), value_of(value));
  }
  Expected<bool> erase_if(const std::string& key, const std::string& expected) override {
    return map_->index().erase_if(key_of(key), value_of(expected));
  }
  Expected<Text> modify(const std::string& key, const Next& next) override {
    for (;;) {
      std::string before;
      auto there = find(key, before);
      if (!there) return fail(std::move(there.error()));
      const std::string after = next(*there ? Text(before) : std::nullopt);
      auto done = *there ? update_if(key, before, after) : insert(key, after);
      if (!done) return fail(std::move(done.error()));
      if (*done) return *there ? Text(before) : std::nullopt;
    }
  }
  void write_many(const std::vector<Write>& writes, const Done& done) override {
    std::vector<perdure::detail::Mutation> mutations;
    for (const auto& [kind, key, value] : writes) {
      mutations.push_back({.kind = kind, .key = key_of(key)});
      if (kind != MutationKind::erase) mutations.back().value = value_of(value);
    }
    map_->index().write_many(
        mutations, [&](std::size_t i, Expected<bool> result) { done(i, std::move(result)); });
  }
  Expected<bool> commit(const std::vector<Write>& required,
                        const std::vector<Write>& writes) override {
    using Items = perdure::detail::BatchItems;
    Items items;
    const auto add = [&](const Write& write, Items::Kind erases, Items::Kind puts) {
      const bool absent = write.kind == MutationKind::erase;
      return items.add({.index = &map_->index(),
                        .kind = absent ? erases : puts,
                        .key = key_of(write.key),
                        .value = absent ? perdure::detail::Value() : value_of(write.value)});
    };
    bool added = true;
    for (const Write& one : required) {
      added = added && add(one, Items::Kind::require_absent, Items::Kind::require);
    }
    for (const Write& one : writes) added = added && add(one, Items::Kind::erase, Items::Kind::put);
    if (!added) return fail(StatusCode::out_of_memory);
    ItemsCommit<LossyPlatform> commit(*core_, items);
    Status s = commit.find_targets([this](const perdure::detail::Index&) {
      layout::Root root{};
      auto slot = core_->find_root("torture");
      const bool there = slot && *slot < core_->root_slots() && core_->read_root(*slot, root);
      return there ? BatchTarget{map_.get(), *slot, root.root} : BatchTarget{};
    });
    if (s.ok()) s = commit.sort();
    if (s.ok()) s = commit.run();
    if (!s.ok() && s != StatusCode::conflict) return fail(std::move(s));
    return s.ok();
  }
  Expected<bool> find(const std::string& key, std::string& value) override {
    return map_->index().read(key_of(key),
                              [&](const perdure::detail::Value& found) { value = text_of(found); });
  }
  std::string check(std::uint64_t& entries) override {
    if (!core_->sweep().finish()) return std::string(core_->sweep().failure().message());
    const BackgroundHold<LossyPlatform> hold(core_->background());
    entries = 0;
    auto done = map_->index().for_each([&](std::span<const perdure::detail::Entry> batch) {
      entries += batch.size();
      return true;
    });
    if (!done) return std::string(done.error().message());
    Findings report;
    map_->index().check({.deep = true}, report);
    if (!report.ok()) return std::string(report.first());
    core_->epochs().drain_all();
    core_->heap().flush_caches();
    if (Status s = core_->heap().begin_audit(); !s.ok()) return std::string(s.message());
    const Status s = map_->audit();
    const std::uint64_t leaked = core_->heap().end_audit();
    if (!s.ok()) return std::string(s.message());
    return leaked == 0 ? "" : std::to_string(leaked) + " blocks leaked";
  }
  Status sync() override { return core_->sync(); }
  Status compact() override {
    if (auto done = map_->compact(); !done && done.error() != StatusCode::pool_full) {
      return std::move(done.error());
    }
    for (Expected<bool> more = true; more && *more;) {
      more = map_->compact_some();
      if (!more) return std::move(more.error());
    }
    core_->epochs().drain_all();
    auto bytes = core_->heap().punch_free();
    return bytes ? Status() : std::move(bytes.error());
  }
  Status close() override {
    core_->background().stop();
    if (Status s = map_->close(); !s.ok()) return s;
    return core_->close(true);
  }

  // --- versions ---
  bool keeps_versions() const override { return map_->versioned() != nullptr; }
  Expected<std::uint64_t> tag() override { return map_->versioned()->tag(); }
  VersionRange versions() override { return map_->versioned()->versions(); }
  Expected<bool> find_at(const std::string& key, std::uint64_t version,
                         std::string& value) override {
    return map_->versioned()->read_at(
        key_of(key), version, [&](const perdure::detail::Value& found) { value = text_of(found); });
  }
  Expected<void> scan_at(std::uint64_t version, const VisitEntry& visit) override {
    const auto deliver = [&](std::span<const perdure::detail::Entry> entries) {
      for (const auto& [key, value] : entries) visit(key_text_of(key), text_of(value));
      return true;
    };
    return map_->versioned()->scan_at(version, {}, deliver);
  }
  Expected<void> history(const std::string& key, const VisitVersion& visit) override {
    return map_->versioned()->history(key_of(key),
                                      [&](const perdure::detail::VersionedValue& entry) {
                                        visit(entry.version, entry.value.transform(text_of));
                                        return true;
                                      });
  }
  Expected<void> diff(std::uint64_t from, std::uint64_t to, const VisitDifference& visit) override {
    return map_->versioned()->diff(
        from, to, {}, [&](const perdure::detail::Difference& difference) {
          visit(key_text_of(difference.key), difference.before.transform(text_of),
                difference.after.transform(text_of));
          return true;
        });
  }
  Expected<std::uint64_t> trim(std::uint64_t version) override {
    return map_->versioned()->trim(version);
  }
  Status rollback(std::uint64_t version) override { return map_->versioned()->rollback(version); }

 private:
  static constexpr std::uint64_t kCapacity = 32 << 20;

  static layout::Identity identity() {
    layout::Identity id{};
    id.boot_id[0] = 1;
    id.inode = 2;
    return id;
  }
  EngineContext<LossyPlatform> context() {
    return {.platform = *platform_,
            .heap = core_->heap(),
            .epochs = core_->epochs(),
            .background = core_->background(),
            .threads = 2,
            .after_kill = core_->after_kill().done() ? nullptr : &core_->after_kill()};
  }
  Status open_map() {
    core_ = std::make_unique<PoolCore<LossyPlatform>>(*platform_, storage_);
    OpenReport report;
    return open_pool(*core_,
                     {.identity = identity(), .mode = durability_, .at_once = &restarts_at_once},
                     report, *this);
  }
  Status recover(const OpenReport& report, bool& /*whole*/) override {
    auto slot = core_->find_root("torture");
    if (!slot) return std::move(slot.error());
    if (*slot < core_->root_slots()) {
      layout::Root root{};
      auto used = core_->read_root(*slot, root);
      if (!used) return std::move(used.error());
      auto map = E::template Map<Bytes>::open(context(), root.root);
      if (!map) return std::move(map.error());
      map_ = std::move(*map);
      auto recovered = map_->recover(report.was_clean);
      if (!recovered) return std::move(recovered.error());
      if (*recovered == Recovered::marking) core_->sweep().add(*map_);
    }
    return {};
  }
  EngineInstance* map_at(std::uint32_t /*slot*/, std::uint64_t /*root*/) override {
    return map_.get();
  }
  Status complete() override { return map_ != nullptr ? map_->complete() : Status(); }
  void serve() override {
    if (map_ != nullptr) map_->start();
  }
  Status make_map() {
    const MapKinds kinds{.key = Bytes ? KeyKind::bytes : KeyKind::integer,
                         .value = Bytes ? ValueKind::bytes : ValueKind::word};
    auto offset = E::template create<Bytes>(context(), kinds);
    if (!offset) return std::move(offset.error());
    const layout::Root line = root_line("torture", E::kEngine, kinds, *offset);
    if (Status s = core_->add_root(line); !s.ok()) return s;
    auto map = E::template Map<Bytes>::open(context(), *offset);
    if (!map) return std::move(map.error());
    map_ = std::move(*map);
    if (auto recovered = map_->recover(false); !recovered) return std::move(recovered.error());
    map_->start();
    return {};
  }
  static perdure::detail::Key key_of(const std::string& key) {
    if (Bytes) return {.bytes = key};
    std::uint64_t word = 0;
    std::memcpy(&word, key.data(), 8);
    return {.word = __builtin_bswap64(word)};
  }
  static std::string key_text_of(const perdure::detail::Key& key) {
    const std::uint64_t word = __builtin_bswap64(key.word);
    return Bytes ? std::string(key.bytes)
                 : std::string(reinterpret_cast<const char*>(&word), sizeof(word));
  }
  static std::string text_of(const perdure::detail::Value& value) {
    return value.word_size == 0 ? std::string(value.bytes)
                                : std::string(reinterpret_cast<const char*>(&value.word), 8);
  }
  static perdure::detail::Value value_of(const std::string& value) {
    if (Bytes) return {.bytes = value};
    perdure::detail::Value out{.word_size = 8};
    std::memcpy(&out.word, value.data(), 8);
    return out;
  }

  Durability durability_ = Durability::power;
  LossyStorage storage_;
  std::unique_ptr<LossyPlatform> platform_;
  std::unique_ptr<PoolCore<LossyPlatform>> core_;
  std::unique_ptr<EngineInstance> map_;
};

template <class E, bool Bytes>
Expected<std::unique_ptr<TortureTarget>> open_lossy_map(const TortureOptions& options,
                                                        const std::string& file,
                                                        LossyJournal* journal) {
  auto target = std::make_unique<LossyTarget<E, Bytes>>();
  if (Status s = target->open(options, file, journal); !s.ok()) return fail(std::move(s));
  return std::unique_ptr<TortureTarget>(std::move(target));
}
template <class E>
Expected<std::unique_ptr<TortureTarget>> open_lossy(const TortureOptions& options,
                                                    const std::string& file,
                                                    LossyJournal* journal) {
  return options.keys == "integer" ? open_lossy_map<E, false>(options, file, journal)
                                   : open_lossy_map<E, true>(options, file, journal);
}

}  // namespace perdure::testing
