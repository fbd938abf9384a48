#include "bench/harness/driver.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "bench/harness/result_chain.h"
#include "bench/harness/starter.h"
#include "perdure/pool.h"
#include "platform/wait_for_loads.h"

namespace perdure::bench {
namespace {

std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// The time between two readings of the clock: the least of several runs, because any excess is a
// disturbance.
std::uint64_t empty_interval_ns() noexcept {
  constexpr int kRuns = 20;
  constexpr std::uint64_t kPairs = 2000;
  std::uint64_t least = ~0ULL;
  for (int run = 0; run < kRuns; ++run) {
    std::uint64_t within = 0;
    for (std::uint64_t i = 0; i < kPairs; ++i) {
      const std::uint64_t start = now_ns();
      within += now_ns() - start;
    }
    least = std::min(least, within / kPairs);
  }
  return least;
}

Counters difference(const Counters& after, const Counters& before) noexcept {
  return {.flushes = after.flushes - before.flushes,
          .fences = after.fences - before.fences,
          .written_lines = after.written_lines - before.written_lines,
          .allocations = after.allocations - before.allocations};
}

void accumulate(Counters& sum, const Counters& part) noexcept {
  sum.flushes += part.flushes;
  sum.fences += part.fences;
  sum.written_lines += part.written_lines;
  sum.allocations += part.allocations;
}

// The number of the next new key, where threads insert in turn. It has its line for itself.
struct alignas(128) Turns {
  std::atomic<std::uint64_t> next{0};
};

// One thread of a phase. The alignment keeps done_ off the lines of other workers' counters.
class alignas(128) Worker {
 public:
  // With `turns`, the threads insert the phase's keys in turn.
  Worker(const Phase& phase, const WorkBlock& block, const ValueCodec& values, std::uint8_t newest,
         std::uint64_t interval_ns, std::size_t sample_every, std::optional<ResultChain> chain,
         Turns* turns)
      : phase_(phase),
        block_(block),
        values_(values),
        scratch_(values.scratch()),
        newest_(newest),
        interval_ns_(interval_ns),
        sample_every_(sample_every),
        chain_(std::move(chain)),
        turns_(turns) {}

  void run(Session& session) {
    session_ = &session;
    versions_ = session.versions();
    const Counters before = thread_counters();
    dispatch();
    counters_ = difference(thread_counters(), before);
    if (failed_) error_ = session.error();
  }

  std::uint64_t done() const noexcept { return done_.load(std::memory_order_relaxed); }
  // The seconds that all operations would take without clocked ones among them.
  double seconds() const noexcept {
    const auto operations = static_cast<double>(unclocked_ + latency_.count());
    return unclocked_ == 0 ? static_cast<double>(clocked_ns_) / 1e9
                           : static_cast<double>(unclocked_ns_) / 1e9 *
                                 (operations / static_cast<double>(unclocked_));
  }
  const Counters& counters() const noexcept { return counters_; }
  const Histogram& latency() const noexcept { return latency_; }
  std::uint64_t missing() const noexcept { return missing_; }
  std::uint64_t unexpected() const noexcept { return unexpected_; }
  std::uint64_t visited() const noexcept { return visited_; }
  const std::string& error() const noexcept { return error_; }
  bool failed() const noexcept { return failed_; }

 private:
  // A key of a block.
  struct Place {
    const WorkBlock& block;
    std::size_t at;

    KeyRef key() const noexcept { return block.key(at); }
  };
  Place place_of(std::uint64_t turn) const noexcept {
    // 32 bits suffice, and divide faster.
    const auto number = static_cast<std::uint32_t>(turn);
    const auto blocks = static_cast<std::uint32_t>(phase_.blocks.size());
    return {phase_.blocks[number % blocks], number / blocks};
  }
  Place next_place() noexcept {
    return place_of(turns_->next.fetch_add(1, std::memory_order_relaxed));
  }

