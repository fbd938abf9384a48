// Operations of explorations: few keys, so that nodes fill, split, empty and are reused.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "testing/crash/synthetic_subject.h"

namespace perdure::testing {

inline OpKind random_kind(Random& random) {
  static constexpr OpKind kKinds[] = {OpKind::insert, OpKind::insert, OpKind::insert,
                                      OpKind::upsert, OpKind::update, OpKind::erase,
                                      OpKind::erase,  OpKind::find};
  return kKinds[random.below(8)];
}

// Keys at both ends of the key space, 0 and 2^64-1 among them; 8-byte values.
inline Op integer_op(Random& random) {
  std::uint64_t key = random.below(36);
  if (random.one_in(3)) key = ~std::uint64_t{0} - key;
  const std::uint64_t value = random.next();
  return {random_kind(random), integer_key(key),
          std::string(reinterpret_cast<const char*>(&value), 8)};
}

// Integer keys with values of any size, "" among them.
inline Op integer_record_op(Random& random) {
  Op op = integer_op(random);
  op.value.assign(random.one_in(3) ? random.below(200) : random.below(20),
                  static_cast<char>('a' + random.below(26)));
  return op;
}

// Integer keys with values of up to a page and a half, which fill a small disk.
inline Op large_record_op(Random& random) {
  Op op = integer_op(random);
  op.value.assign(500 + random.below(5500), static_cast<char>('a' + random.below(26)));
  return op;
}

// Keys with equal first 8 bytes, prefixes of each other, NUL bytes, and "".
inline Op bytes_op(Random& random) {
  static const std::string prefixes[] = {"", "customer:", "customer:a", std::string(2, '\0'), "ab"};
  static constexpr char kLetters[] = {'\0', 'a', 'b', '\xff'};
  Op op{random_kind(random), prefixes[random.below(5)], {}};
  for (std::uint64_t n = random.below(4); n > 0; --n) op.key += kLetters[random.below(4)];
  op.value.assign(random.one_in(3) ? random.below(200) : random.below(20),
                  static_cast<char>('a' + random.below(26)));
  return op;
}

// The same with 8-byte values, which are updated in place in their record.
inline Op bytes_word_op(Random& random) {
  Op op = bytes_op(random);
  const std::uint64_t value = random.next();
  op.value.assign(reinterpret_cast<const char*>(&value), 8);
  return op;
}

// update_if and erase_if between other mutations, of few keys with few values: most find what they
// expect. `bytes`: of these lengths, so that records and blobs are replaced.
inline Op conditional(Random& random, bool bytes) {
  static constexpr OpKind kKinds[] = {OpKind::insert,    OpKind::upsert,    OpKind::update,
                                      OpKind::update_if, OpKind::update_if, OpKind::update_if,
                                      OpKind::erase_if,  OpKind::erase_if,  OpKind::erase};
  const auto value = [&] {
    const std::uint64_t n = random.below(2);
    if (bytes) return std::string(n == 0 ? 12 : 150, static_cast<char>('a' + n));
    return std::string(reinterpret_cast<const char*>(&n), 8);
  };
  Op op{.kind = kKinds[random.below(9)], .key = integer_key(random.below(8))};
  op.value = value();
  op.expected = value();
  return op;
}
inline Op conditional_op(Random& random) { return conditional(random, false); }
inline Op conditional_bytes_op(Random& random) { return conditional(random, true); }

// Calls of write_many() between single mutations, with 2 to `most` of them.
inline OpSource together(OpSource source, std::uint64_t most) {
  return [source = std::move(source), most](Random& random) -> Op {
    if (random.one_in(3)) return source(random);
    Op op{.kind = OpKind::many};
    for (std::uint64_t n = 2 + random.below(most - 1); op.parts.size() < n;) {
      Op part = source(random);
      if (part.kind != OpKind::find) op.parts.push_back(std::move(part));
    }
    return op;
  };
}

// Batches between single mutations, with 1 to `most` upserts and erases.
inline OpSource batches(OpSource source, std::uint64_t most) {
  return [source = std::move(source), most](Random& random) -> Op {
    if (random.one_in(3)) return source(random);
    Op op{.kind = OpKind::batch};
    for (std::uint64_t n = 1 + random.below(most); op.parts.size() < n;) {
      Op part = source(random);
      if (part.kind > OpKind::erase) continue;
      if (part.kind != OpKind::erase) part.kind = OpKind::upsert;
      op.parts.push_back(std::move(part));
    }
    return op;
  };
}

// Adds a close and reopen in one step of `in`.
inline OpSource reopening(OpSource source, std::uint64_t in = 8) {
  return [source = std::move(source), in](Random& random) -> Op {
    if (random.one_in(in)) return {OpKind::reopen, {}, {}};
    return source(random);
  };
}

// Adds steps of background work at irregular intervals.
inline OpSource beside_background(OpSource source) {
  return [source = std::move(source)](Random& random) -> Op {
    if (random.one_in(2)) return {OpKind::background, {}, {}};
    return source(random);
  };
}
inline std::vector<Op> beside_background(const std::vector<Op>& ops) {
  std::vector<Op> all;
  Random random(ops.size());
  for (const Op& op : ops) {
    for (std::uint64_t n = random.below(3); n > 0; --n) all.push_back({OpKind::background, {}, {}});
    all.push_back(op);
  }
  return all;
}

// Operations on one of several maps; once in `in` each a drop, a compaction, a sync, a close and
// reopen.
inline Op in_map(std::uint64_t map, Op op) {
  op.key.insert(op.key.begin(), static_cast<char>(map));
  return op;
}
inline OpSource pool_ops(std::uint64_t maps, std::uint64_t in) {
  return [=](Random& random) -> Op {
    Op op = integer_record_op(random);
    op = in_map(random.below(maps), std::move(op));
    const std::uint64_t kind = random.below(in);
    if (kind == 0) return {OpKind::drop, op.key.substr(0, 1), {}};
    if (kind == 1) return {OpKind::compact, {}, {}};
    if (kind == 2) return {OpKind::sync, {}, {}};
    if (kind == 3) return {OpKind::reopen, {}, {}};
    return op;
  };
}

// Runs of extents that come and go between small blocks.
inline Op run_op(Random& random) {
  Op op = synthetic_op(random);
  op.key = integer_key(random.below(6));
  if (random.one_in(2)) op.value.assign(2500 + random.below(12000), 'r');
  return op;
}

// Fills, empties and refills: splits at the end, leaves that empty and are unlinked, slots reused.
inline std::vector<Op> churn(std::uint64_t keys, std::uint64_t rounds) {
  std::vector<Op> ops;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::string value(8, static_cast<char>('A' + round));
    for (std::uint64_t k = 1; k <= keys; ++k) {
      ops.push_back({OpKind::insert, integer_key(k), value});
    }
    for (std::uint64_t k = 1; k <= keys; ++k) {
      // Whole leaves from the middle first, then the rest.
      const std::uint64_t key = (k + keys / 2) % keys + 1;
      ops.push_back({OpKind::erase, integer_key(key), {}});
    }
  }
  return ops;
}

