// test: uninstrumented
// The small lock-free kernels under Relacy: random executions of the C++ memory model. An execution
// fails on a data race, a failed assertion, a deadlock or a livelock. Every kernel also runs
// without one of its prerequisites, and must then fail.
//
// EpochDomain, BiasedLatch, SharedCall and the leaf's Descriptor are the library's own code over
// RelacyPlatform. Code in member functions of PhaST and of the heap is mirrored here in a few lines
// each, with a reference to the original.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <ostream>
#include <streambuf>
#include <string>

#include "cut_kernels.h"  // which uses it
#include "index/phast/codec.h"
#include "index/phast/leaf_table.h"
#include "index/pskiplist/key_node.h"
#include "platform/biased_latch.h"
#include "platform/cut_gate.h"
#include "platform/shared_call.h"
#include "reclaim/epoch.h"
#include "relacy_platform.h"  // last: see there

namespace perdure::testing {
namespace {

using P = RelacyPlatform;
using Geometry = phast::Geometry<P::kBytes, 4>;
using Descriptor = phast::Descriptor<Traits<P, phast::IntegerCodec, Geometry>>;

// A leaf's descriptor. Relacy's heap would not align it.
class Leaf {
 public:
  Leaf() : leaf_(new(storage_) Descriptor) { P::line = &line_; }
  ~Leaf() { leaf_->~Descriptor(); }
  Leaf(const Leaf&) = delete;
  Leaf& operator=(const Leaf&) = delete;
  Descriptor* operator->() { return leaf_; }

 private:
  alignas(Descriptor) static inline std::byte storage_[sizeof(Descriptor)];
  P::Line line_;
  Descriptor* leaf_;
};

// --- slot claim and stripe latch (docs/decisions/0006; leaf_table.h D1 and D2) ---

// Keys of different stripes go into one leaf. There is one slot more than keys, because a full leaf
// would split. A third thread reads.
struct SlotClaim : rl::test_suite<SlotClaim, 3> {
  std::optional<Leaf> leaf;
  rl::var<int> entries[P::kBytes];

  void before() {
    P::begin(3);
    leaf.emplace();
    for (auto& entry : entries) entry(RL_INFO) = 0;
  }
  void after() { leaf.reset(); }
  // Mirrors phast/write.h latch_leaf, from `std::uint32_t word` to `return`, without ranges.
  std::uint32_t latch_and_claim(unsigned stripe) {
    for (unsigned spins = 0;;) {
      std::uint32_t word = (*leaf)->search.stripes.load();
      if ((word >> 8 * stripe & 0xFF) != 0) {
        P::pause(spins++);
        continue;
      }
      const std::uint32_t slot = (*leaf)->free_slot(word, 1);
      const std::uint32_t held = phast::kHeld | (slot + 1);
      if (!(*leaf)->search.stripes.compare_exchange(word, word | held << 8 * stripe)) continue;
      if (P::planted.recheck || slot == phast::kNoSlot || (*leaf)->is_free(slot)) return slot;
      (*leaf)->search.stripes.release(stripe);
    }
  }
  void thread(unsigned index) {
    if (index < 2) {
      // Mirrors Phast::fill_slot: entry, then fingerprint; then the release of the stripe.
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t slot = latch_and_claim(index);
        RL_ASSERT(slot != phast::kNoSlot);
        RL_ASSERT(entries[slot](RL_INFO) == 0);  // no other thread has filled it
        entries[slot](RL_INFO) = static_cast<int>(index) + 1;
        (*leaf)->set_fingerprint(slot, static_cast<std::uint8_t>(index + 1));
        (*leaf)->search.stripes.release(index);
      }
    } else {
      for (std::uint64_t shown = (*leaf)->visible(); shown != 0; shown &= shown - 1) {
        RL_ASSERT(entries[__builtin_ctzll(shown)](RL_INFO) != 0);
      }
    }
    P::leave();
  }
};

// --- lookups see what has returned: Descriptor::let_go (leaf_table.h D5) ---

struct LetGo : rl::test_suite<LetGo, 2> {
  std::optional<Leaf> leaf;
  bool returned;  // in real time: no simulated thread learns anything by it

