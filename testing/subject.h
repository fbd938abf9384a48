// Subject: what the crash explorer explores, seen from outside: a structure that can be created,
// opened, operated, checked and closed over a SimMemory, and a std::map that says what it must
// contain.
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
#include "testing/sim_memory.h"

namespace perdure::testing {

// What a structure must contain. Integer keys are 8 bytes, big-endian, so that the order agrees.
using Model = std::map<std::string, std::string>;
using Contents = std::vector<std::pair<std::string, std::string>>;

enum class OpKind : std::uint8_t {
  insert,  // nothing happens if the key is there
  upsert,
  update,  // nothing happens if the key is absent
  erase,
  find,
  drop,  // every key that starts with `key` goes: a map of a pool
  sync,
  compact,     // gives space back; the content stays
  reopen,      // close, open
  background,  // a step of what no operation waits for, as another thread
  // Of interleavings only:
  scan,
  scan_back,
  iterate,       // an iterator goes to `key` or the end, and back; see Subject::iterate()
  iterate_back,  // the same of a reverse scan
  reclaim,       // what is retired and due is finished
  // Of subjects that keep versions; `key` is a name of one byte. See version_key().
  tag,       // names the present state
  trim,      // names of earlier states are forgotten
  rollback,  // the present state, and those of later names, are what this one names
  // Of both; `key`: a name, two names, a key. See VersionModel.
  scan_at,
  diff,
  history,
};
struct Op {
  OpKind kind = OpKind::find;
  std::string key;
  std::string value;
};
std::string describe(const Op& op);

// Where versions are kept, a key of a model begins with a byte: kPresent, or kVersion and a name,
// for what the key was in that version; kNamed with a name holds how many earlier ones there are.
inline constexpr char kPresent = 0;
inline constexpr char kVersion = 2;
inline constexpr char kNamed = 3;
inline std::string version_key(const std::string& name, const std::string& key) {
  return kVersion + name + key;
}
// Bytes as text, hexadecimal where they do not print.
std::string printable(std::string_view bytes);

// What the operation answers on this model, which it changes.
bool apply_to(Model& model, const Op& op);

// Splitmix64: seedable, the same everywhere.
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

class Subject {
 public:
  Subject() = default;
  // After a kill the memory is frozen: whatever the destructor stores is ignored.
  virtual ~Subject() = default;
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  // Formats an empty file.
  virtual Status create(SimMemory& memory) = 0;
  // Recovers and makes ready. `boot` differs from the last open's if the machine went down in
  // between.
  virtual Status open(SimMemory& memory, std::uint64_t boot) = 0;
  virtual Expected<bool> apply(const Op& op) = 0;
  // apply() without the upkeep that a workload of one thread does between its operations: any
  // number of simulated threads are inside.
  virtual Expected<bool> call(const Op& op) { return apply(op); }
  // A step of background work, if any is due, by the thread that calls.
  virtual void background() {}
  // Everything, as it is delivered; backwards if asked. `bound`, of what keeps order: the first key
  // or, backwards, the one before which it begins.
  using Deliver = std::function<void(const std::string& key, const std::string& value)>;
  virtual Status scan(bool reverse, const std::string& bound, const Deliver& deliver);
  Status scan(bool reverse, const Deliver& deliver) { return scan(reverse, {}, deliver); }
  // Of what keeps order: an iterator walks from the first entry of the scan with next() until it is
  // at `turn` or behind it, or at the end, then with prev() back to the first one. Where it turned:
  // the key; nothing if it has met the end, and went to the last entry anew.
  virtual Expected<std::optional<std::string>> iterate(bool reverse, const std::string& turn,
                                                       const Deliver& there, const Deliver& back);
  virtual void reclaim() {}
  // Of interleavings of subjects that keep versions: as a VersionModel answers.
  virtual bool versions() const { return false; }
  virtual Expected<bool> ask(const Op& op, std::string& text) { return lookup(op.key, text); }
  // The value, or not; false if absent.
  virtual Expected<bool> lookup(const std::string& key, std::string& value) = 0;
  // Everything, in order if the structure keeps one.
  virtual Status contents(Contents& out) = 0;
  virtual bool ordered() const { return true; }
  // Invariants and leaks; one line per violation.
  virtual void check(std::vector<std::string>& violations) = 0;
  virtual Status close() = 0;
};

using SubjectFactory = std::function<std::unique_ptr<Subject>()>;
// A random operation of a workload's kind; also the operations after a recovery.
using OpSource = std::function<Op(Random&)>;

// The differences between a structure and its model; empty if there are none. Compares the scan,
// every lookup of a key in it and in the model, and the order.
std::string compare(Subject& subject, const Model& model);

}  // namespace perdure::testing
