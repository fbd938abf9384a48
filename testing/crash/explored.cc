#include "testing/crash/explored.h"

#include <algorithm>
#include <utility>

#include "index/engine_table.h"
#include "testing/crash/synthetic_subject.h"
#include "testing/crash/workloads.h"
#include "testing/engines/engine_list.h"

namespace perdure::testing {

namespace {

constexpr const char* kPresets[] = {"fast", "figures", "nightly"};
constexpr std::uint64_t kCapacity = 2 << 20;

// Chooses by preset.
std::size_t pick(Preset preset, std::size_t fast, std::size_t figures, std::size_t nightly) {
  return preset == Preset::fast ? fast : (preset == Preset::figures ? figures : nightly);
}

std::string word(std::uint64_t value) {
  return std::string(reinterpret_cast<const char*>(&value), 8);
}
Op put(std::uint64_t key, std::string value) {
  return {OpKind::upsert, integer_key(key), std::move(value)};
}
Op erase(std::uint64_t key) { return {OpKind::erase, integer_key(key), {}}; }
OpSource on_three_maps() { return pool_ops(3, 20); }

// Values from a few bytes to several extents, in three maps.
Op mixed_sizes_op(Random& random) {
  static constexpr std::size_t kBytes[] = {5, 300, 1500, 6000, 20'000, 40'000};
  const std::uint64_t key = random.below(8);
  const auto letter = static_cast<char>('a' + random.below(26));
  return in_map(random.below(3), random.one_in(3)
                                     ? erase(key)
                                     : put(key, std::string(kBytes[random.below(6)], letter)));
}

// The pool grows through every step of growth.
std::vector<Op> growth(std::uint64_t n, std::size_t bytes) {
  std::vector<Op> ops;
  for (std::uint64_t i = 0; i < n; ++i) {
    ops.push_back(put(i, std::string(bytes, static_cast<char>('a' + i % 26))));
  }
  return ops;
}

// The pool grows, empties and gives the space back. It does so twice, in order to reuse punched
// space.
std::vector<Op> shrinking(std::uint64_t n, std::size_t bytes) {
  std::vector<Op> ops;
  for (int round = 0; round < 2; ++round) {
    for (const Op& op : growth(n, bytes)) ops.push_back(op);
    for (std::uint64_t i = 0; i < n; ++i) {
      if (i % 4 != 1) ops.push_back(erase(i));
    }
    ops.push_back({OpKind::compact, {}, {}});
    ops.push_back({OpKind::reopen, {}, {}});
  }
  return ops;
}

// The pool becomes full, and is resized. It fills up again, over its second extent table. A second
// resize finds room in that table.
std::vector<Op> resized(std::uint64_t n, std::size_t bytes) {
  std::vector<Op> ops;
  for (std::uint64_t i = 0; i < 3 * n; ++i) {
    if (i > 0 && i % n == 0) ops.push_back({OpKind::resize, {}, {}});
    ops.push_back(put(i, std::string(bytes, static_cast<char>('a' + i % 26))));
    if (i % 4 == 3) ops.push_back(erase(i - 2));
  }
  ops.push_back({OpKind::compact, {}, {}});
  return ops;
}

// 2,600 distinct keys in an order that is neither ascending nor descending, then half of them
// again.
std::vector<Op> batch() {
  constexpr std::uint64_t kKeys = 2600, kStep = 997;
  std::vector<Op> ops;
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    ops.push_back({OpKind::insert, integer_key(i * kStep % kKeys + 1), word(i)});
  }
  for (std::uint64_t i = 0; i < kKeys; i += 2) ops.push_back(erase(i * kStep % kKeys + 1));
  return ops;
}

std::vector<Exploration> affordable(const EngineUnderTest& engine, Preset preset,
                                    std::vector<Exploration> all) {
  if (preset == Preset::figures) {
    for (Exploration& e : all) e.options.points_in *= engine.image_cost;
  }
  return all;
}

// Few crash points, for long workloads.
ExploreOptions thinned(ExploreOptions options, std::uint32_t points_in) {
  options.points_in = points_in;
  options.store_points = false;
  options.explore_create = false;
  return options;
}

// A process dies at every point without a power failure. The power fails in the next process. Other
// explorations enumerate power failures of the first process.
ExploreOptions killed(ExploreOptions options, Preset preset) {
  options.limits = {.product = 4, .random = 1, .sampled = 2};
  if (preset == Preset::nightly) options.limits = {.product = 16, .random = 2, .sampled = 8};
  options.kill_in = 1;
  options.second_in = 0;
  options.explore_create = true;
  return options;
}

// Four operations on each of four keys, of which two are present.
std::vector<Op> alphabet(const std::uint64_t (&keys)[4]) {
  std::vector<Op> ops;
  for (const std::uint64_t key : keys) {
    for (const OpKind kind : {OpKind::insert, OpKind::upsert, OpKind::update, OpKind::erase}) {
      const bool valued = kind != OpKind::erase;
      ops.push_back({kind, integer_key(key),
                     valued ? word(key << 8 | static_cast<std::uint64_t>(kind)) : std::string()});
    }
  }
  return ops;
}

// The starts of short sequences: a full leaf, leaves of one entry each, used and freed blocks, an
// empty map.
struct Start {
  std::string name;
  std::vector<Op> prepare;
  std::vector<Op> alphabet;
};
std::vector<Start> starts() {
  std::vector<Op> full, sparse;
  for (const std::uint64_t key : {10, 20, 30, 40}) full.push_back(put(key, word(key)));
  for (std::uint64_t key = 10; key <= 140; key += 10) sparse.push_back(put(key, word(key)));
  for (std::uint64_t key = 10; key <= 140; key += 10) {
    if (key != 20 && key != 60 && key != 140) sparse.push_back(erase(key));
  }
  return {{"full", full, alphabet({20, 40, 25, 50})},
          {"sparse", sparse, alphabet({20, 60, 140, 65})},
          {"recycled", churn(14, 1), alphabet({1, 2, 3, 4})},
          {"empty", {}, alphabet({0, 1, ~std::uint64_t{0}, ~std::uint64_t{0} - 1})}};
}

// `base`: the subject, its start, and the enumeration of points.
void add_sequences(std::vector<Exploration>& out, const Exploration& base,
                   const std::vector<Op>& alphabet, std::size_t length) {
  for (std::size_t first = 0; first < alphabet.size(); ++first) {
    Exploration e = base;
    e.name = "sequences." + base.name + "." + std::to_string(first);
    e.workloads = sequences(alphabet, first, length);
    e.repeated = false;
    e.options.explore_create = false;
    e.options.second_in = 400;
    e.options.kill_in = 200;
    out.push_back(std::move(e));
  }
}

// Headers and records are many torn lines at every step. Every sequence judges a sample of them.
ExploreOptions sampled(ExploreOptions options, std::vector<Op> prepare) {
  options.limits = {.product = 32, .random = 4, .sampled = 24};
  options.second_limits = {.product = 16, .random = 4, .sampled = 16};
  options.prepare = std::move(prepare);
  return options;
}

ExploreOptions any_order(ExploreOptions options) {
  options.tear_partial_copies = true;
  return options;
}

SubjectFactory synthetic(const SyntheticRules& rules = {}, SimMedium medium = SimMedium::line) {
  return [=] { return std::make_unique<SyntheticSubject>(rules, kTinyShape, medium); };
}

}  // namespace

