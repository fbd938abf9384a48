// The program that kill_test.py starts: a run that kills one of its ranks, and one that checks the
// store afterwards.
//
//   mpi_kill_worker run DIRECTORY RANK call|action N    rank RANK dies as it enters its N-th MPI
//                                                       call or action; 0: never. Prints the calls
//   mpi_kill_worker check DIRECTORY RANK call N         opens, verifies everything; dies likewise
//   mpi_kill_worker check-lost DIRECTORY RANK call N    as check, after a pool was removed: of
//                                                       the closed versions
//   mpi_kill_worker tag DIRECTORY RANK call N           opens, prints the last version, and tags
//   mpi_kill_worker open DIRECTORY RANK call N          only opens and closes, with any number of
//                                                       ranks; dies likewise
//   mpi_kill_worker write, mpi_kill_worker check-write  the same with writes of all ranks
//                                                       (write_many) as the only actions
//   mpi_kill_worker route, mpi_kill_worker check-route  the same with writes of keys of any rank
//                                                       (Options::route)
//
// PERDURE_MPI_LATE names a rank that is late in every collective of a run. With PERDURE_MPI_COPIES
// the store has copies of its pools. With PERDURE_MPI_LOST the open takes them for lost pools.
//
// A rank performs actions: writes of its own keys, and collectives, which have the same numbers on
// all ranks. A rank's number determines its actions, and therefore every rank knows the others'
// actions. The file `acked`, which outlives the rank, has the number of its completed actions.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "tests/mpi/support.h"

