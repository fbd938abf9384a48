// test: injects, no asan, each engine
// The k-th failure of every allocation and system call, for k = 1, 2, .. until no call fails any
// more: alone, and with all later ones. Each library call returns a status. None ends the process,
// throws an exception or returns a wrong result. A reopen without faults finds every acknowledged
// entry, and no leak.
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <map>
#include <new>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/support/any_map.h"
#include "tests/support/inject.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;
constexpr std::size_t kTogether = 16;  // mutations of a write_many()
constexpr std::uint64_t kOfBatch = 6;  // puts of a batch, into each map

// The child's reports to its parent, in memory that outlives the child.
struct Shared {
  std::uint64_t k;
  std::uint64_t points;
  char message[400];
};

enum class Scene : std::uint8_t {
  create,   // a new pool
  recover,  // the pool of a process that died
  reopen,   // a pool that was closed
};
const char* scene_name(Scene scene) {
  return scene == Scene::create ? "create" : scene == Scene::recover ? "recover" : "reopen";
}

struct Case {
  Scene scene;
  Durability durability;
};

constexpr Case kScenes[] = {
    {Scene::create, Durability::process},   {Scene::recover, Durability::process},
    {Scene::reopen, Durability::process},   {Scene::create, Durability::emulated},
    {Scene::recover, Durability::emulated}, {Scene::reopen, Durability::emulated},
    {Scene::create, Durability::power},     {Scene::recover, Durability::power},
    {Scene::reopen, Durability::power}};

class Session {
 public:
  Session(const std::string& path, const Case& parameters, Fault fault, bool sticky)
      : path_(path), parameters_(parameters), fault_(fault), sticky_(sticky) {}

  PoolOptions options() const {
    return {.durability = parameters_.durability,
            .max_size = 4_MiB,
            .recovery_threads = fault_ == Fault::thread ? 3U : 1U};
  }
  // Page media need an msync per operation. On other disks few of the faults are taken: the pool
  // must grow often enough, whatever space an engine needs per entry.
  std::uint64_t size() const {
    if (parameters_.durability == Durability::power) return 30;
    return parameters_.durability == Durability::emulated ? 800 : 400;
  }

  // Makes the content that the faults meet, without faults.
  void prepare() {
    if (parameters_.scene == Scene::create) return;
    fill();
    const ChildEnd end = run_child([this] {
      Pool pool = must(Pool::open(path_, options()));
      auto numbers = must(pool.map<std::uint64_t, std::uint64_t>("numbers", maps()));
      auto texts = must(pool.map<Bytes, Bytes>("texts", maps()));
      for (const auto& [key, value] : numbers_)
        require(was_absent(numbers.insert(key, value)), "insert");
      for (const auto& [key, value] : texts_)
        require(was_absent(texts.insert(key, value)), "insert");
      if (parameters_.scene == Scene::recover) _exit(0);
      must(pool.close());
    });
    require(end.ok(), "the preparation failed");
  }