std::optional<Preset> parse_preset(std::string_view name) {
  for (const Preset preset : {Preset::fast, Preset::figures, Preset::nightly}) {
    if (name == kPresets[static_cast<int>(preset)]) return preset;
  }
  return std::nullopt;
}

ExploreOptions options_of(Preset preset) {
  ExploreOptions options{.capacity = kCapacity,
                         .limits = {.product = 4096, .random = 64, .sampled = 256},
                         .second_limits = {.product = 64, .random = 16, .sampled = 64},
                         .battery = 200,
                         .second_in = 150,
                         .kill_in = 40,
                         .third_in = 300,
                         .store_points = true};
  if (preset == Preset::fast) {
    options.limits = {.product = 48, .random = 4, .sampled = 20};
    options.second_limits = {.product = 16, .random = 2, .sampled = 6};
  }
  if (preset == Preset::nightly) {
    options.second_limits = {.product = 256, .random = 16, .sampled = 64};
  }
  return options;
}

Exploration random_one(std::string name, SubjectFactory factory, OpSource source,
                       ExploreOptions options, std::size_t operations) {
  return {.name = std::move(name),
          .factory = std::move(factory),
          .source = std::move(source),
          .options = std::move(options),
          .operations = operations};
}
Exploration directed_one(std::string name, SubjectFactory factory, OpSource source,
                         ExploreOptions options, std::vector<Op> workload) {
  return {.name = std::move(name),
          .factory = std::move(factory),
          .source = std::move(source),
          .options = std::move(options),
          .workloads = {std::move(workload)},
          .repeated = false};
}