namespace {

std::atomic<std::uint64_t> calls{0};  // also of a service thread
std::uint64_t fatal_call = 0;
bool late = false;  // leaves every all-reduce long after the others

void count_call() {
  if (++calls == fatal_call) {
    // Gives the others time to get as far as they can without this rank.
    usleep(100'000);
    kill(getpid(), SIGKILL);
  }
}

}  // namespace

// MPI's profiling interface: these functions replace the library's.
extern "C" int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm) {
  count_call();
  const int result = PMPI_Allreduce(in, out, count, type, op, comm);
  if (late) usleep(20'000);
  return result;
}
extern "C" int MPI_Bcast(void* bytes, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  count_call();
  return PMPI_Bcast(bytes, count, type, root, comm);
}
extern "C" int MPI_Send(const void* bytes, int count, MPI_Datatype type, int to, int tag,
                        MPI_Comm comm) {
  count_call();
  return PMPI_Send(bytes, count, type, to, tag, comm);
}
extern "C" int MPI_Recv(void* bytes, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                        MPI_Status* status) {
  count_call();
  return PMPI_Recv(bytes, count, type, from, tag, comm, status);
}
extern "C" int MPI_Alltoall(const void* out, int out_count, MPI_Datatype out_type, void* in,
                            int in_count, MPI_Datatype in_type, MPI_Comm comm) {
  count_call();
  return PMPI_Alltoall(out, out_count, out_type, in, in_count, in_type, comm);
}
extern "C" int MPI_Sendrecv(const void* out, int out_count, MPI_Datatype out_type, int to,
                            int out_tag, void* in, int in_count, MPI_Datatype in_type, int from,
                            int in_tag, MPI_Comm comm, MPI_Status* status) {
  count_call();
  return PMPI_Sendrecv(out, out_count, out_type, to, out_tag, in, in_count, in_type, from, in_tag,
                       comm, status);
}

namespace perdure::mpi::test {
namespace {

constexpr std::uint64_t kWrites = 40;  // between two collectives
constexpr std::uint64_t kRounds = 7;
constexpr std::uint64_t kActions = kRounds * (kWrites + 1);
using Words = State<Integers>;

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
void must(const Found& found) { must(found.status()); }

enum class Do : std::uint8_t { upsert, erase, tag, roll_back, trim };
struct Action {
  Do what;
  std::uint64_t key = 0;
  std::uint64_t value = 0;
};
bool collective(const Action& action) { return action.what >= Do::tag; }

std::vector<Action> actions_of(IntegerStore& store, int rank) {
  std::vector<Action> out;
  std::mt19937_64 random(1000 + static_cast<std::uint64_t>(rank));
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    while (out.size() % (kWrites + 1) != kWrites) {
      const std::uint64_t key = Integers::key(random() % 500);
      if (store.owner(key) != rank) continue;
      out.push_back({random() % 4 == 0 ? Do::erase : Do::upsert, key, random()});
    }
    // Tags 1, 2, 3; back to 2; tag 3; trim below 2; tag 4.
    const Action last[] = {{Do::tag}, {Do::tag},        {Do::tag}, {Do::roll_back, 0, 2},
                           {Do::tag}, {Do::trim, 0, 2}, {Do::tag}};
    out.push_back(last[round - 1]);
  }
  return out;
}

// A rank's keys after some of its actions.
struct Model {
  Words open;
  std::map<Version, Words> closed = {{0, {}}};

  void apply(const Action& action) {
    switch (action.what) {
      case Do::upsert:
        open[action.key] = action.value;
        break;
      case Do::erase:
        open.erase(action.key);
        break;
      case Do::tag:
        closed[closed.rbegin()->first + 1] = open;
        break;
      case Do::roll_back:
        closed.erase(closed.upper_bound(action.value), closed.end());
        open = closed[action.value];
        break;
      case Do::trim:
        closed.erase(closed.begin(), closed.lower_bound(action.value));
        break;
    }
  }
};
Model after(const std::vector<Action>& actions, std::uint64_t count) {
  Model model;
  for (std::uint64_t i = 0; i < count; ++i) model.apply(actions[i]);
  return model;
}

Options options() {
  Options options;
  if (std::getenv("PERDURE_MPI_COPIES") != nullptr) options.copies = true;
  options.restore_lost = std::getenv("PERDURE_MPI_LOST") != nullptr;
  return options;
}

volatile std::uint64_t* acked(const std::string& directory) {
  const std::string path = directory + "/acked-" + std::to_string(world_rank());
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT, 0666);
  if (file < 0 || ftruncate(file, 8) != 0) wrong(path);
  void* word = mmap(nullptr, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (word == MAP_FAILED) wrong(path);
  return static_cast<volatile std::uint64_t*>(word);
}

void perform(IntegerStore& store, const Action& action) {
  switch (action.what) {
    case Do::upsert:
      must(store.put(action.key, action.value));
      break;
    case Do::erase:
      must(store.erase(action.key));
      break;
    case Do::tag:
      must(store.tag());
      break;
    case Do::roll_back:
      must(store.rollback(action.value));
      break;
    case Do::trim:
      must(store.trim(action.value));
      break;
  }
}

void run(const std::string& directory, std::uint64_t fatal_action) {
  volatile std::uint64_t* done = acked(directory);
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory + "/store", options()));
  const std::vector<Action> actions = actions_of(store, store.rank());
  for (std::uint64_t i = 0; i < kActions; ++i) {
    if (i + 1 == fatal_action) kill(getpid(), SIGKILL);
    perform(store, actions[i]);
    *done = i + 1;
  }
  if (store.rank() == 0) std::printf("calls %llu\n", static_cast<unsigned long long>(calls));
}

std::uint64_t reduce(std::uint64_t word, MPI_Op op) {
  PMPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_UINT64_T, op, MPI_COMM_WORLD);
  return word;
}

bool holds(IntegerStore& store, const Words& open) {
  for (std::uint64_t n = 0; n < 500; ++n) {
    const std::uint64_t key = Integers::key(n);
    if (store.owner(key) != store.rank()) continue;
    const auto it = open.find(key);
    if (must(store.get_own(key)) != (it != open.end() ? std::optional(it->second) : std::nullopt)) {
      return false;
    }
  }
  return true;
}

