#include "testing/coherence/trace.h"

#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "testing/coherence/memory.h"

namespace perdure::testing {
namespace {

struct Background {
  std::mutex latch;
  std::vector<Access> accesses;
};

struct Recorder {
  std::vector<Access>* target = nullptr;  // null: nothing is recorded
  std::uint64_t stack_begin = 0;
  std::uint64_t stack_end = 0;
  bool busy = false;      // inside a function of this file
  bool excluded = false;  // no background thread
  Background* background = nullptr;
};
thread_local constinit Recorder recorder;

std::atomic<bool> background_on{false};
std::mutex backgrounds_latch;
std::vector<std::unique_ptr<Background>> backgrounds;

void find_stack() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  void* begin = nullptr;
  std::size_t bytes = 0;
  pthread_attr_getstack(&attributes, &begin, &bytes);
  pthread_attr_destroy(&attributes);
  recorder.stack_begin = reinterpret_cast<std::uint64_t>(begin);
  recorder.stack_end = recorder.stack_begin + bytes;
}

void add(std::vector<Access>& to, std::uint64_t first, std::uint64_t last, bool writes,
         std::uint64_t code) {
  for (std::uint64_t line = first; line <= last; ++line) {
    if (!to.empty() && to.back().line == line && to.back().writes >= writes) continue;
    to.push_back({line, code, writes});
  }
}

[[gnu::noinline]] void note_background(std::uint64_t first, std::uint64_t last, bool writes,
                                       std::uint64_t code) {
  recorder.busy = true;
  if (recorder.background == nullptr) {
    find_stack();
    std::lock_guard guard(backgrounds_latch);
    backgrounds.push_back(std::make_unique<Background>());
    recorder.background = backgrounds.back().get();
  }
  {
    std::lock_guard guard(recorder.background->latch);
    add(recorder.background->accesses, first, last, writes, code);
  }
  recorder.busy = false;
}

void note(const volatile void* p, std::size_t n, bool writes, const void* code) {
  if (recorder.busy || n == 0) return;
  const auto address = reinterpret_cast<std::uint64_t>(p);
  if (address >= recorder.stack_begin && address < recorder.stack_end) return;
  const std::uint64_t first = address / 64;
  const std::uint64_t last = (address + n - 1) / 64;
  const auto at = reinterpret_cast<std::uint64_t>(code);
  if (recorder.target != nullptr) {
    recorder.busy = true;
    add(*recorder.target, first, last, writes, at);
    recorder.busy = false;
  } else if (!recorder.excluded && background_on.load(std::memory_order_relaxed)) {
    note_background(first, last, writes, at);
  }
}

thread_local std::vector<Access> own_accesses;

}  // namespace

void begin_trace() {
  recorder.excluded = true;
  if (recorder.stack_end == 0) find_stack();
  own_accesses.clear();
  recorder.target = &own_accesses;
}

void end_trace(std::vector<Access>& accesses) {
  recorder.target = nullptr;
  accesses.swap(own_accesses);
}

void trace_background(bool on) { background_on.store(on); }
void exclude_thread() { recorder.excluded = true; }

std::vector<std::vector<Access>> take_background() {
  std::vector<std::vector<Access>> taken;
  std::lock_guard guard(backgrounds_latch);
  for (const auto& background : backgrounds) {
    std::lock_guard inner(background->latch);
    taken.push_back(std::move(background->accesses));
    background->accesses.clear();
  }
  return taken;
}

}  // namespace perdure::testing

// What the compiler calls, by the interface of ThreadSanitizer, and the wrapped functions.
#define PERDURE_CODE __builtin_return_address(0)
extern "C" {

using perdure::testing::note;

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void** p, void*) { note(p, 8, true, PERDURE_CODE); }
void __tsan_read_range(void* p, std::size_t n) { note(p, n, false, PERDURE_CODE); }
void __tsan_write_range(void* p, std::size_t n) { note(p, n, true, PERDURE_CODE); }
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