  // Calls everything once, with faults armed.
  void run() {
    auto pool = call("open", [&] { return Pool::open(path_, options()); });
    if (!pool) return;
    {
      auto numbers =
          call("map", [&] { return pool->map<std::uint64_t, std::uint64_t>("numbers", maps()); });
      auto texts = call("map", [&] { return pool->map<Bytes, Bytes>("texts", maps()); });
      if (numbers) mutate_numbers(*numbers);
      if (texts) mutate_texts(*texts);
      if (numbers && texts) commit(*pool, *numbers, *texts);
      (void)call("check", [&] { return pool->check({.deep = true}); });
      if (numbers) read_numbers(*numbers);
      if (texts) read_texts(*texts);
      if (texts && chosen_engine().ordered) scan_texts(*pool);
      if (numbers) {
        (void)call("untyped_map", [&] { return pool->untyped_map("numbers"); });
        (void)call("stats", [&] { return Expected<MapStats>(numbers->stats()); });
      }
    }
    (void)call("list", [&] { return pool->list(); });
    (void)call("info", [&] { return pool->info(); });
    (void)call("stats", [&] { return pool->stats(); });
    (void)call("inspect", [&] { return Pool::inspect(path_); });
    (void)call("run_background", [&] { return pool->run_background(); });
    auto third =
        call("map", [&] { return pool->map<std::uint64_t, std::uint64_t>("third", maps()); });
    if (third) {
      third = fail(StatusCode::not_found);  // a dropped map's views are dead
      (void)call("drop", [&] { return pool->drop("third"); });
    }
    (void)call("sync", [&] { return pool->sync(); });
    (void)call("compact", [&] { return pool->compact(); });
    (void)call("close", [&] { return pool->close(); });
    pool = fail(StatusCode::not_found);  // a store opens the file itself
    if (parameters_.scene != Scene::create || poisoned_) return;
    (void)call("store", [&] {
      return Store::open(
          path_, {.map_name = "a name that needs an allocation", .map = maps(), .pool = options()});
    });
  }

  // Runs without faults. A pool whose creation failed is absent, or empty.
  void verify() {
    auto pool = Pool::open(path_, options());
    require(pool.has_value(), "reopen: " + (pool ? "" : describe(pool.error())));
    auto numbers = must(pool->map<std::uint64_t, std::uint64_t>("numbers", maps()));
    auto texts = must(pool->map<Bytes, Bytes>("texts", maps()));
    must(numbers.for_each([&](std::uint64_t key, std::uint64_t value) {
      if (number_doubts_.contains(key)) return;
      require(numbers_.contains(key), "a number came back that is not acknowledged");
      require(numbers_.at(key) == value, "a number's value is wrong after reopen");
    }));
    for (const auto& [key, value] : numbers_) {
      require(number_doubts_.contains(key) || must(numbers.get(key)) == std::optional(value),
              "an acknowledged number is lost: " + std::to_string(key));
    }
    for (const auto& [key, value] : texts_) {
      require(text_doubts_.contains(key) || must(texts.get(key)) == std::optional(value),
              "an acknowledged text is lost: " + key);
    }
    std::uint64_t of_batch = 0;
    for (std::uint64_t i = 0; i < kOfBatch; ++i) {
      of_batch += numbers.contains(number_of_batch(i)).present() ? 1 : 0;
      of_batch += texts.contains(text_of_batch(i)).present() ? 1 : 0;
    }
    require(of_batch == 0 || of_batch == 2 * kOfBatch, "a batch is there in part");
    require(!batch_ || (of_batch != 0) == *batch_, "a batch is lost, or came back");
    auto report = must(pool->check({.deep = true}));
    require(report.ok(), "check: " + std::string(report.first()));
    require(report.leaked_blocks == 0, std::to_string(report.leaked_blocks) + " blocks leaked");
    require(was_absent(numbers.put(7, 7)), "upsert after reopen");
    must(pool->close());
  }

 private:
  static MapOptions maps() {
    return {.engine = chosen_engine().engine, .phast = {.partition_bits = 1}};
  }

  void fill() {
    for (std::uint64_t i = 0; i < size() / 2; ++i) {
      numbers_[mix(i)] = i;
      texts_["old:" + std::to_string(i)] = std::string(i % 200, 'o');
    }
  }

  // Makes one library call under faults. Its status must be a documented one.
  template <class F>
  std::invoke_result_t<F&> call(const char* what, F&& body) {
    const std::uint64_t before = faults_fired();
    const std::uint64_t before_here = faults_fired_here();
    try {
      auto result = [&] {
        const Armed armed;
        return body();
      }();
      const bool here = faults_fired_here() != before_here;
      judge(what, code_of(result), faults_fired() != before, here);
      if (code_of(result) == StatusCode::ok && here) {
        require(!must_show(what), std::string(what) + " hides a failed " + fault_name(fault_));
      }
      return result;
    } catch (const std::bad_alloc&) {
      throw std::runtime_error(std::string("an exception came out of ") + what);
    }
  }

