#include "testing/crash/subject.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <utility>
#include <vector>

namespace perdure::testing {

std::string printable(std::string_view bytes) {
  const bool text = !bytes.empty() && std::ranges::all_of(bytes, [](char c) {
    return std::isprint(static_cast<unsigned char>(c)) != 0;
  });
  if (text && bytes.size() <= 40) return "'" + std::string(bytes) + "'";
  std::string out = "x";
  for (const char c : bytes.substr(0, 24)) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(c));
    out += digits;
  }
  if (bytes.size() > 24) out += "..(" + std::to_string(bytes.size()) + " bytes)";
  return out;
}

std::string describe(const Op& op) {
  static constexpr const char* kNames[] = {
      "insert",       "upsert",  "update",    "erase",      "find",      "drop",      "sync",
      "compact",      "reopen",  "resize",    "background", "scan",      "scan back", "iterate",
      "iterate back", "reclaim", "tag",       "trim",       "rollback",  "scan at",   "diff",
      "history",      "many:",   "update if", "erase if",   "together:", "batch:"};
  std::string out = kNames[static_cast<int>(op.kind)];
  for (const Op& part : op.parts) out += " " + describe(part) + ";";
  if (op.kind == OpKind::many || op.kind >= OpKind::together) return out;
  if (op.kind >= OpKind::sync && op.kind <= OpKind::reclaim) return out;
  out += " " + printable(op.key);
  if (op.kind == OpKind::update_if || op.kind == OpKind::erase_if) {
    out += " == " + printable(op.expected);
  }
  if (op.kind <= OpKind::update || op.kind == OpKind::update_if) {
    out += " = " + printable(op.value);
  }
  return out;
}

Status Subject::scan(bool reverse, const std::string& bound, const Deliver& deliver) {
  Contents all;
  if (Status s = contents(all); !s.ok()) return s;
  if (reverse) std::ranges::reverse(all);
  for (const auto& [key, value] : all) {
    if (bound.empty() || (reverse ? key < bound : key >= bound)) deliver(key, value);
  }
  return {};
}

Status Subject::resize(SimMemory& /*memory*/, std::uint64_t /*boot*/) {
  return fail(StatusCode::unsupported, "this subject has no resize").error();
}

Status Subject::write_many(const std::vector<Op>& /*parts*/,
                           const std::function<void(std::size_t, bool)>& /*done*/) {
  return fail(StatusCode::unsupported, "this subject has no write_many").error();
}

Status Subject::read_together(const std::vector<Op>& /*parts*/,
                              std::vector<std::optional<std::string>>& /*values*/) {
  return fail(StatusCode::unsupported, "this subject has no read_batch").error();
}

Expected<std::optional<std::string>> Subject::iterate(bool /*reverse*/, const std::string& /*turn*/,
                                                      const Deliver& /*there*/,
                                                      const Deliver& /*back*/) {
  return fail(StatusCode::unsupported, "this subject has no iterators");
}

namespace {

// Copies every entry under `from` to `to`.
void copy_state(Model& model, const std::string& from, const std::string& to) {
  Model copies;
  for (auto it = model.lower_bound(from); it != model.end() && it->first.starts_with(from); ++it) {
    copies.emplace(to + it->first.substr(from.size()), it->second);
  }
  model.merge(copies);
}
void drop_state(Model& model, const std::string& from) {
  std::erase_if(model, [&](const auto& entry) { return entry.first.starts_with(from); });
}
// Each name, with the number of earlier names.
std::vector<std::pair<std::string, int>> names_of(const Model& model) {
  std::vector<std::pair<std::string, int>> names;
  for (const auto& [key, value] : model) {
    if (key[0] == kNamed) names.emplace_back(key.substr(1), value[0]);
  }
  return names;
}
void forget(Model& model, const std::string& name) {
  const auto it = model.find(kNamed + name);
  if (it == model.end()) return;
  const int rank = it->second[0];
  model.erase(it);
  drop_state(model, version_key(name, {}));
  for (const auto& [other, its] : names_of(model)) {
    if (its > rank) --model[kNamed + other][0];
  }
}

bool apply_version(Model& model, const Op& op) {
  const std::string present(1, kPresent);
  if (op.kind == OpKind::tag) {
    forget(model, op.key);
    copy_state(model, present, version_key(op.key, {}));
    const auto earlier = static_cast<char>(names_of(model).size());
    model.emplace(kNamed + op.key, std::string(1, earlier));
    return true;
  }
  const auto it = model.find(kNamed + op.key);
  if (it == model.end()) return false;
  const int rank = it->second[0];
  for (const auto& [name, its] : names_of(model)) {
    if (op.kind == OpKind::trim && its < rank) forget(model, name);
    if (op.kind != OpKind::rollback || its <= rank) continue;
    drop_state(model, version_key(name, {}));
    copy_state(model, version_key(op.key, {}), version_key(name, {}));
  }
  if (op.kind == OpKind::rollback) {
    drop_state(model, present);
    copy_state(model, version_key(op.key, {}), present);
  }
  return true;
}

}  // namespace

