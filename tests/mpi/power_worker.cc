// The program that power_test.py starts: one run on a store whose ranks have pools of durability
// `buffered`. Cuts happen only where the store waits for one.
//
//   mpi_power_worker DIRECTORY FAILED RANK wait|call|put STEP N
//
// FAILED: the ranks whose power has failed since the last run, as digits, or `none`. Rank RANK dies
// as it enters its N-th wait for a cut, MPI call or put of a step; N = 0: no rank does, and the
// store is closed. Step 0 is the open with its checks; steps 1 to 7 are {put every own key, a
// collective}. If the rank does not come that far, the run ends without a close.
//
// PERDURE_MPI_POOLS is the number of pools of a new store, a multiple of the number of ranks. With
// PERDURE_MPI_COPIES they have copies. PERDURE_MPI_LOST is the rank whose disk was lost since the
// last run.
//
// The model: every put of a phase, on all ranks, stores the same stamp, and no two phases of any
// runs have the same. So a version has one stamp, on all ranks. The file `start` has the versions
// that the last run began with, and `progress-R` how far rank R came from there.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/mpi/support.h"

namespace {

// What the rank does in a step, counted. It dies as it begins the one with the number `fatal`.
struct Counter {
  std::uint64_t number = 0, fatal = 0;
};
Counter waits, calls, stores;
std::uint64_t present_step = 0, fatal_step = 0;

void begin_step(std::uint64_t step) {
  present_step = step;
  for (Counter* counter : {&waits, &calls, &stores}) counter->number = 0;
}
void count(Counter& counter) {
  if (++counter.number != counter.fatal || present_step != fatal_step) return;
  usleep(100'000);  // the others get as far as they can without this rank
  kill(getpid(), SIGKILL);
}

}  // namespace

// The linker replaces the library's calls of Pool::wait_durable by this function (--wrap). A member
// is called as a function whose first argument is the object.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wreturn-type-c-linkage"
#endif
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
perdure::Status __real__ZN7perdure4Pool12wait_durableEm(perdure::Pool* pool, std::uint64_t cut);
perdure::Status __wrap__ZN7perdure4Pool12wait_durableEm(perdure::Pool* pool, std::uint64_t cut) {
  count(waits);
  return __real__ZN7perdure4Pool12wait_durableEm(pool, cut);
}
// NOLINTEND(bugprone-reserved-identifier)
}

// MPI's profiling interface: this function replaces the library's.
extern "C" int MPI_Allreduce(const void* in, void* out, int number, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm) {
  count(calls);
  return PMPI_Allreduce(in, out, number, type, op, comm);
}

