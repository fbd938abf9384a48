// ops: opens a pool and works on it. The bytes after the recipe are a sequence of operations, two
// to six bytes each, on any map of the pool, on its directory or on the whole pool. If the pool
// equals one of the bases, every result is compared with the oracle's.
#include <array>
#include <map>
#include <optional>
#include <string>

#include "fuzz/bases.h"
#include "fuzz/map_ops.h"

namespace perdure::fuzz {

namespace {

using Bytes = std::string_view;

class Session {
 public:
  Session(const Fixture& fixture, Pool pool, const PoolOptions& options, const Oracles* oracles)
      : fixture_(fixture), pool_(std::move(pool)), options_(options), judged_(oracles != nullptr) {
    if (oracles != nullptr) oracles_ = *oracles;
  }

  void run(Reader& input, Op count) {
    reopened(true);
    for (int i = 0; i < kMaxOps && !input.empty() && pool_; ++i) {
      const auto op = static_cast<Op>(input.byte() % static_cast<unsigned>(count));
      step(op, input.byte(), input);
    }
    if (!pool_) return;
    verify();
    close({.sync = false});
  }

 private:
  static constexpr int kMaxOps = 64;

  void step(Op op, std::uint8_t choice, Reader& input) {
    switch (op) {
      case Op::stats:
        (void)pool_->stats();
        (void)pool_->info();
        return;
      case Op::check:
        return check(choice % 2 == 0);
      case Op::sync:
        return must_not_fail(pool_->sync());
      case Op::compact:
        return must_not_fail(pool_->compact());
      case Op::background:
        return must_not_fail(pool_->run_background());
      case Op::create:
        return create(choice);
      case Op::drop:
        return drop(choice);
      case Op::reopen:
        verify();
        close({.sync = choice % 2 == 0});
        return open(false);
      case Op::abandon: {
        const std::string bytes = fixture_.file().read();
        held_.let_go();
        pool_.reset();
        fixture_.file().write(bytes);
        return open(true);
      }
      default:
        on_map(op, choice, input);
    }
  }

  // --- the pool ---

  void check(bool deep) {
    const auto report = pool_->check({.deep = deep});
    PERDURE_EXPECT(report.has_value(), "check failed");
    PERDURE_EXPECT(!judged_ || report->ok(), "%s", std::string(report->first()).c_str());
  }
  template <class Result>
  void must_not_fail(const Result& result) const {
    if constexpr (requires { result.error(); }) {
      if (!result) must_not_fail(result.error());
    } else {
      const bool may = result.ok() || !judged_ || result == StatusCode::read_only;
      PERDURE_EXPECT(may, "%s", std::string(result.message()).c_str());
    }
  }

  void close(const CloseOptions& options) {
    held_.let_go();
    must_not_fail(pool_->close(options));
    pool_.reset();  // releases the lock
  }
  void open(bool crashed) {
    auto pool = open_file(fixture_.file().path(), options_);
    PERDURE_EXPECT(pool.has_value() || !judged_, "an undamaged pool does not open: %s",
                   std::string(pool.error().message()).c_str());
    if (!pool) return;
    pool_ = std::move(*pool);
    reopened(crashed);
  }
  // Every map must be as it was.
  void reopened(bool crashed) {
    for (auto& [name, oracle] : oracles_) {
      UntypedMap map = opened(name);
      if (!map.versioned()) continue;
      const VersionRange range = map.versions().value_or(VersionRange{});
      PERDURE_EXPECT(oracle.could_reopen_as(range, crashed), "versions %llu to %llu after %s",
                     static_cast<unsigned long long>(range.first),
                     static_cast<unsigned long long>(range.last), crashed ? "a crash" : "a close");
      oracle.reopen_as(range);
    }
    verify();
  }
  void verify() {
    for (auto& [name, oracle] : oracles_) {
      UntypedMap map = opened(name);
      MapOps(*pool_, map, &oracle, held_).verify();
    }
  }
  UntypedMap opened(const std::string& name) {
    auto map = pool_->untyped_map(name, {.mode = OpenMode::existing});
    PERDURE_EXPECT(map.has_value(), "a map of an undamaged pool does not open: %s",
                   std::string(map.error().message()).c_str());
    return std::move(*map);
  }

  // --- its maps ---

  void create(std::uint8_t choice) {
    constexpr std::array<MapTypes, 4> kTypes = {
        map_types<std::uint64_t, std::uint64_t>(), map_types<std::int16_t, Bytes>(),
        map_types<Bytes, Bytes>(), map_types<Bytes, std::uint8_t>()};
    const MapOptions options{.engine = fixture_.engine(),
                             .phast = {.partition_bits = choice / 4U % 3}};
    const std::string name = "new" + std::to_string(choice % 8);
    const auto made = pool_->untyped_map(name, options, kTypes[choice % 4]);
    if (made && judged_) oracles_.try_emplace(name);
  }

  void drop(std::uint8_t choice) {
    const auto maps = pool_->list();
    if (!maps || maps->empty()) return;
    const MapInfo& info = (*maps)[choice % maps->size()];
    held_.let_go();
    if (pool_->drop(info.name).ok()) oracles_.erase(std::string(info.name));
  }

  void on_map(Op op, std::uint8_t choice, Reader& input) {
    const auto maps = pool_->list();
    if (!maps || maps->empty()) return;
    const MapInfo& info = (*maps)[choice % maps->size()];
    auto map = pool_->untyped_map(info.name, {.mode = OpenMode::existing});
    if (!map) return;
    const auto oracle = oracles_.find(std::string(info.name));
    MapOps(*pool_, *map, oracle == oracles_.end() ? nullptr : &oracle->second, held_)
        .run(op, choice, input);
  }

  const Fixture& fixture_;
  std::optional<Pool> pool_;
  HeldVersion held_;  // destroyed before the pool
  PoolOptions options_;
  bool judged_;
  Oracles oracles_;  // empty if the pool is not judged
};

}  // namespace

void fuzz_one(Input input) {
  const Fixture& fixture = Fixture::get();
  const Recipe recipe = Recipe::parse(input);
  PoolOptions options;
  const std::string bytes = fixture.write(recipe, options);
  auto pool = open_file(fixture.file().path(), options);
  if (!pool || recipe.base == Recipe::kRaw) return;
  Reader operations(recipe.rest);
  const Op count = (recipe.flags & Recipe::kAllOperations) != 0 ? Op::count_all
                   : (recipe.flags & Recipe::kVersions) != 0    ? Op::count_with_versions
                                                                : Op::count;
  Session(fixture, std::move(*pool), options, fixture.oracles(recipe, bytes))
      .run(operations, count);
}

}  // namespace perdure::fuzz