ExploreReport run_exploration(const Exploration& e, const std::string& name, std::uint64_t seed) {
  ExploreOptions options = e.options;
  options.name = name;
  options.seed = seed;
  Explorer explorer(e.factory, e.source, options);
  if (!e.workloads.empty()) return explorer.run_all(e.workloads);
  return explorer.run(random_workload(e.source, seed, e.operations));
}

std::vector<Exploration> beside_background(const EngineUnderTest& engine,
                                           std::vector<Exploration> all) {
  if (!engine.background) return all;
  for (Exploration& e : all) {
    e.source = beside_background(std::move(e.source));
    e.options.prepare = beside_background(e.options.prepare);
    for (std::vector<Op>& ops : e.workloads) ops = beside_background(ops);
  }
  return all;
}

std::vector<std::vector<Op>> sequences(const std::vector<Op>& alphabet, std::size_t first,
                                       std::size_t length) {
  std::vector<std::vector<Op>> all{{alphabet[first]}};
  for (std::size_t begin = 0; length > 1; --length) {
    const std::size_t end = all.size();
    for (; begin < end; ++begin) {
      for (const Op& op : alphabet) {
        std::vector<Op> longer = all[begin];
        longer.push_back(op);
        all.push_back(std::move(longer));
      }
    }
  }
  return all;
}

std::vector<Exploration> heap_explorations(Preset preset) {
  const ExploreOptions options = options_of(preset);
  const SyntheticRules fast_sweep{.marks_per_step = 40};
  ExploreOptions full_disk = options;
  full_disk.disk_limit = 60 << 10;
  std::vector<Exploration> all{
      random_one("blocks", synthetic(), synthetic_op, options, pick(preset, 30, 60, 120)),
      random_one("runs", synthetic(fast_sweep), run_op, options, pick(preset, 25, 30, 100)),
      random_one("any_order", synthetic(fast_sweep), synthetic_op, any_order(options),
                 pick(preset, 10, 20, 60)),
      random_one("page", synthetic(fast_sweep, SimMedium::page), run_op, options,
                 pick(preset, 20, 40, 100)),
      random_one("full", synthetic(fast_sweep), run_op, full_disk, pick(preset, 20, 40, 80)),
      random_one("killed", synthetic(), synthetic_op, killed(options, preset),
                 pick(preset, 8, 16, 30)),
      random_one("long", synthetic(fast_sweep), synthetic_op,
                 thinned(options, preset == Preset::figures ? 16 : 8),
                 pick(preset, 100, 1000, 1000)),
  };
  std::vector<Op> blocks;
  for (const std::uint64_t key : {1, 2, 3, 4}) {
    for (const std::size_t bytes : {5, 300, 9000}) {
      blocks.push_back({OpKind::upsert, integer_key(key), std::string(bytes, 'b')});
    }
    blocks.push_back({OpKind::erase, integer_key(key), {}});
  }
  const std::vector<Op> prepare{put(1, std::string(300, 'p')), put(2, std::string(9000, 'q'))};
  if (preset == Preset::nightly) {
    all.push_back(directed_one("batch", synthetic(fast_sweep), synthetic_op, thinned(options, 400),
                               random_workload(synthetic_op, 77, 2600)));
  }
  add_sequences(all,
                {.name = "blocks",
                 .factory = synthetic(fast_sweep),
                 .source = synthetic_op,
                 .options = sampled(options, prepare)},
                blocks, pick(preset, 1, 2, 3));
  return all;
}

