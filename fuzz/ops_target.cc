// ops: whatever can be opened is worked on. What follows the recipe is a sequence of operations,
// two to four bytes each: on any map of the pool, on its directory, on the pool as a whole.
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "fuzz/bases.h"

namespace perdure::fuzz {

namespace {

enum class Op : std::uint8_t {
  find,
  find_many,
  insert,
  upsert,
  update,
  erase,
  scan,
  for_each,
  fill,   // many entries: nodes split
  clear,  // many entries: nodes go
  stats,
  check,
  sync,
  compact,
  background,
  create,
  drop,
  reopen,
  abandon,  // as if the process had died: the next open recovers
  count,
};

// The planted bug: a value is believed to be short.
void plant(const detail::Value& value) {
  const std::vector<char> buffer(100);
  if (!value.bytes.empty() && buffer.data()[value.bytes.size()] == 1) std::abort();
}

class Session {
 public:
  Session(const Fixture& fixture, Pool pool, const PoolOptions& options)
      : fixture_(fixture), pool_(std::move(pool)), options_(options) {}

  void run(Reader& input) {
    for (int i = 0; i < kMaxOps && !input.empty() && pool_; ++i) {
      const auto op = static_cast<Op>(input.byte() % static_cast<unsigned>(Op::count));
      choice_ = input.byte();
      step(op, input);
    }
    if (pool_) (void)pool_->close({.sync = false});
  }

 private:
  static constexpr int kMaxOps = 64;
  static constexpr std::uint64_t kMaxVisits = 1000;

  void step(Op op, Reader& input) {
    switch (op) {
      case Op::stats:
        (void)pool_->stats();
        (void)pool_->info();
        return;
      case Op::check:
        PERDURE_EXPECT(pool_->check({.deep = choice_ % 2 == 0}).has_value(), "check failed");
        return;
      case Op::sync:
        (void)pool_->sync();
        return;
      case Op::compact:
        (void)pool_->compact();
        return;
      case Op::background:
        (void)pool_->run_background();
        return;
      case Op::create:
        create();
        return;
      case Op::drop: {
        const auto maps = pool_->list();
        if (maps && !maps->empty()) {
          (void)pool_->drop((*maps)[choice_ % maps->size()].name);
        }
        return;
      }
      case Op::reopen:
        (void)pool_->close({.sync = choice_ % 2 == 0});
        open();
        return;
      case Op::abandon: {
        const std::string bytes = fixture_.file().read();
        pool_.reset();
        fixture_.file().write(bytes);
        open();
        return;
      }
      default:
        on_map(op, input);
    }
  }

  void open() {
    pool_.reset();  // the lock goes first
    auto pool = open_file(fixture_.file().path(), options_);
    if (pool) pool_ = std::move(*pool);
  }

  void create() {
    constexpr std::array<detail::MapSpec, 4> kSpecs = {
        detail::map_spec<std::uint64_t, std::uint64_t>(), detail::map_spec<std::int16_t, Bytes>(),
        detail::map_spec<Bytes, Bytes>(), detail::map_spec<Bytes, std::uint8_t>()};
    const MapOptions options{.engine = fixture_.engine(),
                             .phast = {.partition_bits = choice_ / 4U % 3}};
    const std::string name = "new" + std::to_string(choice_ % 8);
    (void)pool_->untyped_map(name, options, &kSpecs[choice_ % 4]);
  }

  detail::Key key_of(const MapInfo& info, std::uint8_t choice) {
    if (info.key_kind == KeyKind::integer) {
      return {.word = info.is_signed ? word_of(choice) ^ (1ULL << 63) : word_of(choice)};
    }
    text_ = text_of(choice);
    return {.bytes = text_};
  }
  detail::Value value_of(const MapInfo& info, std::uint8_t choice) {
    if (info.value_kind == ValueKind::word) {
      return {.word = choice, .word_size = info.value_bytes};
    }
    value_.assign(choice < 250 ? choice : (choice - 249U) * 3000U, 'v');
    return {.bytes = value_};
  }

