// test: no asan
// A file that becomes shorter while a pool uses it. With `handle_sigbus` every call in every thread
// returns an error that names the file, and other pools continue.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "platform/file_storage.h"
#include "tests/support/small_pool.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

void expect_names(const Status& status, const std::string& path, const char* what) {
  EXPECT_EQ(status, StatusCode::poisoned) << what;
  EXPECT_NE(status.message().find(path), Bytes::npos) << what;
  EXPECT_NE(status.message().find("became shorter"), Bytes::npos) << what;
}
template <class T>
void expect_names(const Expected<T>& result, const std::string& path, const char* what) {
  ASSERT_FALSE(result.has_value()) << what;
  expect_names(result.error(), path, what);
}

class BusErrors : public ::testing::TestWithParam<Durability> {
 protected:
  PoolOptions options() const {
    return {.handle_sigbus = true, .durability = GetParam(), .max_size = 64_MiB};
  }
};
INSTANTIATE_TEST_SUITE_P(Durabilities, BusErrors,
                         ::testing::Values(Durability::process, Durability::emulated),
                         [](const auto& row) { return std::string(durability_name(row.param)); });

// Each thread works until a call returns the error. No earlier result may be wrong.
TEST_P(BusErrors, EveryThreadIsToldAndEveryLaterCall) {
  const TempPath path;
  Pool pool = must(Pool::open(path, options()));
  auto numbers = must(pool.ordered_map<std::uint64_t, std::uint64_t>("numbers"));
  auto texts = must(pool.ordered_map<Bytes, Bytes>("texts"));
  constexpr std::uint64_t kKeys = 20'000;
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    must(numbers.insert(i, i));
    must(texts.insert(std::to_string(i), std::string(100, 'v')));
  }
  std::atomic<int> running{0};
  std::mutex latch;
  std::string wrong;
  const auto add_wrong = [&](const std::string& what) {
    const std::lock_guard guard(latch);
    wrong += what + "; ";
  };
  const auto until_failure = [&](const char* what, auto step) {
    running.fetch_add(1);
    for (std::uint64_t i = 0;; i = (i + 7) % kKeys) {
      const Expected<bool> right = step(i);
      if (!right) {
        if (right.error() != StatusCode::poisoned) add_wrong(describe(right.error()));
        return;
      }
      if (!*right) add_wrong(std::string(what) + " of " + std::to_string(i));
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back(until_failure, "get", [&](std::uint64_t i) -> Expected<bool> {
    auto found = numbers.get(i);
    if (!found) return fail(std::move(found.error()));
    return *found == std::optional(i);
  });
  threads.emplace_back(until_failure, "get of text", [&](std::uint64_t i) -> Expected<bool> {
    auto found = texts.get(std::to_string(i));
    if (!found) return fail(std::move(found.error()));
    return found->has_value() && **found == std::string(100, 'v');
  });
  threads.emplace_back(until_failure, "put", [&](std::uint64_t i) -> Expected<bool> {
    // Updates in place. Growth has its own test, because it may meet the file between two lengths.
    auto done = numbers.put(i, i);
    if (!done.ok()) return fail(std::move(done).status());
    return true;
  });
  threads.emplace_back(until_failure, "update", [&](std::uint64_t i) -> Expected<bool> {
    auto done = numbers.update(i % 50, i % 50);
    if (!done.ok()) return fail(std::move(done).status());
    return done.present();
  });
  threads.emplace_back(until_failure, "scan", [&](std::uint64_t) -> Expected<bool> {
    auto seen = numbers.scan({}, [](std::uint64_t, std::uint64_t) {});
    if (!seen) return fail(std::move(seen.error()));
    return *seen == kKeys;
  });
  while (running.load() != 5) std::this_thread::yield();
  ASSERT_EQ(truncate(path.c_str(), 8192), 0);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, "") << "results that were neither right nor `poisoned`";

  expect_names(numbers.get(1), path, "get");
  expect_names(numbers.put(1, 1).status(), path, "put");
  expect_names(numbers.erase(1).status(), path, "erase");
  expect_names(numbers.scan({}, [](std::uint64_t, std::uint64_t) {}), path, "scan");
  expect_names(pool.map<Bytes, Bytes>("other"), path, "map");
  expect_names(pool.info(), path, "info");
  expect_names(pool.stats(), path, "stats");
  expect_names(pool.list(), path, "list");
  expect_names(pool.check(), path, "check");
  expect_names(pool.compact(), path, "compact");
  EXPECT_EQ(pool.sync(), StatusCode::poisoned);
  EXPECT_EQ(pool.drop("numbers"), StatusCode::poisoned);
  EXPECT_EQ(pool.close(), StatusCode::poisoned);
  const auto again = Pool::open(path, options());
  EXPECT_EQ(code_of(again), StatusCode::corruption) << (again ? "served" : describe(again.error()));
}

