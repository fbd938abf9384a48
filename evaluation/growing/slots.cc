// Figure 5: throughput by the slots of a bucket.
#include <fmt/core.h>

#include "evaluation/growing/measure.h"
#include "evaluation/growing/variants.h"

namespace perdure::paper {
namespace {

void slots_of(const GrowingOptions& options, std::span<const Variant> variants, const char* table,
              Report& report) {
  Turns turns{.kind = "table", .schemes = {}, .phases = names_of_phases()};
  for (const Variant& variant : variants) turns.schemes.emplace_back(variant.scheme.name);
  turns.take(options.runs, [&](std::size_t s) {
    return operation_phases(variants[s].scheme, options.items, options.threads);
  });
  turns.print_rates(fmt::format("Million operations a second of `{}` by slots, {} (figure 5)",
                                table, of_threads(options.threads)),
                    report);
  turns.print_ratios(fmt::format("`{}`, with the slots of a pool by fewer", table), report);
}

}  // namespace

void slots(const GrowingOptions& options, Report& report) {
  slots_of(options, clevel_variants(), "clevel", report);
  slots_of(options, level_variants(), "level", report);
}

}  // namespace perdure::paper
