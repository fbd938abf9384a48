#include "testing/schedule/history.h"

#include <algorithm>

namespace perdure::testing {

namespace {

using Value = std::optional<std::string>;

// Applies the operation to its key. Returns false if it cannot have returned this result.
bool explain(const History::Call& call, Value& value) {
  const bool had = value.has_value();
  bool result = had;
  switch (call.op.kind) {
    case OpKind::insert:
      result = !had;
      if (!had) value = call.op.value;
      break;
    case OpKind::upsert:
      result = !had;
      value = call.op.value;
      break;
    case OpKind::update:
      if (had) value = call.op.value;
      break;
    case OpKind::erase:
      value.reset();
      break;
    case OpKind::update_if:
      result = value == call.op.expected;
      if (result) value = call.op.value;
      break;
    case OpKind::erase_if:
      result = value == call.op.expected;
      if (result) value.reset();
      break;
    default:  // a lookup
      if (!call.pending() && call.result && value != call.value) return false;
      break;
  }
  return call.pending() || call.batch != 0 || result == call.result;
}

using Calls = std::vector<const History::Call*>;

// Tries every order of the calls not in `done` in which no call precedes one that had returned
// before it was called. `takes(call, state)` applies a call, and returns false if it cannot have
// returned its result; `ends(state)` returns whether this is the state at the end. Calls in flight
// may have had no effect.
template <class State, class Takes, class Ends>
bool some_order(const Calls& calls, std::uint32_t done, const State& state, const Takes& takes,
                const Ends& ends) {
  bool all = true;
  std::uint64_t first_return = History::kNever;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if ((done >> i & 1) != 0) continue;
    all = all && calls[i]->pending();
    first_return = std::min(first_return, calls[i]->returned);
  }
  if (all && ends(state)) return true;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if ((done >> i & 1) != 0 || calls[i]->called > first_return) continue;
    State after = state;
    if (takes(*calls[i], after) && some_order(calls, done | 1U << i, after, takes, ends)) {
      return true;
    }
  }
  return false;
}

Value lookup(const Model& model, const std::string& key) {
  const auto it = model.find(key);
  return it == model.end() ? Value() : Value(it->second);
}

// The keys, and the batch that is done in part.
struct Keys {
  Model model;
  std::uint32_t batch = 0;       // 0: none
  std::uint32_t left = 0;        // its parts that are not done
  bool pieces = false;           // other mutations may come between them
  std::vector<std::string> due;  // the keys of those parts, if `pieces`
};

// Whether the call may come now: beside a batch there is nothing but lookups of a key, or if it is
// done in pieces, mutations of a key that is not still to be changed.
bool enter(const History::Call& call, Keys& keys) {
  if (call.batch == 0) {
    if (keys.left == 0 || call.op.kind == OpKind::find) return true;
    return keys.pieces && call.op.kind != OpKind::together &&
           std::ranges::find(keys.due, call.op.key) == keys.due.end();
  }
  if (keys.left == 0) {
    keys.batch = call.batch;
    keys.left = call.parts;
    if (keys.pieces) keys.due = call.keys;
  }
  if (keys.batch != call.batch) return false;
  --keys.left;
  std::erase(keys.due, call.op.key);
  return true;
}

// Applies the operation to all keys. Returns false as explain().
bool explain(const History::Call& call, Keys& keys) {
  if (!enter(call, keys)) return false;
  Model& model = keys.model;
  if (call.op.kind == OpKind::together) {
    for (std::size_t i = 0; i < call.values.size(); ++i) {
      if (lookup(model, call.op.parts[i].key) != call.values[i]) return false;
    }
    return true;
  }
  Value value = lookup(model, call.op.key);
  if (!explain(call, value)) return false;
  if (value) {
    model.insert_or_assign(call.op.key, *value);
  } else {
    model.erase(call.op.key);
  }
  return true;
}

std::string describe(const Value& value) { return value ? printable(*value) : "absent"; }

}  // namespace

void History::reset(Model before, std::set<std::string> keys, bool ordered) {
  ordered_ = ordered;
  versions_.reset();
  before_ = std::move(before);
  keys_ = std::move(keys);
  calls_.clear();
  scans_.clear();
  disorder_.clear();
  batches_ = 0;
  time_ = 0;
  hash_ = 0;
}

void History::reset(VersionModel before) {
  reset(Model(), {}, true);
  versions_ = std::move(before);
}

void History::mix(std::uint64_t what, std::string_view text) {
  hash_ = combine(hash_, what);
  for (const char c : text) hash_ = Random(hash_ + static_cast<unsigned char>(c)).next();
}

std::size_t History::call(std::uint32_t thread, const Op& op) {
  calls_.push_back({.thread = thread, .op = op, .called = ++time_, .value = {}});
  mix(thread, "call");
  return calls_.size() - 1;
}

std::size_t History::batch_call(std::uint32_t thread, const Op& op) {
  const std::size_t first = calls_.size();
  ++batches_;
  for (const Op& part : op.parts) {
    const std::size_t number = call(thread, part);
    calls_[number].batch = batches_;
    for (const Op& one : op.parts) calls_[number].keys.push_back(one.key);
    calls_[number].parts = static_cast<std::uint32_t>(op.parts.size());
  }
  return first;
}

void History::batch_returned(std::size_t first) {
  for (std::size_t i = 0; i < calls_[first].parts; ++i) returned(first + i, true);
}

