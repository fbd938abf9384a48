// Values of 8 to 256 bytes (figure 15 c of PhaST's paper). As there, the maps hold references: a
// value lies in a block of its own. `phast` has values of any size itself, with a checksum.
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "evaluation/ordered/figures.h"
#include "evaluation/ordered/measure.h"
#include "evaluation/start_engine.h"

namespace perdure::paper {
namespace {

class ValueMap {
 public:
  ValueMap() = default;
  virtual ~ValueMap() = default;
  ValueMap(const ValueMap&) = delete;
  ValueMap& operator=(const ValueMap&) = delete;

  virtual bool insert(Word key, std::string_view value) = 0;
  virtual bool update(Word key, std::string_view value) = 0;
  // Whether the value of the key is this one.
  virtual bool has(Word key, std::string_view value) = 0;
};

class PhastValues final : public ValueMap {
 public:
  explicit PhastValues(bench::MemoryHeap& memory) {
    background_.set_threads(0);
    instance_ =
        must(start_engine(memory, background_, rows::phast, {KeyKind::integer, ValueKind::bytes}));
  }
  bool insert(Word key, std::string_view value) override {
    return must(instance_->index().insert({.word = key}, {.bytes = value}));
  }
  bool update(Word key, std::string_view value) override {
    return must(instance_->index().update({.word = key}, {.bytes = value}));
  }
  bool has(Word key, std::string_view value) override {
    bool same = false;
    return must(instance_->index().read(
               {.word = key}, [&](const detail::Value& found) { same = found.bytes == value; })) &&
           same;
  }

 private:
  Background<RealPlatform> background_;
  std::unique_ptr<EngineInstance> instance_;
};

// The value is durable before a reference to it is stored. An update frees the old value.
class References final : public ValueMap {
 public:
  References(bench::MemoryHeap& memory, const OrderedScheme& scheme)
      : memory_(memory), map_(scheme.make(memory)) {}
  bool insert(Word key, std::string_view value) override {
    return must(map_->insert(key, make(value)));
  }
  bool update(Word key, std::string_view value) override {
    Word old = 0;
    if (!map_->find(key, old)) return false;
    const bool present = must(map_->update(key, make(value)));
    memory_.heap().free(old);
    return present;
  }
  bool has(Word key, std::string_view value) override {
    Word block = 0;
    if (!map_->find(key, block)) return false;
    const auto* size = memory_.heap().at<Word>(block);
    return std::string_view(reinterpret_cast<const char*>(size + 1), *size) == value;
  }

 private:
  Word make(std::string_view value) {
    const std::size_t bytes = sizeof(Word) + value.size();
    const Word block = must(memory_.heap().allocate(bytes, BlockKind::plain));
    auto* size = memory_.heap().at<Word>(block);
    memory_.platform().store(*size, value.size());
    memory_.platform().copy(size + 1, value.data(), value.size());
    memory_.platform().flush(size, bytes, "bench.value"_site);
    (void)memory_.platform().fence("bench.value"_site);  // memory without a file is never poisoned
    return block;
  }

  bench::MemoryHeap& memory_;
  std::unique_ptr<OrderedMap> map_;
};

// Slices of random bytes, so that no time goes into making or remembering values.
class Values {
 public:
  Values() {
    bench::Random random(1);
    for (char& byte : bytes_) byte = static_cast<char>(random.next());
  }
  std::string_view of(Word key, std::uint64_t generation) const noexcept {
    const Word draw = bench::mix64(key + generation);
    return {bytes_ + draw % kPlaces, kLeast + (draw >> 32) % (kMost - kLeast + 1)};
  }

 private:
  static constexpr std::size_t kLeast = 8;
  static constexpr std::size_t kMost = 256;
  static constexpr std::size_t kPlaces = 1024;  // stays in the cache
  char bytes_[kPlaces + kMost];
};

// The second scheme is ours without references.
std::unique_ptr<ValueMap> make(bench::MemoryHeap& memory, std::size_t scheme) {
  if (scheme == 1) return std::make_unique<PhastValues>(memory);
  return std::make_unique<References>(memory, ordered_schemes()[scheme == 0 ? 0 : scheme - 1]);
}

std::vector<Figure> run(std::size_t scheme, std::uint64_t items, const Values& values) {
  bench::MemoryHeap memory;
  const std::uint64_t all = 2 * items;
  constexpr std::uint64_t kWithValue = 3;  // times the bytes of an entry alone
  open_for(memory, kWithValue * all);
  const std::unique_ptr<ValueMap> map = make(memory, scheme);
  const auto insert = [&](std::uint64_t n) {
    const Word key = uniform_key(n);
    return map->insert(key, values.of(key, 0));
  };
  const auto has = [&](std::uint64_t n, std::uint64_t generation) {
    const Word key = uniform_key(n);
    return map->has(key, values.of(key, generation));
  };
  for (std::uint64_t n = 0; n < items; ++n) {
    require(insert(n), "a key was present before its insert");
  }
  std::vector<Figure> figures;
  figures.push_back(measure(items, [&](std::uint64_t i) { return insert(items + i); }));
  figures.push_back(measure(items, [&](std::uint64_t i) { return has(scatter(i, all), 0); }));
  figures.push_back(measure(items, [&](std::uint64_t i) {
    const Word key = uniform_key(scatter(i, all));
    return map->update(key, values.of(key, 1));
  }));
  for (std::uint64_t i = 0; i < all; i += 7) {
    require(has(scatter(i, all), i < items ? 1 : 0), "a value is wrong after the updates");
  }
  return figures;
}

}  // namespace

void values_of_any_size(const OrderedOptions& options, Report& report) {
  constexpr std::uint64_t kPart = 5;  // one entry for so many of the other figures
  const Values values;
  Turns turns{.kind = "map",
              .schemes = names_of(ordered_schemes()),
              .phases = {"insert", "search", "update"}};
  turns.schemes.insert(turns.schemes.begin() + 1, "phast, its own values");
  turns.take(options.runs, [&](std::size_t s) { return run(s, options.items / kPart, values); });
  turns.print_rates("Million operations a second, values of 8 to 256 bytes (figure 15 c)", report);
  turns.print_ratios("`phast` by the others with these values", report);
  turns.print_costs("Write-backs and fences of an operation with these values", report);
}

}  // namespace perdure::paper