namespace perdure::mpi::test {
namespace {

using Stamp = std::uint64_t;  // 0: no keys
using Versions = std::map<Version, Stamp>;
constexpr std::uint64_t kKeys = 30;  // of all ranks
enum class Do : std::uint8_t { tag, roll_back, trim, write };
constexpr Do kSteps[] = {Do::tag, Do::tag, Do::roll_back, Do::tag, Do::trim, Do::write, Do::tag};

[[noreturn]] void wrong(const std::string& what) {
  std::fprintf(stderr, "rank %d: wrong: %s\n", world_rank(), what.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}
template <class T>
T must(Expected<T> done) {
  if (!done) wrong(std::string(done.error().message()));
  return std::move(*done);
}
void must(const Status& status) {
  if (!status.ok()) wrong(std::string(status.message()));
}
std::string text(const Versions& versions) {
  std::string out;
  for (const auto& [version, stamp] : versions) {
    out += std::to_string(version) + ":" + std::to_string(stamp) + " ";
  }
  return out;
}

// Rolls back to, and trims below, the version before the last.
Version target(const Versions& versions) {
  return std::max(versions.begin()->first, versions.rbegin()->first - 1);
}
Versions after(Versions versions, Do what, Stamp stamp) {
  const Version to = target(versions);
  if (what == Do::tag) versions[versions.rbegin()->first + 1] = stamp;
  if (what == Do::roll_back) versions.erase(versions.upper_bound(to), versions.end());
  if (what == Do::trim) versions.erase(versions.begin(), versions.find(to));
  return versions;
}

// A run from its start on.
struct Start {
  std::uint64_t run = 0;
  Versions versions = {{0, 0}};

  Stamp stamp(std::uint64_t step) const { return run * 10 + step; }
  Versions after_steps(std::uint64_t steps) const {
    Versions out = versions;
    for (std::uint64_t i = 1; i <= steps; ++i) out = after(out, kSteps[i - 1], stamp(i));
    return out;
  }
};
Start read_start(const std::string& directory) {
  Start start;
  std::ifstream in(directory + "/start");
  if (!(in >> start.run)) return start;
  start.versions.clear();
  for (Version version = 0; in >> version;) in >> start.versions[version];
  return start;
}
void write_start(const std::string& directory, const Start& start) {
  {
    std::ofstream out(directory + "/start.new");
    out << start.run;
    for (const auto& [version, stamp] : start.versions) out << ' ' << version << ' ' << stamp;
  }
  std::filesystem::rename(directory + "/start.new", directory + "/start");
}

// How far a rank came in a run: the steps that it has finished, and its puts in the next one.
struct Progress {
  std::uint64_t run = 0, steps = 0, puts = 0;

  static Progress of(std::uint64_t word) { return {word >> 16, word >> 8 & 0xFF, word & 0xFF}; }
  std::uint64_t word() const { return run << 16 | steps << 8 | puts; }
};
volatile std::uint64_t* progress_of(const std::string& directory, int rank) {
  const std::string path = directory + "/progress-" + std::to_string(rank);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT, 0666);
  if (file < 0 || ftruncate(file, 8) != 0) wrong(path);
  void* word = mmap(nullptr, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (word == MAP_FAILED) wrong(path);
  return static_cast<volatile std::uint64_t*>(word);
}

std::vector<std::uint64_t> own_keys(const IntegerStore& store) {
  std::vector<std::uint64_t> out;
  for (std::uint64_t n = 0; n < kKeys; ++n) {
    if (store.owner(Integers::key(n)) == store.rank()) out.push_back(Integers::key(n));
  }
  return out;
}

// The same puts again, of the keys of the next rank.
std::vector<IntegerStore::Mutation> puts_elsewhere(const IntegerStore& store, Stamp stamp) {
  std::vector<IntegerStore::Mutation> out;
  for (std::uint64_t n = 0; n < kKeys; ++n) {
    const std::uint64_t key = Integers::key(n);
    if (store.owner(key) == (store.rank() + 1) % store.ranks()) {
      out.push_back({MutationKind::put, key, stamp});
    }
  }
  return out;
}

// The versions of the store with their stamps, on all ranks.
Versions read_versions(IntegerStore& store) {
  Versions out;
  const VersionRange range = store.versions();
  for (Version version = range.first; version <= range.last; ++version) {
    const auto all = must(store.extract_snapshot(version));
    std::uint64_t stamp = all.size() != 0 ? all[0].second : 0;
    all.for_each([&](std::uint64_t, std::uint64_t value) {
      if (value != stamp) wrong("version " + std::to_string(version) + " is a mixture");
    });
    if (all.total() != 0 && all.total() != kKeys) wrong("a version has not all keys");
    MPI_Bcast(&stamp, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    out[version] = stamp;
  }
  return out;
}

// A rank that was only killed has all its puts. One whose power failed has those before step
// `least`, the last that has returned on any rank, and perhaps later ones. The store has finished
// `steps`.
void check_puts(IntegerStore& store, const Start& before, const Progress& own, std::uint64_t least,
                std::uint64_t steps, bool power_failed) {
  const Progress known = power_failed ? Progress{.steps = least} : own;
  const std::vector<std::uint64_t> keys = own_keys(store);
  std::vector<std::optional<Stamp>> expected(keys.size());  // no value: not known
  const auto finish = [&](std::uint64_t step) {
    const bool back = kSteps[step - 1] == Do::roll_back;
    const Stamp stamp = back ? before.after_steps(step).rbegin()->second : before.stamp(step);
    std::fill(expected.begin(), expected.end(), stamp);
  };
  if (known.steps != 0) finish(known.steps);
  const Stamp next = before.stamp(known.steps + 1);
  std::fill_n(expected.begin(), known.puts, next);
  bool rolled_back = false;
  for (std::uint64_t step = known.steps + 1; step <= steps; ++step) {
    if (kSteps[step - 1] != Do::roll_back) continue;
    finish(step);
    rolled_back = true;
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Stamp got = must(store.get_own(keys[i])).value_or(0);
    // The put after the last acknowledged one may have happened.
    const bool may = !rolled_back && got == next && (power_failed || i == known.puts);
    if (expected[i] && got != *expected[i] && !may) {
      wrong("a put of this rank is lost: " + std::to_string(got) + " instead of " +
            std::to_string(*expected[i]) + ", after " + std::to_string(known.steps) +
            " steps and " + std::to_string(known.puts) + " puts; the store has finished " +
            std::to_string(steps));
    }
  }
}

// Every step that has returned on any rank has happened on all, and perhaps the next one. Returns
// the versions.
Versions check(IntegerStore& store, const std::string& directory, const Start& before,
               bool power_failed) {
  Progress own;
  std::uint64_t least = 0;
  for (int rank = 0; rank < store.ranks(); ++rank) {
    Progress its = Progress::of(*progress_of(directory, rank));
    if (its.run != before.run) its = {};
    least = std::max(least, its.steps);
    if (rank == store.rank()) own = its;
  }
  const Versions found = read_versions(store);
  std::uint64_t steps = least;
  if (found != before.after_steps(steps)) ++steps;
  if (steps > std::size(kSteps) || found != before.after_steps(steps)) {
    wrong("the store has " + text(found) + "and not " + text(before.after_steps(least)) +
          "of step " + std::to_string(least));
  }
  const char* lost = std::getenv("PERDURE_MPI_LOST");
  const bool is_lost = lost != nullptr && std::atoi(lost) == store.rank();
  if (before.run != 0 && !is_lost) check_puts(store, before, own, least, steps, power_failed);
  return found;
}

// A run that was killed while it created the last pool has left it: the open creates all before it.
void make_last_pool(const std::string& store, const PoolOptions& options) {
  const char* pools = std::getenv("PERDURE_MPI_POOLS");
  if (pools != nullptr && world_rank() == 0 && !std::filesystem::exists(store)) {
    std::filesystem::create_directories(store);
    must(must(Pool::open(SharedDirectory::pool(store, std::atoi(pools) - 1), options)).close());
  }
  barrier();
}

void run(const std::string& directory, bool power_failed, bool ends) {
  Start start = read_start(directory);
  Options options{.merge_threads = 1,
                  .copies = std::getenv("PERDURE_MPI_COPIES") != nullptr,
                  .restore_lost = std::getenv("PERDURE_MPI_LOST") != nullptr,
                  .pool = {.accept_untrusted = power_failed,
                           .durability = Durability::buffered,
                           .buffered = {.interval_ms = 3'600'000},
                           .max_size = 4_MiB,
                           .recovery_threads = 1}};
  if (start.run != 0) options.pool.mode = OpenMode::existing;
  if (start.run == 0) make_last_pool(directory + "/store", options.pool);
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory + "/store", options));
  start.versions = check(store, directory, start, power_failed);
  ++start.run;
  barrier();  // all have read it
  if (store.rank() == 0) write_start(directory, start);
  barrier();
  const std::vector<std::uint64_t> keys = own_keys(store);
  volatile std::uint64_t* progress = progress_of(directory, store.rank());
  for (std::uint64_t step = 1; step <= std::size(kSteps); ++step) {
    begin_step(step);
    Progress own{start.run, step - 1, 0};
    *progress = own.word();
    for (const std::uint64_t key : keys) {
      count(stores);
      must(store.put(key, start.stamp(step)).status());
      ++own.puts;
      *progress = own.word();
    }
    const Version to = target(start.after_steps(step - 1));
    const Do what = kSteps[step - 1];
    if (what == Do::tag) must(store.tag());
    if (what == Do::roll_back) must(store.rollback(to));
    if (what == Do::trim) must(store.trim(to));
    if (what == Do::write) must(store.write_many(puts_elsewhere(store, start.stamp(step))));
    *progress = Progress{start.run, step, 0}.word();
  }
  if (ends) {
    must(store.close());
  } else {
    barrier();
    kill(getpid(), SIGKILL);
  }
}

}  // namespace
}  // namespace perdure::mpi::test

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 7) return 2;
  using perdure::mpi::test::world_rank;
  const bool failed = std::strchr(argv[2], '0' + world_rank()) != nullptr;
  const std::uint64_t n = std::strtoull(argv[6], nullptr, 10);
  if (world_rank() == std::atoi(argv[3])) {
    const std::string_view kind = argv[4];
    (kind == "wait" ? waits : kind == "call" ? calls : stores).fatal = n;
    fatal_step = std::strtoull(argv[5], nullptr, 10);
  }
  perdure::mpi::test::run(argv[1], failed, n == 0);
  MPI_Finalize();
  return 0;
}
