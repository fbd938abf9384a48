// Short forms of operations: integer keys, values of 8 bytes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "testing/crash/subject.h"
#include "testing/crash/synthetic_subject.h"

namespace perdure::testing {

using Ops = std::vector<Op>;

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
inline Op update_if(std::uint64_t key, std::uint64_t expected, std::uint64_t value) {
  return {.kind = OpKind::update_if,
          .key = integer_key(key),
          .value = word(value),
          .expected = word(expected)};
}
inline Op erase_if(std::uint64_t key, std::uint64_t expected) {
  return {.kind = OpKind::erase_if, .key = integer_key(key), .expected = word(expected)};
}
inline Op erase(std::uint64_t key) { return {OpKind::erase, integer_key(key), {}}; }
inline Op find(std::uint64_t key) { return {OpKind::find, integer_key(key), {}}; }
inline Op scan() { return {OpKind::scan, {}, {}}; }
inline Op scan_back() { return {OpKind::scan_back, {}, {}}; }
inline Op scan_from(std::uint64_t key) { return {OpKind::scan, integer_key(key), {}}; }
inline Op scan_before(std::uint64_t key) { return {OpKind::scan_back, integer_key(key), {}}; }
// An iterator to the key or the end, and back.
inline Op iterate(std::uint64_t turn) { return {OpKind::iterate, integer_key(turn), {}}; }
inline Op iterate_back(std::uint64_t turn) { return {OpKind::iterate_back, integer_key(turn), {}}; }
inline Op reclaim() { return {OpKind::reclaim, {}, {}}; }
inline Op background() { return {OpKind::background, {}, {}}; }
inline Op reopen() { return {OpKind::reopen, {}, {}}; }

inline Op many(Ops parts) { return {.kind = OpKind::many, .parts = std::move(parts)}; }

inline Op together(Ops parts) { return {.kind = OpKind::together, .parts = std::move(parts)}; }

inline Op batch(Ops parts) { return {.kind = OpKind::batch, .parts = std::move(parts)}; }

inline Ops with(Ops ops, const Ops& more) {
  ops.insert(ops.end(), more.begin(), more.end());
  return ops;
}
inline Ops inserts(const std::vector<std::uint64_t>& keys) {
  Ops ops;
  for (const std::uint64_t key : keys) ops.push_back(insert(key, 1000 + key));
  return ops;
}
// Inserts the keys 10, 20, .., 10 n.
inline Ops tens(std::uint64_t n) {
  Ops ops;
  for (std::uint64_t i = 1; i <= n; ++i) ops.push_back(insert(i * 10, 1000 + i));
  return ops;
}

}  // namespace perdure::testing
