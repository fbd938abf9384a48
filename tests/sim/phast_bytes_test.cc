// PhaST with byte-string keys under the scheduler: separators, moved records, equal heads.
#include <gtest/gtest.h>

#include "support.h"

namespace perdure::testing {
namespace {

// Equal heads, so that separators decide.
std::string key(std::uint64_t i) { return "customer:" + std::to_string(100 + i); }
Op put(std::uint64_t i, char letter) { return {OpKind::upsert, key(i), std::string(30, letter)}; }
Op gone(std::uint64_t i) { return {OpKind::erase, key(i), {}}; }
Op look(std::uint64_t i) { return {OpKind::find, key(i), {}}; }
Ops puts(std::uint64_t n) {
  Ops ops;
  for (std::uint64_t i = 1; i <= n; ++i) ops.push_back(put(i * 10, 'a'));
  return ops;
}

void all_schedules(const Ops& setup, const std::vector<Ops>& threads, std::uint32_t preemptions,
                   std::uint32_t thin, const std::string& part) {
  Interleaver interleaver(phast_subjects<phast::BytesCodec>({.values = ValueKind::bytes}),
                          {.name = test_name(part),
                           .setup = setup,
                           .threads = threads,
                           .limits = {.product = 16, .random = 2, .sampled = 12}});
  expect_clean(interleaver.exhaustive(preemptions, thinned(thin)));
}

TEST(PhastBytesRaces, P18_P1c_WritersOfOneKey) {
  all_schedules({put(1, 'a')}, {{put(1, 'b')}, {look(1), gone(1)}}, 2, 24, "replace");
  all_schedules({put(1, 'a')}, {{gone(1)}, {put(1, 'c'), look(1)}}, 2, 24, "erase");
  all_schedules({put(1, 'a')}, {{put(1, 'b')}, {scan()}}, 2, 24, "scan");
}

TEST(PhastBytesRaces, P1h_P17_ScansBesideASplit) {
  all_schedules(puts(9), {{put(65, 'b')}, {scan()}}, 2, 256, "forward");
  all_schedules(puts(9), {{put(65, 'b')}, {scan_back()}}, 2, 256, "backward");
}

TEST(PhastBytesRaces, P1h_WritersBesideASplit) {
  all_schedules(puts(4), {{put(25, 'b')}, {put(35, 'c'), look(30)}}, 2, 192, "inserts");
  all_schedules(puts(4), {{put(50, 'b')}, {put(60, 'c')}}, 2, 192, "end");
  all_schedules(puts(4), {{put(25, 'b')}, {gone(40), look(10)}}, 2, 192, "erase");
}

// The scan's position is the bound of a leaf that goes: the separator stays while it is read.
TEST(PhastBytesRaces, P1g_G6_ScansBesideAnUnlink) {
  Ops setup = puts(9);
  for (const std::uint64_t i : {50, 60, 70}) setup.push_back(gone(i));
  all_schedules(setup, {{gone(80)}, {scan()}}, 2, 192, "forward");
  all_schedules(setup, {{gone(80)}, {scan_back()}}, 2, 192, "backward");
  all_schedules(setup, {{gone(80)}, {put(65, 'b'), look(65)}}, 2, 192, "insert");
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