namespace {

void add_resizes(std::vector<Exploration>& out, const EngineUnderTest& engine,
                 const ExploreOptions& options, std::size_t n) {
  MapSetup small{.values = ValueKind::bytes};  // full after a few operations
  small.shape.max_bytes = 96 << 10;
  MapSetup paged = small;
  paged.medium = SimMedium::page;
  out.push_back(directed_one("resize", engine.subjects(KeyKind::integer, small), integer_record_op,
                             options, resized(n, 6000)));
  out.push_back(directed_one("resize_page", engine.subjects(KeyKind::integer, paged),
                             integer_record_op, options, resized(n, 6000)));
}

// Batches between single mutations, in maps of all kinds, and where space is short. The record of a
// batch is many lines behind one fence, and a replay has as many points as the batch. Therefore few
// images of each point, and a sample of the points of second runs.
ExploreOptions batched(ExploreOptions options, Preset preset, std::uint32_t cost) {
  const auto images = static_cast<std::uint32_t>(pick(preset, 8, 16, 64));
  options.limits = {.product = 2 * images, .random = 2, .sampled = images};
  options.second_limits = {.product = 8, .random = 2, .sampled = 4};
  options.second_in = 200;
  options.second_points_in = 5 + 2 * cost;
  return options;
}

void add_batches(std::vector<Exploration>& all, const EngineUnderTest& engine, Preset preset) {
  const ExploreOptions options = options_of(preset);
  ExploreOptions full_disk = options;
  full_disk.disk_limit = 60 << 10;
  const MapSetup words{};
  const MapSetup records{.values = ValueKind::bytes};
  const std::size_t groups = pick(preset, 7, engine.image_cost > 3 ? 7 : 20, 40);
  const auto add = [&](const char* name, KeyKind keys, const MapSetup& setup, OpSource source,
                       const ExploreOptions& how, std::size_t n) {
    all.push_back(random_one(name, engine.subjects(keys, setup), batches(std::move(source), 6),
                             batched(how, preset, engine.image_cost), n));
  };
  ExploreOptions crowded = full_disk;
  crowded.disk_limit = 200 << 10;
  const MapSetup three{.values = ValueKind::bytes, .maps = 3};
  add("batches", KeyKind::integer, words, integer_op, options, groups);
  add("batches_bytes", KeyKind::bytes, records, bytes_op, options, groups);
  add("batches_maps", KeyKind::integer, three, on_three_maps(), options, groups);
  add("batches_page", KeyKind::integer, {.medium = SimMedium::page}, integer_op, options, groups);
  add("batches_full", KeyKind::integer, records, large_record_op, full_disk, groups);
  add("batches_full_maps", KeyKind::integer, three, mixed_sizes_op, crowded, groups);
  add("batches_copied", KeyKind::integer, {.sync_at_close = false, .old_words = true},
      reopening(integer_op, 2), options, groups);
  if (engine.pieces) {
    add("batches_pieces", KeyKind::integer, {.piece = 2}, integer_op, options, groups);
    add("batches_pieces_bytes", KeyKind::bytes, {.values = ValueKind::bytes, .piece = 1}, bytes_op,
        options, groups);
    add("batches_pieces_words", KeyKind::bytes, {.piece = 2}, bytes_word_op, options, groups);
  }
  add("batches_killed", KeyKind::integer, words, integer_op, killed(options, preset),
      pick(preset, 5, 10, 20));
}

// For pools that promise nothing after a power failure.
ExploreOptions of_processes(ExploreOptions options) {
  options.process_mode = true;
  options.explore_create = false;
  options.second_in = options.kill_in = 0;
  return options;
}

}  // namespace

