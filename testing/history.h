// History: what concurrent operations were asked and answered, and whether any order of them
// explains it.
//
// WHAT  Durable linearizability (Izraelevitz et al., 2016): an operation takes effect at one moment
//   between its call and its return; after a crash every returned operation is there, and of those
//   that had not returned each wholly or not at all. Linearizability is local (Herlihy, Wing 1990),
//   so each key is judged for itself: all orders of its few operations are tried.
// VERSIONS  A tag is of all keys at once: then all orders of all operations are tried on a
//   VersionModel.
// SCANS  are many operations: each entry delivered is a lookup that returned when it was delivered,
//   each key left out one that answered "absent" when the scan ended.
// Time is the number of calls and returns so far, so that equal orders are equal histories.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "testing/subject.h"
#include "testing/version_model.h"

namespace perdure::testing {

class History {
 public:
  static constexpr std::uint64_t kNever = ~0ULL;

  struct Call {
    std::uint32_t thread = 0;
    Op op;
    std::uint64_t called = 0;
    std::uint64_t returned = kNever;
    bool answer = false;
    std::optional<std::string> value;  // of a lookup that found the key

    bool pending() const { return returned == kNever; }
  };

  // `keys`: all that any operation names; `before`: what is there, durably; `ordered`: scans
  // deliver in order. Without one, a key that goes and comes again may be delivered again.
  void reset(Model before, std::set<std::string> keys, bool ordered);
  // The same of a subject that keeps versions; `before` has the content, there are no scans.
  void reset(VersionModel before);
  std::size_t call(std::uint32_t thread, const Op& op);
  void answer(std::size_t call, bool answer, std::optional<std::string> value = {});
  // `bound`: the key that it begins with or, backwards, the one before which it begins.
  std::size_t scan_call(std::uint32_t thread, bool reverse, const std::string& bound);
  void scan_deliver(std::size_t scan, const std::string& key, const std::string& value);
  // It has come to the end, or to `last`.
  void scan_end(std::size_t scan, const std::optional<std::string>& last = {});
  // Part of the range of a scan that has not delivered yet, but may have read.
  void scan_from(std::size_t scan, const std::string& bound);

  // "" if some order explains the answers and ends in `content`; else what is wrong.
  std::string judge(const Model& content) const;
  // Equal for equal histories.
  std::uint64_t hash() const { return hash_; }
  std::string text() const;

  const std::vector<Call>& calls() const { return calls_; }

 private:
  struct Scan {
    std::uint32_t thread;
    bool reverse;
    std::string bound;  // or none
    std::uint64_t called;
    std::set<std::string> delivered;
    std::string last;
    bool after = false;  // the bound is excluded, forwards too

    bool covers(const std::string& key) const {
      if (bound.empty()) return true;
      return reverse ? key < bound : key > bound || (key == bound && !after);
    }
  };
  void mix(std::uint64_t what, std::string_view text);
  bool explained(std::uint32_t done, const VersionModel& model, const Model& content) const;

  Model before_;
  std::optional<VersionModel> versions_;
  std::set<std::string> keys_;
  std::vector<Call> calls_;
  std::vector<Scan> scans_;
  bool ordered_ = true;
  std::string disorder_;  // a scan that was not sorted
  std::uint64_t time_ = 0;
  std::uint64_t hash_ = 0;
};

}  // namespace perdure::testing