  void before() {
    P::begin(2);
    leaf.emplace();
    returned = false;
  }
  void after() { leaf.reset(); }
  void thread(unsigned index) {
    if (index == 0) {
      std::uint32_t free = 0;
      RL_ASSERT((*leaf)->search.stripes.compare_exchange(free, phast::kHeld | 1));
      (*leaf)->set_fingerprint(0, 7);
      (*leaf)->search.stripes.release(0);
      returned = true;
    } else {
      // The first load of a lookup returns the present content of the caches. Locked instructions
      // have reached them; byte stores may not have.
      P::full_fence();
      const bool must_see = returned;
      if (!P::planted.recheck) (*leaf)->let_go(0);
      const bool seen = ((*leaf)->matches(7) & 1) != 0;
      RL_ASSERT(seen || !must_see);
    }
    P::leave();
  }
};

// --- epochs: pin, unlink, retire, advance (epoch.h) ---

// One object is linked; another replaces it.
template <class Test>
struct OneRetired : rl::test_suite<Test, 3> {
  P platform;
  std::optional<EpochDomain<P>> epochs;
  std::optional<P::Word<std::uint64_t>> link;
  rl::var<int> objects[2];

  static void finish(void* context, std::uint64_t object) {
    static_cast<OneRetired*>(context)->objects[object](RL_INFO) = -1;
  }
  static constexpr Reclaimer kReclaimer{nullptr, &finish};

  void before() {
    P::begin(3);
    epochs.emplace(platform);
    {
      const EpochGuard<P> makes_the_slots(*epochs);
    }
    link.emplace(0);
    for (auto& object : objects) object(RL_INFO) = 1;
  }
  void after() {
    epochs.reset();
    link.reset();
  }
  void replace() {
    link->store(1, std::memory_order_release);
    epochs->retire(kReclaimer, this, 0);
  }
  void look_at(std::uint64_t object) {
    P::stall();
    RL_ASSERT(objects[object](RL_INFO) == 1);
  }
};

// Thread 0 reads, 1 unlinks and retires, 2 advances the epoch too.
struct EpochAdvance : OneRetired<EpochAdvance> {
  void thread(unsigned index) {
    if (index == 0) {
      for (int i = 0; i < 2; ++i) {
        std::optional<EpochGuard<P>> guard(*epochs);
        const std::uint64_t object = link->load(std::memory_order_acquire);
        if (P::planted.order) guard.reset();
        look_at(object);
      }
    } else {
      if (index == 1) {
        const EpochGuard<P> guard(*epochs);
        P::stall();
        replace();
      }
      epochs->drain_all();
    }
    P::leave();
  }
};

// The same, but the unlink and the reader's pin come between an advancer's heavy fence and its
// advance, or right after it. The reader's epoch is then later than the retirement's, and C++ still
// lets it load the old reference.
struct EpochLate : OneRetired<EpochLate> {
  static void wait_for_the_fence() {
    while (P::heavy_fences == 0) P::pause(0);
  }
  void thread(unsigned index) {
    if (index == 0) {
      wait_for_the_fence();
      const EpochGuard<P> guard(*epochs);
      look_at(link->load(std::memory_order_acquire));
    } else {
      if (index == 1) {
        const EpochGuard<P> guard(*epochs);
        wait_for_the_fence();
        replace();
      }
      epochs->drain_all();
    }
    P::leave();
  }
};

// --- the gate: mutations beside a thread that keeps them out (gate.h) ---

struct GateBesideMutations : rl::test_suite<GateBesideMutations, 2> {
  P platform;
  std::optional<EpochDomain<P>> epochs;
  rl::var<int> value;  // no data race: a reader sees no store under way