std::vector<Exploration> pool_explorations(const EngineUnderTest& engine, Preset preset) {
  ExploreOptions options = options_of(preset);
  // A header is eight torn lines, and every recovery writes two. Therefore fewer runs, and fewer
  // images of each.
  const auto images = static_cast<std::uint32_t>(pick(preset, 16, 16, 64));
  options.second_limits = {.product = images, .random = images / 4, .sampled = images};
  options.second_in = 600;
  options.kill_in = 80;
  options.third_in = 1500;
  const MapSetup three{.values = ValueKind::bytes, .maps = 3};
  MapSetup paged = three;
  paged.medium = SimMedium::page;
  const MapSetup records{.values = ValueKind::bytes};
  MapSetup paged_records = records;
  paged_records.medium = SimMedium::page;
  MapSetup weak{.values = ValueKind::bytes, .mode = Durability::process};
  MapSetup unsynced = weak;
  unsynced.sync_at_close = false;
  const ExploreOptions process = of_processes(options);
  ExploreOptions full_disk = options;
  full_disk.disk_limit = 60 << 10;
  ExploreOptions large = options;  // values of 24 lines, torn at every step
  if (preset == Preset::figures) large.limits.sampled = 96;
  const auto maps = [&](const MapSetup& setup) { return engine.subjects(KeyKind::integer, setup); };
  const std::size_t n = pick(preset, 20, 20, 80);
  std::vector<Exploration> all{
      random_one("random", maps(three), on_three_maps(), options, n),
      random_one("page", maps(paged), on_three_maps(), options, n),
      random_one("any_order", maps(three), on_three_maps(), any_order(options), n / 2),
      random_one("killed", maps(three), on_three_maps(), killed(options, preset),
                 pick(preset, 6, 8, 20)),
      random_one("killed_page", maps(paged), on_three_maps(), killed(options, preset),
                 pick(preset, 6, 8, 20)),
      random_one("full", maps(records), large_record_op, full_disk, n),
      random_one("process", maps(weak), integer_record_op, process, n),
      random_one("unsynced", maps(unsynced), reopening(integer_op), process, n),
      random_one("long", maps(three), on_three_maps(),
                 thinned(options, static_cast<std::uint32_t>(pick(preset, 12, 60, 12))),
                 pick(preset, 100, 1000, 1000)),
      directed_one("growth", maps(records), integer_record_op, large,
                   growth(pick(preset, 12, 16, 30), 1500)),
      directed_one("growth_page", maps(paged_records), integer_record_op, large,
                   growth(pick(preset, 12, 16, 30), 1500)),
      directed_one("shrink", maps(records), integer_record_op, large,
                   shrinking(pick(preset, 8, 10, 20), 1500)),
      directed_one("shrink_page", maps(paged_records), integer_record_op, large,
                   shrinking(pick(preset, 8, 10, 20), 1500)),
  };
  add_batches(all, engine, preset);
  if (preset == Preset::nightly) {
    std::vector<Op> ops;
    for (const Op& op : batch())
      ops.push_back(in_map(static_cast<std::uint8_t>(op.key.back()) % 3, op));
    all.push_back(directed_one("batch", maps(three), on_three_maps(), thinned(options, 200), ops));
  }
  std::vector<Op> steps{
      {OpKind::sync, {}, {}}, {OpKind::compact, {}, {}}, {OpKind::reopen, {}, {}}};
  for (const std::uint64_t map : {0, 1}) {
    for (const std::uint64_t key : {1, 2}) {
      steps.push_back(in_map(map, put(key, std::string(key == 1 ? 20 : 2000, 's'))));
      steps.push_back(in_map(map, erase(key)));
    }
    steps.push_back({OpKind::drop, std::string(1, static_cast<char>(map)), {}});
  }
  const std::vector<Op> prepare{in_map(0, put(1, "one")), in_map(1, put(2, std::string(700, '2')))};
  for (const bool page : {false, true}) {
    add_sequences(all,
                  {.name = page ? "pool_page" : "pool",
                   .factory = maps(page ? paged : three),
                   .source = on_three_maps(),
                   .options = sampled(options, prepare)},
                  steps, pick(preset, 1, page ? 1 : 2, page ? 2 : 3));
  }
  all = affordable(engine, preset, std::move(all));
  // Every point, also where an image costs much: few of them lie within a resize.
  add_resizes(all, engine, large, pick(preset, 12, 12, 16));
  return beside_background(engine, std::move(all));
}

