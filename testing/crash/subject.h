// Subject: the crash explorer's view of a structure, which can be created, opened, operated,
// checked and closed over a SimMemory. A std::map has the content that it must contain.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perdure/status.h"
#include "testing/sim/sim_memory.h"

namespace perdure::testing {

// The content that a structure must have. Integer keys are 8 bytes, big-endian, and sort as
// integers.
using Model = std::map<std::string, std::string>;
using Contents = std::vector<std::pair<std::string, std::string>>;

enum class OpKind : std::uint8_t {
  insert,  // does nothing if the key is present
  upsert,
  update,  // does nothing if the key is absent
  erase,
  find,
  drop,  // erases every key that starts with `key`: a map of a pool
  sync,
  compact,     // gives space back; the content stays
  reopen,      // close, then open
  resize,      // close, double the maximum of the pool, then open
  background,  // a step of background work, by another thread
  // Only in interleavings:
  scan,
  scan_back,
  iterate,       // an iterator goes to `key` or the end, and back; see Subject::iterate()
  iterate_back,  // the same for a reverse scan
  reclaim,       // finishes retired objects that are due
  // For subjects that keep versions; `key` is a name of one byte. See version_key().
  tag,       // names the present state
  trim,      // forgets names of earlier states
  rollback,  // makes the present state, and those of later names, this one
  // For both; `key`: a name, two names, a key. See VersionModel.
  scan_at,
  diff,
  history,
  // One call of write_many() with the mutations in `parts`. Returns whether the number of parts
  // that returned true is odd.
  many,
  // An update and an erase of a key that has the value `expected`.
  update_if,
  erase_if,
  // The lookups in `parts`, at one moment: reads in which no mutation takes effect.
  together,
  // The upserts and erases in `parts`, of any maps, wholly or not at all.
  batch,
};
struct Op {
  OpKind kind = OpKind::find;
  std::string key = {};
  std::string value = {};
  std::vector<Op> parts = {};
  std::string expected = {};
};
std::string describe(const Op& op);

// With versions, a key of a model begins with a byte. kPresent: the present key. kVersion and a
// name: the key in that version. kNamed and a name: the number of earlier names.
inline constexpr char kPresent = 0;
inline constexpr char kVersion = 2;
inline constexpr char kNamed = 3;
inline std::string version_key(const std::string& name, const std::string& key) {
  return kVersion + name + key;
}
// Bytes as text, hexadecimal where they are not printable.
std::string printable(std::string_view bytes);

// Applies the operation to the model. Returns what the operation must return.
bool apply_to(Model& model, const Op& op);
// Returns what a crash during the operation may leave besides `before`: the operation done, or, of
// `many`, any of its parts.
std::vector<Model> outcomes(const Model& before, const Op& op);

// Splitmix64: seedable, the same on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : next() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};
inline std::uint64_t combine(std::uint64_t hash, std::uint64_t word) {
  return Random(hash * 0x9E3779B97F4A7C15ULL + word).next();
}

class Subject {
 public:
  Subject() = default;
  // After a kill the memory is frozen: it ignores the destructor's stores.
  virtual ~Subject() = default;
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  // Formats an empty file.
  virtual Status create(SimMemory& memory) = 0;
  // Recovers and makes ready. `boot` differs from the last open's if the machine went down in
  // between.
  virtual Status open(SimMemory& memory, std::uint64_t boot) = 0;
  virtual Expected<bool> apply(const Op& op) = 0;
  // apply() without the upkeep between the operations of a single-threaded workload. Any number of
  // simulated threads may be inside.
  virtual Expected<bool> call(const Op& op) { return apply(op); }
  // The parts of OpKind::many. Calls done(i, result) when a part has ended.
  virtual Status write_many(const std::vector<Op>& parts,
                            const std::function<void(std::size_t, bool)>& done);
  // The lookups of OpKind::together. values[i] stays empty if the key of parts[i] is absent.
  virtual Status read_together(const std::vector<Op>& parts,
                               std::vector<std::optional<std::string>>& values);
  // The calling thread does a step of background work, if any is due.
  virtual void background() {}
  // Delivers every entry, backwards if asked. `bound`, for ordered structures: the first key or,
  // backwards, the key before which the scan begins.
  using Deliver = std::function<void(const std::string& key, const std::string& value)>;
  virtual Status scan(bool reverse, const std::string& bound, const Deliver& deliver);
  Status scan(bool reverse, const Deliver& deliver) { return scan(reverse, {}, deliver); }
  // For ordered structures: an iterator goes with next() from the first entry of the scan to
  // `turn`, past it, or to the end, and then with prev() back to the first entry. Returns the key
  // at which it turned; nothing if it reached the end and restarted at the last entry.
  virtual Expected<std::optional<std::string>> iterate(bool reverse, const std::string& turn,
                                                       const Deliver& there, const Deliver& back);
  virtual void reclaim() {}
  // For interleavings of subjects that keep versions: returns what a VersionModel returns.
  virtual bool versions() const { return false; }
  // Whether mutations of other threads may come between the changes of a batch.
  virtual bool batches_in_pieces() const { return false; }
  virtual Expected<bool> ask(const Op& op, std::string& text) { return lookup(op.key, text); }
  // Returns whether the key is present; `value` receives its value.
  virtual Expected<bool> lookup(const std::string& key, std::string& value) = 0;
  // All entries, in order if the structure keeps one.
  virtual Status contents(Contents& out) = 0;
  virtual bool ordered() const { return true; }
  // Invariants and leaks; one line per violation.
  virtual void check(std::vector<std::string>& violations) = 0;
  virtual Status close() = 0;
  // Doubles the maximum of a pool that is not open.
  virtual Status resize(SimMemory& memory, std::uint64_t boot);
};

using SubjectFactory = std::function<std::unique_ptr<Subject>()>;
// A random operation of a workload's kind; also the operations after a recovery.
using OpSource = std::function<Op(Random&)>;

// Returns the differences between a structure and its model, or "". Compares the scan, every lookup
// of a key in it and in the model, and the order.
std::string compare(Subject& subject, const Model& model);

}  // namespace perdure::testing
