// perdure-power-guest: runs in a virtual machine whose power is cut (scripts/power_cuts.py), and
// whose disk fails (scripts/disk_errors.py).
//
//   perdure-power-guest FILE ENGINE SEED [hide=sync|hide=write-back]
//
// Opens a pool with durability `buffered`, verifies what is in it, and changes it until the power
// fails, it gets SIGTERM, or the pool is poisoned. Writer t puts its operations 1, 2, 3, .. in this
// order, one by one or in batches; operation i goes to key i % kKeys of the writer. The value names
// i, the last operation of its batch, and how many operations of the other writers had been
// acknowledged when it began. So the pool is as at a cut exactly if each writer has all operations
// up to its last one, which ends a batch, and no operation has seen one that is missing. Another
// thread calls sync(), and one fold_log() and compact(). An operation that fails is tried again.
//
// With `hide` the program has a planted error: it hides from the library that fsync(2) and
// fdatasync(2) have failed, or that a write-back has (sync_file_range(2)).
//
// Prints one line each:
//   refused CODE TEXT        the open has failed; the program ends
//   found A B C              the last operations in the pool
//   wrong TEXT               a violation; the program ends
//   acked MS A B C           acknowledged by now; milliseconds since the program began
//   durable A B C            sync() or close() has returned ok for these
//   lagged A B C             Pool::stats() says by its lag that these are durable
//   failed CALL CODE TEXT    a call; the first one of its thread with this code
//   closed CODE TEXT         the end
//   log LEVEL TEXT           what the library says for an operator
#include <execinfo.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <perdure/perdure.h>

#include "../world/page_out.h"

namespace {

std::atomic<bool> hides_sync{false};
std::atomic<bool> hides_write_back{false};

}  // namespace

// The linker gives these to the library (--wrap).
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
int __real_fsync(int file);
int __real_fdatasync(int file);
int __real_sync_file_range(int file, off64_t from, off64_t bytes, unsigned flags);

int __wrap_fsync(int file) {
  const int done = __real_fsync(file);
  return hides_sync ? 0 : done;
}
int __wrap_fdatasync(int file) {
  const int done = __real_fdatasync(file);
  return hides_sync ? 0 : done;
}
int __wrap_sync_file_range(int file, off64_t from, off64_t bytes, unsigned flags) {
  const int done = __real_sync_file_range(file, from, bytes, flags);
  return hides_write_back ? 0 : done;
}
}
// NOLINTEND(readability-identifier-naming)