namespace {

// Short sequences with byte-string keys with records and equal first 8 bytes, and with a medium of
// pages. Both start from a full leaf.
void add_other_sequences(std::vector<Exploration>& out, SubjectFactory strings,
                         SubjectFactory paged, const ExploreOptions& options, Preset preset) {
  const std::size_t length = pick(preset, 0, 2, 3);
  if (length == 0) return;
  Exploration bytes{.name = "bytes",
                    .factory = std::move(strings),
                    .source = bytes_op,
                    .options = sampled(options, {})};
  for (const char* key : {"", "ab", "customer:a", "customer:b"}) {
    bytes.options.prepare.push_back({OpKind::upsert, key, std::string(20, 'p')});
  }
  std::vector<Op> ops;
  for (const char* key : {"", "customer:a", "customer:aa", "zebra"}) {
    for (const OpKind kind : {OpKind::insert, OpKind::upsert, OpKind::update, OpKind::erase}) {
      const bool valued = kind != OpKind::erase;
      const std::size_t size = kind == OpKind::update ? 70 : 12;
      ops.push_back({kind, key, std::string(valued ? size : 0, 'v')});
    }
  }
  add_sequences(out, bytes, ops, length);
  const Start full = starts().front();
  Exploration page{.name = "page",
                   .factory = std::move(paged),
                   .source = integer_op,
                   .options = sampled(options, full.prepare)};
  add_sequences(out, page, full.alphabet, length);
}

}  // namespace

std::vector<Exploration> engine_explorations(const EngineUnderTest& engine, Preset preset) {
  const ExploreOptions options = options_of(preset);
  const MapSetup words{};
  const MapSetup records{.values = ValueKind::bytes};
  const MapSetup paged{.medium = SimMedium::page};
  const MapSetup paged_records{.values = ValueKind::bytes, .medium = SimMedium::page};
  ExploreOptions full_disk = options;
  full_disk.disk_limit = 60 << 10;
  full_disk.limits.sampled = static_cast<std::uint32_t>(pick(preset, 20, 32, 128));
  ExploreOptions recovery = options;  // many second and third crashes
  recovery.limits = {.product = 32, .random = 4, .sampled = 24};
  recovery.second_in = static_cast<std::uint32_t>(pick(preset, 8, 8, 16));
  recovery.third_in = 60;
  ExploreOptions thousands =  // keys; some engines' recoveries write them one by one
      thinned(options, static_cast<std::uint32_t>(pick(preset, 2000, 200, 40)));
  thousands.second_points_in = 64;
  const auto integers = [&](const MapSetup& s) { return engine.subjects(KeyKind::integer, s); };
  const auto strings = [&](const MapSetup& s) { return engine.subjects(KeyKind::bytes, s); };
  const std::size_t n = pick(preset, 30, 80, 160);
  // A crash of a group of writes may leave any of its mutations, so its images are many. Where an
  // image costs much, groups are few, and a second crash hits a sample of points.
  const bool costly = engine.image_cost > 3;
  const std::size_t groups = pick(preset, 7, costly ? 7 : 20, 40);
  ExploreOptions grouped = options;
  if (costly) grouped.second_points_in = 2 * engine.image_cost;
  std::vector<Exploration> all{
      random_one("words", integers(words), integer_op, options, n),
      random_one("records", integers(records), integer_record_op, options, n / 2),
      random_one("bytes", strings(records), bytes_op, options, n / 2),
      random_one("bytes_words", strings(words), bytes_word_op, options, n / 2),
      random_one("conditional", integers(words), conditional_op, options, n / 2),
      random_one("conditional_bytes", strings(records), conditional_bytes_op, options, n / 4),
      random_one("many", integers(words), together(integer_op, 4), grouped, 2 * groups),
      random_one("many_bytes", strings(records), together(bytes_op, 4), grouped, groups),
      random_one("many_bytes_words", strings(words), together(bytes_word_op, 4), grouped, groups),
      random_one("any_order", integers(words), integer_op, any_order(options), n / 4),
      random_one("any_order_bytes", strings(records), bytes_op, any_order(options), n / 4),
      random_one("page", integers(paged), integer_op, options, n / 2),
      random_one("page_bytes", strings(paged_records), bytes_op, options, n / 2),
      random_one("reopened", integers(words), reopening(integer_op), options, n / 2),
      random_one("killed", integers(words), integer_op, killed(options, preset),
                 pick(preset, 10, 20, 40)),
      random_one("killed_bytes", strings(records), bytes_op, killed(options, preset),
                 pick(preset, 8, 16, 30)),
      random_one("recovery", integers(words), integer_op, recovery, n / 2),
      random_one("recovery_bytes", strings(records), bytes_op, recovery, pick(preset, 15, 18, 40)),
      random_one("full", integers(records), large_record_op, full_disk, pick(preset, 15, 25, 40)),
      random_one("long", integers(words), integer_op,
                 thinned(options, static_cast<std::uint32_t>(pick(preset, 3, 12, 3))),
                 pick(preset, 200, 1000, 1000)),
      random_one("long_bytes", strings(records), bytes_op,
                 thinned(options, static_cast<std::uint32_t>(pick(preset, 8, 32, 8))),
                 pick(preset, 100, 1000, 1000)),
      directed_one("churn", integers(words), integer_op, options, churn(16, pick(preset, 1, 2, 4))),
      directed_one("batch", integers(words), integer_op, thousands, batch()),
  };
  if (engine.arrays) {
    const auto arrays = [&](const MapSetup& s) { return engine.subjects(KeyKind::array, s); };
    all.push_back(random_one("arrays", arrays(words), integer_op, options, n));
    all.push_back(random_one("page_arrays", arrays(paged), integer_op, options, n / 2));
    all.push_back(random_one("killed_arrays", arrays(words), integer_op, killed(options, preset),
                             pick(preset, 8, 16, 30)));
    all.push_back(random_one("recovery_arrays", arrays(words), integer_op, recovery,
                             pick(preset, 15, 25, 40)));
  }
  add_other_sequences(all, strings(records), integers(paged), options, preset);
  for (const Start& start : starts()) {
    const bool first = start.name == starts().front().name;
    if (preset == Preset::fast && !first) continue;
    Exploration base{
        .name = start.name, .factory = integers(words), .source = integer_op, .options = options};
    base.options.prepare = start.prepare;
    add_sequences(all, base, start.alphabet, first ? pick(preset, 1, 3, 3) : pick(preset, 1, 2, 3));
  }
  for (Exploration& e : engine.directed(preset)) all.push_back(std::move(e));
  return affordable(engine, preset, beside_background(engine, std::move(all)));
}