// Returns the number of its actions that have taken effect: all acknowledged ones, or one more,
// with `collectives` of them. A trim is done once one rank has begun it, even if this rank had not
// reached it: it may still be in the collective before, which others have left.
std::uint64_t come_to(IntegerStore& store, const std::vector<Action>& actions, std::uint64_t done,
                      std::uint64_t collectives) {
  std::string why = "no state fits";
  for (const std::uint64_t count : {done, done + 1}) {
    if (count > kActions) continue;
    const auto begun = actions.begin(), end = begun + static_cast<std::ptrdiff_t>(count);
    const auto called = static_cast<std::uint64_t>(std::count_if(begun, end, collective));
    const bool ahead =
        called + 1 == collectives && actions[collectives * (kWrites + 1) - 1].what == Do::trim;
    if (called != collectives && !ahead) continue;
    const Model model = after(actions, count);
    if (holds(store, model.open)) return count;
    why = "a state fits by its collectives, but not by its writes";
  }
  wrong(why + "; " + std::to_string(done) + " actions acknowledged, " +
        std::to_string(collectives) + " collectives");
}

void compare(IntegerStore& store, Version version, const Words& expected) {
  for (const Merge how : {Merge::recursive_doubling, Merge::naive}) {
    const auto all = must(store.extract_snapshot(version, how));
    if (all.total() != expected.size()) wrong("size of version " + std::to_string(version));
    auto it = expected.begin();
    all.for_each([&](std::uint64_t key, std::uint64_t value) {
      if (key != it->first || value != it->second) wrong("version " + std::to_string(version));
      ++it;
    });
  }
}

// A collective that returned on one rank is done, and the next one may be. Each changes the
// versions, which tell how many are done.
std::uint64_t collectives_of(IntegerStore& store, const std::vector<Action>& actions,
                             std::uint64_t done) {
  const std::uint64_t least = reduce(done / (kWrites + 1), MPI_MAX);
  const VersionRange range = store.versions();
  for (const std::uint64_t count : {least, least + 1}) {
    const Model model = after(actions, std::min(count * (kWrites + 1), kActions));
    if (count <= kRounds && range.first == model.closed.begin()->first &&
        range.last == model.closed.rbegin()->first) {
      return count;
    }
  }
  wrong("the versions are those of no prefix of the run");
}

// A disk was lost with the rank.
void check_lost(const std::string& directory) {
  const std::uint64_t done = *acked(directory);
  auto opened = IntegerStore::open(MPI_COMM_WORLD, directory + "/store", options());
  if (!opened) {
    // The run was killed before the open had returned.
    if (reduce(done, MPI_MAX) != 0) wrong(std::string(opened.error().message()));
    if (opened.error() != StatusCode::not_found) wrong(std::string(opened.error().message()));
  } else {
    Model whole;
    whole.closed.clear();
    for (int r = 0; r < opened->ranks(); ++r) {
      const auto actions = actions_of(*opened, r);
      const std::uint64_t collectives = collectives_of(*opened, actions, done);
      for (const auto& [version, state] : after(actions, collectives * (kWrites + 1)).closed) {
        whole.closed[version].insert(state.begin(), state.end());
      }
    }
    for (const auto& [version, state] : whole.closed) compare(*opened, version, state);
    must(opened->tag());
    must(opened->close());
  }
  if (world_rank() == 0) std::printf("whole\n");
}

