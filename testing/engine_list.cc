#include "testing/engine_list.h"

#include "index/clevel/clevel.h"
#include "index/phast/phast.h"
#include "testing/lossy_target.h"

namespace perdure::testing {

namespace {

struct PhastUnderLoss {
  static constexpr Engine kEngine = Engine::phast;
  template <bool Bytes>
  using Map =
      phast::Phast<LossyPlatform, std::conditional_t<Bytes, phast::BytesCodec, phast::IntegerCodec>,
                   phast::Geometry<12, 8>>;
  template <bool Bytes>
  static Expected<std::uint64_t> create(const EngineContext<LossyPlatform>& context,
                                        const MapKinds& kinds) {
    return Map<Bytes>::create(context, kinds, {.partition_bits = 3});
  }
};

struct ClevelUnderLoss {
  static constexpr Engine kEngine = Engine::clevel;
  template <bool Bytes>
  using Map = clevel::Clevel<LossyPlatform,
                             std::conditional_t<Bytes, clevel::BytesCodec, clevel::IntegerCodec>,
                             clevel::Geometry<4, 64, 2, 64>>;
  template <bool Bytes>
  static Expected<std::uint64_t> create(const EngineContext<LossyPlatform>& context,
                                        const MapKinds& kinds) {
    return Map<Bytes>::create(context, kinds, 0);
  }
};

constexpr EngineUnderTest kEngines[] = {
    {Engine::phast, /*ordered=*/true, &open_lossy<PhastUnderLoss>, "phast.insert.entry:drop_flush",
     &phast_races, "phast.help.entry:drop_fence"},
    {Engine::clevel, /*ordered=*/false, &open_lossy<ClevelUnderLoss>,
     "clevel.insert.slot:drop_flush", &clevel_races, "clevel.help.dead:drop_fence"},
};

}  // namespace

std::span<const EngineUnderTest> engines_under_test() { return kEngines; }

const EngineUnderTest* find_engine_under_test(const std::string& name) {
  for (const EngineUnderTest& row : kEngines) {
    if (engine_name(row.engine) == name) return &row;
  }
  return nullptr;
}

TortureOpen lossy_target() {
  LossyJournal* journal = LossyJournal::make();
  return [journal](const TortureOptions& options,
                   const std::string& file) -> Expected<std::unique_ptr<TortureTarget>> {
    const EngineUnderTest* row = find_engine_under_test(options.engine);
    if (row == nullptr) return fail(StatusCode::invalid_argument);
    return row->open_lossy(options, file, journal);
  };
}

TortureOpen target_of(const TortureOptions& options) {
  return options.mode == "plain" ? plain_target() : lossy_target();
}

}  // namespace perdure::testing
