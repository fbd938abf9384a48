// History: what the threads of a run asked of a map, what was answered, and when; the input of the
// linearizability checker (testing/porcupine).
//
// FILE  16 bytes: magic, number of operations; then the operations as they are here, in any order.
// TIME  CLOCK_MONOTONIC. An operation's interval is wider than the operation: the clock is read
//   before it starts, and after it ended and its stores have left this core's store buffer. Equal
//   times count as overlapping.
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
  find_at,  // what the key was in a version
  tag,      // of all keys: makes a version
  crash,    // of all keys: the process was killed, and another one goes on
};

enum class HistoryAnswer : std::uint8_t {
  no,  // absent, exists: whatever the call means by false
  yes,
  open,  // the process was killed before the answer was acknowledged
};

inline constexpr std::uint64_t kHistoryMagic = 0x326e696c64726570;  // "perdlin2"
inline constexpr std::uint64_t kNever = ~std::uint64_t{0} >> 1;     // the end of an open operation
inline constexpr std::uint32_t kAllKeys = ~std::uint32_t{0};
// Never written: what a torn or foreign value is recorded as, so that no order explains it.
inline constexpr std::uint64_t kNobodysValue = ~std::uint64_t{0};

struct HistoryOp {
  std::uint64_t call = 0;
  std::uint64_t end = kNever;
  std::uint64_t value = 0;    // written, or found; every write has its own
  std::uint64_t version = 0;  // of find_at; of a tag the one that it has answered
  std::uint32_t key = 0;
  HistoryKind kind = HistoryKind::find;
  HistoryAnswer answer = HistoryAnswer::open;
  std::uint16_t session = 0;  // kills before it
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
// Without the fence, a store that this core has not let go yet would count as done.
inline std::uint64_t history_end() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return history_clock();
}

inline std::uint64_t count_of(std::span<const HistoryOp> ops, HistoryKind kind) {
  return static_cast<std::uint64_t>(std::ranges::count(ops, kind, &HistoryOp::kind));
}

Status write_history(const std::string& path, std::span<const HistoryOp> ops);

// Keys by number, in the same order; and a value that carries a number and shows that it is whole.
std::string history_text_key(std::uint32_t number);
std::uint32_t history_key_number(std::string_view key);  // kAllKeys: no such key
std::string history_text_value(std::uint64_t number);
std::uint64_t history_value_number(std::string_view value);

}  // namespace perdure::testing