  void before() {
    P::begin(2);
    epochs.emplace(platform);
    {
      const EpochGuard<P> makes_the_slots(*epochs);
    }
    value(RL_INFO) = 0;
  }
  void after() { epochs.reset(); }
  // Thread 0 closes the gate, 1 mutates.
  void thread(unsigned index) {
    if (index == 0) {
      const GateHold<P> hold(*epochs);
      const int before = value(RL_INFO);
      P::stall();
      RL_ASSERT(value(RL_INFO) == before);
    } else if (index == 1) {
      for (int i = 0; i < 2; ++i) {
        MutationGuard<P> guard(*epochs);
        if (!P::planted.recheck) RL_ASSERT(guard.pass_gate());
        P::stall();
        value(RL_INFO) = i;
      }
    }
    P::leave();
  }
};

// --- the swap of an index cache (ordered/caches.h: cache_start, use_copied) ---

struct CacheSwap : rl::test_suite<CacheSwap, 2> {
  P platform;
  std::optional<EpochDomain<P>> epochs;
  std::optional<P::Word<std::uint64_t>> cache;
  rl::var<std::uint64_t> words[3];  // the content of a cache; number 0 at the start

  static void finish(void* context, std::uint64_t number) {
    static_cast<CacheSwap*>(context)->words[number](RL_INFO) = 99;
  }
  static constexpr Reclaimer kReclaimer{nullptr, &finish};

  void before() {
    P::begin(2);
    epochs.emplace(platform);
    {
      const EpochGuard<P> makes_the_slots(*epochs);
    }
    cache.emplace(0);
    words[0](RL_INFO) = 10;
  }
  void after() {
    epochs.reset();
    cache.reset();
  }
  void thread(unsigned index) {
    if (index == 0) {
      for (int i = 0; i < 2; ++i) {
        const EpochGuard<P> guard(*epochs);
        const std::uint64_t number = cache->load(std::memory_order_acquire);
        P::stall();
        RL_ASSERT(words[number](RL_INFO) == number + 10);
      }
    } else {
      for (std::uint64_t number = 1; number < 3; ++number) {
        const EpochGuard<P> guard(*epochs);
        words[number](RL_INFO) = number + 10;
        cache->store(number,
                     P::planted.order ? std::memory_order_relaxed : std::memory_order_release);
        epochs->retire(kReclaimer, this, number - 1);
      }
      epochs->drain_all();
    }
    P::leave();
  }
};

// --- a version is closed beside a write (pskiplist.h I3, ORDERING: state) ---

// A thread that tags and then does not meet the write has closed a version without the write.
struct TagBesideAWrite : rl::test_suite<TagBesideAWrite, 2> {
  using State = pskiplist::State;
  using Phase = pskiplist::Phase;
  static constexpr State kUnstamped = State::of(Phase::unstamped, 1);
  std::optional<P::Word<std::uint64_t>> state, clock;
  // In real time: no simulated thread learns anything by it.
  unsigned ended;
  std::uint64_t version, closed;
  bool met;

  void before() {
    P::begin(2);
    state.emplace(State::of(Phase::held, 1).word);
    clock.emplace(5);
    ended = 0;
    version = closed = 0;
    met = false;
  }
  void after() {
    state.reset();
    clock.reset();
  }
  // The first caller decides. Returns the resulting state.
  State stamp() {
    const std::uint64_t now = clock->load(std::memory_order_seq_cst);
    std::uint64_t expected = kUnstamped.word;
    (void)state->compare_exchange_strong(expected, State::of(Phase::stamped, now).word,
                                         std::memory_order_seq_cst);
    return {state->load(std::memory_order_seq_cst)};
  }
  void thread(unsigned index) {
    if (index == 0) {  // pskiplist/write.h: stamp
      if (P::planted.order) {
        state->store(kUnstamped.word, std::memory_order_release);
      } else {
        state->exchange(kUnstamped.word, std::memory_order_seq_cst);
      }
      version = stamp().number();
    } else {  // tag, then settle_state
      closed = clock->fetch_add(1, std::memory_order_seq_cst);
      State seen{state->load(std::memory_order_seq_cst)};
      if (seen.phase() == Phase::unstamped) seen = stamp();
      met = seen.phase() == Phase::stamped && seen.number() <= closed;
    }
    if (++ended == 2) RL_ASSERT(met || version > closed);
    P::leave();
  }
};

// --- a latch whose owner has no locked instruction (biased_latch.h) ---

struct OwnerAndOutsiders : rl::test_suite<OwnerAndOutsiders, 3> {
  std::optional<BiasedLatch<P>> latch;
  rl::var<int> inside;

