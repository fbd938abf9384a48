// What is left of a map whose pool was closed, that was dropped, or that is the parent's: its calls
// fail. And what a callback of a read must not call.
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/any_map.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Words = Map<std::uint64_t, std::uint64_t>;
using Versioned = VersionedMap<std::uint64_t, std::uint64_t>;

constexpr std::uint64_t kEntries = 300;  // more than an iterator copies at once

// All that can refer to a map.
struct Handles {
  Words words;
  UntypedMap untyped;
  std::optional<OrderedMap<std::uint64_t, std::uint64_t>> ordered;
  std::optional<Iterator<std::uint64_t, std::uint64_t>> iterator;
  std::optional<Versioned> versioned;
  std::optional<Snapshot<std::uint64_t, std::uint64_t>> snapshot;
};

Handles open_handles(Pool& pool, const EngineInfo& engine) {
  const MapOptions options{.engine = engine.engine, .phast = {.partition_bits = 2}};
  Handles handles{must(pool.map<std::uint64_t, std::uint64_t>("m", options)),
                  must(pool.untyped_map("m")),
                  {},
                  {},
                  {},
                  {}};
  for (std::uint64_t i = 0; i < kEntries; ++i) must(handles.words.put(i, i));
  if (engine.ordered) {
    handles.ordered = must(pool.ordered_map<std::uint64_t, std::uint64_t>("m", options));
    handles.iterator.emplace(handles.ordered->scan());
  }
  if (engine.versioned) {
    handles.versioned = must(pool.versioned_map<std::uint64_t, std::uint64_t>("m", options));
    must(handles.versioned->tag());
    handles.snapshot.emplace(must(handles.versioned->snapshot()));
  }
  return handles;
}

class Refusals {
 public:
  explicit Refusals(std::string why) : why_(std::move(why)) {}

  void operator()(const char* call, const Status& status) {
    if (status.code() == StatusCode::invalid_argument &&
        status.message().find(why_) != std::string_view::npos) {
      return;
    }
    wrong_ += std::string(call) + ": " + status_code_name(status.code()) + " '" +
              std::string(status.message()) + "'; ";
  }
  void operator()(const char* call, const Found& found) { (*this)(call, found.status()); }
  template <class T>
  void operator()(const char* call, const Expected<T>& done) {
    (*this)(call, done ? Status() : Status(done.error()));
  }
  const std::string& wrong() const { return wrong_; }

 private:
  std::string why_, wrong_;
};

