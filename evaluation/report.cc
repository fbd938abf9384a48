#include <fmt/core.h>

#include "evaluation/figures.h"

namespace perdure::paper {

void Report::heading(const std::string& title, const std::vector<std::string>& columns) {
  text += fmt::format("\n### {}\n\n", title);
  row(columns);
  row(std::vector<std::string>(columns.size(), "---"));
}

void Report::row(const std::vector<std::string>& cells) {
  for (const std::string& cell : cells) text += fmt::format("| {} ", cell);
  text += "|\n";
}

}  // namespace perdure::paper
