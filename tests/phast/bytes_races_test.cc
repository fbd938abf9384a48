// test: explores
// PhaST with byte-string keys under the scheduler, by directed schedules. All schedules of such
// scenarios: races_test.
#include <gtest/gtest.h>

#include "tests/support/schedules.h"

namespace perdure::testing {
namespace {

// Equal heads, so that separators decide.
std::string key(std::uint64_t i) { return "customer:" + std::to_string(100 + i); }
Op put(std::uint64_t i, char letter) { return {OpKind::upsert, key(i), std::string(30, letter)}; }
Op gone(std::uint64_t i) { return {OpKind::erase, key(i), {}}; }
Op look(std::uint64_t i) { return {OpKind::find, key(i), {}}; }

// The scan's position is the bound of a leaf that goes: the separator stays while it is read.
TEST(PhastBytesRaces, P1g_G6_ScansBesideAnUnlink) {
  Ops setup;
  for (std::uint64_t i = 1; i <= 9; ++i) setup.push_back(put(i * 10, 'a'));
  for (const std::uint64_t i : {50, 60, 70}) setup.push_back(gone(i));
  Ops writer{gone(80)};
  for (int i = 0; i < 3; ++i) writer.push_back({OpKind::reclaim, {}, {}});
  // Records as long as a leaf, so that its block holds one: a word of it is no offset.
  for (std::uint64_t i = 1; i < 5; ++i) {
    writer.push_back({OpKind::upsert, key(200 + i), std::string(90, 'z')});
  }
  for (const Op& reader : {scan(), scan_back(), look(80)}) {
    Interleaver interleaver(phast_subjects<phast::BytesCodec>({.values = ValueKind::bytes}),
                            {.name = test_name(describe(reader)),
                             .setup = setup,
                             .threads = {writer, {reader}},
                             .limits = {.product = 16, .random = 2, .sampled = 12}});
    const auto report = interleaver.sweep({}, 1, {{0, done()}, {1, done()}});
    expect_clean(report);
  }
}

}  // namespace
}  // namespace perdure::testing