  // Whether a call must return an error if this failure happens in it. Growth may fail beside an
  // operation that finds room: the table would only prefer to be larger. Reports leave out what
  // they cannot find out.
  bool must_show(std::string_view what) const {
    static constexpr Fault kShown[] = {Fault::mmap,  Fault::fallocate, Fault::fdatasync,
                                       Fault::fsync, Fault::open,      Fault::lock,
                                       Fault::link};
    return sticky_ && std::ranges::find(kShown, fault_) != std::end(kShown) && !is_report(what);
  }
  // Calls that report content. The last one opens an existing map.
  static bool is_report(std::string_view what) {
    static constexpr std::string_view kReports[] = {"check",          "list",       "info",
                                                    "stats",          "inspect",    "untyped_map",
                                                    "run_background", "ordered_map"};
    return std::ranges::find(kReports, what) != std::end(kReports);
  }

  // `fired`: in any thread; `here`: in this one. If a background failure happens during a call that
  // succeeds, a later call reports it. Calls that wait for the background must report it.
  void judge(const char* what, StatusCode code, bool fired, bool here) {
    if (code == StatusCode::ok) {
      const bool report = is_report(what);  // acknowledges nothing
      require(!poisoned_ || report, std::string(what) + " was acknowledged after a failed msync");
      const bool waits = std::string_view(what) == "sync" || std::string_view(what) == "close";
      require(!(waits ? fired : here) || fault_ != Fault::msync || report,
              std::string(what) + " hides a failed msync");
    } else {
      static constexpr StatusCode kExpected[] = {StatusCode::out_of_memory, StatusCode::io,
                                                 StatusCode::pool_full, StatusCode::poisoned};
      // `power` is refused if the medium cannot be determined.
      const bool untold = code == StatusCode::unsupported &&
                          (fault_ == Fault::fstat || fault_ == Fault::statfs) &&
                          parameters_.durability == Durability::power;
      require(untold || std::find(std::begin(kExpected), std::end(kExpected), code) !=
                            std::end(kExpected),
              std::string(what) + " returns " + status_code_name(code));
      require(faults_fired() != 0, std::string(what) + " fails without a fault");
    }
    poisoned_ = poisoned_ || (fired && fault_ == Fault::msync);
  }
  // A failure for lack of space or memory means that nothing was done. Other failures leave it
  // open.
  static bool undone(StatusCode code) {
    return code == StatusCode::out_of_memory || code == StatusCode::pool_full;
  }

