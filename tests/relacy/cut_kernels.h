// The gate of cuts (platform/cut_gate.h) under Relacy, with its own code.
#pragma once

#include <optional>

#include "platform/cut_gate.h"
#include "relacy_platform.h"

namespace perdure::testing {

// Two threads store; the third cuts. The stores are to plain memory, so Relacy notices a store that
// is not ordered with what the third thread reads while the gate is shut.
struct CutsBesideStores : rl::test_suite<CutsBesideStores, 3> {
  using P = RelacyPlatform;
  std::optional<CutGate<P>> gate;
  rl::var<int> first[2], second[2];  // of a writer: the second is never ahead

  void before() {
    P::begin(3);
    gate.emplace(CutLimits{.writer_ns = 1, .shut_ns = 1, .round_ns = 1});  // time stands still
    RL_ASSERT(gate->make(3));
    for (int i = 0; i < 2; ++i) {
      first[i](RL_INFO) = 0;
      second[i](RL_INFO) = 0;
    }
  }
  void after() { gate.reset(); }
  void store(unsigned index, rl::var<int>& word, int value) {
    auto& slot = gate->slot(index);
    if (CutGate<P>::fresh(slot)) gate->join(index);
    gate->enter(slot);
    P::pause(0);  // a heavy fence of the other thread may come here
    if (!P::planted.order) word(RL_INFO) = value;
    CutGate<P>::leave(slot);
    if (P::planted.order) word(RL_INFO) = value;
  }
  void thread(unsigned index) {
    if (index < 2) {
      for (int value = 1; value < 3; ++value) {
        store(index, first[index], value);
        store(index, second[index], value);
      }
    } else {
      for (int cut = 0; cut < 2; ++cut) {
        RL_ASSERT(gate->next_round() == CutStep::done);
        RL_ASSERT(gate->shut() == CutStep::done);
        for (int i = 0; i < 2; ++i) {
          const int ahead = first[i](RL_INFO) - second[i](RL_INFO);
          RL_ASSERT(ahead == 0 || ahead == 1);
        }
        RL_ASSERT(gate->open());
      }
    }
    P::leave();
  }
};

// What was stored in a round can be read without a race once the next one has begun (G2).
struct RoundsOfCuts : rl::test_suite<RoundsOfCuts, 2> {
  using P = RelacyPlatform;
  std::optional<CutGate<P>> gate;
  rl::var<int> word;

  void before() {
    P::begin(2);
    gate.emplace(CutLimits{.writer_ns = 1, .shut_ns = 1, .round_ns = 1});
    RL_ASSERT(gate->make(2));
    word(RL_INFO) = 0;
  }
  void after() { gate.reset(); }
  void thread(unsigned index) {
    if (index == 0) {
      auto& slot = gate->slot(0);
      for (int value = 1; value < 4; ++value) {
        if (CutGate<P>::fresh(slot)) gate->join(0);
        const bool first = gate->enter(slot) == CutGate<P>::kFirstRound;
        P::pause(0);  // a heavy fence of the other thread may come here
        if (first) word(RL_INFO) = value;
        CutGate<P>::leave(slot);
      }
    } else {
      P::stall();
      if (!P::planted.recheck) RL_ASSERT(gate->next_round() == CutStep::done);
      RL_ASSERT(word(RL_INFO) < 4);
    }
    P::leave();
  }
};

// Writers open the gate at once. A cut counts only if none did.
struct CutsThatWritersEnd : rl::test_suite<CutsThatWritersEnd, 2> {
  using P = RelacyPlatform;
  std::optional<CutGate<P>> gate;
  std::optional<P::Word<std::uint64_t>> first, second;

  void before() {
    P::begin(2);
    gate.emplace(CutLimits{.writer_ns = 0, .shut_ns = 1, .round_ns = 1});
    RL_ASSERT(gate->make(2));
    first.emplace(0);
    second.emplace(0);
  }
  void after() {
    gate.reset();
    first.reset();
    second.reset();
  }
  void store(P::Word<std::uint64_t>& word, std::uint64_t value) {
    auto& slot = gate->slot(0);
    if (CutGate<P>::fresh(slot)) gate->join(0);
    gate->enter(slot);
    word.store(value, std::memory_order_release);
    CutGate<P>::leave(slot);
  }
  void thread(unsigned index) {
    if (index == 0) {
      for (std::uint64_t value = 1; value < 4; ++value) {
        store(*first, value);
        store(*second, value);
      }
    } else {
      for (int cut = 0; cut < 3; ++cut) {
        if (gate->shut() != CutStep::done) continue;
        const std::uint64_t ahead = first->load(std::memory_order_relaxed);
        P::stall();
        const std::uint64_t behind = second->load(std::memory_order_relaxed);
        const bool counts = gate->open() || P::planted.recheck;
        RL_ASSERT(!counts || ahead == behind || ahead == behind + 1);
      }
    }
    P::leave();
  }
};

}  // namespace perdure::testing
