#include "evaluation/turns.h"

#include <fmt/core.h>

#include <algorithm>

namespace perdure::paper {

std::vector<double> Turns::rates(std::size_t scheme, std::size_t phase) const {
  std::vector<double> values;
  for (const std::vector<Figure>& figures : runs[scheme]) values.push_back(figures[phase].mops);
  return values;
}

double Turns::claim(std::size_t scheme, std::size_t phase) const {
  return scheme < paper.size() && phase < paper[scheme].size() ? paper[scheme][phase] : 0;
}

void Turns::head(const std::string& title, Report& report) const {
  std::vector<std::string> columns{kind};
  columns.insert(columns.end(), phases.begin(), phases.end());
  report.heading(title, columns);
}

void Turns::print_rates(const std::string& title, Report& report) const {
  head(title, report);
  for (std::size_t s = 0; s < schemes.size(); ++s) {
    std::vector<std::string> cells{schemes[s]};
    for (std::size_t phase = 0; phase < phases.size(); ++phase) {
      const std::vector<double> values = rates(s, phase);
      const auto [least, most] = std::ranges::minmax(values);
      if (most == 0) {  // the scheme cannot do this
        cells.emplace_back("-");
        continue;
      }
      cells.push_back(fmt::format("{:.2f} ({:.2f} to {:.2f})", median(values), least, most));
    }
    report.row(cells);
  }
}

void Turns::print_ratios(const std::string& title, Report& report) const {
  head(title, report);
  for (std::size_t s = 1; s < schemes.size(); ++s) {
    std::vector<std::string> cells{schemes[s]};
    for (std::size_t phase = 0; phase < phases.size(); ++phase) {
      const std::vector<double> ours = rates(0, phase);
      const std::vector<double> theirs = rates(s, phase);
      if (ours.front() == 0 || theirs.front() == 0) {
        cells.emplace_back("-");
        continue;
      }
      std::vector<double> ratios;
      for (std::size_t turn = 0; turn < ours.size(); ++turn) {
        ratios.push_back(ours[turn] / theirs[turn]);
      }
      const double ratio = median(ratios);
      const double theirs_by = claim(s, phase);
      cells.push_back(fmt::format("{0}{1:.2f}{0}{2}", ratio < theirs_by ? "**" : "", ratio,
                                  theirs_by > 0 ? fmt::format(" ({:.2f})", theirs_by) : ""));
    }
    report.row(cells);
  }
}

void Turns::print_costs(const std::string& title, Report& report) const {
  head(title, report);
  for (std::size_t s = 0; s < schemes.size() - anchors; ++s) {
    std::vector<std::string> cells{schemes[s]};
    for (const Figure& figure : runs[s].front()) {
      cells.push_back(fmt::format("{:.2f}, {:.2f}", figure.flushes, figure.fences));
    }
    report.row(cells);
  }
}

void Quantiles::print(const std::string& title, Report& report) const {
  std::vector<std::string> columns{kind};
  for (const double quantile : quantiles) columns.push_back(fmt::format("{:g} %", quantile * 100));
  report.heading(title, columns);
  for (std::size_t s = 0; s < schemes.size(); ++s) {
    std::vector<std::string> cells{schemes[s]};
    for (const auto& values : runs[s]) cells.push_back(fmt::format("{:.0f}", median(values)));
    report.row(cells);
  }
}

}  // namespace perdure::paper