void check(const std::string& directory) {
  const std::uint64_t done = *acked(directory);
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory + "/store", options()));
  if (store.pools() != static_cast<std::uint64_t>(store.ranks())) {
    // The run was killed while it created the store, and others created it anew.
    if (reduce(done, MPI_MAX) != 0 || store.versions().last != 0) wrong("another number of pools");
    if (store.rank() == 0) std::printf("whole\n");
    return;
  }
  std::vector<std::vector<Action>> actions;
  for (int r = 0; r < store.ranks(); ++r) actions.push_back(actions_of(store, r));
  const auto& mine = actions[static_cast<std::size_t>(store.rank())];

  const std::uint64_t collectives = collectives_of(store, mine, done);
  std::uint64_t count = come_to(store, mine, done, collectives);

  std::vector<std::uint64_t> counts(static_cast<std::size_t>(store.ranks()));
  MPI_Allgather(&count, 1, MPI_UINT64_T, counts.data(), 1, MPI_UINT64_T, MPI_COMM_WORLD);
  Model whole;
  whole.closed.clear();
  for (std::size_t r = 0; r < counts.size(); ++r) {
    const Model part = after(actions[r], counts[r]);
    whole.open.insert(part.open.begin(), part.open.end());
    for (const auto& [version, state] : part.closed) {
      whole.closed[version].insert(state.begin(), state.end());
    }
  }
  whole.closed.erase(whole.closed.begin(), whole.closed.lower_bound(store.versions().first));
  for (const auto& [version, state] : whole.closed) compare(store, version, state);
  const Version next = must(store.tag());
  if (next != whole.closed.rbegin()->first + 1) wrong("the next tag");
  compare(store, next, whole.open);
  must(store.close());
  if (store.rank() == 0) std::printf("whole\n");
}

void only_open(const std::string& directory) {
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory + "/store", options()));
  must(store.close());
  if (store.rank() == 0) std::printf("opened\n");
}

// Prints the last version that it has found, and closes three more.
void tag_some(const std::string& directory) {
  auto store = IntegerStore::open(MPI_COMM_WORLD, directory + "/store", options());
  if (!store) {
    if (world_rank() == 0) std::printf("refused %s\n", status_code_name(store.error().code()));
    return;
  }
  if (store->rank() == 0) {
    std::printf("last %llu\n", static_cast<unsigned long long>(store->versions().last));
  }
  for (int i = 0; i < 3; ++i) must(store->tag());
  must(store->close());
  if (store->rank() == 0) std::printf("calls %llu\n", static_cast<unsigned long long>(calls));
}

// --- writes of all ranks ---

constexpr std::uint64_t kBatches = 12, kPerBatch = 20;

// In batch n each rank puts new keys, of any owner, and n under a key of its own.
std::uint64_t new_key(int rank, std::uint64_t batch, std::uint64_t i) {
  const std::uint64_t number =
      (static_cast<std::uint64_t>(rank) * kBatches + batch) * kPerBatch + i;
  return Integers::key(1000 + number);
}
std::uint64_t counter(int rank) { return Integers::key(1 + static_cast<std::uint64_t>(rank)); }

void write(const std::string& directory, std::uint64_t fatal_action) {
  volatile std::uint64_t* done = acked(directory);
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory + "/store"));
  for (std::uint64_t batch = 1; batch <= kBatches; ++batch) {
    if (batch == fatal_action) kill(getpid(), SIGKILL);
    std::vector<IntegerStore::Mutation> mutations;
    mutations.push_back({MutationKind::put, counter(store.rank()), batch});
    for (std::uint64_t i = 0; i < kPerBatch; ++i) {
      mutations.push_back({MutationKind::insert, new_key(store.rank(), batch - 1, i), batch});
    }
    must(store.write_many(mutations));
    *done = batch;
  }
  if (store.rank() == 0) std::printf("calls %llu\n", static_cast<unsigned long long>(calls));
}

// A batch that returned on one rank is there, with those of the other ranks. Of the next one any
// mutation may be there.
void check_write(const std::string& directory) {
  const std::uint64_t least = reduce(*acked(directory), MPI_MAX);
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory + "/store"));
  const auto own = [&](std::uint64_t key) {
    return store.owner(key) == store.rank() ? must(store.get_own(key)) : std::nullopt;
  };
  for (int rank = 0; rank < store.ranks(); ++rank) {
    if (store.owner(counter(rank)) == store.rank()) {
      const std::uint64_t count = own(counter(rank)).value_or(0);
      if (count != least && count != least + 1) wrong("a counter is " + std::to_string(count));
    }
    for (std::uint64_t batch = 1; batch <= kBatches; ++batch) {
      for (std::uint64_t i = 0; i < kPerBatch; ++i) {
        const std::uint64_t key = new_key(rank, batch - 1, i);
        if (store.owner(key) != store.rank()) continue;
        const auto value = own(key);
        if (value ? *value != batch || batch > least + 1 : batch <= least) {
          wrong("batch " + std::to_string(batch) + " of rank " + std::to_string(rank) + ", with " +
                std::to_string(least) + " acknowledged");
        }
      }
    }
  }
  must(store.tag());
  must(store.close());
  if (store.rank() == 0) std::printf("whole\n");
}

