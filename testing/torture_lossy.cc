// The lossy target: PoolCore and PhaST, with small nodes, over LossyPlatform.
#include <cstring>

#include "index/phast/phast.h"
#include "pool/pool_core.h"
#include "testing/lossy_platform.h"
#include "testing/torture_runner.h"

namespace perdure::testing {

namespace {

constexpr std::uint64_t kCapacity = 32 << 20;
using SmallGeometry = phast::Geometry<12, 8>;

layout::Identity lossy_identity() {
  layout::Identity id{};
  id.boot_id[0] = 1;
  id.inode = 2;
  return id;
}

template <class Codec>
class LossyTarget : public TortureTarget {
 public:
  using Map = phast::Phast<LossyPlatform, Codec, SmallGeometry>;

  Status open(const TortureOptions& options, const std::string& file, LossyJournal* journal) {
    if (Status s = storage_.open(file, kCapacity, journal); !s.ok()) return s;
    platform_ = std::make_unique<LossyPlatform>(storage_, options.seed);
    platform_->stall_one_in(options.stall_one_in);
    if (storage_.size() == 0) {
      const std::uint8_t uuid[16] = {4, 5, 6};
      const PoolShape shape{.max_bytes = kCapacity,
                            .extent_bytes = 16_KiB,
                            .root_slots = 8,
                            .writer_slots = 8,
                            .initial_extents = 4};
      Status s = PoolCore<LossyPlatform>::create(*platform_, storage_, shape, lossy_identity(),
                                                 uuid, Durability::power);
      if (!s.ok()) return s;
    }
    if (Status s = open_map(); !s.ok() || map_ != nullptr) return s;
    return make_map();
  }

  Expected<bool> upsert(const std::string& key, const std::string& value) override {
    return map_->index().upsert(key_of(key), value_of(value));
  }
  Expected<bool> insert(const std::string& key, const std::string& value) override {
    return map_->index().insert(key_of(key), value_of(value));
  }
  Expected<bool> update(const std::string& key, const std::string& value) override {
    return map_->index().update(key_of(key), value_of(value));
  }
  Expected<bool> erase(const std::string& key) override { return map_->index().erase(key_of(key)); }
  Expected<bool> find(const std::string& key, std::string& value) override {
    return map_->index().read(key_of(key), [&](const perdure::detail::Value& found) {
      value = found.word_size == 0 ? std::string(found.bytes)
                                   : std::string(reinterpret_cast<const char*>(&found.word), 8);
    });
  }
  std::string check(std::uint64_t& entries) override {
    auto done = map_->ordered()->scan({}, [&](std::span<const perdure::detail::Entry> batch) {
      entries += batch.size();
      return true;
    });
    if (!done) return std::string(done.error().message());
    CheckReport report;
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
  Status close() override {
    if (Status s = map_->close(); !s.ok()) return s;
    return core_->close(true);
  }

 private:
  EngineContext<LossyPlatform> context() {
    return {.platform = *platform_,
            .heap = core_->heap(),
            .epochs = core_->epochs(),
            .background = core_->background(),
            .threads = 2};
  }
  Status open_map() {
    core_ = std::make_unique<PoolCore<LossyPlatform>>(*platform_, storage_);
    OpenReport report;
    Status s = core_->open({.identity = lossy_identity(), .mode = Durability::power}, report);
    if (!s.ok()) return s;
    auto slot = core_->find_root("torture");
    if (!slot) return std::move(slot.error());
    if (*slot < core_->root_slots()) {
      layout::Root root{};
      auto used = core_->read_root(*slot, root);
      if (!used) return std::move(used.error());
      auto map = Map::open(context(), root.root);
      if (!map) return std::move(map.error());
      map_ = std::move(*map);
      if (s = map_->recover(report.was_clean); !s.ok()) return s;
    }
    return core_->finish_open(true);
  }
  Status make_map() {
    const MapKinds kinds{.key = Codec::kBytes ? KeyKind::bytes : KeyKind::integer,
                         .value = Codec::kBytes ? ValueKind::bytes : ValueKind::word};
    auto offset = Map::create(context(), kinds, {.partition_bits = 3});
    if (!offset) return std::move(offset.error());
    layout::Root line{};
    std::strcpy(line.name, "torture");
    line.engine = static_cast<std::uint16_t>(Engine::phast);
    line.root = *offset;
    if (Status s = core_->add_root(line); !s.ok()) return s;
    auto map = Map::open(context(), *offset);
    if (!map) return std::move(map.error());
    map_ = std::move(*map);
    return map_->recover(false);
  }
  static perdure::detail::Key key_of(const std::string& key) {
    if (Codec::kBytes) return {.bytes = key};
    std::uint64_t word = 0;
    std::memcpy(&word, key.data(), 8);
    return {.word = __builtin_bswap64(word)};
  }
  static perdure::detail::Value value_of(const std::string& value) {
    if (Codec::kBytes) return {.bytes = value};
    perdure::detail::Value out{.word_size = 8};
    std::memcpy(&out.word, value.data(), 8);
    return out;
  }

  LossyStorage storage_;
  std::unique_ptr<LossyPlatform> platform_;
  std::unique_ptr<PoolCore<LossyPlatform>> core_;
  std::unique_ptr<EngineInstance> map_;
};

template <class Codec>
Expected<std::unique_ptr<TortureTarget>> open_lossy(const TortureOptions& options,
                                                    const std::string& file,
                                                    LossyJournal* journal) {
  auto target = std::make_unique<LossyTarget<Codec>>();
  if (Status s = target->open(options, file, journal); !s.ok()) return fail(std::move(s));
  return std::unique_ptr<TortureTarget>(std::move(target));
}

}  // namespace

TortureOpen lossy_target() {
  LossyJournal* journal = LossyJournal::make();
  return [journal](const TortureOptions& options, const std::string& file) {
    return options.keys == "integer" ? open_lossy<phast::IntegerCodec>(options, file, journal)
                                     : open_lossy<phast::BytesCodec>(options, file, journal);
  };
}

}  // namespace perdure::testing