void History::returned(std::size_t number, bool result, std::optional<std::string> value) {
  Call& call = calls_[number];
  call.returned = ++time_;
  call.result = result;
  mix(call.thread * 2 + (result ? 1 : 0), value ? *value : "return");
  call.value = std::move(value);
}

void History::returned(std::size_t number, std::vector<std::optional<std::string>> values) {
  Call& call = calls_[number];
  call.returned = ++time_;
  call.result = true;
  for (const auto& value : values) mix(call.thread * 2 + 1, value ? *value : "absent");
  call.values = std::move(values);
}

std::size_t History::scan_call(std::uint32_t thread, bool reverse, const std::string& bound) {
  scans_.push_back({.thread = thread,
                    .reverse = reverse,
                    .bound = bound,
                    .called = ++time_,
                    .delivered = {},
                    .last = {}});
  mix(thread, "scan");
  return scans_.size() - 1;
}

void History::scan_deliver(std::size_t number, const std::string& key, const std::string& value) {
  Scan& scan = scans_[number];
  const bool sorted = scan.delivered.empty() || (scan.reverse ? key < scan.last : key > scan.last);
  if (ordered_ && !sorted) {
    disorder_ = "a scan delivered " + printable(key) + " after " + printable(scan.last);
  }
  if (!scan.covers(key)) {
    disorder_ = "a scan delivered " + printable(key) + ", which its bound excludes";
  }
  scan.delivered.insert(key);
  scan.last = key;
  keys_.insert(key);
  calls_.push_back({.thread = scan.thread,
                    .op = {OpKind::find, key, {}},
                    .called = scan.called,
                    .returned = ++time_,
                    .result = true,
                    .value = value});
  mix(scan.thread, key + value);
}

void History::scan_from(std::size_t number, const std::string& bound) {
  scans_[number].bound = bound;
  scans_[number].after = true;
}

void History::scan_end(std::size_t number, const std::optional<std::string>& last) {
  const Scan& scan = scans_[number];
  ++time_;
  for (const std::string& key : keys_) {
    if (scan.delivered.contains(key) || !scan.covers(key)) continue;
    if (last && (scan.reverse ? key < *last : key > *last)) continue;
    calls_.push_back({.thread = scan.thread,
                      .op = {OpKind::find, key, {}},
                      .called = scan.called,
                      .returned = time_,
                      .result = false,
                      .value = {}});
  }
  mix(scan.thread, "scan end");
}

bool History::explained(const Calls& calls, const Model& content) const {
  if (!versions_) {
    return some_order(
        calls, 0, Keys{.model = before_, .pieces = pieces_},
        [](const Call& call, Keys& keys) { return explain(call, keys); },
        [&](const Keys& keys) { return keys.left == 0 && keys.model == content; });
  }
  const auto takes = [&](const Call& call, VersionModel& model) {
    VersionModel::Result result{call.result, call.value, call.pending()};
    for (const Call* other : calls) {
      if (other->op.kind != OpKind::trim || other->called > call.returned) continue;
      result.trimmed = std::max(result.trimmed, version_number(other->op.key[0]));
    }
    return model.explains(call.op, result);
  };
  return some_order(calls, 0, *versions_, takes,
                    [&](const VersionModel& model) { return model.matches(content); });
}

std::string History::judge(const Model& content) const {
  if (!disorder_.empty()) return disorder_;
  const auto of_several_keys = [](const Call& call) {
    return call.op.kind == OpKind::together || call.batch != 0;
  };
  if (versions_ || std::ranges::any_of(calls_, of_several_keys)) {
    Calls calls;
    for (const Call& call : calls_) calls.push_back(&call);
    return explained(calls, content) ? std::string() : unexplained(content);
  }
  std::set<std::string> keys = keys_;
  for (const auto& [key, value] : content) keys.insert(key);
  for (const std::string& key : keys) {
    Calls calls;
    for (const Call& call : calls_) {
      if (call.op.key == key) calls.push_back(&call);
    }
    const Value before = lookup(before_, key);
    const Value after = lookup(content, key);
    const bool explained = some_order(
        calls, 0, before, [](const Call& call, Value& value) { return explain(call, value); },
        [&](const Value& value) { return value == after; });
    if (explained) continue;
    return printable(key) + " was " + describe(before) + " and is " + describe(after) +
           ", which no order of these explains:\n" + text();
  }
  return {};
}

std::string History::unexplained(const Model& content) const {
  std::string there;
  for (const auto& [key, value] : content) there += " " + printable(key) + "=" + printable(value);
  return "there are" + there + ", which no order of these explains:\n" + text();
}

std::string History::text() const {
  std::string out;
  for (const Call& call : calls_) {
    out += "    [" + std::to_string(call.called) + ", " +
           (call.pending() ? "-" : std::to_string(call.returned)) + "] thread " +
           std::to_string(call.thread) + ": " + testing::describe(call.op);
    if (call.batch != 0) out += ", of batch " + std::to_string(call.batch);
    if (!call.pending() && call.batch == 0) out += call.result ? " -> yes" : " -> no";
    if (call.value) out += ", " + printable(*call.value);
    for (const auto& value : call.values) out += " " + describe(value) + ";";
    out += "\n";
  }
  return out;
}

}  // namespace perdure::testing
