// StdMap: std::map, in DRAM and not durable. The anchor of the evaluation: the C++ library is on
// every machine, so a figure elsewhere can be compared by its ratio to it.
#pragma once

#include <map>

#include "evaluation/ordered/ordered_map.h"

namespace perdure::paper {

class StdMap final : public OrderedMap {
 public:
  Expected<bool> insert(Word key, Word value) override {
    return entries_.try_emplace(key, value).second;
  }
  Expected<bool> update(Word key, Word value) override {
    const auto at = entries_.find(key);
    if (at == entries_.end()) return false;
    at->second = value;
    return true;
  }
  Expected<bool> erase(Word key) override { return entries_.erase(key) == 1; }
  bool find(Word key, Word& value) override {
    const auto at = entries_.find(key);
    if (at != entries_.end()) value = at->second;
    return at != entries_.end();
  }
  void scan(Word from, std::uint64_t limit, FunctionRef<void(Word, Word)> visit) override {
    for (auto at = entries_.lower_bound(from); at != entries_.end() && limit > 0; ++at, --limit) {
      visit(at->first, at->second);
    }
  }

 private:
  std::map<Word, Word> entries_;
};

}  // namespace perdure::paper