  void before() {
    P::begin(3);
    latch.emplace();
    inside(RL_INFO) = 0;
  }
  void after() { latch.reset(); }
  void enter() {  // a race if another thread is inside
    inside(RL_INFO) = inside(RL_INFO) + 1;
  }
  void thread(unsigned index) {
    if (index == 0) {
      for (int i = 0; i < 3; ++i) {
        LatchGuard guard(*latch);
        enter();
      }
    } else {
      RL_ASSERT(latch->lock_outside());
      enter();
      latch->unlock_outside();
    }
    P::leave();
  }
};

// --- threads that share a heavy fence (shared_call.h) ---

struct HeavyFence {
  template <class T>
  using Atomic = P::Atomic<T>;
  static void full_fence() {
    if (!P::planted.order) P::full_fence();
  }
  static bool call() { return P::heavy_fence(); }
  struct Wait {
    static bool over() {
      P::pause(0);
      return rl::rand(8) == 0;
    }
  };
};

// Thread 0 stores, fences lightly and loads; each other thread stores, needs a heavy fence and
// loads. Of each such pair at least one sees the other's store.
template <class Test, std::uint64_t kBehind>
struct Fences : rl::test_suite<Test, 3> {
  std::optional<SharedCall<HeavyFence, kBehind>> fence;
  std::optional<P::Word<std::uint32_t>> stored[3];
  bool sees[3][3];

  void before() {
    P::begin(3);
    fence.emplace();
    for (auto& word : stored) word.emplace(0);
  }
  void after() {
    RL_ASSERT(sees[0][1] || sees[1][0]);
    RL_ASSERT(sees[0][2] || sees[2][0]);
    fence.reset();
    for (auto& word : stored) word.reset();
  }
  void thread(unsigned index) {
    const auto look_at = [&](unsigned other) {
      sees[index][other] = stored[other]->load(std::memory_order_relaxed) != 0;
    };
    P::stall();
    if (index == 1) RL_ASSERT(fence->run());  // thread 2 may come during this call
    stored[index]->store(1, std::memory_order_relaxed);
    if (index == 0) {
      P::light_fence();
      look_at(1);
      look_at(2);
    } else {
      RL_ASSERT(fence->run());
      look_at(0);
    }
    P::leave();
  }
};
struct SharedFences : Fences<SharedFences, 1> {};
struct FencesOfTheCallUnderWay : Fences<FencesOfTheCallUnderWay, 0> {};

// --- blocks of one extent are freed beside its holder (heap/slabs.h: return_blocks, take_from) ---

// Each thread frees a block. The one that finds the extent full becomes its holder, and takes what
// is free.
struct FreesOfAnExtent : rl::test_suite<FreesOfAnExtent, 3> {
  static constexpr std::uint32_t kNone = 9;
  static constexpr std::uint32_t kBlocks = 3;
  std::optional<P::Word<std::uint64_t>> bits;
  std::optional<P::Word<std::uint32_t>> count, place;
  rl::var<std::uint32_t> list;  // of the holder
  rl::var<int> blocks[kBlocks];