// Makes every call. Returns those that are not refused for the reason.
std::string wrong_calls(Handles& handles, const std::string& why) {
  Refusals refused(why);
  const auto ignore = [](auto&&...) { return true; };
  refused("put", handles.words.put(1, 2));
  refused("insert", handles.words.insert(1'000, 2));
  refused("update", handles.words.update(1, 2));
  refused("erase", handles.words.erase(1));
  refused("compare_exchange", handles.words.compare_exchange(1, 1, 2).status());
  refused("compare_exchange to absent", handles.words.compare_exchange(1, 1, {}).status());
  refused("modify", handles.words.modify(1, [](auto) { return 5; }));
  refused("fetch_add", handles.words.fetch_add(1, 1));
  const std::vector<Mutation<std::uint64_t, std::uint64_t>> mutations(20);
  refused("write_many", handles.words.write_many(mutations));
  refused("get", handles.words.get(1));
  refused("contains", handles.words.contains(1));
  refused("read", handles.words.read(1, [](auto) {}));
  const std::vector<std::uint64_t> keys(20);
  refused("read_many", handles.words.read_many(keys, ignore));
  refused("for_each", handles.words.for_each(ignore));
  refused("size", handles.words.size());
  if (!handles.words.stats().partial) return "stats: not partial";
  refused("usable", handles.untyped.usable());
  refused("untyped put", handles.untyped.put({.word = 1}, {.word = 1, .word_size = 8}));
  refused("untyped read", handles.untyped.read({.word = 1}, [](const UntypedValue&) {}));
  const Words copy = handles.words;
  refused("of a copy", Words(copy).get(1));
  if (handles.ordered) {
    refused("scan", handles.ordered->scan({}, ignore));
    refused("count", handles.ordered->count());
    refused("erase_range", handles.ordered->erase_range({}));
    refused("scan()", handles.ordered->scan().status());
    auto& iterator = *handles.iterator;
    std::uint64_t next = 0;
    for (; iterator.valid() && iterator.key() == next; iterator.next()) ++next;
    if (iterator.valid() || next == kEntries) return "the iterator went on";
    refused("the iterator's end", iterator.status());
    iterator.seek(7);
    refused("seek", iterator.status());
  }
  if (handles.versioned) {
    refused("tag", handles.versioned->tag());
    refused("get of a version", handles.versioned->get(1, 1));
    refused("history", handles.versioned->history(1, ignore));
    refused("diff", handles.versioned->diff(1, 1, {}, ignore));
    refused("trim", handles.versioned->trim(1));
    refused("rollback", handles.versioned->rollback(1));
    refused("snapshot of a version", handles.versioned->snapshot(1));
    refused("get of a snapshot", handles.snapshot->get(1));
    refused("scan of a snapshot", handles.snapshot->scan({}, ignore));
    refused("scan() of a snapshot", handles.snapshot->scan().status());
    if (const VersionRange range = handles.versioned->versions(); range.first <= range.last) {
      return "it has versions";
    }
  }
  return refused.wrong();
}

PoolOptions options() {
  return {.durability = Durability::process, .max_size = 16_MiB, .recovery_threads = 1};
}

TEST(Ended, ClosedPool) {
  for (const EngineInfo& engine : kEngines) {
    SCOPED_TRACE(engine.name);
    TempPath path;
    Pool pool = open_pool(path, options());
    Handles handles = open_handles(pool, engine);
    WriteBatch batch;
    batch.put(handles.words, 1, 2);
    must(pool.close());
    EXPECT_EQ(wrong_calls(handles, path.str() + ": the pool of the map is closed"), "");
    EXPECT_EQ(pool.commit(batch).code(), StatusCode::invalid_argument);
    // The handles of the open before do not become those of the next one.
    Pool again = open_pool(path, options());
    auto words = must(again.map<std::uint64_t, std::uint64_t>("m"));
    EXPECT_EQ(wrong_calls(handles, "is closed"), "");
    EXPECT_NE(again.commit(batch).code(), StatusCode::ok);
    EXPECT_EQ(must(words.get(1)), std::optional<std::uint64_t>(1));
  }
}

TEST(Ended, DestroyedPool) {
  for (const EngineInfo& engine : kEngines) {
    SCOPED_TRACE(engine.name);
    TempPath path;
    auto pool = std::make_unique<Pool>(open_pool(path, options()));
    Handles handles = open_handles(*pool, engine);
    pool.reset();
    EXPECT_EQ(wrong_calls(handles, path.str() + ": the pool of the map is closed"), "");
  }
}

TEST(Ended, DroppedMap) {
  for (const EngineInfo& engine : kEngines) {
    SCOPED_TRACE(engine.name);
    TempPath path;
    Pool pool = open_pool(path, options());
    Handles handles = open_handles(pool, engine);
    WriteBatch batch;
    batch.put(handles.words, 1, 2);
    must(pool.drop("m"));
    EXPECT_EQ(wrong_calls(handles, path.str() + ": the map was dropped"), "");
    EXPECT_EQ(pool.commit(batch).code(), StatusCode::invalid_argument);
    const MapOptions options{.engine = engine.engine};
    auto another = must(pool.map<std::uint64_t, std::uint64_t>("m", options));
    EXPECT_EQ(wrong_calls(handles, "was dropped"), "") << "a map of its name is another one";
    EXPECT_EQ(must(another.size()), 0U);
    must(pool.close());
    EXPECT_EQ(wrong_calls(handles, "was dropped"), "");
  }
}

// Handles of versions end between the drop and the close.
TEST(Ended, VersionsThatAreReleasedMeanwhile) {
  for (const EngineInfo& engine : kEngines) {
    if (!engine.versioned) continue;
    TempPath path;
    Pool pool = open_pool(path, options());
    std::optional<Handles> handles(open_handles(pool, engine));
    std::optional iterator(handles->versioned->scan_at(1));
    must(pool.drop("m"));
    EXPECT_EQ(code_of(handles->versioned->snapshot()), StatusCode::invalid_argument);
    EXPECT_NE(handles->versioned->snapshot().error().message().find("was dropped"),
              std::string_view::npos);
    iterator.reset();
    handles.reset();
    must(pool.map<std::uint64_t, std::uint64_t>("m", {.engine = engine.engine}));
    must(pool.close());
  }
}

// The address of a map that is gone is not that of another one.
TEST(Ended, BatchOfAMapThatIsGone) {
  for (const EngineInfo& engine : kEngines) {
    SCOPED_TRACE(engine.name);
    WriteBatch batch;
    {
      TempPath path;
      Pool pool = open_pool(path, options());
      batch.put(open_handles(pool, engine).words, 7'000, 1);
    }
    TempPath path;
    Pool pool = open_pool(path, options());
    Handles handles = open_handles(pool, engine);
    EXPECT_EQ(pool.commit(batch).code(), StatusCode::invalid_argument);
    EXPECT_TRUE(handles.words.contains(7'000).absent());
  }
}

TEST(Ended, ChildOfFork) {
  for (const EngineInfo& engine : kEngines) {
    SCOPED_TRACE(engine.name);
    TempPath path;
    Pool pool = open_pool(path, options());
    Handles handles = open_handles(pool, engine);
    WriteBatch batch;
    batch.put(handles.words, 1, 2);
    const ChildEnd child = run_child([&] {
      const std::string wrong = wrong_calls(handles, "belongs to the parent process");
      require(wrong.empty(), wrong);
      require(pool.commit(batch).code() == StatusCode::invalid_argument, "commit");
      must(pool.close());
      require(wrong_calls(handles, "belongs to the parent process").empty(), "after the close");
      Handles released = std::move(handles);
      TempPath own;  // and it may have pools of its own
      Pool another = open_pool(own, options());
      Handles others = open_handles(another, engine);
      require(must(others.words.size()) == kEntries, "its own pool");
      const ChildEnd grandchild = run_child([&] {
        const std::string now = wrong_calls(others, "belongs to the parent process");
        require(now.empty(), now);
      });
      require(grandchild.ok(), "a child of the child");
    });
    EXPECT_TRUE(child.ok()) << child;
    EXPECT_EQ(must(handles.words.size()), kEntries);
    EXPECT_TRUE(handles.words.put(1, 7).present());
  }
}

// Threads make and end pools, while others fork.
TEST(Ended, ForkBesideOpens) {
  std::vector<std::thread> threads;
  std::atomic<bool> stop{false};
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        TempPath path;
        Pool pool = open_pool(path, options());
        Handles handles = open_handles(pool, kEngines.front());
        must(pool.close());
      }
    });
  }
  TempPath path;
  Pool pool = open_pool(path, options());
  Handles handles = open_handles(pool, kEngines.front());
  for (int i = 0; i < 20; ++i) {
    const ChildEnd child = run_child([&] {
      alarm(20);
      require(handles.words.get(1).error().code() == StatusCode::invalid_argument, "get");
    });
    EXPECT_TRUE(child.ok()) << child;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// What a callback of a read must not call, and what it may.
TEST(Ended, Callbacks) {
  for (const EngineInfo& engine : kEngines) {
    SCOPED_TRACE(engine.name);
    TempPath path;
    Pool pool = open_pool(path, options());
    Handles handles = open_handles(pool, engine);
    WriteBatch batch;
    batch.put(handles.words, 1, 2);
    int calls = 0;
    const auto refuses = [&] {
      if (calls++ != 0) return;
      Refusals refused("callback");
      refused("put", handles.words.put(1, 2));
      refused("erase", handles.words.erase(1));
      refused("write_many",
              handles.words.write_many(std::array<Mutation<std::uint64_t, std::uint64_t>, 1>{}));
      if (handles.ordered) refused("erase_range", handles.ordered->erase_range({}));
      if (handles.versioned) {
        refused("tag", handles.versioned->tag());
        refused("trim", handles.versioned->trim(1));
        refused("rollback", handles.versioned->rollback(1));
      }
      refused("commit", pool.commit(batch));
      refused("sync", pool.sync());
      refused("compact", pool.compact());
      refused("check", pool.check());
      refused("stats", pool.stats());
      refused("drop", pool.drop("m"));
      refused("map", pool.map<std::uint64_t, std::uint64_t>("new"));
      refused("read_batch", pool.read_batch([] {}));
      refused("run_background", pool.run_background());
      refused("close", pool.close());
      EXPECT_EQ(refused.wrong(), "");
      EXPECT_EQ(must(handles.words.get(5)), std::optional<std::uint64_t>(5));
    };
    const auto visit = [&](auto&&...) {
      refuses();
      return false;
    };
    const auto in = [&](const char* call, auto&& f) {
      SCOPED_TRACE(call);
      calls = 0;
      f();
      EXPECT_NE(calls, 0);
    };
    in("read", [&] { must(handles.words.read(1, [&](auto) { refuses(); })); });
    const std::vector<std::uint64_t> keys{1, 2};
    in("read_many", [&] { must(handles.words.read_many(keys, visit)); });
    in("for_each", [&] { must(handles.words.for_each(visit)); });
    in("read_batch", [&] { must(pool.read_batch(refuses)); });
    if (handles.ordered) in("scan", [&] { must(handles.ordered->scan({}, visit)); });
    if (handles.versioned) {
      must(handles.versioned->put(1, 77));
      const Version second = must(handles.versioned->tag());
      in("history", [&] { must(handles.versioned->history(1, visit)); });
      in("diff", [&] { must(handles.versioned->diff(second - 1, second, {}, visit)); });
      in("scan of a snapshot", [&] { must(handles.snapshot->scan({}, visit)); });
      in("read of a snapshot", [&] { must(handles.snapshot->read(1, [&](auto) { refuses(); })); });
    }
    must(handles.words.put(1, 9));
    EXPECT_EQ(must(handles.words.get(1)), std::optional<std::uint64_t>(9));
    must(pool.close());
  }
}

}  // namespace
}  // namespace perdure::test
