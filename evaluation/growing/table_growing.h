// TableGrowing: a table of the other program in this one.
#pragma once

#include <memory>
#include <utility>

#include "evaluation/figures.h"
#include "evaluation/growing/growing_table.h"

namespace perdure::paper {

inline constexpr std::uint64_t kFirstItems = 4096;  // that a table has room for when it is made

// Our engines and libcuckoo take calls from any number of threads.
class TableGrowing final : public GrowingTable {
 public:
  explicit TableGrowing(std::unique_ptr<Table> table) noexcept : table_(std::move(table)) {}
  Expected<bool> insert(Word key, Word value) override { return table_->insert(key, value); }
  Expected<bool> update(Word key, Word value) override { return table_->update(key, value); }
  Expected<bool> erase(Word key) override { return table_->erase(key); }
  bool find(Word key, Word& value) override { return must(table_->find(key, value)); }
  Word slots() override { return table_->slots(); }

 private:
  std::unique_ptr<Table> table_;
};

}  // namespace perdure::paper