  // Calls op(i) for i in [0, n). The last operations of each block, one in sample_every_, are
  // clocked one by one.
  template <class Op>
  void loop(std::size_t n, std::uint64_t unit, Op op) {
    for (std::size_t i = 0; i < n && !failed_;) {
      const std::size_t block = std::min(kBlock, n - i);
      const std::size_t clocked = (block + sample_every_ - 1) / sample_every_;
      std::size_t end = i + block - clocked;
      unclocked_ += end - i;
      const std::uint64_t begin = now_ns();
      for (; i < end; ++i) op(i);
      unclocked_ns_ += now_ns() - begin;
      checking_ = true;
      for (end += clocked; i < end; ++i) {
        const std::uint64_t start = now_ns();
        op(i);
        const std::uint64_t taken = now_ns() - start;
        clocked_ns_ += taken;
        latency_.record(taken > interval_ns_ ? taken - interval_ns_ : 0);
      }
      checking_ = false;
      done_.store(i * unit, std::memory_order_relaxed);
    }
  }

  // As loop(), but the result of an operation determines the next one: i, if all results are right.
  template <class Op>
  void chained(std::size_t n, std::uint64_t unit, Op op) {
    std::size_t at = 0;
    std::uint64_t astray = 0;
    loop(n, unit, [&](std::size_t i) {
      // A counter, not a branch: after a branch the compiler could use i for `at`.
      astray += at != i ? 1 : 0;
      result_digest_ = 0;
      op(at);
      if (chain_->waits()) wait_for_loads();
      at = chain_->next(at, result_digest_);
      if (at >= n) [[unlikely]]
        at = 0;
    });
    missing_ += astray != 0 ? 1 : 0;
  }

  void dispatch_chained() {
    const std::size_t n = block_.size();
    switch (phase_.kind) {
      case OpKind::insert:
        return chained(n, 1, [this](std::size_t i) { insert(i); });
      case OpKind::read:
        return chained(n, 1, [this](std::size_t i) { read(i); });
      case OpKind::read_batch:
        return chained((n + kBatchLength - 1) / kBatchLength, kBatchLength,
                       [this](std::size_t i) { read_batch(i * kBatchLength); });
      case OpKind::read_missing:
        return chained(n, 1, [this](std::size_t i) { read_missing(i); });
      case OpKind::update:
        return chained(n, 1, [this](std::size_t i) { update(i); });
      default:
        return chained(n, 1, [this](std::size_t i) { erase(i); });
    }
  }

  // A thread does as many operations as its block has, but each with the phase's next key. A thread
  // that waits thus holds back one key, and not every key of its block.
  void dispatch_in_turn() {
    const std::size_t n = block_.size();
    switch (phase_.kind) {
      case OpKind::insert:
        return loop(n, 1, [this](std::size_t) { insert(next_place()); });
      case OpKind::tag:
        return loop(n, 1, [this](std::size_t) {
          insert(next_place());
          failed_ |= session_->tag() == Outcome::failed;
        });
      default:
        return loop_many(OpKind::insert);
    }
  }

  // Every kind has its own loop, which contains only the operation.
  void dispatch() {
    const std::size_t n = block_.size();
    if (chain_) return dispatch_chained();
    if (turns_ != nullptr) return dispatch_in_turn();
    if (phase_.mixed) return loop(n, 1, [this](std::size_t i) { mixed(i); });
    switch (phase_.kind) {
      case OpKind::insert:
        return loop(n, 1, [this](std::size_t i) { insert(i); });
      case OpKind::read:
        return loop(n, 1, [this](std::size_t i) { read(i); });
      case OpKind::read_batch:
        return loop((n + kBatchLength - 1) / kBatchLength, kBatchLength,
                    [this](std::size_t i) { read_batch(i * kBatchLength); });
      case OpKind::read_missing:
        return loop(n, 1, [this](std::size_t i) { read_missing(i); });
      case OpKind::update:
        return loop(n, 1, [this](std::size_t i) { update(i); });
      case OpKind::modify:
        return loop(n, 1, [this](std::size_t i) { modify(i); });
      case OpKind::erase:
        return loop(n, 1, [this](std::size_t i) { erase(i); });
      case OpKind::insert_many:
        return loop_many(OpKind::insert);
      case OpKind::update_many:
        return loop_many(OpKind::update);
      case OpKind::erase_many:
        return loop_many(OpKind::erase);
      case OpKind::batch:
        return loop_many(OpKind::batch);
      case OpKind::scan:
        return loop(n, 1, [this](std::size_t i) { scan(i, kScanLength); });
      case OpKind::read_modify_write:
        return loop(n, 1, [this](std::size_t i) { read_modify_write(i); });
      case OpKind::tag:
        return loop(n, 1, [this](std::size_t i) { tag(i); });
      case OpKind::read_version:
        return loop(n, 1, [this](std::size_t i) { read_version(i); });
      case OpKind::history:
        return loop(n, 1, [this](std::size_t i) { history(i); });
      case OpKind::snapshot:
        return loop(n, 1, [this](std::size_t i) { snapshot(i); });
    }
  }

