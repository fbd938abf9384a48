#include <utility>

#include "evaluation/skiplists/figures.h"
#include "evaluation/skiplists/redo_list.h"
#include "evaluation/start_engine.h"
#include "index/skiplist/skiplist.h"

namespace perdure::paper {

namespace {

// As the baselines, which have no structure in DRAM.
struct NoFingers : skiplist::DefaultGeometry {
  static constexpr std::uint64_t kFingersFrom = ~std::uint64_t{0};
};
template <class Kind>
using Fingerless = skiplist::Skiplist<RealPlatform, skiplist::BytesCodec, Kind, NoFingers>;
template <class Map>
constexpr EngineRow kRow{
    .engine = {},
    .name = {},
    .version = 0,
    .ordered = true,
    .versioned = false,
    .at_once = false,
    .create = [](const EngineContext<RealPlatform>& context, const MapKinds& kinds,
                 const MapOptions&) { return Map::create(context, kinds); },
    .open = [](const EngineContext<RealPlatform>& context, const MapKinds& kinds,
               std::uint64_t root) { return Map::open(context, root, kinds.value); }};

// Our engines: byte strings of 16 bytes to words.
class EngineList final : public List {
 public:
  EngineList(bench::MemoryHeap& memory, bool fingers) noexcept
      : memory_(memory), fingers_(fingers) {
    background_.set_threads(0);
  }
  Status open(const EngineRow& row) {
    auto started = start_engine(memory_, background_, row, {KeyKind::bytes, ValueKind::word});
    if (!started) return std::move(started.error());
    instance_ = std::move(*started);
    dram_when_empty_ = dram_bytes();
    return {};
  }

  Expected<bool> insert(const ListKey& key, std::uint64_t value) override {
    const Bytes bytes(key);
    return instance_->index().insert(bytes.key(), {.word = value, .word_size = 8});
  }
  Expected<bool> erase(const ListKey& key) override {
    const Bytes bytes(key);
    return instance_->index().erase(bytes.key());
  }
  Expected<bool> find(const ListKey& key, std::uint64_t& value) override {
    const Bytes bytes(key);
    return instance_->index().read(bytes.key(),
                                   [&](const detail::Value& found) { value = found.word; });
  }
  void check(Findings& report) override {
    instance_->index().check({.deep = true}, report);
    if (!fingers_ && dram_bytes() > dram_when_empty_) report.add("the list has fingers");
  }

 private:
  struct Bytes {
    explicit Bytes(const ListKey& key) noexcept
        : halves{__builtin_bswap64(key[0]), __builtin_bswap64(key[1])} {}
    detail::Key key() const noexcept {
      return {.bytes = {reinterpret_cast<const char*>(halves), sizeof(halves)}};
    }
    std::uint64_t halves[2];
  };

  std::uint64_t dram_bytes() const {
    EngineStats stats;
    instance_->index().stats(stats);
    return stats.dram_bytes;
  }

  bench::MemoryHeap& memory_;
  bool fingers_;
  std::uint64_t dram_when_empty_ = 0;
  Background<RealPlatform> background_;
  std::unique_ptr<EngineInstance> instance_;
};

template <const EngineRow& kEngine, bool kFingers>
std::unique_ptr<List> make_engine(bench::MemoryHeap& memory) {
  auto list = std::make_unique<EngineList>(memory, kFingers);
  must(list->open(kEngine));
  return list;
}
template <Log kLog>
std::unique_ptr<List> make_redo(bench::MemoryHeap& memory) {
  auto list = std::make_unique<RedoList<RealPlatform, kLog>>(memory.platform(), memory.heap());
  must(list->open());
  return list;
}

}  // namespace

std::span<const ListScheme, kListSchemeCount> list_schemes() {
  // One record comes first: its write-backs are as many as the paper's percentages imply.
  static constexpr ListScheme kSchemes[] = {
      {"RLS, one record", &make_redo<Log::record>},
      {"RLS, a record a word", &make_redo<Log::words>},
      {"as", &make_engine<rows::as, true>},
      {"ascs", &make_engine<rows::ascs, true>},
      {"as, no fingers", &make_engine<kRow<Fingerless<skiplist::As>>, false>},
      {"ascs, no fingers", &make_engine<kRow<Fingerless<skiplist::Ascs>>, false>},
      {"NBNFS", &make_redo<Log::none>}};
  return kSchemes;
}

}  // namespace perdure::paper
