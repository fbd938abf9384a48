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

// A record moves beside operations on its key, which end before, between or after its steps.
TEST(PhastBytesRaces, P1h_RecordsMoveBesideOperations) {
  const auto large = [](std::uint64_t i, char letter) {
    return Op{OpKind::upsert, key(i), std::string(1300, letter)};
  };
  Ops setup;
  for (std::uint64_t i = 0; i < 8; ++i) setup.push_back(large(i, 'a'));
  for (const std::uint64_t i : {0, 2, 4}) setup.push_back(gone(i));
  setup.push_back({OpKind::reclaim, {}, {}});
  const Op compact{OpKind::compact, {}, {}};
  const Op reclaim{OpKind::reclaim, {}, {}};
  for (const std::uint64_t i : {1, 3, 5}) {
    for (const Ops& other : {Ops{look(i), look(i)}, Ops{large(i, 'b'), look(i)},
                             Ops{gone(i), reclaim, large(i, 'c')}, Ops{scan()}}) {
      Interleaver interleaver(phast_subjects<phast::BytesCodec>({.values = ValueKind::bytes}),
                              {.name = test_name(describe(other.front())),
                               .setup = setup,
                               .threads = {{compact, reclaim, look(i)}, other},
                               .limits = {.product = 16, .random = 2, .sampled = 12}});
      for (const char* site : {"phast.move.record", "phast.move.entry"}) {
        expect_clean(interleaver.sweep({{0, after_fence_of(site)}}, 1, {{0, done()}, {1, done()}}));
      }
    }
  }
}

}  // namespace
}  // namespace perdure::testing