  // As loop(), for calls of several operations of one kind.
  void loop_many(OpKind kind) {
    const std::size_t most = phase_.together;
    keys_.resize(most);
    value_refs_.resize(most);
    scratches_.resize(most, values_.scratch());
    loop((block_.size() + most - 1) / most, most,
         [&](std::size_t call) { write_many(kind, call * most); });
  }
  void write_many(OpKind kind, std::size_t begin) {
    const std::size_t n = std::min<std::size_t>(phase_.together, block_.size() - begin);
    const std::uint8_t generation = kind != OpKind::insert ? phase_.generation : 0;
    std::uint64_t turn = turns_ != nullptr ? turns_->next.fetch_add(n) : 0;
    for (std::size_t i = 0; i < n; ++i) {
      const Place place = turns_ != nullptr ? place_of(turn++) : Place{block_, begin + i};
      keys_[i] = place.key();
      if (kind != OpKind::erase) {
        value_refs_[i] = values_.make(keys_[i].word, generation, scratches_[i]);
      }
    }
    const Outcome outcome = session_->write_many(kind, std::span(keys_).first(n),
                                                 std::span<const ValueRef>(value_refs_).first(n));
    count(outcome, kind == OpKind::insert ? unexpected_ : missing_);
  }

  void mixed(std::size_t i) {
    switch (block_.kinds[i]) {
      case OpKind::insert:
        return insert(i);
      case OpKind::update:
        return update(i);
      case OpKind::erase:
        return erase(i);
      case OpKind::scan:
        return scan(i, block_.lengths[i]);
      case OpKind::read_modify_write:
        return read_modify_write(i);
      default:
        return read(i);
    }
  }

  // Not through a Place: in three of four series `load` of pskiplist was 9 to 17 % slower so.
  void insert(std::size_t i) {
    count(session_->insert(block_.key(i), values_.make(block_.words[i], 0, scratch_)), unexpected_);
  }
  void insert(const Place& place) {
    const KeyRef key = place.key();
    count(session_->insert(key, values_.make(key.word, 0, scratch_)), unexpected_);
  }
  void update(std::size_t i) {
    const ValueRef value = values_.make(block_.words[i], phase_.generation, scratch_);
    count(session_->update(block_.key(i), value), missing_);
  }
  void modify(std::size_t i) {
    const ValueRef value = values_.make(block_.words[i], phase_.generation, scratch_);
    bool right = false;
    const Outcome outcome = session_->modify(
        block_.key(i), [&](const ValueRef& before) { right = use(block_.words[i], before); },
        value);
    failed_ |= outcome == Outcome::failed;
    missing_ += outcome == Outcome::no || (outcome == Outcome::yes && !right) ? 1 : 0;
  }
  void erase(std::size_t i) { count(session_->erase(block_.key(i)), missing_); }
  void read_modify_write(std::size_t i) {
    read(i);
    update(i);
  }

  void read(std::size_t i) {
    bool right = false;
    const Outcome outcome = session_->read(
        block_.key(i), [&](const ValueRef& value) { right = use(block_.words[i], value); });
    failed_ |= outcome == Outcome::failed;
    missing_ += outcome == Outcome::no || (outcome == Outcome::yes && !right) ? 1 : 0;
  }

  void read_batch(std::size_t begin) {
    std::array<KeyRef, kBatchLength> keys;
    const std::size_t n = std::min<std::size_t>(kBatchLength, block_.size() - begin);
    for (std::size_t i = 0; i < n; ++i) keys[i] = block_.key(begin + i);
    std::size_t right = 0;
    const Outcome outcome = session_->read_batch(
        std::span<const KeyRef>(keys.data(), n),
        [&](std::size_t i, const ValueRef& value) { right += use(keys[i].word, value) ? 1 : 0; });
    failed_ |= outcome == Outcome::failed;
    missing_ += n - right;
  }

  void read_missing(std::size_t i) {
    const Outcome outcome = session_->read(block_.key(i), [](const ValueRef&) {});
    result_digest_ += digest(outcome);
    failed_ |= outcome == Outcome::failed;
    unexpected_ += outcome == Outcome::yes ? 1 : 0;
  }