  // The last quarter goes by in calls of write_many().
  void mutate_numbers(Map<std::uint64_t, std::uint64_t>& map) {
    const std::uint64_t alone = size() * 3 / 4;
    for (std::uint64_t i = 0; i < alone; ++i) mutate_number(map, number_write(i));
    std::vector<Mutation<std::uint64_t, std::uint64_t>> together;
    for (std::uint64_t i = alone; i < size(); ++i) {
      together.push_back(number_write(i));
      if (together.size() < kTogether && i + 1 < size()) continue;
      write_many(map, together, [&](const auto& write, StatusCode code, bool present) {
        settle(write, code, present, numbers_, number_doubts_);
      });
      together.clear();
    }
  }
  static Mutation<std::uint64_t, std::uint64_t> number_write(std::uint64_t i) {
    const MutationKind kind = i % 5 == 4   ? MutationKind::erase
                              : i % 5 == 3 ? MutationKind::update
                                           : MutationKind::put;
    return {.kind = kind, .key = mix(i), .value = i * 1'000};
  }
  // An update of a key whose value is known is conditional.
  void mutate_number(Map<std::uint64_t, std::uint64_t>& map,
                     const Mutation<std::uint64_t, std::uint64_t>& write) {
    const auto [kind, key, value] = write;
    const auto known = numbers_.find(key);
    if (kind == MutationKind::update && known != numbers_.end() && !number_doubts_.contains(key)) {
      const std::uint64_t before = known->second;
      auto done = call("a mutation", [&] { return map.compare_exchange(key, before, value); });
      require(!done.refused(), "compare_exchange is wrong about its key");
      return settle(write, code_of(done), done.exchanged(), numbers_, number_doubts_);
    }
    auto done = call("a mutation", [&] {
      return kind == MutationKind::erase    ? map.erase(key)
             : kind == MutationKind::update ? map.update(key, value)
                                            : map.put(key, value);
    });
    settle(write, code_of(done), done.present(), numbers_, number_doubts_);
  }

  // Two thirds alone, and the rest in calls of write_many().
  void mutate_texts(Map<Bytes, Bytes>& map) {
    const std::uint64_t count = size() / 2, alone = count * 2 / 3;
    std::deque<std::string> held;
    std::vector<Mutation<Bytes, Bytes>> together;
    for (std::uint64_t i = 0; i < count; ++i) {
      // One of them has extents of its own, and is erased: there is space to give back.
      constexpr std::uint64_t kLarge = 21;
      const bool erases = i % 7 == 6;
      const std::uint64_t number = i == 2 * kLarge + 6 ? kLarge : i;
      held.push_back((number % 2 == 0 ? "old:" : "new:") + std::to_string(number));
      const Bytes key = held.back();
      held.emplace_back(i == kLarge ? 100'000 : i % 300, 'n');
      const Bytes value = held.back();
      const Mutation<Bytes, Bytes> write{
          .kind = erases ? MutationKind::erase : MutationKind::put, .key = key, .value = value};
      if (i < alone) {
        auto done =
            call("a mutation", [&] { return erases ? map.erase(key) : map.put(key, value); });
        settle(write, code_of(done), done.present(), texts_, text_doubts_);
        continue;
      }
      together.push_back(write);
      if (together.size() < kTogether && i + 1 < count) continue;
      write_many(map, together, [&](const auto& one, StatusCode code, bool present) {
        settle(one, code, present, texts_, text_doubts_);
      });
      together.clear();
    }
  }

  // New keys of both maps, all or none of them. An error other than undone() leaves it open.
  static std::uint64_t number_of_batch(std::uint64_t i) { return mix(i) ^ 0x5A5A; }
  static std::string text_of_batch(std::uint64_t i) { return "batch:" + std::to_string(i); }
  void commit(Pool& pool, Map<std::uint64_t, std::uint64_t>& numbers, Map<Bytes, Bytes>& texts) {
    WriteBatch batch;
    for (std::uint64_t i = 0; i < kOfBatch; ++i) {
      batch.put(numbers, number_of_batch(i), i);
      batch.put(texts, text_of_batch(i), std::string(i * 100, 'b'));
    }
    const Status s = call("a batch", [&] { return pool.commit(batch); });
    batch_.reset();
    if (s.ok() || undone(s.code())) batch_ = s.ok();
    for (std::uint64_t i = 0; i < kOfBatch; ++i) {
      if (!batch_) number_doubts_.insert(number_of_batch(i));
      if (s.ok()) numbers_[number_of_batch(i)] = i;
    }
  }

  // Calls done(write, code, present) for each mutation.
  template <class K, class V, class F>
  void write_many(Map<K, V>& map, const std::vector<Mutation<K, V>>& writes, F&& done) {
    std::vector<std::pair<StatusCode, bool>> results(writes.size());
    std::size_t ended = 0;
    const Status s = call("a mutation", [&] {
      return map.write_many(writes, [&](std::size_t i, const Found& found) {
        results[i] = {found.status().code(), found.present()};
        ended += i == ended ? 1 : 0;
      });
    });
    require(ended == writes.size(), "write_many has left out a mutation");
    const bool ok = std::ranges::all_of(
        results, [](const auto& result) { return result.first == StatusCode::ok; });
    require(s.ok() == ok, "write_many hides a failure");
    for (std::size_t i = 0; i < writes.size(); ++i) {
      done(writes[i], results[i].first, results[i].second);
    }
  }

  // Enters the result of a mutation. `doubts`: keys that an error left open.
  template <class Write, class Content, class Doubts>
  void settle(const Write& write, StatusCode code, bool present, Content& content, Doubts& doubts) {
    const typename Content::key_type key(write.key);
    if (code != StatusCode::ok) {
      if (!undone(code)) doubts.insert(key);
      return;
    }
    if (doubts.contains(key)) return;
    const bool was = content.contains(key);
    require(present == was, "a mutation is wrong about its key");
    if (write.kind == MutationKind::erase) {
      content.erase(key);
    } else if (was || write.kind == MutationKind::put) {
      content[key] = typename Content::mapped_type(write.value);
    }
  }

  void read_numbers(Map<std::uint64_t, std::uint64_t>& map) {
    for (std::uint64_t i = 0; i < size(); i += 7) {
      const std::uint64_t key = mix(i);
      std::uint64_t value = 0;
      auto found = call("read", [&] { return map.read(key, [&](std::uint64_t v) { value = v; }); });
      if (!found.ok() || number_doubts_.contains(key)) continue;
      require(found.present() == numbers_.contains(key), "a read is wrong about its key");
      require(found.absent() || value == numbers_.at(key), "a read finds a wrong value");
    }
    std::uint64_t entries = 0;
    auto visited = call(
        "for_each", [&] { return map.for_each([&](std::uint64_t, std::uint64_t) { ++entries; }); });
    require(!visited || !number_doubts_.empty() || entries == numbers_.size(), "for_each is short");
  }

  // Calls that copy.
  void read_texts(Map<Bytes, Bytes>& map) {
    for (std::uint64_t i = 0; i < size() / 2; i += 41) {
      const std::string key = "old:" + std::to_string(i);
      auto found = call("get", [&] { return map.get(key); });
      if (!found || text_doubts_.contains(key)) continue;
      require(found->has_value() == texts_.contains(key), "get is wrong about its key");
      require(!*found || **found == texts_.at(key), "get copies a wrong value");
    }
  }
  // Iterators copy, too; so does the bound of a prefix that is longer than a buffer.
  void scan_texts(Pool& pool) {
    auto map = call("ordered_map", [&] { return pool.ordered_map<Bytes, Bytes>("texts", maps()); });
    if (!map) return;
    const std::string prefix(300, 'p');
    std::uint64_t entries = 0;
    auto scanned = call(
        "scan", [&] { return map->scan({.prefix = prefix}, [&](Bytes, Bytes) { ++entries; }); });
    require(!scanned || entries == 0, "a scan leaves its prefix");
    entries = 0;
    const Status walked = call("iterate", [&] {
      auto it = map->scan({.prefix = "old:"});
      for (; it.valid(); it.next()) ++entries;
      return it.status();
    });
    const auto old = static_cast<std::uint64_t>(std::ranges::count_if(
        texts_, [](const auto& entry) { return entry.first.starts_with("old:"); }));
    require(!walked.ok() || !text_doubts_.empty() || entries == old, "an iterator is short");
  }

  const std::string& path_;
  const Case& parameters_;
  Fault fault_;
  bool sticky_;
  bool poisoned_ = false;
  std::map<std::uint64_t, std::uint64_t> numbers_;
  std::map<std::string, std::string> texts_;
  std::set<std::uint64_t> number_doubts_;  // an error left them open
  std::set<std::string> text_doubts_;
  std::optional<bool> batch_ = false;  // whether it is there; nullopt: an error left that open
};

// Returns whether the k-th call exists.
bool one_run(const std::string& path, const Case& parameters, Fault fault, std::uint64_t k,
             bool sticky) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  Session session(path, parameters, fault, sticky);
  set_fault(Fault::none, 0, false);
  session.prepare();
  set_fault(fault, k, sticky);
  session.run();
  const bool fired = faults_fired() != 0;
  set_fault(Fault::none, 0, false);
  session.verify();
  return fired;
}

// The second of two kinds of scene on a disk, which differ only in the platform's mode.
bool is_twin(const Case& parameters) {
  return parameters.scene != Scene::create && parameters.durability == Durability::emulated;
}

// Disks are slow. There the fast tests take every seventh k, and half of those for twins; the
// nightly ones take each.
std::uint64_t step_of(const Case& parameters) {
  const char* step = std::getenv("PERDURE_FAULT_STEP");
  if (step != nullptr) return std::max<std::uint64_t>(std::strtoull(step, nullptr, 0), 1);
  if (is_twin(parameters)) return 14;
  return parameters.durability == Durability::process ? (san() ? 5 : 1) : 7;
}

// Runs a sweep in a child, which is started again after each k that ends it: one bad k must not
// hide the others.
std::vector<std::string> sweep(const Case& parameters, Fault fault, bool sticky, Shared& shared,
                               const std::string& path) {
  std::vector<std::string> failures;
  const std::uint64_t step = step_of(parameters);
  shared.k = 1;
  for (;;) {
    shared.message[0] = '\0';
    const ChildEnd end = run_child([&] {
      try {
        for (; one_run(path, parameters, fault, shared.k, sticky); shared.k += step) {
          ++shared.points;
        }
      } catch (const std::exception& error) {
        std::snprintf(shared.message, sizeof shared.message, "%s", error.what());
        _exit(1);
      }
    });
    if (end.ok()) return failures;
    failures.push_back(std::string(fault_name(fault)) + " " + std::to_string(shared.k) +
                       (sticky ? " and later" : "") + ": " +
                       (end.exited ? shared.message : "signal " + std::to_string(end.signal)));
    if (failures.size() >= 200) return failures;
    shared.k += step;
    ++shared.points;
  }
}

// After all scenes, each kind of failure must have met a call: this shows that the linker wrapped
// it.
class FaultSweep : public ::testing::TestWithParam<Case> {
 protected:
  static void TearDownTestSuite() {
    int missing = 0;
    for (std::size_t fault = 1; fault < std::size(points); ++fault) {
      const char* name = fault_name(static_cast<Fault>(fault));
      std::printf("faults.kind.%s=%llu\n", name, static_cast<unsigned long long>(points[fault]));
      if (points[fault] != 0) continue;
      ++missing;
      if (scenes_done == std::size(kScenes)) ADD_FAILURE() << name << " never failed";
    }
    std::printf("faults.kinds_missing=%d\n", missing);
  }

