// What the tests of interleavings share: operations, and one exploration as one expectation.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "testing/interleaver.h"
#include "testing/workloads.h"

namespace perdure::testing {

using Ops = std::vector<Op>;

inline bool sanitized() {
  const char* san = std::getenv("PERDURE_SAN");
  return san != nullptr && *san == '1';
}
// Of the schedules with two preemptions every n-th runs; a fraction of these in sanitized builds,
// all with PERDURE_SCHEDULES=all.
inline std::uint32_t thinned(std::uint32_t n) {
  const char* wanted = std::getenv("PERDURE_SCHEDULES");
  if (wanted != nullptr && std::string(wanted) == "all") return 1;
  return sanitized() ? n * 16 : n;
}

inline std::string word(std::uint64_t value) {
  return std::string(reinterpret_cast<const char*>(&value), 8);
}
inline Op insert(std::uint64_t key, std::uint64_t value) {
  return {OpKind::insert, integer_key(key), word(value)};
}
inline Op upsert(std::uint64_t key, std::uint64_t value) {
  return {OpKind::upsert, integer_key(key), word(value)};
}
inline Op update(std::uint64_t key, std::uint64_t value) {
  return {OpKind::update, integer_key(key), word(value)};
}
inline Op erase(std::uint64_t key) { return {OpKind::erase, integer_key(key), {}}; }
inline Op find(std::uint64_t key) { return {OpKind::find, integer_key(key), {}}; }
inline Op scan() { return {OpKind::scan, {}, {}}; }
inline Op scan_back() { return {OpKind::scan_back, {}, {}}; }
inline Op reclaim() { return {OpKind::reclaim, {}, {}}; }

inline Ops inserts(const std::vector<std::uint64_t>& keys) {
  Ops ops;
  for (const std::uint64_t key : keys) ops.push_back(insert(key, 1000 + key));
  return ops;
}

inline std::string test_name(const std::string& part = {}) {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string(info->test_suite_name()) + "." + info->name() + (part.empty() ? "" : "/") +
         part;
}

inline void expect_clean(const InterleaveReport& report) {
  std::printf("%s\n", report.summary().c_str());
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
  EXPECT_GT(report.schedules, 0U);
}

}  // namespace perdure::testing