#define PERDURE_PLAIN(bytes)                                                          \
  void __tsan_read##bytes(void* p) { note(p, bytes, false, PERDURE_CODE); }           \
  void __tsan_write##bytes(void* p) { note(p, bytes, true, PERDURE_CODE); }           \
  void __tsan_unaligned_read##bytes(void* p) { note(p, bytes, false, PERDURE_CODE); } \
  void __tsan_unaligned_write##bytes(void* p) { note(p, bytes, true, PERDURE_CODE); }
PERDURE_PLAIN(1)
PERDURE_PLAIN(2)
PERDURE_PLAIN(4)
PERDURE_PLAIN(8)
PERDURE_PLAIN(16)

// The orders of the program are replaced by the strongest one.
#define PERDURE_READ_MODIFY_WRITE(bits, name)                                        \
  std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* p,  \
                                                   std::uint##bits##_t value, int) { \
    note(p, bits / 8, true, PERDURE_CODE);                                           \
    return __atomic_##name(p, value, __ATOMIC_SEQ_CST);                              \
  }
#define PERDURE_EXCHANGE(bits, name)                                                          \
  bool __tsan_atomic##bits##_compare_exchange_##name(volatile std::uint##bits##_t* p,         \
                                                     std::uint##bits##_t* expected,           \
                                                     std::uint##bits##_t desired, int, int) { \
    note(p, bits / 8, true, PERDURE_CODE);                                                    \
    return __atomic_compare_exchange_n(p, expected, desired, false, __ATOMIC_SEQ_CST,         \
                                       __ATOMIC_SEQ_CST);                                     \
  }
#define PERDURE_ATOMIC(bits)                                                                   \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* p, int) { \
    note(p, bits / 8, false, PERDURE_CODE);                                                    \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
  }                                                                                            \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* p, std::uint##bits##_t value, \
                                   int) {                                                      \
    note(p, bits / 8, true, PERDURE_CODE);                                                     \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                              \
  }                                                                                            \
  std::uint##bits##_t __tsan_atomic##bits##_exchange(volatile std::uint##bits##_t* p,          \
                                                     std::uint##bits##_t value, int) {         \
    note(p, bits / 8, true, PERDURE_CODE);                                                     \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                    \
  }                                                                                            \
  PERDURE_READ_MODIFY_WRITE(bits, fetch_add)                                                   \
  PERDURE_READ_MODIFY_WRITE(bits, fetch_sub)                                                   \
  PERDURE_READ_MODIFY_WRITE(bits, fetch_and)                                                   \
  PERDURE_READ_MODIFY_WRITE(bits, fetch_or)                                                    \
  PERDURE_READ_MODIFY_WRITE(bits, fetch_xor)                                                   \
  PERDURE_EXCHANGE(bits, strong)                                                               \
  PERDURE_EXCHANGE(bits, weak)
PERDURE_ATOMIC(8)
PERDURE_ATOMIC(16)
PERDURE_ATOMIC(32)
PERDURE_ATOMIC(64)

void* __real_memcpy(void* to, const void* from, std::size_t n);
void* __real_memmove(void* to, const void* from, std::size_t n);
void* __real_memset(void* to, int byte, std::size_t n);
int __real_memcmp(const void* a, const void* b, std::size_t n);
void* __wrap_memcpy(void* to, const void* from, std::size_t n) {
  note(from, n, false, PERDURE_CODE);
  note(to, n, true, PERDURE_CODE);
  return __real_memcpy(to, from, n);
}
void* __wrap_memmove(void* to, const void* from, std::size_t n) {
  note(from, n, false, PERDURE_CODE);
  note(to, n, true, PERDURE_CODE);
  return __real_memmove(to, from, n);
}
void* __wrap_memset(void* to, int byte, std::size_t n) {
  note(to, n, true, PERDURE_CODE);
  return __real_memset(to, byte, n);
}
int __wrap_memcmp(const void* a, const void* b, std::size_t n) {
  note(a, n, false, PERDURE_CODE);
  note(b, n, false, PERDURE_CODE);
  return __real_memcmp(a, b, n);
}

}  // extern "C"