  static inline std::uint64_t points[static_cast<std::size_t>(kLastFault) + 1] = {};
  static inline std::size_t scenes_done = 0;
};
std::string case_name(const ::testing::TestParamInfo<Case>& row) {
  return std::string(scene_name(row.param.scene)) + "_" +
         std::string(durability_name(row.param.durability));
}
INSTANTIATE_TEST_SUITE_P(Scenes, FaultSweep, ::testing::ValuesIn(kScenes), case_name);

// `process` runs in memory if there is enough. The others run on the disk of the build folder,
// where syncs have an effect.
std::string pool_path(Durability durability) {
  const char* build = std::getenv("PERDURE_BUILD_DIR");
  const std::filesystem::path disk = build != nullptr ? build : ".";
  return (durability == Durability::process ? scratch_dir() : disk) /
         ("perdure-test-" + std::to_string(getpid()) + "-fault.perdure");
}

// If the build folder cannot guarantee `power`, the test pretends that it is XFS on a disk. The
// library then makes the same calls as on page media, and they fail in the same way.
void pretend_power_if_refused(const std::string& path) {
  const PoolOptions power{.durability = Durability::power, .max_size = 4_MiB};
  auto pool = Pool::open(path, power);
  const bool refused = !pool && pool.error() == StatusCode::unsupported;
  std::printf("faults.power_pretended=%d\n", refused ? 1 : 0);
  if (!refused) return must(must(std::move(pool)).close());
  std::printf("power is refused here: %s\n", std::string(pool.error().message()).c_str());
  pretend({.file_system = kXfs, .disk = true});
  must(must(Pool::open(path, power)).close());
}

// Runs PERDURE_FAULT='mmap 3' or 'mmap 3 and later' in this process, for a debugger.
void replay(const char* text, const Case& parameters, const std::string& path) {
  char name[32] = {};
  unsigned long long k = 0;
  ASSERT_EQ(std::sscanf(text, "%31s %llu", name, &k), 2) << text;
  auto fault = Fault::none;
  while (fault <= kLastFault && std::string(fault_name(fault)) != name) {
    fault = static_cast<Fault>(static_cast<int>(fault) + 1);
  }
  ASSERT_LE(fault, kLastFault) << text;
  EXPECT_TRUE(one_run(path, parameters, fault, k, std::string(text).ends_with("later")));
}

ChildEnd planted(Fault fault, std::uint64_t k) {
  const Case parameters{Scene::create, Durability::process};
  const std::string path = pool_path(parameters.durability);
  const ChildEnd end = run_child([&] {
    set_unnoticed(true);
    try {
      (void)one_run(path, parameters, fault, k, true);
    } catch (const std::exception& error) {
      std::printf("%s %d: %s\n", fault_name(fault), static_cast<int>(k), error.what());
      std::fflush(stdout);
      _exit(1);
    }
  });
  std::filesystem::remove(path);
  return end;
}

TEST(FaultSweepItself, SeesAFailureThatIsIgnored) {
  int seen = 0;
  constexpr Fault kPlanted[] = {Fault::link, Fault::msync,     Fault::nothrow_new, Fault::mmap,
                                Fault::open, Fault::ftruncate, Fault::fallocate,   Fault::lock};
  for (const Fault fault : kPlanted) {
    // A second call may notice the first ones of a kind.
    bool red = false;
    for (std::uint64_t k = 1; k <= 9 && !red; ++k) red = !planted(fault, k).ok();
    EXPECT_TRUE(red) << fault_name(fault);
    seen += red ? 1 : 0;
  }
  std::printf("faults.planted=%zu\n", std::size(kPlanted));
  std::printf("faults.planted_seen=%d\n", seen);
}

TEST_P(FaultSweep, EveryFailureIsAStatus) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& shared = *new (memory) Shared{};
  const std::string path = pool_path(GetParam().durability);
  if (GetParam().durability == Durability::power) pretend_power_if_refused(path);
  if (const char* one = std::getenv("PERDURE_FAULT")) return replay(one, GetParam(), path);
  for (auto fault = Fault::nothrow_new; fault <= kLastFault;
       fault = static_cast<Fault>(static_cast<int>(fault) + 1)) {
    // The disk is slow, and allocations do not depend on it.
    const bool on_disk = GetParam().durability != Durability::process;
    if (on_disk && (fault < Fault::mmap || fault == Fault::madvise || fault == Fault::thread)) {
      continue;
    }
    const std::uint64_t before = shared.points;
    for (const bool sticky : {false, true}) {
      for (const std::string& failure : sweep(GetParam(), fault, sticky, shared, path)) {
        ADD_FAILURE() << failure;
      }
    }
    const std::uint64_t here = shared.points - before;
    std::printf("%s: %llu points\n", fault_name(fault), static_cast<unsigned long long>(here));
    points[static_cast<std::size_t>(fault)] += here;
  }
  std::printf("faults.points.%s_%s=%llu\n", scene_name(GetParam().scene),
              std::string(durability_name(GetParam().durability)).c_str(),
              static_cast<unsigned long long>(shared.points));
  EXPECT_GT(shared.points, is_twin(GetParam()) ? 10U : 30U) << "the faults are not injected";
  ++scenes_done;
  pretend({});
  std::filesystem::remove(path);
  munmap(memory, sizeof(Shared));
}

}  // namespace
}  // namespace perdure::test
