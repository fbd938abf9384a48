// History: the calls of a run's threads on a map, their results and their times. The input of the
// linearizability checker (testing/lin/porcupine).
//
// FILE  16 bytes: magic, number of operations; then the operations as declared here, in any order.
// TIME  CLOCK_MONOTONIC. An operation's interval contains the operation: the clock is read before
//   it starts, and after it ended and its stores have left this core's store buffer. Equal times
//   count as overlapping.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "perdure/status.h"

namespace perdure::testing {

enum class HistoryKind : std::uint8_t {
  insert,
  upsert,
  update,
  erase,
  find,
  find_at,    // reads the key at a version
  tag,        // for all keys: makes a version
  crash,      // for all keys: the process was killed, and another one continues
  update_if,  // `version`: the value that it expected
  erase_if,   // likewise
  batch_put,  // of a batch: its result says only that the batch was committed
  batch_erase,
};

enum class HistoryResult : std::uint8_t {
  no,  // absent or exists: the call's meaning of false
  yes,
  open,  // the process was killed before the result was acknowledged
};

inline constexpr std::uint64_t kHistoryMagic = 0x326e696c64726570;  // "perdlin2"
inline constexpr std::uint64_t kNever = ~std::uint64_t{0} >> 1;     // the end of an open operation
inline constexpr std::uint32_t kAllKeys = ~std::uint32_t{0};
// A value that is never written. It stands for a torn or foreign value, which no order explains.
inline constexpr std::uint64_t kForeignValue = ~std::uint64_t{0};

struct HistoryOp {
  std::uint64_t call = 0;
  std::uint64_t end = kNever;
  std::uint64_t value = 0;    // written or found; every write has its own
  std::uint64_t version = 0;  // read by find_at, or returned by tag; or the expected value
  std::uint32_t key = 0;
  HistoryKind kind = HistoryKind::find;
  HistoryResult result = HistoryResult::open;
  std::uint16_t session = 0;  // number of kills before it
};
static_assert(sizeof(HistoryOp) == 40);

inline std::uint64_t history_clock() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}
inline std::uint64_t history_call() noexcept {
  const std::uint64_t now = history_clock();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return now;
}
// Without the fence, a store still in this core's store buffer would count as done.
inline std::uint64_t history_end() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return history_clock();
}

inline std::uint64_t count_of(std::span<const HistoryOp> ops, HistoryKind kind) {
  return static_cast<std::uint64_t>(std::ranges::count(ops, kind, &HistoryOp::kind));
}

Status write_history(const std::string& path, std::span<const HistoryOp> ops);

// Keys by number, in the order of the numbers; and values that carry a number and show that they
// are not torn.
std::string history_text_key(std::uint32_t number);
std::uint32_t history_key_number(std::string_view key);  // kAllKeys: no such key
std::string history_text_value(std::uint64_t number);
std::uint64_t history_value_number(std::string_view value);

}  // namespace perdure::testing
