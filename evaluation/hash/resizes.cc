// Figure 15: expansion and shrink of level hashing in place, compared with a traditional resize,
// which rehashes every item into a new table (Level-Trad), and with the resize of the other tables.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "bench/workloads/random.h"
#include "evaluation/engine_table.h"
#include "evaluation/figures.h"

namespace perdure::paper {
namespace {

// The media of the latencies, and one that adds no latency to this machine's write-backs.
constexpr Medium kResizeMedia[] = {
    kMedia[0], {"0 ns", FlushMode::cache_line, 0}, kMedia[1], kMedia[2], kMedia[3]};
constexpr std::size_t kResizeMediumCount = std::size(kResizeMedia);

constexpr double kPaperLoad = 0.85;   // the load at which the paper expands
constexpr double kShrinkLoad = 0.30;  // the load at which the paper shrinks

double milliseconds(std::uint64_t begin) { return static_cast<double>(cpu_ns() - begin) / 1e6; }
// Rehashes every item of a table into another. With `move` each item is then deleted from the old
// table, as the paper does.
enum class Rehash : std::uint8_t { copy, move };
double rehash(Table& from, Table& to, Rehash how) {
  const std::uint64_t items = from.items();
  // The callback must not change a map. So the walk over the old table is not in the time.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
  all.reserve(items);
  must(
      from.for_each([&](std::uint64_t key, std::uint64_t value) { all.emplace_back(key, value); }));
  const std::uint64_t begin = cpu_ns();
  for (const auto& [key, value] : all) {
    require(must(to.insert(key, value)), "an item was there before");
    if (how == Rehash::move) require(must(from.erase(key)), "an item is gone");
  }
  const double taken = milliseconds(begin);
  require(to.items() == items && from.items() == (how == Rehash::move ? 0 : items),
          "a rehash lost items");
  return taken;
}

struct Resize {
  double load = 0;
  // Milliseconds: in place, and by full rehashes.
  double in_place = 0;
  double copied = 0;
  double moved_all = 0;
  // Shares of all that the resize in place rehashed and moved.
  double buckets = 0;
  double moved = 0;
};

// A table of level hashing that is resized, and on the same heap the tables that a full rehash of
// its items makes.
class Level {
 public:
  Level(const Options& options, const Medium& medium)
      : ground_(options),
        medium_(medium),
        log_buckets_(options.log_slots - 5),  // a quarter: it grows twice
        table_(must(LevelTable<>::make(ground_.memory, Resizer::caller, log_buckets_))) {}

  LevelTable<>& table() noexcept { return *table_; }
  double load() { return table_->stats().load_factor; }
  // Fills the table up to `items`. Returns false if it grew meanwhile.
  bool fill(std::uint64_t items) {
    const std::uint64_t slots = table_->slots();
    use(ground_.memory, kMedia[0]);
    for (; count_ < items; ++count_) {
      require(must(table_->insert(bench::mix64(count_), count_)), "a key was there before");
    }
    return table_->slots() == slots;
  }
  void fill_to_load(double load) { require(fill(items_at(load)), "the table grew too early"); }
  void erase_to_load(double load) {
    use(ground_.memory, kMedia[0]);
    const std::uint64_t all = count_;
    const std::uint64_t left = items_at(load);
    for (std::uint64_t i = 0; count_ > left; ++i, --count_) {
      require(must(table_->erase(bench::mix64(scatter(i, all)))), "a key is missing");
    }
  }
  Resize expand() {
    return resize(1, [&] { must(table_->expand()); });
  }
  Resize shrink() {
    return resize(-1, [&] { require(must(table_->shrink()), "it did not shrink"); });
  }
  // Fills the table until it grows. Returns how many items another table of this size, with other
  // seeds, holds before it grows: slightly fewer, and the difference is larger for small tables.
  std::uint64_t grow() {
    const std::uint64_t slots = table_->slots();
    while (table_->slots() == slots) fill(count_ + 64);
    table_->settle();
    ++log_buckets_;
    const auto items = static_cast<double>(table_->stats().resizes.end()[-1].entries);
    return static_cast<std::uint64_t>(items * (0.98 - 4 / std::sqrt(static_cast<double>(slots))));
  }

 private:
  std::unique_ptr<LevelTable<>> new_table() {
    return must(LevelTable<>::make(ground_.memory, Resizer::thread, log_buckets_));
  }
  std::uint64_t items_at(double load) {
    return static_cast<std::uint64_t>(load * static_cast<double>(table_->slots()));
  }
  template <class F>
  Resize resize(int step, F&& in_place) {
    Resize out{.load = load()};
    const std::uint64_t buckets = table_->slots() / LevelTable<>::Engine::kSlots;
    const auto old_one = new_table();
    log_buckets_ = static_cast<std::uint32_t>(static_cast<int>(log_buckets_) + step);
    use(ground_.memory, kMedia[0]);
    (void)rehash(*table_, *old_one, Rehash::copy);
    use(ground_.memory, medium_);
    out.copied = rehash(*table_, *new_table(), Rehash::copy);
    out.moved_all = rehash(*old_one, *new_table(), Rehash::move);
    const std::uint64_t begin = cpu_ns();
    in_place();
    out.in_place = milliseconds(begin);
    require(table_->items() == count_, "a resize lost items");
    const EngineStats stats = table_->stats();
    const ResizeStats& last = stats.resizes.end()[-1];
    out.buckets = static_cast<double>(last.buckets) / static_cast<double>(buckets);
    out.moved = static_cast<double>(last.moved) / static_cast<double>(last.entries);
    return out;
  }

