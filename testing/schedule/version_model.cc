#include "testing/schedule/version_model.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "testing/crash/synthetic_subject.h"

namespace perdure::testing {

std::string version_text(const std::optional<std::string>& value) {
  if (!value) return "-";
  if (value->size() != 8) return printable(*value);
  // An integer key is big-endian, a word is not. Both are small.
  std::uint64_t word = 0;
  std::memcpy(&word, value->data(), 8);
  return std::to_string(std::min(word, integer_of(*value)));
}

std::optional<std::string> VersionModel::at(const std::string& key, std::uint64_t version) const {
  const auto it = keys_.find(key);
  std::optional<std::string> value;
  if (it == keys_.end()) return value;
  for (const auto& [its, entry] : it->second) {
    if (its <= version) value = entry;
  }
  return value;
}

// Several writes in one version are one entry, or none if no other version has the key.
bool VersionModel::write(const Op& op) {
  const std::string key = op.key.substr(1);
  const bool had = at(key, open()).has_value();
  const bool erases = op.kind == OpKind::erase;
  if ((op.kind == OpKind::insert && had) || (op.kind == OpKind::update && !had) ||
      (erases && !had)) {
    return false;
  }
  Entries& entries = keys_[key];
  if (!entries.empty() && entries.back().first == open()) entries.pop_back();
  const bool seen =
      std::ranges::any_of(entries, [](const auto& e) { return e.second.has_value(); });
  if (!erases) entries.emplace_back(open(), op.value);
  if (erases && seen) entries.emplace_back(open(), std::nullopt);
  if (entries.empty() || (erases && !seen)) keys_.erase(key);
  return erases || op.kind == OpKind::update ? had : !had;
}

std::string VersionModel::scan(std::uint64_t version) const {
  std::string text;
  for (const auto& [key, entries] : keys_) {
    if (const auto value = at(key, version)) text += version_text(key, value);
  }
  return text;
}

std::string VersionModel::diff(std::uint64_t from, std::uint64_t to) const {
  std::string text;
  for (const auto& [key, entries] : keys_) {
    const auto before = at(key, from);
    const auto after = at(key, to);
    if (before == after) continue;
    text += version_text(key) + ":" + version_text(before) + ">" + version_text(after) + " ";
  }
  return text;
}

// A history may have only entries that the key has or had. It must have all above the horizon, and
// the one that counts at it. The horizon may rise while the history is read.
bool VersionModel::could_be_history(const std::string& key, const std::string& text,
                                    std::uint64_t trimmed) const {
  Entries all;
  if (const auto it = keys_.find(key); it != keys_.end()) all = it->second;
  std::vector<std::string> said;
  std::istringstream words(text);
  for (std::string word; words >> word;) said.push_back(word);
  const std::uint64_t to = std::max(first_, std::min(trimmed, open()));
  for (std::uint64_t horizon = first_; horizon <= to; ++horizon) {
    const auto needed = [&](std::size_t i) {
      if (all[i].first > horizon) return true;
      const bool counts = i + 1 == all.size() || all[i + 1].first > horizon;
      return counts && all[i].second.has_value();
    };
    std::size_t next = 0;
    bool right = true;
    bool shown = false;  // at the horizon, by the history
    for (std::size_t i = 0; i < all.size() && right; ++i) {
      const std::string word = std::to_string(all[i].first) + ":" + version_text(all[i].second);
      const bool is_said = next < said.size() && said[next] == word;
      if (is_said) ++next;
      right = is_said || !needed(i);
      if (is_said && all[i].first <= horizon) shown = all[i].second.has_value();
    }
    if (right && next == said.size() && shown == at(key, horizon).has_value()) return true;
  }
  return false;
}

bool VersionModel::explains(const Op& op, const Result& result) {
  const auto said = [&](bool yes, const std::string& text = {}) {
    return result.pending || (result.yes == yes && result.text.value_or("") == text);
  };
  const auto read = [&](std::uint64_t from, std::uint64_t to, const auto& text) {
    if (!readable(from) || !readable(to)) return said(false, kRefused);
    return text();
  };
  switch (op.kind) {
    case OpKind::insert:
    case OpKind::upsert:
    case OpKind::update:
    case OpKind::erase:
      return said(write(op));
    case OpKind::find: {
      const bool present = op.key[0] == kPresent;
      const std::uint64_t version = present ? open() : version_number(op.key[1]);
      const auto found = [&] {
        const auto value = at(op.key.substr(present ? 1 : 2), version);
        return said(value.has_value(), value.value_or(""));
      };
      return present ? found() : read(version, version, found);
    }
    case OpKind::tag:
      return said(true, version_name(++last_));
    case OpKind::trim:
      first_ = std::max(first_, std::min(version_number(op.key[0]), open()));
      return said(true);
    case OpKind::scan_at: {
      const std::uint64_t version = version_number(op.key[0]);
      return read(version, version, [&] { return said(true, scan(version)); });
    }
    case OpKind::diff: {
      const std::uint64_t from = version_number(op.key[0]);
      const std::uint64_t to = version_number(op.key[1]);
      return read(from, to, [&] { return said(true, diff(from, to)); });
    }
    case OpKind::history:
      return result.pending ||
             (result.yes &&
              could_be_history(op.key.substr(1), result.text.value_or(""), result.trimmed));
    default:
      return true;
  }
}

bool VersionModel::matches(const Model& content) const {
  const auto range = content.find(std::string(1, kNamed));
  if (range == content.end() || version_number(range->second[0]) != first_ ||
      version_number(range->second[1]) < last_) {
    return false;
  }
  Model expected;
  for (const auto& [key, entries] : keys_) {
    for (std::uint64_t version = first_; version <= open(); ++version) {
      const auto value = at(key, version);
      if (!value) continue;
      const bool present = version == open();
      expected.emplace(present ? kPresent + key : version_key(version_name(version), key), *value);
    }
  }
  std::size_t looked_at = 0;
  for (const auto& [key, value] : content) {
    if (key[0] == kNamed || (key[0] == kVersion && version_number(key[1]) > last_)) continue;
    const auto it = expected.find(key);
    if (it == expected.end() || it->second != value) return false;
    ++looked_at;
  }
  return looked_at == expected.size();
}

}  // namespace perdure::testing