  void before() {
    P::begin(3);
    bits.emplace((1U << kBlocks) - 1);
    count.emplace(0);
    place.emplace(kNone);
    list(RL_INFO) = kNone;
    for (auto& block : blocks) block(RL_INFO) = 0;
  }
  void after() {
    RL_ASSERT((list(RL_INFO) == kNone) == (count->load() == 0));
    RL_ASSERT(kBlocks - static_cast<unsigned>(__builtin_popcountll(bits->load())) == count->load());
    bits.reset();
    count.reset();
    place.reset();
  }
  void move_to(std::uint32_t from, std::uint32_t to) {
    RL_ASSERT(list(RL_INFO) == from);
    list(RL_INFO) = to;
    place->store(to, std::memory_order_release);
  }
  void free(std::uint32_t self, unsigned block) {
    const auto clear = [&] { bits->fetch_and(~(1ULL << block), std::memory_order_acq_rel); };
    if (P::planted.order) clear();
    if (count->fetch_add(1, std::memory_order_acq_rel) == 0) move_to(kNone, self);
    if (!P::planted.order) clear();
  }
  // Returns the mask of the blocks.
  unsigned take(std::uint32_t self) {
    unsigned mask = 0;
    std::uint32_t taken = 0;
    for (unsigned b = 0; b < kBlocks; ++b) {
      if ((bits->load(std::memory_order_acquire) >> b & 1) != 0) continue;
      bits->fetch_or(1ULL << b, std::memory_order_acq_rel);
      blocks[b](RL_INFO) = 7;  // a race if the thread that freed it still uses it
      mask |= 1U << b;
      ++taken;
    }
    const bool all = taken == count->load(std::memory_order_acquire);
    if (all && !P::planted.recheck) move_to(self, kNone);
    const std::uint32_t before = count->fetch_sub(taken, std::memory_order_acq_rel);
    RL_ASSERT(taken <= before);
    P::stall();
    if (all && P::planted.recheck) move_to(self, kNone);
    if (all && before != taken) move_to(kNone, self);
    return mask;
  }
  void thread(unsigned index) {
    unsigned own = 1U << index;
    for (int round = 0; round < 3; ++round) {
      for (unsigned b = 0; b < kBlocks; ++b) {
        if ((own >> b & 1) == 0) continue;
        blocks[b](RL_INFO) = 1;
        free(index, b);
      }
      own = place->load(std::memory_order_acquire) == index ? take(index) : 0;
    }
    P::leave();
  }
};

// --- running them ---

std::uint64_t iterations(std::uint64_t fast) {
  const char* wanted = std::getenv("PERDURE_RELACY_ITERATIONS");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : fast;
}

// Relacy's report, as far as it fits: inside an execution Relacy owns the heap.
class Report : public std::streambuf {
 public:
  Report() { setp(text_.data(), text_.data() + text_.size() - 1); }
  std::string text() const { return {pbase(), pptr()}; }

