// test: injects, no asan
// The k-th failure of every allocation and system call during tags, reads of versions, trims and
// rollbacks, for k = 1, 2, .. until no call fails any more: alone, and with all later ones. A call
// that failed has no effect, or its whole effect. After a reopen without faults, every version that
// a tag returned reads as the state that it closed.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/support/inject.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;
using Layers = VersionedMap<std::uint64_t, Bytes>;
using State = std::map<std::uint64_t, std::string>;

class Session {
 public:
  explicit Session(std::string path) : path_(std::move(path)) {}

  // Returns how many calls failed.
  int run() {
    auto pool = call([&] { return Pool::open(path_, kOptions); });
    if (!pool) return failed_;
    auto map = call([&] { return pool->versioned_map<std::uint64_t, Bytes>("m"); });
    if (!map) return failed_;
    for (std::uint64_t round = 0; round < kRounds && !in_doubt_; ++round) {
      mutate(*map, round);
      tag(*map);
      if (round % 3 == 2) read(*map);
      if (round % 4 == 3) trim(*map);
      if (round % 5 == 4) roll_back(*map);
    }
    (void)call([&] { return pool->close(); });
    return failed_;
  }

  // Runs without faults.
  void verify() {
    Pool pool = open_pool(path_, kOptions);
    auto map = must(pool.versioned_map<std::uint64_t, Bytes>("m"));
    const VersionRange range = map.versions();
    for (const auto& [version, state] : tagged_) {
      if (version < trimmed_ || version < range.first) continue;
      require(version <= range.last, "a version that a tag returned is absent");
      if (version > certain_) continue;
      require(at(map, version) == state, "version " + std::to_string(version) + " has changed");
    }
    require(range.first <= std::max<Version>(asked_, 1), "more is trimmed than was asked for");
    if (!in_doubt_) {
      State now;
      must(map.for_each([&](std::uint64_t key, Bytes value) { now.emplace(key, value); }));
      require(now == now_, "the present state is not what was acknowledged");
    }
    const auto report = must(pool.check({.deep = true}));
    require(report.ok(), "check: " + std::string(report.first()));
    require(report.leaked_blocks == 0, std::to_string(report.leaked_blocks) + " blocks leaked");
    require(must(map.tag()) > range.last, "a tag returns a version that existed");
    must(pool.close());
  }

 private:
  static constexpr std::uint64_t kRounds = 20, kKeys = 12;
  static constexpr PoolOptions kOptions{
      .durability = Durability::process, .max_size = 4_MiB, .recovery_threads = 1};

  template <class F>
  std::invoke_result_t<F&> call(F&& body) {
    auto result = [&] {
      const Armed armed;
      return body();
    }();
    const StatusCode code = code_of(result);
    if (code == StatusCode::ok) return result;
    ++failed_;
    static constexpr StatusCode kExpected[] = {StatusCode::out_of_memory, StatusCode::io,
                                               StatusCode::pool_full, StatusCode::poisoned};
    require(std::ranges::find(kExpected, code) != std::end(kExpected),
            std::string("a call returns ") + status_code_name(code));
    require(faults_fired() != 0, "a call fails without a fault");
    return result;
  }
  // A failure for lack of space or memory means that nothing was done. Other failures leave it
  // open.
  void judge(StatusCode code) {
    in_doubt_ = in_doubt_ || (code != StatusCode::ok && code != StatusCode::pool_full &&
                              code != StatusCode::out_of_memory);
  }

  void mutate(Layers& map, std::uint64_t round) {
    for (std::uint64_t key = round % 2; key < kKeys && !in_doubt_; key += 2) {
      const bool erases = (key + round) % 5 == 4;
      const std::string value((key * round) % 90, static_cast<char>('a' + round));
      auto done = call([&] { return erases ? map.erase(key) : map.put(key, value); });
      judge(code_of(done));
      if (!done.ok()) continue;
      require(done.present() == now_.contains(key), "a mutation is wrong about its key");
      if (erases) {
        now_.erase(key);
      } else {
        now_[key] = value;
      }
    }
  }
  void tag(Layers& map) {
    auto version = call([&] { return map.tag(); });
    judge(code_of(version));
    if (!version || in_doubt_) return;
    tagged_.emplace_back(*version, now_);
    certain_ = *version;
  }
  void read(Layers& map) {
    for (const auto& [version, state] : tagged_) {
      if (version < trimmed_) continue;
      auto next = state.begin();
      bool same = true;
      auto scanned = call([&] {  // the callback must not allocate
        return map.scan_at(version, {}, [&](std::uint64_t key, Bytes value) {
          same = same && next != state.end() && next->first == key && next->second == value;
          if (same) ++next;
        });
      });
      require(!scanned || (same && next == state.end()), "a version is read wrong");
      auto found = call([&] { return map.get(3, version); });
      const auto expected = state.find(3);
      require(!found || found->has_value() == (expected != state.end()),
              "get is wrong about its key");
      require(!found || !*found || **found == expected->second, "get copies a wrong value");
    }
    if (tagged_.empty()) return;
    const Version first = std::max(tagged_.front().first, trimmed_);
    std::uint64_t differences = 0;
    (void)call([&] {
      return map.diff(first, tagged_.back().first, {},
                      [&](std::uint64_t, const auto&, const auto&) { ++differences; });
    });
    require(differences <= kKeys, "a difference delivers a key twice");
    Version last = 0;
    bool rises = true;
    (void)call([&] {
      return map.history(3, [&](Version version, const auto&) {
        rises = rises && version > last;
        last = version;
      });
    });
    require(rises, "the versions of a history do not rise");
  }
  void trim(Layers& map) {
    if (tagged_.size() < 3) return;
    const Version version = tagged_[tagged_.size() - 3].first;
    auto held = call([&] { return map.snapshot(version); });
    asked_ = std::max(asked_, version + 1);
    auto done = call([&] { return map.trim(version + 1); });
    judge(code_of(done));
    require(!done || !held || *done <= version, "a trim has passed a held version");
    trimmed_ = std::max(trimmed_, done ? *done : version + 1);  // it may have trimmed, or not
  }
  void roll_back(Layers& map) {
    if (tagged_.size() < 2 || tagged_[tagged_.size() - 2].first < trimmed_) return;
    const auto [version, state] = tagged_[tagged_.size() - 2];
    certain_ = version;
    const Status s = call([&] { return map.rollback(version); });
    judge(s.code());
    in_doubt_ = in_doubt_ || !s.ok();
    if (in_doubt_) return;
    const Version gone = tagged_.back().first;
    tagged_.pop_back();
    now_ = state;
    tag(map);
    require(tagged_.back().first == version || tagged_.back().first > gone,
            "a version that was rolled back comes again");
  }
  static State at(Layers& map, Version version) {
    State state;
    must(map.scan_at(version, {},
                     [&](std::uint64_t key, Bytes value) { state.emplace(key, value); }));
    return state;
  }