bool apply_to(Model& model, const Op& op) {
  switch (op.kind) {
    case OpKind::insert:
      return model.emplace(op.key, op.value).second;
    case OpKind::upsert:
      return model.insert_or_assign(op.key, op.value).second;
    case OpKind::update: {
      const auto it = model.find(op.key);
      if (it == model.end()) return false;
      it->second = op.value;
      return true;
    }
    case OpKind::erase:
      return model.erase(op.key) != 0;
    case OpKind::find:
      return model.contains(op.key);
    case OpKind::drop:
      std::erase_if(model, [&](const auto& entry) { return entry.first.starts_with(op.key); });
      return true;
    case OpKind::sync:
    case OpKind::compact:
    case OpKind::reopen:
    case OpKind::resize:
    case OpKind::background:
    case OpKind::scan:
    case OpKind::scan_back:
    case OpKind::iterate:
    case OpKind::iterate_back:
    case OpKind::reclaim:
    case OpKind::together:
      return true;
    case OpKind::tag:
    case OpKind::trim:
    case OpKind::rollback:
      return apply_version(model, op);
    case OpKind::scan_at:
    case OpKind::diff:
    case OpKind::history:
      return true;
    case OpKind::many: {
      bool odd = false;
      for (const Op& part : op.parts) odd ^= apply_to(model, part);
      return odd;
    }
    case OpKind::batch:
      for (const Op& part : op.parts) (void)apply_to(model, part);
      return true;
    case OpKind::update_if:
    case OpKind::erase_if: {
      const auto it = model.find(op.key);
      if (it == model.end() || it->second != op.expected) return false;
      if (op.kind == OpKind::erase_if) {
        model.erase(it);
      } else {
        it->second = op.value;
      }
      return true;
    }
  }
  return false;
}

std::vector<Model> outcomes(const Model& before, const Op& op) {
  std::vector<Model> all = {before};
  const auto add = [&](const Op& part) {
    for (std::size_t i = 0, n = all.size(); i < n; ++i) {
      Model after = all[i];
      (void)apply_to(after, part);
      if (std::ranges::find(all, after) == all.end()) all.push_back(std::move(after));
    }
  };
  if (op.kind == OpKind::many) {
    for (const Op& part : op.parts) add(part);
  } else {
    add(op);
  }
  all.erase(all.begin());
  return all;
}

namespace {

std::string compare_lookup(Subject& subject, const std::string& key, const std::string* expected) {
  std::string value;
  const auto found = subject.lookup(key, value);
  if (!found) return "lookup of " + printable(key) + ": " + std::string(found.error().message());
  if (expected == nullptr) {
    return *found ? printable(key) + " must be absent, found " + printable(value) : std::string();
  }
  if (!*found) return printable(key) + " is lost; must be " + printable(*expected);
  if (value != *expected) {
    return printable(key) + " is " + printable(value) + ", must be " + printable(*expected);
  }
  return {};
}

}  // namespace

std::string compare(Subject& subject, const Model& model) {
  for (const auto& [key, value] : model) {
    if (std::string wrong = compare_lookup(subject, key, &value); !wrong.empty()) return wrong;
  }
  Contents contents;
  if (const Status s = subject.contents(contents); !s.ok()) {
    return "scan: " + std::string(s.message());
  }
  if (!subject.ordered()) std::ranges::sort(contents);
  for (std::size_t i = 0; i < contents.size(); ++i) {
    if (i > 0 && contents[i - 1].first >= contents[i].first) {
      return "scan: " + printable(contents[i].first) + " after " + printable(contents[i - 1].first);
    }
    const auto it = model.find(contents[i].first);
    if (it == model.end()) return "scan: phantom " + printable(contents[i].first);
    if (it->second != contents[i].second) {
      return "scan: " + printable(it->first) + " is " + printable(contents[i].second) +
             ", must be " + printable(it->second);
    }
  }
  if (contents.size() != model.size()) {
    return "scan: " + std::to_string(contents.size()) + " entries, must be " +
           std::to_string(model.size());
  }
  return {};
}

}  // namespace perdure::testing