  Ground ground_;
  Medium medium_;
  std::uint32_t log_buckets_;
  std::unique_ptr<LevelTable<>> table_;
  std::uint64_t count_ = 0;
};

enum Case : std::uint8_t { first, later, emptier, shrink, kCases };
constexpr const char* kCaseNames[kCases] = {"first expansion, full", "second expansion, full",
                                            "first expansion, the paper's load",
                                            "shrink, the paper's load"};
constexpr const char* kPaperRatios[kCases] = {"-", "-", "over 4.3", "over 1.4"};

using Cases = std::array<std::vector<Resize>, kCases>;

// `full`: the numbers of items at which the first expansions nearly begin.
void run_level(const Options& options, const Medium& medium,
               const std::array<std::uint64_t, 2>& full, Cases& cases) {
  {
    Level level(options, medium);
    for (const Case which : {first, later}) {
      require(level.fill(full[which]), "the table grew too early");
      cases[which].push_back(level.expand());
    }
    must_be_sound(level.table());
  }
  Level level(options, medium);
  level.fill_to_load(kPaperLoad);
  cases[emptier].push_back(level.expand());
  level.fill_to_load(kPaperLoad);
  level.erase_to_load(kShrinkLoad);
  cases[shrink].push_back(level.shrink());
  must_be_sound(level.table());
}

// Returns the run with the median ratio.
const Resize& median_of(std::vector<Resize>& runs) {
  std::ranges::sort(runs, {}, [](const Resize& r) { return r.copied / r.in_place; });
  return runs[runs.size() / 2];
}

// Returns the milliseconds in which a table of another scheme, at a load, rehashes its items into a
// new one.
double run_other(const Scheme& scheme, const Options& options, const Medium& medium, bool smaller) {
  Ground ground(options);
  const std::uint32_t log_slots = options.log_slots - 2 + (smaller ? 1 : 0);
  const auto table = must(scheme.make(ground.memory, log_slots));
  const double slots = static_cast<double>(table->slots());
  const auto items = static_cast<std::uint64_t>((smaller ? kShrinkLoad : kPaperLoad) * slots);
  for (std::uint64_t n = 0; n < items; ++n) must(table->insert(bench::mix64(n), n));
  use(ground.memory, medium);
  const auto other = must(scheme.make(ground.memory, log_slots + (smaller ? -1 : 1)));
  const double taken = rehash(*table, *other, Rehash::copy);
  must_be_sound(*other);
  return taken;
}

void print_level(std::array<Cases, kResizeMediumCount>& results, Report& report) {
  report.heading("Resizes of level, in place and by a full rehash (figure 15)",
                 {"write-back", "resize", "load", "in place ms", "by copies ms", "ratio",
                  "by moves ms", "ratio", "the paper", "buckets rehashed", "items moved"});
  for (std::size_t m = 0; m < kResizeMediumCount; ++m) {
    for (std::size_t c = 0; c < kCases; ++c) {
      const Resize& r = median_of(results[m][c]);
      report.row({c == 0 ? kResizeMedia[m].name : "", kCaseNames[c], fmt::format("{:.3f}", r.load),
                  fmt::format("{:.1f}", r.in_place), fmt::format("{:.1f}", r.copied),
                  fmt::format("{:.2f}", r.copied / r.in_place), fmt::format("{:.1f}", r.moved_all),
                  fmt::format("{:.2f}", r.moved_all / r.in_place), kPaperRatios[c],
                  fmt::format("{:.3f}", r.buckets), fmt::format("{:.3f}", r.moved)});
    }
  }
}

void print_others(const Options& options, Report& report) {
  report.heading("Full rehash of the others by copies, in ms (figure 15)",
                 {"write-back", "table", "expansion at 0.85", "shrink at 0.30"});
  for (const Medium& medium : kResizeMedia) {
    for (const Scheme& scheme : baselines()) {
      report.row({&scheme == baselines().data() ? medium.name : "", scheme.name,
                  fmt::format("{:.1f}", run_other(scheme, options, medium, false)),
                  fmt::format("{:.1f}", run_other(scheme, options, medium, true))});
    }
  }
}

}  // namespace

void resizes(const Options& options, Report& report) {
  Level probe(options, kMedia[0]);
  std::array<std::uint64_t, 2> full;
  for (std::uint64_t& items : full) items = probe.grow();
  std::array<Cases, kResizeMediumCount> results;
  for (std::uint32_t run = 0; run < options.runs; ++run) {
    for (std::size_t m = 0; m < kResizeMediumCount; ++m) {
      run_level(options, kResizeMedia[m], full, results[m]);
    }
  }
  print_level(results, report);
  print_others(options, report);
}

}  // namespace perdure::paper
