// Platform: the one seam between the indexes and the machine.
//
// WHAT  A Platform defines what a store to persistent memory is, what a write-back and a fence are,
//   and the synchronisation primitives of DRAM. Heap, reclamation and indexes are templates over
//   it:
//     RealPlatform   src/platform   the machine itself
//     SimPlatform    testing/       records every store, write-back and fence; makes crash images
//     LossyPlatform  testing/       keeps only what was written back and fenced: kill = power loss
//   Outside src/platform no code names std::atomic, a mutex, the time, a thread, a random source,
//   or an instruction that writes back or fences (tests/tidy checks it).
//
// PERSISTENT WORDS are std::uint64_t, 8-aligned, in the pool. They are read and written only by:
//     load(w)            acquire: what was stored before the word was published is visible
//     peek(w)            reads any memory, also during a copy() into it; what is read then must be
//                        discarded
//     store(w, v)        release
//     compare_exchange   acq_rel
//     copy(dst, src, n)  into unpublished memory only, in no particular order
//     zero(dst, n)       likewise
//   Same-line order: word stores to one 64-byte line reach the medium as a prefix of their order.
//
// PERSISTENCE
//     flush(p, n, site)  starts the write-back of every line of [p, p+n)
//     fence(site)        waits for this thread's write-backs. Returns false once the pool is
//                        poisoned (a write-back failed): then nothing may be acknowledged any
//                        more. When a thread ends, its write-backs without a fence are completed,
//                        unless the pool was closed. The epoch domain depends on that.
//     durable()          false in `process` mode, where flush and fence are no-ops
//     sync(p, n, site)   makes a range durable against power loss in every mode (msync if needed);
//                        for headers
//     watch_stores(w)    from now on, w->before_store() precedes every store, copy, zero and
//                        compare_exchange; null ends it. For what must be durable before the next
//                        store of any thread.
//
// MUTANTS  runs(site), verifies(site): constant true, except if a test leaves out this step or this
//   checksum.
//
// ASSERTIONS  kAsserts: PERDURE_ASSERT (assert.h) checks. violated(assertion) reports a violation
//   and ends the process. While an Unobserved lives, the accesses of the calling thread are no
//   steps of a schedule and are not counted. persisted(p, n): true if a power failure leaves [p, p
//   + n) as it is now, or if the platform does not know.
//
// DRAM  Atomic<T>, Latch, counters(), thread_slot(), pause(), parallel(), now_ns(), random(), and
//     match_line, load_byte,          bytes that are written one by one and searched as a whole
//     store_byte
//     match_words                     words of a line, stored whole, searched by their upper bits
//     ByteLatches                     four latches in a word. Their release is no locked
//                                     instruction, which would wait for the write-back before it
//     light_fence() / heavy_fence()   a store-load barrier between a thread that often calls the
//                                     first and one that rarely calls the second, if the second
//                                     returns true
//     full_light_fences()             light_fence() is a full barrier by itself
//     kPatience                       pauses after which a lookup no longer waits for a writer
//   Thread: start(FunctionRef<void()>) returns false if no thread can be created; join().
//   park(word, seen) sleeps while word == seen; unpark(word) wakes it after a change of word.
#pragma once

#include <atomic>  // memory orders
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "perdure/function_ref.h"
#include "perdure/status.h"
#include "platform/assert.h"
#include "platform/site.h"

namespace perdure {

inline constexpr std::size_t kLine = 64;    // write-back unit of cache-line media
inline constexpr std::size_t kPage = 4096;  // write-back unit of page media
// The alignment of what threads write often, so that it shares no line with what others read. A
// build for perdure-coherence lays them together, to show what that costs.
#ifdef PERDURE_SHARED_LINES
inline constexpr std::size_t kOwnLine = 8;
#else
inline constexpr std::size_t kOwnLine = kLine;
#endif
inline constexpr std::uint32_t kMaxThreadSlots = 4096;  // live threads that have used the library

// The smallest multiple of `to` that is not less than `n`.
constexpr std::uint64_t align_up(std::uint64_t n, std::uint64_t to) {
  return (n + to - 1) / to * to;
}

// The number of lines that [p, p+n) touches.
inline std::size_t lines_of(const void* p, std::size_t n) {
  const auto begin = reinterpret_cast<std::uintptr_t>(p) & ~(kLine - 1);
  return (reinterpret_cast<std::uintptr_t>(p) + n - begin + kLine - 1) / kLine;
}

class StoreWatch {
 public:
  virtual void before_store() noexcept = 0;

 protected:
  ~StoreWatch() = default;
};

template <class P>
concept Platform =
    requires(P& p, StoreWatch* watch, std::uint64_t& word, const std::uint64_t& const_word,
             std::uint64_t& expected, void* dst, const void* src, std::size_t n,
             FunctionRef<void(std::size_t)> task) {
      { p.load(const_word) } -> std::same_as<std::uint64_t>;
      { p.peek(const_word) } -> std::same_as<std::uint64_t>;
      p.store(word, std::uint64_t{});
      { p.compare_exchange(word, expected, std::uint64_t{}) } -> std::same_as<bool>;
      p.copy(dst, src, n);
      p.zero(dst, n);
      p.flush(src, n, Site<"example.site">{});
      { p.fence(Site<"example.site">{}) } -> std::same_as<bool>;
      { p.sync(src, n, Site<"example.site">{}) } -> std::same_as<bool>;
      p.watch_stores(watch);
      { P::runs(Site<"example.site">{}) } -> std::same_as<bool>;
      { P::verifies(Site<"example.site">{}) } -> std::same_as<bool>;
      { P::kAsserts } -> std::convertible_to<bool>;
      { P::violated(Assertion{}) } -> std::same_as<void>;
      typename P::Unobserved;
      { p.persisted(src, n) } -> std::same_as<bool>;
      { p.durable() } -> std::same_as<bool>;
      { p.poisoned() } -> std::same_as<bool>;
      { p.failure() } -> std::same_as<Status>;
      typename P::template Atomic<std::uint64_t>;
      typename P::Latch;
      typename P::ByteLatches;
      P::light_fence();
      { P::kPatience } -> std::convertible_to<unsigned>;
      { P::heavy_fence() } -> std::same_as<bool>;
      { P::full_light_fences() } -> std::same_as<bool>;
      { P::thread_slot() } -> std::same_as<std::uint32_t>;
      { P::is_living(std::uint32_t{}) } -> std::same_as<bool>;
      P::pause(0U);
      { P::now_ns() } -> std::same_as<std::uint64_t>;
      { P::random() } -> std::same_as<std::uint64_t>;
      { P::parallel(n, task) } -> std::same_as<void>;
    } &&
    requires(typename P::Thread& thread, typename P::template Atomic<std::uint32_t>& event,
             FunctionRef<void()> run) {
      { thread.start(run) } -> std::same_as<bool>;
      thread.join();
      P::park(event, std::uint32_t{});
      P::unpark(event);
    };

// True if a checksum matches, or if a mutant leaves out the comparison.
template <Platform P, FixedString Name>
constexpr bool matches(bool equal, Site<Name> site) {
  return equal || !P::verifies(site);
}

// Holds a latch during its scope. Latches that operations on entries take are held for a bounded
// time, and never across a callback of a read or a scan.
template <class L>
class [[nodiscard]] LatchGuard {
 public:
  explicit LatchGuard(L& latch) : latch_(latch) { latch_.lock(); }
  ~LatchGuard() { latch_.unlock(); }
  LatchGuard(const LatchGuard&) = delete;
  LatchGuard& operator=(const LatchGuard&) = delete;

 private:
  L& latch_;
};

}  // namespace perdure
