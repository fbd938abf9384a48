#include <utility>

#include "bench/paper/skiplists/figures.h"
#include "bench/paper/skiplists/redo_list.h"
#include "bench/paper/start_engine.h"

namespace perdure::paper {

namespace {

// Our engines: byte strings of 16 bytes to words.
template <Engine kEngine>
class EngineList final : public List {
 public:
  explicit EngineList(bench::MemoryHeap& memory) noexcept : memory_(memory) {
    background_.set_threads(0);
  }
  Status open() {
    auto started = start_engine(memory_, background_, kEngine, {KeyKind::bytes, ValueKind::word});
    if (!started) return std::move(started.error());
    instance_ = std::move(*started);
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
  void check(Findings& report) override { instance_->index().check({.deep = true}, report); }

 private:
  struct Bytes {
    explicit Bytes(const ListKey& key) noexcept
        : halves{__builtin_bswap64(key[0]), __builtin_bswap64(key[1])} {}
    detail::Key key() const noexcept {
      return {.bytes = {reinterpret_cast<const char*>(halves), sizeof(halves)}};
    }
    std::uint64_t halves[2];
  };

  bench::MemoryHeap& memory_;
  Background<RealPlatform> background_;
  std::unique_ptr<EngineInstance> instance_;
};

template <Engine kEngine>
std::unique_ptr<List> make_engine(bench::MemoryHeap& memory) {
  auto list = std::make_unique<EngineList<kEngine>>(memory);
  must(list->open());
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
  static constexpr ListScheme kSchemes[] = {{"RLS, one record", &make_redo<Log::record>},
                                            {"RLS, a record a word", &make_redo<Log::words>},
                                            {"as", &make_engine<Engine::as>},
                                            {"ascs", &make_engine<Engine::ascs>},
                                            {"NBNFS", &make_redo<Log::none>}};
  return kSchemes;
}

}  // namespace perdure::paper