// A split moves entries. Moved keys are erased, and keys left of the split reuse their records'
// blocks (1h iv).
inline std::string dense_key(std::uint64_t i) { return "customer" + std::to_string(100 + i); }
inline std::vector<Op> moved_entries(std::uint64_t rounds) {
  std::vector<Op> ops;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::string value(30, static_cast<char>('a' + round));
    for (std::uint64_t i = 0; i < 12; ++i) ops.push_back({OpKind::upsert, dense_key(i), value});
    ops.push_back({OpKind::upsert, dense_key(5) + "5", value});
    for (std::uint64_t i = 11; i >= 7; --i) ops.push_back({OpKind::erase, dense_key(i), {}});
    for (std::uint64_t i = 0; i < 4; ++i) {
      ops.push_back({OpKind::upsert, dense_key(i) + "a", value});
    }
    for (std::uint64_t i = 0; i < 7; ++i) {
      ops.push_back({OpKind::erase, dense_key(i) + "a", {}});
      ops.push_back({OpKind::erase, dense_key(i), {}});
    }
  }
  return ops;
}
// Records of which two fill an extent of kTinyShape. Every second one goes, and a compaction moves
// others; erases and inserts use what they leave.
inline std::vector<Op> moved_records(std::uint64_t rounds) {
  std::vector<Op> ops;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (std::uint64_t i = 0; i < 8; ++i) {
      ops.push_back({OpKind::upsert, dense_key(i), std::string(1300, 'a' + i)});
    }
    for (std::uint64_t i = 0; i < 6; i += 2) ops.push_back({OpKind::erase, dense_key(i), {}});
    ops.push_back({OpKind::compact, {}, {}});
    ops.push_back({OpKind::upsert, dense_key(2), std::string(1300, 'z')});
    ops.push_back({OpKind::upsert, dense_key(3), std::string(1300, 'y')});
    ops.push_back({OpKind::erase, dense_key(1), {}});
  }
  return ops;
}
inline Op large_op(Random& random) {
  if (random.one_in(5)) return {OpKind::compact, {}, {}};
  return {random.one_in(2) ? OpKind::erase : OpKind::upsert, dense_key(random.below(8)),
          std::string(1300, static_cast<char>('a' + random.below(26)))};
}
inline Op dense_op(Random& random) {
  Op op{random.one_in(2) ? OpKind::erase : OpKind::upsert, dense_key(random.below(12)), {}};
  if (random.one_in(3)) op.key += static_cast<char>('a' + random.below(3));
  op.value.assign(30, static_cast<char>('a' + random.below(26)));
  return op;
}

}  // namespace perdure::testing