// --- routed writes ---

constexpr std::uint64_t kRouted = 300;
std::uint64_t routed_key(int rank, std::uint64_t i) {
  return Integers::key(1000 + static_cast<std::uint64_t>(rank) * kRouted + i);
}

void route(const std::string& directory, std::uint64_t fatal_action) {
  volatile std::uint64_t* done = acked(directory);
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory + "/store", {.route = true}));
  for (std::uint64_t i = 1; i < kRouted; ++i) {
    if (i == fatal_action) kill(getpid(), SIGKILL);
    must(store.put(routed_key(store.rank(), i), i));
    *done = i;
    if (i % 60 == 0) must(store.tag());
  }
  if (store.rank() == 0) std::printf("calls %llu\n", static_cast<unsigned long long>(calls));
}

// Every write that returned is there, whichever rank was killed; of the others one for each rank
// may be.
void check_route(const std::string& directory) {
  const std::uint64_t mine = *acked(directory);
  std::vector<std::uint64_t> done(static_cast<std::size_t>(world_size()));
  PMPI_Allgather(&mine, 1, MPI_UINT64_T, done.data(), 1, MPI_UINT64_T, MPI_COMM_WORLD);
  auto store = must(IntegerStore::open(MPI_COMM_WORLD, directory + "/store"));
  for (int rank = 0; rank < store.ranks(); ++rank) {
    const std::uint64_t acknowledged = done[static_cast<std::size_t>(rank)];
    for (std::uint64_t i = 1; i < kRouted; ++i) {
      const std::uint64_t key = routed_key(rank, i);
      if (store.owner(key) != store.rank()) continue;
      const auto value = must(store.get_own(key));
      if (value ? *value != i || i > acknowledged + 1 : i <= acknowledged) {
        wrong("write " + std::to_string(i) + " of rank " + std::to_string(rank) + ", with " +
              std::to_string(acknowledged) + " acknowledged");
      }
    }
  }
  must(store.tag());
  must(store.close());
  if (store.rank() == 0) std::printf("whole\n");
}

}  // namespace
}  // namespace perdure::mpi::test

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const std::string_view what = argv[1];
  int level = what == "route" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, level, &level);
  using perdure::mpi::test::world_rank;
  const std::uint64_t n = std::strtoull(argv[5], nullptr, 10);
  const bool dies = world_rank() == std::atoi(argv[3]);
  const bool by_call = std::strcmp(argv[4], "call") == 0;
  if (dies && by_call) fatal_call = n;
  if (what == "write") {
    perdure::mpi::test::write(argv[2], dies && !by_call ? n : 0);
  } else if (what == "check-write") {
    perdure::mpi::test::check_write(argv[2]);
  } else if (what == "route") {
    perdure::mpi::test::route(argv[2], dies && !by_call ? n : 0);
  } else if (what == "check-route") {
    perdure::mpi::test::check_route(argv[2]);
  } else if (what == "run") {
    const char* who = std::getenv("PERDURE_MPI_LATE");
    late = who != nullptr && world_rank() == std::atoi(who);
    perdure::mpi::test::run(argv[2], dies && !by_call ? n : 0);
  } else if (what == "check-lost") {
    perdure::mpi::test::check_lost(argv[2]);
  } else if (what == "tag") {
    perdure::mpi::test::tag_some(argv[2]);
  } else if (what == "open") {
    perdure::mpi::test::only_open(argv[2]);
  } else {
    perdure::mpi::test::check(argv[2]);
  }
  MPI_Finalize();
  return 0;
}
