#include "testing/crash/explore_runner.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

namespace perdure::testing {

namespace {

// Writes numbers and texts one after the other, each of known length.
class Writer {
 public:
  void number(std::uint64_t n) { out_.append(reinterpret_cast<const char*>(&n), sizeof(n)); }
  void text(const std::string& s) {
    number(s.size());
    out_ += s;
  }
  template <class Range, class Each>
  void list(const Range& range, Each each) {
    number(range.size());
    for (const auto& item : range) each(item);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  std::uint64_t number() {
    std::uint64_t n = 0;
    if (!has(sizeof(n))) return 0;
    std::memcpy(&n, bytes_.data() + at_, sizeof(n));
    at_ += sizeof(n);
    return n;
  }
  std::string text() {
    const std::uint64_t n = number();
    if (!has(n)) return {};
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  template <class Each>
  void list(Each each) {
    for (std::uint64_t n = number(); n > 0 && good_; --n) each();
  }
  bool ended() const { return good_ && at_ == bytes_.size(); }

 private:
  bool has(std::uint64_t n) { return good_ = good_ && n <= bytes_.size() - at_; }

  const std::string& bytes_;
  std::size_t at_ = 0;
  bool good_ = true;
};

// The counters of a report, in the order of its encoding.
template <class Report, class Each>
void each_counter(Report& r, Each each) {
  for (auto* counter : {&r.images, &r.verdicts, &r.second_images, &r.third_images, &r.second_runs,
                        &r.kill_runs, &r.points, &r.truncated, &r.bounded, &r.skipped,
                        &r.operations, &r.refused, &r.violations, &r.leaks, &r.unexplained_lines}) {
    each(*counter);
  }
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A worker describes its current step here, for its parent.
constexpr std::size_t kBoardBytes = 2048;
struct Unmap {
  void operator()(char* board) const { munmap(board, kBoardBytes); }
};
using Board = std::unique_ptr<char, Unmap>;

Board make_board() {
  void* p = mmap(nullptr, kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return Board(p == MAP_FAILED ? nullptr : static_cast<char*>(p));
}

struct Worker {
  pid_t pid = -1;
  int pipe = -1;
  std::string packed;
  Job job;
  Board board = {};
  std::string doing = {};  // at the last look
  double since = 0;
  bool killed = false;  // because it made no progress
};

std::string shown(const Worker& worker) {
  return std::string(worker.board.get(), strnlen(worker.board.get(), kBoardBytes));
}

// Kills the worker if its step has not changed for longer than `patience`.
void watch(Worker& worker, double patience) {
  std::string doing = shown(worker);
  if (doing != worker.doing) {
    worker.doing = std::move(doing);
    worker.since = now();
  } else if (!worker.killed && now() - worker.since > patience) {
    worker.killed = kill(worker.pid, SIGKILL) == 0;
  }
}

void write_all(int fd, const std::string& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t n = write(fd, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(4);
    at += static_cast<std::size_t>(n);
  }
}

bool start(Worker& worker, const std::vector<Worker>& others) {
  int ends[2];
  worker.board = make_board();
  if (worker.board == nullptr || pipe(ends) != 0) return false;
  worker.since = now();
  std::fflush(nullptr);
  worker.pid = fork();
  if (worker.pid < 0) {
    close(ends[0]);
    close(ends[1]);
    return false;
  }
  if (worker.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a worker must not outlive its parent
    for (const Worker& other : others) close(other.pipe);
    close(ends[0]);
    show_context_in(worker.board.get(), kBoardBytes);
    write_all(ends[1], pack(worker.job.run()));
    std::fflush(nullptr);
    _exit(0);
  }
  close(ends[1]);
  worker.pipe = ends[0];
  return true;
}

ExploreReport finish(Worker& worker) {
  close(worker.pipe);
  int status = 0;
  while (waitpid(worker.pid, &status, 0) < 0 && errno == EINTR) {
  }
  ExploreReport report;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && unpack(worker.packed, report)) return report;
  report = {.name = worker.job.name, .violations = 1};
  if (worker.killed) {
    report.failures.push_back(worker.job.name + " hung and was killed; it was doing\n  " +
                              shown(worker));
    return report;
  }
  report.failures.push_back(worker.job.name +
                            (WIFSIGNALED(status)
                                 ? " was ended by signal " + std::to_string(WTERMSIG(status))
                                 : " ended with status " + std::to_string(WEXITSTATUS(status))));
  return report;
}

// Returns true once the worker has sent its whole report.
bool receive(Worker& worker) {
  char buffer[1 << 16];
  const ssize_t n = read(worker.pipe, buffer, sizeof(buffer));
  if (n < 0 && errno == EINTR) return false;
  if (n > 0) worker.packed.append(buffer, static_cast<std::size_t>(n));
  return n <= 0;
}

}  // namespace

void PartReport::add(const ExploreReport& report) {
  verdicts += report.verdicts;
  points += report.points;
  truncated += report.truncated;
  bounded += report.bounded;
  skipped += report.skipped;
  kills += report.kill_runs;
  violations += report.violations;
  leaks += report.leaks;
  seconds += report.seconds;
  sites_crossed.insert(report.sites_crossed.begin(), report.sites_crossed.end());
  failures.insert(failures.end(), report.failures.begin(), report.failures.end());
  for (int depth = 0; depth < 3; ++depth) {
    for (int i = 0; i <= depth; ++i) {
      files[i].insert(report.hashes[depth].begin(), report.hashes[depth].end());
    }
  }
}

std::string pack(const ExploreReport& report) {
  Writer w;
  w.text(report.name);
  each_counter(report, [&](std::uint64_t n) { w.number(n); });
  w.number(static_cast<std::uint64_t>(report.seconds * 1e6));
  w.list(report.sites_crossed, [&](const std::string& s) { w.text(s); });
  w.list(report.failures, [&](const std::string& s) { w.text(s); });
  for (const auto& hashes : report.hashes) w.list(hashes, [&](std::uint64_t n) { w.number(n); });
  return w.take();
}

bool unpack(const std::string& bytes, ExploreReport& report) {
  Reader r(bytes);
  report = {};
  report.name = r.text();
  each_counter(report, [&](std::uint64_t& n) { n = r.number(); });
  report.seconds = static_cast<double>(r.number()) / 1e6;
  r.list([&] { report.sites_crossed.insert(r.text()); });
  r.list([&] { report.failures.push_back(r.text()); });
  for (auto& hashes : report.hashes) r.list([&] { hashes.insert(r.number()); });
  return r.ended();
}

void run_batches(std::size_t workers, const std::function<bool(Job&)>& next,
                 const std::function<void(const Job&, const ExploreReport&)>& done,
                 double patience) {
  std::vector<Worker> running;
  for (bool more = true;;) {
    while (more && running.size() < workers) {
      Worker worker;
      more = next(worker.job);
      if (!more) break;
      if (!start(worker, running)) {
        ExploreReport failed{.name = worker.job.name, .violations = 1};
        failed.failures.push_back(worker.job.name + ": no process could be started");
        done(worker.job, failed);
        continue;
      }
      running.push_back(std::move(worker));
    }
    if (running.empty()) return;
    std::vector<pollfd> waiting;
    for (const Worker& worker : running) waiting.push_back({worker.pipe, POLLIN, 0});
    const int look_again = static_cast<int>(std::min(patience, 1.0) * 1000);
    const int ready = poll(waiting.data(), waiting.size(), look_again);
    for (Worker& worker : running) watch(worker, patience);
    if (ready <= 0) continue;
    for (std::size_t i = running.size(); i-- > 0;) {
      if (waiting[i].revents == 0 || !receive(running[i])) continue;
      const ExploreReport report = finish(running[i]);
      const Job job = std::move(running[i].job);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      done(job, report);
    }
  }
}

}  // namespace perdure::testing