  static void look(const detail::Value& value) {
    std::uint64_t sum = value.word;  // reads all of it
    for (const char c : value.bytes) sum += static_cast<unsigned char>(c);
    if (planted()) plant(value);
    sink() = sum;
  }
  static volatile std::uint64_t& sink() {
    static volatile std::uint64_t value = 0;
    return value;
  }

  void on_map(Op op, Reader& input) {
    const auto maps = pool_->list();
    if (!maps || maps->empty()) return;
    auto map = pool_->untyped_map((*maps)[choice_ % maps->size()].name,
                                  {.create = false, .any_engine = true});
    if (!map) return;
    detail::Index& index = *map->index;
    const std::uint8_t choice = input.byte();
    const auto key = [&](std::uint8_t c) { return key_of(map->info, c); };
    switch (op) {
      case Op::find:
        (void)index.read(key(choice), [](const detail::Value& value) { look(value); });
        return;
      case Op::find_many:
        find_many(index, map->info, choice);
        return;
      case Op::insert:
        (void)index.insert(key(choice), value_of(map->info, choice));
        return;
      case Op::upsert:
        (void)index.upsert(key(choice), value_of(map->info, input.byte()));
        return;
      case Op::update:
        (void)index.update(key(choice), value_of(map->info, input.byte()));
        return;
      case Op::erase:
        (void)index.erase(key(choice));
        return;
      case Op::fill:
      case Op::clear:
        for (unsigned i = 0; i < choice; ++i) {
          const auto c = static_cast<std::uint8_t>(choice_ + i);
          if (op == Op::fill) (void)index.insert(key(c), value_of(map->info, c % 32));
          if (op == Op::clear) (void)index.erase(key(c));
        }
        return;
      default:
        scan(*map, choice, op == Op::for_each);
    }
  }

  static void find_many(detail::Index& index, const MapInfo& info, std::uint8_t choice) {
    std::vector<std::string> texts;
    for (unsigned i = 0; i < 24; ++i)
      texts.push_back(text_of(static_cast<std::uint8_t>(choice + i)));
    std::vector<detail::Key> keys;
    for (unsigned i = 0; i < texts.size(); ++i) {
      keys.push_back(info.key_kind == KeyKind::bytes
                         ? detail::Key{.bytes = texts[i]}
                         : detail::Key{.word = word_of(static_cast<std::uint8_t>(choice + i))});
    }
    (void)index.read_many(keys, [](std::size_t, const detail::Value& value) { look(value); });
  }

  void scan(UntypedMap& map, std::uint8_t choice, bool all) {
    std::uint64_t visited = 0;
    const auto visit = [&](std::span<const detail::Entry> entries) {
      for (const detail::Entry& entry : entries) look(entry.value);
      visited += entries.size();
      return visited < kMaxVisits;
    };
    if (all || map.ordered == nullptr) {
      (void)map.index->for_each(visit);
      return;
    }
    std::string from = text_of(choice);
    std::string to = text_of(static_cast<std::uint8_t>(choice * 7));
    detail::ScanRange range{.reverse = choice_ % 2 != 0};
    const bool bytes = map.info.key_kind == KeyKind::bytes;
    if (choice % 4 != 0) range.from = bytes ? detail::Key{.bytes = from} : key_of(map.info, choice);
    if (choice % 3 != 0) {
      range.to = bytes ? detail::Key{.bytes = to}
                       : key_of(map.info, static_cast<std::uint8_t>(choice * 7));
    }
    (void)map.ordered->scan(range, visit);
  }

  using Bytes = std::string_view;

  const Fixture& fixture_;
  std::optional<Pool> pool_;
  PoolOptions options_;
  std::uint8_t choice_ = 0;
  std::string text_;
  std::string value_;
};

}  // namespace

void fuzz_one(Input input) {
  const Fixture& fixture = Fixture::get();
  const Recipe recipe = Recipe::parse(input);
  PoolOptions options;
  (void)fixture.write(recipe, options);
  auto pool = open_file(fixture.file().path(), options);
  if (!pool || recipe.base == Recipe::kRaw) return;
  Reader operations(recipe.rest);
  Session(fixture, std::move(*pool), options).run(operations);
}

}  // namespace perdure::fuzz
