// History: the calls and results of concurrent operations. Judges whether some order explains them.
//
// WHAT  Durable linearizability (Izraelevitz et al., 2016): an operation takes effect at one moment
//   between its call and its return. After a crash every returned operation is present, and each
//   other one wholly or not at all. Linearizability is local (Herlihy, Wing 1990): each key is
//   judged by itself, by trying all orders of its few operations.
// TOGETHER  Reads of several keys at one moment concern these keys at once. Then all orders of all
//   operations are tried, on a model of all keys.
// BATCHES  A batch is a group of writes, each with a moment of its own between call and return of
//   the batch, as its readers may see them. No other mutation and no reads together come between
//   them, and after a crash all are there or none. If batches are done in pieces, mutations of
//   other keys may come between, and of those that the batch has changed already.
// VERSIONS  A tag concerns all keys at once. Then all orders of all operations are tried on a
//   VersionModel.
// SCANS  A scan is many operations: each delivered entry is a lookup that returned when it was
//   delivered, each missing key a lookup that returned "absent" when the scan ended.
// Time is the number of calls and returns so far: equal orders are equal histories.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "testing/crash/subject.h"
#include "testing/schedule/version_model.h"

namespace perdure::testing {

class History {
 public:
  static constexpr std::uint64_t kNever = ~0ULL;

  struct Call {
    std::uint32_t thread = 0;
    Op op;
    std::uint64_t called = 0;
    std::uint64_t returned = kNever;
    bool result = false;
    std::optional<std::string> value;                     // from a lookup that found the key
    std::vector<std::optional<std::string>> values = {};  // from OpKind::together
    std::uint32_t batch = 0;                              // its batch; 0: none
    std::uint32_t parts = 0;                              // of its batch
    std::vector<std::string> keys;                        // of its batch

    bool pending() const { return returned == kNever; }
  };

  // `before`: the durable content. `keys`: all keys that any operation names. `ordered`: scans
  // deliver in order; otherwise a key that is erased and inserted may be delivered again.
  void reset(Model before, std::set<std::string> keys, bool ordered);
  // The same for a subject that keeps versions. `before` has the content; there are no scans.
  void reset(VersionModel before);
  std::size_t call(std::uint32_t thread, const Op& op);
  // Returns the number of the call of the first part. The others follow.
  std::size_t batch_call(std::uint32_t thread, const Op& op);
  void batch_returned(std::size_t first);
  void returned(std::size_t call, bool result, std::optional<std::string> value = {});
  void returned(std::size_t call, std::vector<std::optional<std::string>> values);
  // `bound`: the first key or, backwards, the key before which the scan begins.
  std::size_t scan_call(std::uint32_t thread, bool reverse, const std::string& bound);
  void scan_deliver(std::size_t scan, const std::string& key, const std::string& value);
  // The scan has reached its end, or `last`.
  void scan_end(std::size_t scan, const std::optional<std::string>& last = {});
  // Narrows the range of a scan that has delivered nothing yet, but may have read.
  void scan_from(std::size_t scan, const std::string& bound);

  // Returns "" if some order explains the results and ends in `content`; otherwise what is wrong.
  std::string judge(const Model& content) const;
  // Equal for equal histories.
  std::uint64_t hash() const { return hash_; }
  std::string text() const;

  const std::vector<Call>& calls() const { return calls_; }
  // After reset().
  void set_pieces(bool pieces) { pieces_ = pieces; }

 private:
  struct Scan {
    std::uint32_t thread;
    bool reverse;
    std::string bound;  // empty: none
    std::uint64_t called;
    std::set<std::string> delivered;
    std::string last;
    bool after = false;  // the bound is excluded, also forwards

    bool covers(const std::string& key) const {
      if (bound.empty()) return true;
      return reverse ? key < bound : key > bound || (key == bound && !after);
    }
  };
  void mix(std::uint64_t what, std::string_view text);
  // Whether some order of these calls, on all keys at once, ends in `content`.
  bool explained(const std::vector<const Call*>& calls, const Model& content) const;
  std::string unexplained(const Model& content) const;

  Model before_;
  std::optional<VersionModel> versions_;
  std::set<std::string> keys_;
  std::vector<Call> calls_;
  std::vector<Scan> scans_;
  bool ordered_ = true;
  std::string disorder_;  // a scan that was not sorted
  std::uint32_t batches_ = 0;
  bool pieces_ = false;
  std::uint64_t time_ = 0;
  std::uint64_t hash_ = 0;
};

}  // namespace perdure::testing
