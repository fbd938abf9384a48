// test: no asan, each engine
// Flips single bits in a small pool, one at a time. In a cleanly closed pool, open, a read or check
// reports the flip, or nothing depends on the bit and every result is right. In the pool of a dead
// process results may be wrong, but there is no signal, no hang and no undocumented status. The
// same holds for an open past the damage, as `perdure check` does. In an open pool, check returns a
// report that names the damage.
//
// The fast tests flip a seeded sample. PERDURE_FLIPS=all flips every bit of every used line. In
// lines of zeros that may be used later (root directory, extent table, assigned extents) it flips
// every bit of the first word, and some others. A number flips that many bits. PERDURE_ENGINE names
// an engine. Replay one flip with PERDURE_FLIP=BIT and --gtest_filter.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "format/layout.h"
#include "heap/extent_table.h"
#include "index/engine_table.h"
#include "index/phast/layout.h"
#include "testing/checksums/checksums.h"
#include "tests/support/engines.h"
#include "tests/support/support.h"
#include "util/crc32c.h"

namespace perdure::test {
namespace {

using Bytes = std::string_view;

PoolOptions options() {
  return {.durability = Durability::process, .max_size = 4_MiB, .recovery_threads = 1};
}
MapOptions new_map() { return {.engine = chosen_engine().engine, .phast = {.partition_bits = 1}}; }
MapOptions old_map() {
  MapOptions options = new_map();
  options.mode = OpenMode::existing;
  return options;
}

// The content of the pool: several leaves of each kind of map; an unlinked leaf; key 0; empty
// values; a value with extents of its own; with versions, histories.
struct Truth {
  std::map<std::uint64_t, std::uint64_t> numbers;
  std::map<std::uint64_t, std::string> records;
  std::map<std::string, std::string> texts;
  std::map<std::string, std::uint64_t> words;
};

// With versions, the numbers were tagged before any was erased.
bool has_versions() { return chosen_engine().versioned; }

std::string word_key(std::uint64_t i) { return "word:" + std::to_string(100'000 + i * 7); }

Truth truth() {
  Truth t;
  for (std::uint64_t i = 0; i < 200; ++i) {
    if (i < 70 || i > 130) t.numbers[i * 1'000] = mix(i);
    if (i < 120) t.records[mix(i)] = std::string(i % 40, static_cast<char>('a' + i % 26));
    if (i < 120) t.texts["customer:" + std::to_string(mix(i))] = std::string(i % 50, 't');
    if (i < 100) t.words[word_key(i)] = mix(i + 1'000);
  }
  t.records[0] = "key 0 lies in the root block";
  t.texts["large"] = std::string(40'000, 'L');
  return t;
}

void fill(Pool& pool, const Truth& t) {
  auto numbers = must(pool.map<std::uint64_t, std::uint64_t>("numbers", new_map()));
  for (std::uint64_t i = 0; i < 200; ++i) must(numbers.insert(i * 1'000, mix(i)));
  if (has_versions()) {
    must(must(pool.versioned_map<std::uint64_t, std::uint64_t>("numbers", new_map())).tag());
  }
  for (std::uint64_t i = 70; i <= 130; ++i) must(numbers.erase(i * 1'000));
  auto records = must(pool.map<std::uint64_t, Bytes>("records", new_map()));
  for (const auto& [key, value] : t.records) must(records.insert(key, value));
  auto texts = must(pool.map<Bytes, Bytes>("texts", new_map()));
  for (const auto& [key, value] : t.texts) must(texts.insert(key, value));
  auto words = must(pool.map<Bytes, std::uint64_t>("words", new_map()));
  for (const auto& [key, value] : t.words) must(words.insert(key, value));
  must(must(pool.map<std::uint64_t, std::uint64_t>("dropped", new_map())).insert(1, 2));
  must(pool.drop("dropped"));
}

enum class Verdict : std::uint8_t {
  at_open,
  at_read,
  by_check,
  unused,   // every result is right and check finds nothing
  allowed,  // a wrong result from a dead process's pool, which guarantees none
  silent,
  wrong_status,
  signal,
  kinds,
};
constexpr const char* kVerdicts[] = {"at_open", "at_read", "by_check",     "unused",
                                     "allowed", "silent",  "wrong_status", "signal"};

// The result of reading a map: the keys with wrong values, and whether a call failed.
struct Reading {
  bool refused = false;
  std::vector<std::string> wrong;
};
std::string name_of(std::uint64_t key) { return std::to_string(key); }
std::string name_of(const std::string& key) { return key; }

template <class K, class V, class Truths>
void read_map(Pool& pool, const char* name, const Truths& truths, Reading& out) {
  auto map = pool.map<K, V>(name, old_map());
  if (!map) {
    out.refused = true;
    return;
  }
  for (const auto& [key, value] : truths) {
    auto found = map->get(K(key));
    if (!found) {
      out.refused = true;
    } else if (!found->has_value() || **found != value) {
      out.wrong.push_back(name_of(key));
    }
  }
  std::uint64_t entries = 0;
  auto visited = map->for_each([&](const K&, const V&) { return ++entries <= truths.size(); });
  if (!visited) {
    out.refused = true;
  } else if (entries != truths.size()) {
    out.wrong.push_back(std::string(name) + ", by for_each");
  }
  if (!chosen_engine().ordered) return;
  auto ordered = pool.ordered_map<K, V>(name, old_map());
  if (!ordered) {
    out.refused = true;
    return;
  }
  auto expected = truths.begin();
  bool same = true;
  auto scanned = ordered->scan(ScanOptions<K>{}, [&](const K& key, const V& value) {
    // A scan that goes wrong may continue for long. Its further entries do not matter.
    same = same && expected != truths.end() && K(expected->first) == key;
    if (!same) return false;
    if (V(expected->second) != value) out.wrong.push_back(name_of(expected->first));
    ++expected;
    return true;
  });
  if (!scanned) {
    out.refused = true;
  } else if (!same || expected != truths.end()) {
    out.wrong.push_back(std::string(name) + ", by a scan");
  }
}

// Reads the numbers at the tagged version.
void read_version(Pool& pool, Reading& out) {
  auto map = pool.versioned_map<std::uint64_t, std::uint64_t>("numbers", old_map());
  if (!map) {
    out.refused = true;
    return;
  }
  std::uint64_t entries = 0;
  bool same = true;
  auto scanned = map->scan_at(1, {}, [&](std::uint64_t key, std::uint64_t value) {
    same = same && key == entries * 1'000 && value == mix(entries);
    ++entries;
    return same;
  });
  if (!scanned) {
    out.refused = true;
  } else if (!same || entries != 200) {
    out.wrong.push_back("numbers, in version 1");
  }
}

Reading read_all(Pool& pool, const Truth& t) {
  Reading out;
  read_map<std::uint64_t, std::uint64_t>(pool, "numbers", t.numbers, out);
  read_map<std::uint64_t, Bytes>(pool, "records", t.records, out);
  read_map<Bytes, Bytes>(pool, "texts", t.texts, out);
  read_map<Bytes, std::uint64_t>(pool, "words", t.words, out);
  if (has_versions()) read_version(pool, out);
  if (must(pool.list()).size() != 4 && out.wrong.empty()) out.wrong.push_back("list");
  return out;
}

bool documented(StatusCode code) {
  return code == StatusCode::corruption || code == StatusCode::unsupported_format ||
         code == StatusCode::untrusted;
}

struct Shared {
  std::uint64_t next;  // the flip that the child is working on
  std::uint64_t counts[static_cast<std::size_t>(Verdict::kinds)];
  std::uint64_t lived_on;  // unused flips after which the pool worked, closed and was read again
  std::uint64_t bad_count;
  std::uint64_t bad[64];  // bits
  Verdict why[64];
};

// When the test takes a right result for a wrong one.
enum class Lie : std::uint8_t { never, at_once, later };

class Flips {
 public:
  // `later`: after the pool has worked on. `observed`: opened read-only and past damage.
  explicit Flips(bool clean, Lie lie = Lie::never, bool observed = false)
      : clean_(clean), observed_(observed), lie_(lie), truth_(truth()) {
    const ChildEnd end = run_child([&] {
      Pool pool = open_pool(path_, options());
      fill(pool, truth_);
      if (!clean_) _exit(0);
      must(pool.close());
    });
    require(end.ok(), "the pool cannot be made");
    original_ = read_bytes(path_);
    fd_ = open(path_.str().c_str(), O_RDWR | O_CLOEXEC);
    require(fd_ >= 0, "open");
    void* p =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    require(p != MAP_FAILED, "mmap");
    shared_ = new (p) Shared{};
    if (lie == Lie::at_once) ++truth_.numbers[1'000];
  }
  ~Flips() {
    close(fd_);
    munmap(shared_, sizeof(Shared));
  }
  Flips(const Flips&) = delete;
  Flips& operator=(const Flips&) = delete;

  // Chooses bits, most of them in used lines.
  std::vector<std::uint64_t> choose(bool few = false) const {
    std::vector<std::uint64_t> used;
    std::vector<std::uint64_t> empty;
    split_lines(used, empty);
    std::vector<std::uint64_t> bits;
    if (const char* one = std::getenv("PERDURE_FLIP")) {
      bits.push_back(std::strtoull(one, nullptr, 0));
      return bits;
    }
    const char* text = few ? "100" : std::getenv("PERDURE_FLIPS");
    Rng rng;
    if (text != nullptr && Bytes(text) == "all") {
      std::printf("flips: %zu lines in use, %zu of zeros\n", used.size(), empty.size());
      std::fflush(stdout);
      for (const std::uint64_t line : used) {
        for (std::uint64_t bit = 0; bit < 512; ++bit) bits.push_back(line * 512 + bit);
      }
      for (const std::uint64_t line : empty) {
        for (std::uint64_t bit = 0; bit < 64; ++bit) bits.push_back(line * 512 + bit);
        for (int n = 0; n < 8; ++n) bits.push_back(line * 512 + 64 + rng.below(512 - 64));
      }
      return bits;
    }
    std::uint64_t n = text != nullptr ? std::strtoull(text, nullptr, 0) : scaled(3'000, 2'000, 150);
    for (; n > 0; --n) {
      bits.push_back(rng.one_in(16)   ? rng.below(original_.size() * 8)
                     : rng.one_in(16) ? empty[rng.below(empty.size())] * 512 + rng.below(512)
                                      : used[rng.below(used.size())] * 512 + rng.below(512));
    }
    return bits;
  }

  // The bounds of the leaves without one: the last of their partitions.
  std::vector<std::uint64_t> absent_bounds() const {
    using Leaf = phast::layout::Leaf<phast::DefaultGeometry>;
    std::vector<std::uint64_t> bits;
    for (std::size_t at = 0; at + sizeof(Leaf) <= original_.size(); at += sizeof(Leaf)) {
      std::uint64_t bound, crc;
      std::memcpy(&bound, &original_[at + offsetof(Leaf, bound)], sizeof(bound));
      std::memcpy(&crc, &original_[at + offsetof(Leaf, crc)], sizeof(crc));
      if (bound != 0 || crc == 0 || crc != leaf_crc(&original_[at])) continue;
      for (std::uint64_t bit = 0; bit < 64; ++bit) {
        bits.push_back((at + offsetof(Leaf, bound)) * 8 + bit);
      }
    }
    return bits;
  }

  static void tell(std::uint64_t bit, const ChildEnd& end) {
    std::printf("flips: bit %llu ended the child with %s %d\n",
                static_cast<unsigned long long>(bit), end.exited ? "exit status" : "signal",
                end.exited ? end.code : end.signal);
    std::fflush(stdout);
  }

  const Shared& run(const std::vector<std::uint64_t>& bits) {
    while (shared_->next < bits.size()) {
      const ChildEnd end = run_child([&] {
        while (shared_->next < bits.size()) {
          limit_time(20);
          record(bits[shared_->next], flip(bits[shared_->next]));
          ++shared_->next;
        }
      });
      if (end.ok()) break;
      tell(bits[shared_->next], end);
      record(bits[shared_->next], Verdict::signal);
      ++shared_->next;
    }
    return *shared_;
  }

  // Keeps the pool open, and flips, checks and flips back each bit.
  const Shared& run_open(const std::vector<std::uint64_t>& bits) {
    while (shared_->next < bits.size()) {
      const ChildEnd end = run_child([&] {
        put(0, original_);
        Pool pool = open_pool(path_, options());
        // makes the structures that reads leave in memory
        const Reading before = read_all(pool, truth_);
        require(!before.refused && before.wrong.empty(), "the pool is whole");
        // Ends the work that the open left. Damage found during it would stay found.
        require(verdict_of(pool.check({.deep = true})) == Verdict::unused, "check finds it whole");
        for (; shared_->next < bits.size(); ++shared_->next) {
          limit_time(20);
          const std::uint64_t bit = bits[shared_->next];
          char byte = 0;
          require(pread(fd_, &byte, 1, static_cast<off_t>(bit / 8)) == 1, "pread");
          const char flipped = static_cast<char>(byte ^ (1 << bit % 8));
          put(bit / 8, Bytes(&flipped, 1));
          record(bit, verdict_of(pool.check({.deep = true})));
          put(bit / 8, Bytes(&byte, 1));
        }
        require(verdict_of(pool.check({.deep = true})) == Verdict::unused, "nothing is left of it");
        must(pool.close());
      });
      if (end.ok()) break;
      require(shared_->next < bits.size(), "the pool is whole again when all bits are");
      tell(bits[shared_->next], end);
      record(bits[shared_->next], Verdict::signal);
      ++shared_->next;
    }
    return *shared_;
  }

  // Flips a bit of one value and corrects the checksums, as if the engine had none.
  Verdict flip_unprotected(std::uint64_t key) {
    const std::uint64_t value = truth_.numbers.at(key);
    const Bytes sought(reinterpret_cast<const char*>(&value), sizeof(value));
    std::string bytes = original_;
    std::size_t found = 0;
    for (std::size_t at = bytes.find(sought); at != std::string::npos; at = bytes.find(sought)) {
      bytes[at] ^= 1;  // at every occurrence: a table that has grown may hold it twice
      ++found;
    }
    require(found > 0, "the value is in the file");
    testing::fix_engines(bytes);
    return judge(0, bytes);
  }

 private:
  // As a close writes it.
  static std::uint64_t leaf_crc(const char* leaf) {
    using Leaf = phast::layout::Leaf<phast::DefaultGeometry>;
    constexpr std::size_t kRest = offsetof(Leaf, values_crc);
    return crc32c(crc32c(0, leaf, offsetof(Leaf, crc)), leaf + kRest, sizeof(Leaf) - kRest);
  }

  // Limits the processor time of one flip, because a stopped process does not hang.
  static void limit_time(unsigned seconds) {
    alarm(0);  // run_child's limit for the whole child
    const itimerval timer{{0, 0}, {static_cast<time_t>(seconds), 0}};
    setitimer(ITIMER_PROF, &timer, nullptr);
  }

  // Finds the used lines, and the lines of zeros of the root directory, the extent table and
  // assigned extents.
  void split_lines(std::vector<std::uint64_t>& used, std::vector<std::uint64_t>& empty) const {
    const layout::Header header = newest_header();
    const std::uint64_t extents = (header.file_bytes - header.data_offset) / header.extent_bytes;
    std::vector<bool> assigned(extents);
    for (std::uint64_t extent = 0; extent < extents; ++extent) {
      ExtentWord word;
      std::uint64_t bits;
      std::memcpy(&bits, &original_[header.table_offset + extent * 8], sizeof(bits));
      require(ExtentWord::decode(bits, extent, word), "the extent table is whole");
      const bool run = word.state == ExtentState::run;
      if (!run && word.state != ExtentState::slab) continue;
      for (std::uint64_t i = 0; i < (run ? word.run : 1U); ++i) assigned.at(extent + i) = true;
    }
    const std::uint64_t directory_end =
        layout::kDirectoryOffset + header.root_slots * sizeof(layout::Root);
    const std::uint64_t table_end = header.table_offset + extents * 8;
    for (std::uint64_t line = 0; line < original_.size() / 64; ++line) {
      const std::uint64_t at = line * 64;
      const Bytes bytes = Bytes(original_).substr(at, 64);
      if (bytes.find_first_not_of('\0') != Bytes::npos) {
        used.push_back(line);
      } else if ((at >= layout::kDirectoryOffset && at < directory_end) ||
                 (at >= header.table_offset && at < table_end) ||
                 (at >= header.data_offset && at < header.file_bytes &&
                  assigned[(at - header.data_offset) / header.extent_bytes])) {
        empty.push_back(line);
      }
    }
  }
  layout::Header newest_header() const {
    layout::Header copies[2];
    for (std::size_t i = 0; i < 2; ++i) {
      std::memcpy(&copies[i], &original_[i * layout::kHeaderBytes], sizeof(copies[i]));
    }
    return copies[copies[0].sequence > copies[1].sequence ? 0 : 1];
  }

  void record(std::uint64_t bit, Verdict verdict) {
    ++shared_->counts[static_cast<std::size_t>(verdict)];
    if (verdict < Verdict::silent || shared_->bad_count >= std::size(shared_->bad)) return;
    shared_->bad[shared_->bad_count] = bit;
    shared_->why[shared_->bad_count++] = verdict;
  }

  void put(std::uint64_t at, Bytes bytes) const {
    require(pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at)) ==
                static_cast<ssize_t>(bytes.size()),
            "pwrite");
  }
  static Verdict verdict_of(const Expected<CheckReport>& report) {
    if (!report)
      return documented(report.error().code()) ? Verdict::by_check : Verdict::wrong_status;
    return report->ok() && report->leaked_blocks == 0 ? Verdict::unused : Verdict::by_check;
  }

  // Flips in place: an unclean pool remembers its inode.
  Verdict flip(std::uint64_t bit) {
    const char byte = static_cast<char>(original_[bit / 8] ^ (1 << bit % 8));
    return judge(bit / 8, Bytes(&byte, 1));
  }

  // Judges the pool with these bytes replaced.
  Verdict judge(std::uint64_t at, Bytes bytes) {
    require(ftruncate(fd_, static_cast<off_t>(original_.size())) == 0, "ftruncate");
    put(0, original_);
    put(at, bytes);
    PoolOptions how = options();
    how.mode = observed_ ? OpenMode::read_only : OpenMode::existing;
    how.allow_damage = observed_;
    auto pool = Pool::open(path_, how);
    if (!pool) return documented(pool.error().code()) ? Verdict::at_open : Verdict::wrong_status;
    const bool sound = verdict_of(pool->check({.deep = true})) == Verdict::unused;
    const Reading reading = read_all(*pool, truth_);
    if (!clean_ || observed_) {
      if (!observed_) work(*pool);
      return sound ? (reading.wrong.empty() ? Verdict::unused : Verdict::allowed)
                   : Verdict::by_check;
    }
    if (!sound) return Verdict::by_check;
    if (reading.refused) return Verdict::at_read;
    if (reading.wrong.empty()) return lives_on(*pool) ? Verdict::unused : Verdict::silent;
    if (std::getenv("PERDURE_FLIP") != nullptr) {
      std::fprintf(stderr, "wrong: %s\n", reading.wrong.front().c_str());
    }
    return Verdict::silent;
  }

  // An unnoticed flip may do harm later. Makes about 200 operations and compares with their
  // effects, then checks, closes, opens and reads everything again.
  bool lives_on(Pool& pool) {
    std::string wrong;
    try {
      Truth now = truth_;
      change(pool, now);
      if (lie_ == Lie::later) ++now.numbers[5'500];
      wrong = unlike(pool, now);
      must(pool.close());
      Pool again = open_pool(path_, options());
      if (wrong.empty()) wrong = unlike(again, now);
      ++shared_->lived_on;
    } catch (const std::exception& error) {
      wrong = error.what();
    }
    if (wrong.empty()) return true;
    if (std::getenv("PERDURE_FLIP") != nullptr) {
      std::fprintf(stderr, "later: %s\n", wrong.c_str());
    }
    return false;
  }
  static std::string unlike(Pool& pool, const Truth& now) {
    if (verdict_of(pool.check({.deep = true})) != Verdict::unused) return "check";
    const Reading reading = read_all(pool, now);
    return reading.refused ? "refused" : reading.wrong.empty() ? "" : reading.wrong.front();
  }
  static void change(Pool& pool, Truth& now) {
    auto numbers = must(pool.map<std::uint64_t, std::uint64_t>("numbers", old_map()));
    auto records = must(pool.map<std::uint64_t, Bytes>("records", old_map()));
    auto texts = must(pool.map<Bytes, Bytes>("texts", old_map()));
    auto words = must(pool.map<Bytes, std::uint64_t>("words", old_map()));
    for (std::uint64_t i = 0; i < 30; ++i) {
      const std::uint64_t key = i * 5'500;  // every other key is new
      require(was_absent(numbers.put(key, i)) == now.numbers.insert_or_assign(key, i).second,
              "new?");
      const std::uint64_t gone = (i * 7 + 1) * 1'000;
      require(was_present(numbers.erase(gone)) == (now.numbers.erase(gone) != 0), "erased?");
      const std::string value(i * 11 % 90, 'n');
      must(records.put(mix(i * 3), value));
      now.records.insert_or_assign(mix(i * 3), value);
      const std::string name = "customer:" + std::to_string(mix(i));
      if (i % 3 == 0) {
        require(was_present(texts.erase(name)) == (now.texts.erase(name) != 0), "text erased?");
      } else {
        must(texts.put(name + "+", value));
        now.texts.insert_or_assign(name + "+", value);
      }
      must(words.put(word_key(i * 4), i));
      now.words.insert_or_assign(word_key(i * 4), i);
      const bool was = now.words.erase(word_key(i * 4 + 1)) != 0;
      require(was_present(words.erase(word_key(i * 4 + 1))) == was, "word erased?");
    }
  }

  // Operations on possible damage: results do not matter, signals do.
  static void work(Pool& pool) {
    auto numbers = pool.map<std::uint64_t, std::uint64_t>("numbers", old_map());
    auto texts = pool.map<Bytes, Bytes>("texts", old_map());
    for (std::uint64_t i = 0; i < 120; ++i) {
      if (numbers) (void)numbers->put(i * 500, i);
      if (numbers) (void)numbers->erase(i * 1'000);
      const std::string key = "customer:" + std::to_string(mix(i));
      if (texts) (void)(i % 2 == 0 ? texts->put(key, "new") : texts->erase(key));
    }
    (void)pool.close();
  }

  TempPath path_;
  bool clean_;
  bool observed_;
  Lie lie_;
  Truth truth_;
  std::string original_;
  int fd_ = -1;
  Shared* shared_ = nullptr;
};

enum class State : std::uint8_t { clean, unclean, open, observed, observed_unclean };

void expect_none_bad(State state) {
  PERDURE_TRACE_SEED();
  const bool observed = state >= State::observed;
  Flips flips(state != State::unclean && state != State::observed_unclean, Lie::never, observed);
  const std::vector<std::uint64_t> bits = flips.choose();
  const Shared& shared = state == State::open ? flips.run_open(bits) : flips.run(bits);
  static constexpr const char* kNames[] = {"clean", "unclean", "open", "observed",
                                           "observed_unclean"};
  const char* pool = kNames[static_cast<std::size_t>(state)];
  std::printf("flips.%s=%zu\n", pool, bits.size());
  for (std::size_t i = 0; i < static_cast<std::size_t>(Verdict::kinds); ++i) {
    std::printf("flips.%s.%s=%llu\n", pool, kVerdicts[i],
                static_cast<unsigned long long>(shared.counts[i]));
  }
  if (state == State::clean) {
    std::printf("flips.clean.lived_on=%llu\n", static_cast<unsigned long long>(shared.lived_on));
    EXPECT_EQ(shared.lived_on, shared.counts[static_cast<std::size_t>(Verdict::unused)]);
  }
  for (std::uint64_t i = 0; i < shared.bad_count; ++i) {
    ADD_FAILURE() << kVerdicts[static_cast<std::size_t>(shared.why[i])] << ": bit "
                  << shared.bad[i] % 8 << " of byte " << shared.bad[i] / 8
                  << "; PERDURE_FLIP=" << shared.bad[i];
  }
  // Without a flip every result would be right. An engine that restarts at once reads almost
  // nothing at open. Others may verify as much in a pool that was not closed as in one that was.
  if (bits.size() > 1) {
    const bool by_open = state == State::clean && !find_engine(chosen_engine().engine)->at_once;
    const auto count = [&](Verdict verdict) {
      return shared.counts[static_cast<std::size_t>(verdict)];
    };
    EXPECT_GT(count(Verdict::at_open) + (by_open ? 0 : count(Verdict::by_check)),
              bits.size() / 100);
  }
}

TEST(BitFlip, TheJudgeSeesAWrongResult) {
  PERDURE_TRACE_SEED();
  for (const Lie lie : {Lie::at_once, Lie::later}) {
    Flips flips(true, lie);
    const Shared& shared = flips.run(flips.choose(true));
    EXPECT_GT(shared.counts[static_cast<std::size_t>(Verdict::silent)], 0U);
    EXPECT_EQ(shared.counts[static_cast<std::size_t>(Verdict::unused)], 0U);
  }
}

// Without verification of checksums, a run would find this.
TEST(BitFlip, WithoutTheEnginesChecksumsAFlipIsSilent) {
  Flips flips(true);
  int seen = 0;
  for (const std::uint64_t key : {140'000, 150'000, 199'000}) {  // no record has their values
    const Verdict verdict = flips.flip_unprotected(key);
    EXPECT_EQ(verdict, Verdict::silent) << key;
    seen += verdict == Verdict::silent ? 1 : 0;
  }
  std::printf("flips.planted_seen=%d\n", seen);
}

// A leaf without a bound has none in DRAM that check could compare.
TEST(BitFlip, OfABoundThatIsNotThereIsNeverASignalOfCheck) {
  if (chosen_engine().engine != Engine::phast) GTEST_SKIP() << "not a leaf of phast";
  Flips flips(true);
  const std::vector<std::uint64_t> bits = flips.absent_bounds();
  ASSERT_GE(bits.size(), 2U * 64);
  const Shared& shared = flips.run_open(bits);
  EXPECT_EQ(shared.counts[static_cast<std::size_t>(Verdict::by_check)], bits.size());
}

TEST(BitFlip, InACleanlyClosedPoolIsNeverSilent) { expect_none_bad(State::clean); }
TEST(BitFlip, InThePoolOfADeadProcessIsNeverASignal) { expect_none_bad(State::unclean); }
TEST(BitFlip, PastTheDamageOfAClosedPoolIsNeverASignal) { expect_none_bad(State::observed); }
TEST(BitFlip, PastTheDamageOfADeadProcessIsNeverASignal) {
  expect_none_bad(State::observed_unclean);
}
TEST(BitFlip, InAnOpenPoolIsNeverASignalOfCheck) { expect_none_bad(State::open); }

}  // namespace
}  // namespace perdure::test
