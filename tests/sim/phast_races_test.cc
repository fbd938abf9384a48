// PhaST with integer keys under the scheduler.
#include <gtest/gtest.h>

#include "support.h"

namespace perdure::testing {
namespace {

const PhastSetup kWords{};

InterleaveReport all_schedules(const Ops& setup, const std::vector<Ops>& threads,
                               std::uint32_t preemptions, std::uint32_t thin = 1) {
  Interleaver interleaver(phast_subjects<phast::IntegerCodec>(kWords),
                          {.name = test_name(), .setup = setup, .threads = threads});
  const InterleaveReport report = interleaver.exhaustive(preemptions, thinned(thin));
  expect_clean(report);
  return report;
}

TEST(PhastRaces, H1c_UpdateVersusFind) {
  all_schedules({insert(5, 1)}, {{update(5, 2)}, {find(5)}}, 2);
}

TEST(PhastRaces, SplitVersusInsert) {
  all_schedules(inserts({10, 20, 30, 40}), {{insert(25, 1)}, {insert(35, 2)}}, 1);
}

}  // namespace
}  // namespace perdure::testing