namespace {

using namespace perdure;

constexpr std::size_t kWriters = 3;
constexpr std::uint64_t kKeys = 4'000;
constexpr std::uint64_t kBatch = 6;  // operations, at most

using Counts = std::array<std::uint64_t, kWriters>;
using Users = Map<std::uint64_t, std::string_view>;

// Several threads print: a line is one call.
void print(std::string line) {
  std::ranges::replace(line, '\n', ' ');
  line += "\n";
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
}
void print(std::string line, const Counts& counts) {
  for (const std::uint64_t count : counts) line += " " + std::to_string(count);
  print(std::move(line));
}
void print(const std::string& what, const Status& s) {
  const std::string text(s.ok() ? "" : " " + std::string(s.message()));
  print(what + " " + status_code_name(s.code()) + text);
}
void print_log(void*, LogLevel level, std::string_view text) {
  print("log " + std::string(log_level_name(level)) + " " + std::string(text));
}

[[noreturn]] void wrong(const std::string& text) {
  print("wrong " + text);
  std::exit(1);
}

std::uint64_t key_of(std::size_t writer, std::uint64_t i) { return writer << 32 | i % kKeys; }

// Of different lengths, so that records move. `last`: the last operation of the batch.
std::string value_of(std::uint64_t i, std::uint64_t last, const Counts& seen) {
  std::string value = std::to_string(i) + " " + std::to_string(last);
  for (const std::uint64_t other : seen) value += " " + std::to_string(other);
  return value + " " + std::string(20 + i * 7919 % 300, 'v');
}

struct Value {
  std::uint64_t i = 0;
  std::uint64_t last = 0;
  Counts seen{};
};

// Throws what is wrong with the content; a status, if a call has failed.
struct Damage {
  std::string text;
};

template <class T>
T must(Expected<T> result) {
  if (!result) throw std::move(result.error());
  return std::move(*result);
}

Value parse(std::string_view text) {
  Value value;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto next = [&](std::uint64_t& number) {
    const auto [behind, error] = std::from_chars(at, end, number);
    if (error != std::errc() || behind == end) throw Damage{"a value is damaged"};
    at = behind + 1;
  };
  next(value.i);
  next(value.last);
  for (std::uint64_t& other : value.seen) next(other);
  if (value_of(value.i, value.last, value.seen) != text) throw Damage{"a value is damaged"};
  return value;
}

// Returns the last operation of each writer.
Counts verify(Pool& pool, Users& users) {
  const CheckReport report = must(pool.check({.deep = true}));
  if (!report.ok()) throw Damage{std::string(report.first())};
  Counts found{};
  std::array<Value, kWriters> last{};
  for (std::size_t writer = 0; writer < kWriters; ++writer) {
    const std::string who = "writer " + std::to_string(writer);
    std::vector<std::uint64_t> at(kKeys, 0);
    for (std::uint64_t slot = 0; slot < kKeys; ++slot) {
      const auto text = must(users.get(key_of(writer, slot)));
      if (!text) continue;
      const Value value = parse(*text);
      if (value.i % kKeys != slot) throw Damage{"a value is at another key"};
      at[slot] = value.i;
      if (value.i >= last[writer].i) last[writer] = value;
    }
    found[writer] = last[writer].i;
    for (std::uint64_t slot = 0; slot < kKeys; ++slot) {
      // The greatest operation up to the last one that goes to this key; 0: none has.
      const std::uint64_t back = (found[writer] % kKeys + kKeys - slot) % kKeys;
      const std::uint64_t right = found[writer] > back ? found[writer] - back : 0;
      if (at[slot] != right) {
        throw Damage{who + " has operation " + std::to_string(found[writer]) + ", but " +
                     std::to_string(at[slot]) + " instead of " + std::to_string(right)};
      }
    }
    if (last[writer].last != found[writer]) throw Damage{who + " has a part of a batch"};
  }
  for (std::size_t writer = 0; writer < kWriters; ++writer) {
    for (std::size_t other = 0; other < kWriters; ++other) {
      if (found[other] >= last[writer].seen[other]) continue;
      throw Damage{"an operation has seen another one that is missing"};
    }
  }
  return found;
}

std::atomic<bool> is_told_to_stop{false};

class Work {
 public:
  Work(Pool& pool, Users& users, const Counts& found, std::string path, std::uint64_t seed)
      : pool_(pool), users_(users), path_(std::move(path)), seed_(seed) {
    for (std::size_t i = 0; i < kWriters; ++i) acked_[i] = found[i];
  }

  // Returns what was acknowledged, when no call is under way any more.
  Counts run() {
    std::vector<std::thread> threads;
    for (std::size_t writer = 0; writer < kWriters; ++writer) {
      threads.emplace_back([this, writer] { write(writer); });
    }
    threads.emplace_back([this] { sync(); });
    threads.emplace_back([this] { tidy_up(); });
    report();
    for (std::thread& thread : threads) thread.join();
    return acked();
  }

 private:
  using Clock = std::chrono::steady_clock;

  // The failures of one thread. A code is printed once, until a call has worked.
  class Calls {
   public:
    explicit Calls(Work& work) : work_(work) {}
    bool worked(const std::string& call, const Status& s) {
      if (s.code() != last_ && !s.ok()) print("failed " + call, s);
      last_ = s.code();
      if (s == StatusCode::poisoned) work_.is_poisoned_ = true;
      if (!s.ok()) nap(5);
      return s.ok();
    }

   private:
    Work& work_;
    StatusCode last_ = StatusCode::ok;
  };