// Lost pages read as zeros, as if there were no entry or another key. The first call must not
// conclude from them that there is nothing.
TEST_P(BusErrors, VersionsAreNotFewerThanTheyWere) {
  using Layers = VersionedMap<Bytes, std::uint64_t>;
  const auto ignore = [](const auto&...) {};
  struct Call {
    const char* name;
    std::function<Expected<void>(Layers&, Version, Version)> run;
  };
  const auto whether = [](const auto& result) -> Expected<void> {
    if (!result) return fail(Status(result.error()));
    return {};
  };
  const std::string prefix = "customer:";
  const std::string from = prefix + '3';
  const Call calls[] = {
      {"history",
       [&](Layers& map, Version, Version) { return whether(map.history(prefix + '5', ignore)); }},
      {"diff", [&](Layers& map, Version first,
                   Version last) { return whether(map.diff(first, last, {}, ignore)); }},
      {"bounded diff",
       [&](Layers& map, Version first, Version last) {
         return whether(map.diff(first, last, {.from = from}, ignore));
       }},
      {"bounded scan",
       [&](Layers& map, Version, Version) { return whether(map.scan({.from = from}, ignore)); }},
      {"bounded scan_at",
       [&](Layers& map, Version first, Version) {
         return whether(map.scan_at(first, {.from = from, .reverse = true}, ignore));
       }},
      {"get at a version",
       [&](Layers& map, Version first, Version) { return whether(map.get(from, first)); }},
  };
  for (const Call& call : calls) {
    const TempPath path;
    Pool pool = must(Pool::open(path, options()));
    auto map = must(pool.versioned_map<Bytes, std::uint64_t>("v"));
    Version versions[2] = {};
    for (Version& version : versions) {
      for (char i = '0'; i <= '9'; ++i) must(map.put(prefix + i, version + 1));
      version = must(map.tag());
    }
    ASSERT_EQ(truncate(path.c_str(), 8192), 0);
    expect_names(call.run(map, versions[0], versions[1]), path, call.name);
    EXPECT_EQ(pool.close(), StatusCode::poisoned);
  }
}

// Growth must not make the file whole again, with zeros in the middle.
TEST_P(BusErrors, GrowthDoesNotHideIt) {
  const TempPath path;
  Pool pool = must(Pool::open(path, options()));
  auto texts = must(pool.map<Bytes, Bytes>("texts"));
  const std::string large(1'000'000, 'v');
  must(texts.put("before", large));
  ASSERT_EQ(truncate(path.c_str(), 8192), 0);
  StatusCode code = StatusCode::ok;
  for (int i = 0; i < 40 && code == StatusCode::ok; ++i) {
    code = code_of(texts.put(std::to_string(i), large));
  }
  EXPECT_EQ(code, StatusCode::poisoned);
  expect_names(texts.get("before"), path, "get");
  expect_names(pool.info(), path, "info");
  EXPECT_EQ(pool.close(), StatusCode::poisoned);
  EXPECT_EQ(std::filesystem::file_size(path.str()), 8192U);
  EXPECT_EQ(code_of(Pool::open(path, options())), StatusCode::corruption);
}

TEST_P(BusErrors, OtherPoolsGoOn) {
  const TempPath path;
  const TempPath other_path;
  Pool pool = must(Pool::open(path, options()));
  Pool other = must(Pool::open(other_path, options()));
  auto map = must(pool.map<std::uint64_t, std::uint64_t>("m"));
  auto kept = must(other.map<std::uint64_t, std::uint64_t>("m"));
  must(kept.insert(1, 2));
  ASSERT_EQ(truncate(path.c_str(), 0), 0);
  while (map.put(1, 1).ok()) {
  }
  EXPECT_EQ(must(kept.get(1)), std::optional<std::uint64_t>(2));
  must(kept.insert(2, 3));
  EXPECT_TRUE(other.close().ok());
}

// ---- signals of other code ----

volatile sig_atomic_t seen = 0;
char* foreign_page = nullptr;
void count_and_mend(int) {
  seen = seen + 1;
  mmap(foreign_page, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

// A page behind the end of a file that no pool uses.
char* page_that_raises(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  auto* page = static_cast<char*>(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0));
  ::close(fd);
  return page;
}

TEST(BusErrorChain, ForeignAddressesGoToTheHandlerBefore) {
  const TempPath path;
  const TempPath foreign;
  const ChildEnd end = run_child([&] {
    struct sigaction action{};
    action.sa_handler = count_and_mend;
    sigaction(SIGBUS, &action, nullptr);
    Pool pool = must(Pool::open(path, {.handle_sigbus = true, .max_size = 4_MiB}));
    foreign_page = page_that_raises(foreign);
    if (*static_cast<volatile char*>(foreign_page) != 0 || seen != 1) _exit(1);
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("m"));
    must(map.insert(1, 1));
    must(pool.close());
    _exit(0);
  });
  EXPECT_TRUE(end.ok()) << end;
}

// What lies at the place of a mapping that has ended is of another one.
TEST(BusErrorChain, AMappingThatHasEndedIsForeign) {
  const TempPath path;
  const ChildEnd end = run_child([&] {
    signal(SIGBUS, SIG_DFL);
    MappingState state;
    FileStorage file;
    file.report_lost_pages(state);
    require(file.create(path).ok() && file.map(kPage).ok(), "a file");
    const volatile std::byte* const page = file.base();
    require(*page == std::byte{0} && state.lost && file.has_lost_pages(), "the page is not lost");
    file.unmap();
    require(::mmap(const_cast<std::byte*>(page), kPage, PROT_READ, MAP_SHARED | MAP_FIXED,
                   file.descriptor(), 0) == page,
            "mmap");
    file.discard_new();
    (void)*page;
    _exit(0);
  });
  EXPECT_FALSE(end.exited) << end;
  EXPECT_EQ(end.signal, SIGBUS);
}

TEST(BusErrorChain, WithoutAHandlerBeforeForeignAddressesEndTheProcess) {
  const TempPath path;
  const TempPath foreign;
  const ChildEnd end = run_child([&] {
    signal(SIGBUS, SIG_DFL);
    Pool pool = must(Pool::open(path, {.handle_sigbus = true, .max_size = 4_MiB}));
    (void)*static_cast<volatile char*>(page_that_raises(foreign));
    _exit(0);
  });
  EXPECT_FALSE(end.exited) << end;
  EXPECT_EQ(end.signal, SIGBUS);
}

}  // namespace
}  // namespace perdure::test
