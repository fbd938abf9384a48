// Mutates recipes as recipes: adds, removes and changes whole patches. Most hit bytes in use, and
// half of the new ones set the flags that correct the checksums. libFuzzer's own mutations do the
// rest.
#include <algorithm>
#include <cstring>
#include <random>

#include "fuzz/recipe.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed);

namespace perdure::fuzz {

namespace {

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  void mutate(Recipe& recipe, std::size_t max_size) {
    switch (below(9)) {
      case 0:
        recipe.base = static_cast<std::uint8_t>(below(64));
        break;
      case 1:
        recipe.flags ^= static_cast<std::uint8_t>(1U << below(8));
        break;
      case 2:
      case 3:
        if (recipe.patches.size() < Recipe::kMaxPatches) recipe.patches.push_back(patch());
        // A change with correct checksums reaches more code.
        if (one_in(2)) recipe.flags |= Recipe::kFixPool | Recipe::kFixEngine;
        break;
      case 4:
        if (!recipe.patches.empty()) recipe.patches[pick(recipe)] = patch();
        break;
      case 5:
        if (!recipe.patches.empty()) alter(recipe.patches[pick(recipe)]);
        break;
      case 6:
        if (!recipe.patches.empty()) {
          recipe.patches.erase(recipe.patches.begin() + static_cast<long>(pick(recipe)));
        }
        break;
      case 7:
        // Without damage, `ops` compares every result.
        recipe.patches.clear();
        recipe.flags &= static_cast<std::uint8_t>(~(Recipe::kFixPool | Recipe::kFixEngine));
        recipe.flags |= one_in(2) ? Recipe::kVersions : Recipe::kAllOperations;
        break;
      default:
        mutate_rest(recipe, max_size);
    }
  }
  bool one_in(unsigned n) { return below(n) == 0; }

 private:
  unsigned below(unsigned n) { return static_cast<unsigned>(random_() % n); }
  std::size_t pick(const Recipe& recipe) {
    return below(static_cast<unsigned>(recipe.patches.size()));
  }

  Patch patch() {
    Patch out;
    out.kind = static_cast<PatchKind>(below(static_cast<unsigned>(PatchKind::count)));
    if (out.kind == PatchKind::size && !one_in(8)) out.kind = PatchKind::notable;
    // Half of the patches hit the data, which has the most structures to break.
    out.region = static_cast<std::uint8_t>(one_in(2) ? static_cast<unsigned>(Region::data)
                                                     : below(static_cast<unsigned>(Region::count)) +
                                                           below(8) * 32);
    out.index = static_cast<std::uint16_t>(random_());
    out.operand = operand();
    return out;
  }
  std::uint64_t operand() {
    switch (below(4)) {
      case 0:
        return below(256);
      case 1:
        return std::uint64_t{0} - below(64);
      case 2:
        return std::uint64_t{below(4096)} * 64;  // an offset where a block may be
      default:
        return random_();
    }
  }
  void alter(Patch& patch) {
    switch (below(3)) {
      case 0:
        patch.index = static_cast<std::uint16_t>(patch.index + below(9) - 4);
        break;
      case 1:
        patch.operand = operand();
        break;
      default:
        patch.operand ^= 1ULL << below(64);
    }
  }
  static void mutate_rest(Recipe& recipe, std::size_t max_size) {
    const std::size_t front = recipe.encode().size() - recipe.rest.size();
    if (front + 8 >= max_size) return;
    const std::size_t size = recipe.rest.size();
    recipe.rest.resize(std::max(max_size - front, size));
    recipe.rest.resize(LLVMFuzzerMutate(recipe.rest.data(), size, max_size - front));
  }

  std::mt19937_64 random_;
};

}  // namespace

}  // namespace perdure::fuzz

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using namespace perdure::fuzz;  // NOLINT: libFuzzer's function is in no namespace
  Mutator mutator(seed);
  if (mutator.one_in(10)) return LLVMFuzzerMutate(data, size, max_size);
  Recipe recipe = Recipe::parse({data, size});
  do {
    mutator.mutate(recipe, max_size);
  } while (mutator.one_in(2));
  const auto bytes = recipe.encode();
  if (bytes.size() > max_size) return size;
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}