 private:
  int overflow(int c) override { return c; }
  std::array<char, 1 << 16> text_;
};

double seconds = 0;  // of the last simulation

// Returns "" if all executions passed, otherwise Relacy's report.
template <class Test>
std::string simulate(std::uint64_t executions, const RelacyPlanted& planted) {
  P::planted = planted;
  Report text;
  std::ostream report(&text);
  rl::test_params parameters;
  parameters.iteration_count = executions;
  parameters.output_stream = &report;
  parameters.progress_stream = &report;
  parameters.execution_depth_limit = 20'000;
  const std::clock_t start = std::clock();  // processor time, because of other load
  const bool right = rl::simulate<Test>(parameters);
  seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  P::planted = {};
  std::printf("%s after %llu executions, %.2f s\n", right ? "right" : "red",
              static_cast<unsigned long long>(parameters.stop_iteration), seconds);
  return right ? "" : text.text();
}

// Totals of all tests of this process, for the last lines of a run.
struct Figures {
  std::uint64_t executions = 0, errors = 0, planted = 0, seen = 0;
  double slowest = 0;  // to notice a planted bug, in seconds
};
Figures figures;
class PrintFigures : public ::testing::Environment {
 public:
  void TearDown() override {
    std::printf("relacy.executions=%llu\nrelacy.errors=%llu\nrelacy.planted=%llu\n",
                static_cast<unsigned long long>(figures.executions),
                static_cast<unsigned long long>(figures.errors),
                static_cast<unsigned long long>(figures.planted));
    std::printf("relacy.planted_seen=%llu\nrelacy.canary_seconds=%.1f\n",
                static_cast<unsigned long long>(figures.seen), figures.slowest);
  }
};
const auto* const print_figures = ::testing::AddGlobalTestEnvironment(new PrintFigures);

template <class Test>
void expect_right(std::uint64_t executions) {
  const std::string wrong = simulate<Test>(iterations(executions), {});
  EXPECT_EQ(wrong, "");
  figures.executions += iterations(executions);
  figures.errors += wrong.empty() ? 0 : 1;
}
template <class Test>
void expect_red(const char* what, const RelacyPlanted& planted) {
  std::printf("%s: ", what);
  const bool red = !simulate<Test>(100'000, planted).empty();
  EXPECT_TRUE(red) << what;
  EXPECT_LT(seconds, 10) << what;
  ++figures.planted;
  figures.seen += red ? 1 : 0;
  figures.slowest = std::max(figures.slowest, seconds);
}

TEST(Relacy, P1_P2_SlotClaimAndStripeLatch) {
  expect_right<SlotClaim>(20'000);
  expect_red<SlotClaim>("no second look at the fingerprint", {.recheck = true});
  expect_red<SlotClaim>("a stripe released relaxed", {.release = true});
  expect_red<SlotClaim>("fingerprints before their entries", {.bytes = true});
}

TEST(Relacy, D5_LookupsSeeWhatHasReturned) {
  expect_right<LetGo>(20'000);
  expect_red<LetGo>("no wait for the stripe", {.recheck = true});
  expect_red<LetGo>("a heavy fence that is none", {.heavy_fence = true});
  expect_red<LetGo>("a stripe released before the fingerprint", {.bytes = true, .release = true});
}

TEST(Relacy, G6_EpochsPinAndAdvance) {
  expect_right<EpochAdvance>(3'000);
  expect_red<EpochAdvance>("a heavy fence that is none", {.heavy_fence = true});
  expect_red<EpochAdvance>("a reader that leaves its guard too early", {.order = true});
}

// With a grace period of two epochs it fails.
TEST(Relacy, G6_EpochOfALateReader) { expect_right<EpochLate>(20'000); }

TEST(Relacy, GateBesideMutations) {
  expect_right<GateBesideMutations>(10'000);
  expect_red<GateBesideMutations>("a heavy fence that is none", {.heavy_fence = true});
  expect_red<GateBesideMutations>("a mutation that does not ask", {.recheck = true});
}

TEST(Relacy, CutsBesideStores) {
  expect_right<CutsBesideStores>(20'000);
  expect_right<CutsThatWritersEnd>(20'000);
  expect_right<RoundsOfCuts>(20'000);
  expect_red<RoundsOfCuts>("no wait for the round before", {.recheck = true});
  expect_red<RoundsOfCuts>("a heavy fence that is none", {.heavy_fence = true});
  expect_red<RoundsOfCuts>("acquire and release that are none", {.weak = true});
  expect_red<CutsBesideStores>("acquire and release that are none", {.weak = true});
  expect_red<CutsBesideStores>("a heavy fence that is none", {.heavy_fence = true});
  expect_red<CutsBesideStores>("a store behind the gate", {.order = true});
  expect_red<CutsThatWritersEnd>("a cut that a writer has ended", {.recheck = true});
}

TEST(Relacy, W2_TagBesideAWrite) {
  expect_right<TagBesideAWrite>(20'000);
  expect_red<TagBesideAWrite>("unstamped is stored without a full fence", {.order = true});
}

TEST(Relacy, OwnerAndOutsidersOfALatch) {
  expect_right<OwnerAndOutsiders>(5'000);
  expect_red<OwnerAndOutsiders>("a heavy fence that is none", {.heavy_fence = true});
}

TEST(Relacy, SharedHeavyFences) {
  expect_right<SharedFences>(10'000);
  expect_red<FencesOfTheCallUnderWay>("a call that began before", {});
  expect_red<SharedFences>("a note that passes the stores before it", {.order = true});
  expect_red<SharedFences>("a heavy fence that is none", {.heavy_fence = true});
}

TEST(Relacy, I5_FreesOfAnExtent) {
  expect_right<FreesOfAnExtent>(20'000);
  expect_red<FreesOfAnExtent>("the bit before the count", {.order = true});
  expect_red<FreesOfAnExtent>("unlinked after the count", {.recheck = true});
}

TEST(Relacy, P16_IndexCacheSwap) {
  expect_right<CacheSwap>(3'000);
  expect_red<CacheSwap>("published relaxed", {.order = true});
  expect_red<CacheSwap>("a heavy fence that is none", {.heavy_fence = true});
}

}  // namespace
}  // namespace perdure::testing