namespace {

ExploreOptions small_options() {
  ExploreOptions options = options_of(Preset::fast);
  options.battery = 60;
  return options;
}
Exploration small(SubjectFactory factory, OpSource source) {
  return random_one("canary", std::move(factory), std::move(source), small_options(), 60);
}

// A process dies at every point. The next process does not write back the dead one's stores, and
// the power fails in it.
ExploreOptions small_killed() {
  ExploreOptions options = killed(small_options(), Preset::fast);
  options.explore_create = false;
  options.third_in = 0;
  return options;
}

}  // namespace

// A missing write-back, and one in the recovery of an engine that serves at once.
std::vector<PlantedMutant> heap_canaries() {
  return {{"heap.extent.assign:drop_flush", small(synthetic(), synthetic_op)},
          {"pool.settle.extent:drop_flush",
           random_one("canary_killed", synthetic({.marks_per_step = 40}), synthetic_op,
                      small_killed(), 20),
           true}};
}

// A missing write-back; on page media a name that is not synced; and one in the recovery of an
// engine that serves only after recovery.
std::vector<PlantedMutant> pool_canaries(const EngineUnderTest& engine) {
  const MapSetup three{.values = ValueKind::bytes, .maps = 3};
  const MapSetup paged{.values = ValueKind::bytes, .medium = SimMedium::page};
  const auto maps = [&](const MapSetup& setup) { return engine.subjects(KeyKind::integer, setup); };
  std::vector<Exploration> all = beside_background(
      engine, {small(maps(three), on_three_maps()),
               random_one("canary_page", maps(paged), integer_record_op, small_options(), 10),
               random_one("canary_killed", maps({}), integer_op, small_killed(), 20)});
  std::vector<PlantedMutant> canaries{{"pool.root.add:drop_flush", std::move(all[0])},
                                      {"storage.publish:drop_sync", std::move(all[1])}};
  const EngineRow* row = find_engine(engine.engine);
  if (row == nullptr || !row->at_once) {
    canaries.push_back({"pool.open.write_back:drop_flush", std::move(all[2]), true});
  }
  return canaries;
}

std::vector<PlantedMutant> engine_canaries(const EngineUnderTest& engine) {
  const SubjectFactory words = engine.subjects(KeyKind::integer, {});
  return {{engine.planted_bug("integer"),
           std::move(beside_background(engine, {small(words, integer_op)}).front())}};
}

}  // namespace perdure::testing