  // The start key is present. A scan must begin with it.
  void scan(std::size_t i, std::uint64_t limit) {
    const KeyRef from = block_.key(i);
    bool first_right = false;
    const auto first = [&](const KeyRef& key, const ValueRef& value) {
      const bool same = from.bytes.empty() ? key.word == from.word : key.bytes == from.bytes;
      first_right = same && use(from.word, value);
    };
    ScanTally tally(first);
    const Outcome outcome = session_->scan(from, limit, tally);
    touched_ += tally.touched();
    failed_ |= outcome == Outcome::failed;
    missing_ += first_right ? 0 : 1;
    unexpected_ += tally.entries() > limit ? 1 : 0;
  }

  void tag(std::size_t i) {
    insert(i);
    failed_ |= session_->tag() == Outcome::failed;
  }
  Version version(std::size_t i) const noexcept {
    const std::uint64_t n = versions_.last - versions_.first + 1;
    return versions_.first + (n >> 32) * block_.draws[i] +
           ((n & 0xFFFFFFFF) * block_.draws[i] >> 32);
  }
  // A key younger than the first version may be absent. A value must be the key's.
  void read_version(std::size_t i) {
    bool right = false;
    const Outcome outcome =
        session_->read_at(block_.key(i), version(i),
                          [&](const ValueRef& value) { right = use(block_.words[i], value); });
    if (outcome == Outcome::no && block_.indexes[i] >= phase_.untagged) return;
    count(outcome == Outcome::yes && !right ? Outcome::no : outcome, missing_);
  }
  // Versions must rise, and the last entry must be the key's present value.
  void history(std::size_t i) {
    bool right = false;
    Version before = 0;
    const auto visit = [&](Version version, const ValueRef* value) {
      right = version > before && value != nullptr && use(block_.words[i], *value);
      before = version;
    };
    const Outcome outcome = session_->history(block_.key(i), visit);
    count(outcome == Outcome::yes && !right ? Outcome::no : outcome, missing_);
  }
  void snapshot(std::size_t i) {
    const auto first = [](const KeyRef&, const ValueRef&) {};
    ScanTally tally(first);
    failed_ |= session_->scan_at(version(i), tally) == Outcome::failed;
    touched_ += tally.touched();
    visited_ += tally.entries();
    const std::uint64_t entries = std::clamp(tally.entries(), phase_.least_keys, phase_.most_keys);
    missing_ += entries > tally.entries() ? entries - tally.entries() : 0;
    unexpected_ += tally.entries() > entries ? tally.entries() - entries : 0;
  }

  // Loads the value line by line. In clocked operations it also checks that the value is this key's
  // and not newer than the current writes. read_back() checks all values and their generations.
  bool use(std::uint64_t key_word, const ValueRef& value) noexcept {
    result_digest_ += digest(value);
    if (!checking_) return true;
    const auto generation = values_.generation(key_word, value);
    return generation.has_value() && *generation <= newest_;
  }

  void count(Outcome outcome, std::uint64_t& if_no) {
    result_digest_ += digest(outcome);
    if (outcome == Outcome::yes) return;
    if (outcome == Outcome::no) ++if_no;
    failed_ |= outcome == Outcome::failed;
  }

