// perdure-power-guest: runs in a virtual machine whose power is cut (scripts/power_cuts.py).
//
//   perdure-power-guest FILE ENGINE
//
// Opens a pool with durability `buffered`, verifies what is in it, and then changes it until the
// power fails. Writer t puts its operations 1, 2, 3, .. in their order; operation i goes to key
// i % kKeys of the writer. The value names i, and how many operations of the other writers had been
// acknowledged when it began. So the pool is as at a cut exactly if each writer has all operations
// up to its last one, and no operation has seen one that is missing.
//
// Prints one line each:
//   found A B C       the last operations in the pool
//   wrong TEXT        a violation; the program ends
//   acked MS A B C    acknowledged by now; milliseconds since the program began
//   durable A B C     sync() has returned for these, or Pool::stats() says so by its lag
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <perdure/perdure.h>

namespace {

using namespace perdure;

constexpr std::size_t kWriters = 3;
constexpr std::uint64_t kKeys = 4'000;

using Counts = std::array<std::uint64_t, kWriters>;
using Users = Map<std::uint64_t, std::string_view>;

[[noreturn]] void wrong(const std::string& text) {
  std::printf("wrong %s\n", text.c_str());
  std::fflush(stdout);
  std::exit(1);
}

std::string text_of(const Status& s) { return std::string(s.message()); }

template <class T>
T must(Expected<T> result) {
  if (!result) wrong(text_of(result.error()));
  return std::move(*result);
}

// Two threads print: a line is one call.
void print(std::string line, const Counts& counts) {
  for (const std::uint64_t count : counts) line += " " + std::to_string(count);
  line += "\n";
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
}

std::uint64_t key_of(std::size_t writer, std::uint64_t i) { return writer << 32 | i % kKeys; }

// Of different lengths, so that records move.
std::string value_of(std::uint64_t i, const Counts& seen) {
  std::string value = std::to_string(i);
  for (const std::uint64_t other : seen) value += " " + std::to_string(other);
  return value + " " + std::string(20 + i * 7919 % 300, 'v');
}

struct Value {
  std::uint64_t i = 0;
  Counts seen{};
};

Value parse(std::string_view text) {
  Value value;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto next = [&](std::uint64_t& number) {
    const auto [behind, error] = std::from_chars(at, end, number);
    if (error != std::errc() || behind == end) wrong("a value is damaged");
    at = behind + 1;
  };
  next(value.i);
  for (std::uint64_t& other : value.seen) next(other);
  if (value_of(value.i, value.seen) != text) wrong("a value is damaged");
  return value;
}

// Returns the last operation of each writer.
Counts verify(Pool& pool, Users& users) {
  const CheckReport report = must(pool.check({.deep = true}));
  if (!report.ok()) wrong(std::string(report.first()));
  Counts found{};
  std::array<Value, kWriters> last{};
  for (std::size_t writer = 0; writer < kWriters; ++writer) {
    std::vector<std::uint64_t> at(kKeys, 0);
    for (std::uint64_t slot = 0; slot < kKeys; ++slot) {
      const auto text = must(users.get(key_of(writer, slot)));
      if (!text) continue;
      const Value value = parse(*text);
      if (value.i % kKeys != slot) wrong("a value is at another key");
      at[slot] = value.i;
      if (value.i >= last[writer].i) last[writer] = value;
    }
    found[writer] = last[writer].i;
    for (std::uint64_t slot = 0; slot < kKeys; ++slot) {
      // The greatest operation up to the last one that goes to this key; 0: none has.
      const std::uint64_t back = (found[writer] % kKeys + kKeys - slot) % kKeys;
      const std::uint64_t right = found[writer] > back ? found[writer] - back : 0;
      if (at[slot] != right) {
        wrong("writer " + std::to_string(writer) + " has operation " +
              std::to_string(found[writer]) + ", but " + std::to_string(at[slot]) + " instead of " +
              std::to_string(right));
      }
    }
  }
  for (std::size_t writer = 0; writer < kWriters; ++writer) {
    for (std::size_t other = 0; other < kWriters; ++other) {
      if (found[other] >= last[writer].seen[other]) continue;
      wrong("an operation has seen another one that is missing");
    }
  }
  return found;
}

class Work {
 public:
  Work(Pool& pool, Users& users, const Counts& found) : pool_(pool), users_(users) {
    for (std::size_t i = 0; i < kWriters; ++i) acked_[i] = found[i];
  }

  [[noreturn]] void run() {
    std::vector<std::thread> threads;
    for (std::size_t writer = 0; writer < kWriters; ++writer) {
      threads.emplace_back([this, writer] { write(writer); });
    }
    threads.emplace_back([this] { sync(); });
    report();
  }

 private:
  using Clock = std::chrono::steady_clock;

  Counts acked() const {
    Counts counts;
    for (std::size_t i = 0; i < kWriters; ++i) counts[i] = acked_[i].load();
    return counts;
  }
  [[noreturn]] void write(std::size_t writer) {
    for (std::uint64_t i = acked_[writer] + 1;; ++i) {
      const Found put = users_.put(key_of(writer, i), value_of(i, acked()));
      if (!put.ok()) wrong(text_of(put.status()));
      acked_[writer] = i;
    }
  }
  [[noreturn]] void sync() {
    for (;;) {
      const Counts before = acked();
      if (Status s = pool_.sync(); !s.ok()) wrong(text_of(s));
      print("durable", before);
      std::this_thread::sleep_for(std::chrono::milliseconds(230));
    }
  }
  // What had been acknowledged a lag ago is durable.
  [[noreturn]] void report() {
    std::deque<std::pair<Clock::time_point, Counts>> history;
    const auto began = Clock::now();
    for (unsigned tick = 0;; ++tick) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const Counts counts = acked();
      history.emplace_back(Clock::now(), counts);
      if (tick % 5 != 0) continue;
      const auto now = Clock::now();
      const auto since = now - std::chrono::nanoseconds(must(pool_.stats()).lag_ns);
      const Counts* durable = nullptr;
      while (!history.empty() && history.front().first <= since) {
        last_ = history.front().second;
        durable = &last_;
        history.pop_front();
      }
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - began).count();
      print("acked " + std::to_string(ms), acked());
      if (durable != nullptr) print("durable", *durable);
    }
  }

  Pool& pool_;
  Users& users_;
  std::array<std::atomic<std::uint64_t>, kWriters> acked_{};
  Counts last_{};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) wrong("usage: perdure-power-guest FILE ENGINE");
  // A short log, so that it is folded often.
  Pool pool = must(Pool::open(argv[1], {.durability = Durability::buffered,
                                        .buffered = {.log_bytes = std::uint64_t{32} << 20},
                                        .max_size = std::uint64_t{128} << 20}));
  const auto engine = engine_named(argv[2]);
  if (!engine) wrong("there is no such engine");
  Users users = must(pool.map<std::uint64_t, std::string_view>("users", {.engine = *engine}));
  const Counts found = verify(pool, users);
  print("found", found);
  Work(pool, users, found).run();
}
