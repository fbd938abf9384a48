// PhaST's part of what perdure-explore explores.
#include "testing/explored_phast.h"

#include <utility>

#include "testing/workloads.h"

namespace perdure::testing {

SubjectFactory phast_maps(KeyKind keys, const MapSetup& setup) {
  return keys == KeyKind::bytes ? phast_subjects<phast::BytesCodec>(setup)
                                : phast_subjects<phast::IntegerCodec>(setup);
}

// Leaves of three lines: entries that a split moves, and records that are freed and used again
// under them (1h iv).
std::vector<Exploration> phast_directed(Preset preset) {
  const MapSetup records{.values = ValueKind::bytes};
  Exploration moved{.name = "moved",
                    .factory = phast_subjects<phast::BytesCodec, WideGeometry>(records),
                    .source = dense_op,
                    .options = options_of(preset),
                    .workloads = {moved_entries(preset == Preset::fast ? 1 : 2)}};
  moved.options.second_ops = 12;
  Exploration wide{.name = "wide",
                   .factory = phast_subjects<phast::BytesCodec, WideGeometry>(records),
                   .source = dense_op,
                   .options = options_of(preset),
                   .operations = preset == Preset::fast ? 30U : 150U};
  std::vector<Exploration> all;
  all.push_back(std::move(moved));
  all.push_back(std::move(wide));
  return all;
}

}  // namespace perdure::testing