  std::string path_;
  int failed_ = 0;
  bool in_doubt_ = false;  // whether the present state is open
  State now_;
  std::vector<std::pair<Version, State>> tagged_;
  Version certain_ = 0;  // versions up to here are as they were tagged
  Version trimmed_ = 0;
  Version asked_ = 0;
};

// Returns whether the k-th call exists.
bool one_run(const std::string& path, Fault fault, std::uint64_t k, bool sticky, int& failed) {
  std::filesystem::remove(path);
  Session session(path);
  set_fault(fault, k, sticky);
  failed += session.run();
  const bool fired = faults_fired() != 0;
  set_fault(Fault::none, 0, false);
  session.verify();
  return fired;
}

TEST(VersionsFault, EveryVersionIsWhatItWas) {
  TempPath path;
  int points = 0;
  int failed = 0;
  for (auto fault = Fault::nothrow_new; fault <= kLastFault;
       fault = static_cast<Fault>(static_cast<int>(fault) + 1)) {
    for (const bool sticky : {false, true}) {
      for (std::uint64_t k = 1;; k += scaled(1, 5)) {
        SCOPED_TRACE(std::string(fault_name(fault)) + " " + std::to_string(k) +
                     (sticky ? " and later" : ""));
        bool fired = false;
        ASSERT_NO_THROW(fired = one_run(path, fault, k, sticky, failed));
        if (!fired) break;
        ++points;
      }
    }
  }
  std::printf("%d points, %d calls failed\n", points, failed);
  EXPECT_GT(points, 30) << "the faults are not injected";
  EXPECT_GT(failed, points / 4);
}

// Whether the rollback began or not, the pool opens, and the map is as before or as the version
// was.
TEST(VersionsFault, ARollbackThatIsNotDurableIsEndedByTheNextOpen) {
  constexpr PoolOptions kPower{.durability = Durability::power, .max_size = 4_MiB};
  const std::string path = on_disk("-rollback.perdure");
  const Pretended pretended({.file_system = kXfs, .disk = true});
  std::uint64_t k = 0;
  for (bool fired = true; fired;) {
    ++k;
    Version version = 0;
    {
      Pool pool = must(Pool::open(path, kPower));
      auto map = must(pool.versioned_map<std::uint64_t, std::uint64_t>("m"));
      must(map.insert(1, 1));
      version = must(map.tag());
      for (std::uint64_t i = 1; i <= 5; ++i) must(map.put(i, 10 + i));
      const std::uint64_t before = faults_fired_here();
      {
        const Failing failing(Fault::msync, k, true);
        const Status status = map.rollback(version);
        fired = faults_fired_here() != before;
        EXPECT_EQ(status, fired ? StatusCode::poisoned : StatusCode::ok) << "msync " << k;
      }
      EXPECT_EQ(pool.close(), fired ? StatusCode::poisoned : StatusCode::ok);
    }
    {
      Pool pool = must(Pool::open(path, kPower));
      auto map = must(pool.versioned_map<std::uint64_t, std::uint64_t>("m"));
      const bool done = must(map.get(2)) == std::nullopt;
      EXPECT_TRUE(fired || done);
      for (std::uint64_t i = 1; i <= 5; ++i) {
        const std::optional<std::uint64_t> was = i == 1 ? std::optional(i) : std::nullopt;
        EXPECT_EQ(must(map.get(i)), done ? was : std::optional(10 + i)) << "msync " << k;
      }
      EXPECT_EQ(must(map.get(1, version)), 1U);
      EXPECT_GT(must(map.tag()), version);
      must(pool.close());
    }
    std::filesystem::remove(path);
  }
  EXPECT_GT(k, 3U);
}

}  // namespace
}  // namespace perdure::test