  const Phase& phase_;
  const WorkBlock& block_;
  const ValueCodec& values_;
  Session* session_ = nullptr;
  std::string scratch_;
  // Of a call of write_many.
  std::vector<KeyRef> keys_;
  std::vector<ValueRef> value_refs_;
  std::vector<std::string> scratches_;
  std::uint8_t newest_;
  std::uint64_t interval_ns_;
  std::size_t sample_every_;
  std::optional<ResultChain> chain_;  // only with --dependent
  Turns* turns_;
  bool failed_ = false;
  std::uint64_t missing_ = 0;
  std::uint64_t unexpected_ = 0;
  VersionRange versions_;
  std::uint64_t visited_ = 0;        // entries that snapshots visited
  std::uint64_t touched_ = 0;        // from scans; the compiler must not remove the loads of values
  std::uint64_t result_digest_ = 0;  // sum of the digests of results, since it was last set to 0
  bool checking_ = false;
  std::uint64_t unclocked_ = 0;  // number of unclocked operations
  std::uint64_t unclocked_ns_ = 0;
  std::uint64_t clocked_ns_ = 0;
  std::atomic<std::uint64_t> done_{0};
  Counters counters_;
  Histogram latency_;
  std::string error_;
};

}  // namespace

Driver::Driver(Subject& subject, const KeySpace& keys, const ValueCodec& values, Progress& progress,
               const DriverOptions& options)
    : subject_(subject),
      keys_(keys),
      values_(values),
      progress_(progress),
      sample_every_(options.clock_all ? 1 : kSampleEvery),
      dependent_(options.dependent),
      interval_ns_(empty_interval_ns()) {}

Result<PhaseResult> Driver::run(const Phase& phase, const Ledger& ledger) {
  const std::uint8_t newest = std::max(phase.generation, ledger.newest());
  std::vector<std::unique_ptr<Worker>> workers;
  Turns turns;
  for (const WorkBlock& block : phase.blocks) {
    const bool in_turn = phase.in_turn && phase.blocks.size() > 1;
    std::optional<ResultChain> chain;
    if (dependent_ && phase.workload != Workload::load) {
      chain.emplace(phase, block, values_, ledger);
    }
    workers.push_back(std::make_unique<Worker>(phase, block, values_, newest, interval_ns_,
                                               sample_every_, std::move(chain),
                                               in_turn ? &turns : nullptr));
  }
  PhaseResult result{.name = std::string(workload_name(phase.workload)),
                     .operations = phase.operations};
  progress_.start(result.name, phase.operations);
  Starter starter;
  starter.start(
      workers.size(), [&](std::size_t) { return subject_.session(); },
      [&](std::size_t t, Session& session) { workers[t]->run(session); });
  starter.join(progress_, [&] {
    std::uint64_t sum = 0;
    for (const auto& worker : workers) sum += worker->done();
    return sum;
  });

  result.wall_seconds = starter.wall_seconds();
  Counters counters;
  std::uint64_t visited = 0;
  for (const auto& worker : workers) {
    if (worker->failed()) {
      return failure(kExitIo, subject_.name() + ": " + result.name + ": " + worker->error());
    }
    result.seconds = std::max(result.seconds, worker->seconds());
    result.latency.merge(worker->latency());
    result.missing += worker->missing();
    result.unexpected += worker->unexpected();
    visited += worker->visited();
    accumulate(counters, worker->counters());
  }
  if (phase.kind == OpKind::snapshot) result.operations = visited;
  if (subject_.counted()) result.counters = counters;
  return result;
}

Result<std::uint64_t> Driver::read_back(const Ledger& ledger, std::uint32_t threads) {
  const std::uint64_t total = ledger.present();
  progress_.start("reading back", total);
  std::atomic<std::uint64_t> done{0};
  std::atomic<std::uint64_t> missing{0};
  std::mutex mutex;
  std::string error;
  Starter starter;
  starter.start(
      threads, [&](std::size_t) { return subject_.session(); },
      [&](std::size_t t, Session& session) {
        constexpr std::uint64_t kReportEvery = 4096;
        std::string bytes(keys_.max_length(), '\0');
        const std::uint64_t begin = total * t / threads;
        const std::uint64_t end = total * (t + 1) / threads;
        for (std::uint64_t i = begin; i < end; ++i) {
          const std::uint32_t index = ledger.index_at(i);
          KeyRef key{.word = keys_.word(index)};
          if (keys_.kind().is_string) {
            key.bytes = std::string_view(bytes).substr(0, keys_.write(key.word, bytes.data()));
          }
          bool right = false;
          const Outcome outcome = session.read(key, [&](const ValueRef& value) {
            const auto generation = values_.generation(key.word, value);
            right = generation.has_value() &&
                    values_.same_generation(*generation, ledger.generation(index));
          });
          if (outcome == Outcome::failed) {
            const std::scoped_lock lock(mutex);
            error = session.error();
            break;
          }
          if (!right) missing.fetch_add(1, std::memory_order_relaxed);
          if ((i - begin) % kReportEvery == 0) done.fetch_add(std::min(kReportEvery, end - i));
        }
      });
  starter.join(progress_, [&] { return done.load(); });
  if (!error.empty()) return failure(kExitIo, subject_.name() + ": reading back: " + error);
  return missing.load();
}

}  // namespace perdure::bench
