#include "evaluation/ordered/variants.h"

#include "index/phast/phast.h"

namespace perdure::paper {
namespace {

using ordered::Start;

template <std::uint32_t LeafEntries, std::uint32_t InnerLeaves, Start kFrom>
struct Sizes : phast::Geometry<LeafEntries, InnerLeaves> {
  static constexpr Start kStart = kFrom;
};
template <std::uint32_t LeafEntries, std::uint32_t InnerLeaves, Start kFrom>
using Sized =
    phast::Phast<RealPlatform, phast::IntegerCodec, Sizes<LeafEntries, InnerLeaves, kFrom>>;

template <std::uint32_t LeafEntries, std::uint32_t InnerLeaves, Start kFrom>
constexpr EngineRow kRow{
    .engine = Engine::phast,
    .name = "phast",
    .version = 0,
    .ordered = true,
    .versioned = false,
    .at_once = false,
    .create =
        [](const EngineContext<RealPlatform>& context, const MapKinds& kinds,
           const MapOptions& options) {
          return Sized<LeafEntries, InnerLeaves, kFrom>::create(context, kinds, options.phast);
        },
    .open =
        [](const EngineContext<RealPlatform>& context, const MapKinds&, std::uint64_t root) {
          return Sized<LeafEntries, InnerLeaves, kFrom>::open(context, root);
        }};

}  // namespace

std::span<const Variant> variants_by_start() {
  static constexpr Variant kVariants[] = {
      {"all levels", kRow<60, 128, Start::shortcut>},
      {"no shortcut", kRow<60, 128, Start::index_cache>},
      {"no shortcut, no index cache", kRow<60, 128, Start::first_node>}};
  return kVariants;
}

std::span<const Variant> variants_by_inner_leaves() {
  static constexpr Variant kVariants[] = {
      {"32", kRow<60, 32, Start::index_cache>},   {"64", kRow<60, 64, Start::index_cache>},
      {"128", kRow<60, 128, Start::index_cache>}, {"256", kRow<60, 256, Start::index_cache>},
      {"512", kRow<60, 512, Start::index_cache>}, {"1024", kRow<60, 1024, Start::index_cache>}};
  return kVariants;
}

std::span<const Variant> variants_by_leaf_entries() {
  static constexpr Variant kVariants[] = {{"12", kRow<12, 128, Start::shortcut>},
                                          {"28", kRow<28, 128, Start::shortcut>},
                                          {"60", kRow<60, 128, Start::shortcut>}};
  return kVariants;
}

}  // namespace perdure::paper