  static void nap(std::uint64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

  bool goes_on() const { return !is_told_to_stop && !is_poisoned_; }
  Counts acked() const {
    Counts counts;
    for (std::size_t i = 0; i < kWriters; ++i) counts[i] = acked_[i].load();
    return counts;
  }
  void write(std::size_t writer) {
    std::mt19937_64 random(seed_ + writer);
    Calls calls(*this);
    bool takes_batches = true;
    while (goes_on()) {
      const std::uint64_t next = acked_[writer] + 1;
      const std::uint64_t last =
          takes_batches && random() % 8 == 0 ? next + random() % kBatch : next;
      const Counts seen = acked();
      Status done;
      if (last == next) {
        done = users_.put(key_of(writer, next), value_of(next, next, seen)).status();
      } else {
        WriteBatch batch;
        for (std::uint64_t i = next; i <= last; ++i) {
          batch.put(users_, key_of(writer, i), value_of(i, last, seen));
        }
        done = pool_.commit(batch);
        takes_batches = done != StatusCode::unsupported;
        if (!takes_batches) continue;
      }
      if (calls.worked("put", done)) acked_[writer] = last;
    }
  }
  void sync() {
    std::mt19937_64 random(seed_ + kWriters);
    Calls syncs(*this), resumes(*this);
    while (goes_on()) {
      const Counts before = acked();
      if (syncs.worked("sync", pool_.sync())) {
        print("durable", before);
      } else if (resumes.worked("resume", pool_.resume_log())) {
        print("resumed");
      }
      nap(random() % 250);
    }
  }
  void tidy_up() {
    std::mt19937_64 random(seed_ + kWriters + 1);
    Calls folds(*this), compacts(*this);
    while (goes_on()) {
      nap(random() % 300);
      switch (random() % 4) {
        case 0:
          folds.worked("fold", pool_.fold_log());
          break;
        case 1: {
          const auto done = pool_.compact();
          compacts.worked("compact", done ? Status() : done.error());
          break;
        }
        default:
          page_out(path_);
      }
    }
  }
  // What had been acknowledged a lag ago is durable.
  void report() {
    std::deque<std::pair<Clock::time_point, Counts>> history;
    const auto began = Clock::now();
    Calls calls(*this);
    for (unsigned tick = 0; goes_on(); ++tick) {
      nap(2);
      const Counts counts = acked();
      history.emplace_back(Clock::now(), counts);
      if (tick % 5 != 0) continue;
      const auto now = Clock::now();
      const auto stats = pool_.stats();
      if (!calls.worked("stats", stats ? Status() : stats.error())) continue;
      const auto since = now - std::chrono::nanoseconds(stats->lag_ns);
      const Counts* durable = nullptr;
      while (!history.empty() && history.front().first <= since) {
        last_ = history.front().second;
        durable = &last_;
        history.pop_front();
      }
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - began).count();
      print("acked " + std::to_string(ms), acked());
      if (durable != nullptr) print("lagged", *durable);
    }
  }

  Pool& pool_;
  Users& users_;
  std::string path_;
  std::uint64_t seed_;
  std::array<std::atomic<std::uint64_t>, kWriters> acked_{};
  std::atomic<bool> is_poisoned_{false};
  Counts last_{};
};

// Of a pool that has just been opened. What is wrong can be due to a page that the kernel could not
// write and has dropped: then the close says so (docs/durability.md).
Counts verify_or_end(Pool& pool, Users& users) {
  Status failure;
  try {
    return verify(pool, users);
  } catch (const Status& s) {
    print("failed verify", s);
    print("closed", pool.close());
  } catch (const Damage& damage) {
    const Status s = pool.close();
    if (s.ok()) wrong(damage.text);
    print("failed verify corruption " + damage.text);
    print("closed", s);
  }
  std::exit(0);
}

// A signal that the library does not handle: where it was.
void tell_and_end(int signal) {
  std::array<void*, 40> frames;
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  ::backtrace_symbols_fd(frames.data(), count, STDOUT_FILENO);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void take_option(std::string_view option) {
  if (option == "hide=sync") {
    hides_sync = true;
  } else if (option == "hide=write-back") {
    hides_write_back = true;
  } else {
    wrong("there is no such option");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) wrong("usage: perdure-power-guest FILE ENGINE SEED [hide=sync|hide=write-back]");
  for (int i = 4; i < argc; ++i) take_option(argv[i]);
  const auto engine = engine_named(argv[2]);
  if (!engine) wrong("there is no such engine");
  std::signal(SIGTERM, [](int) { is_told_to_stop = true; });
  void* first = nullptr;
  ::backtrace(&first, 1);  // loads what the handler needs
  for (const int signal : {SIGBUS, SIGSEGV, SIGABRT}) std::signal(signal, tell_and_end);
  // A short log, so that it is folded often.
  auto pool = Pool::open(argv[1], {.handle_sigbus = true,
                                   .durability = Durability::buffered,
                                   .buffered = {.log_bytes = std::uint64_t{32} << 20},
                                   .max_size = std::uint64_t{128} << 20,
                                   .log = print_log});
  if (!pool) {
    print("refused", pool.error());
    return 0;
  }
  auto users = pool->map<std::uint64_t, std::string_view>("users", {.engine = engine});
  if (!users) {
    print("refused", users.error());
    print("closed", pool->close());
    return 0;
  }
  const Counts found = verify_or_end(*pool, *users);
  print("found", found);
  const Counts acked =
      Work(*pool, *users, found, argv[1], std::strtoull(argv[3], nullptr, 10)).run();
  const Status closed = pool->close();
  if (closed.ok()) print("durable", acked);
  print("closed", closed);
}
