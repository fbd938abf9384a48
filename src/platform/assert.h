// PERDURE_ASSERT(P, "phast.D2", condition): the invariant of that id holds here.
//
// The Platform's type decides, never a macro of a target: SimPlatform and LossyPlatform always
// look, in every build; RealPlatform looks unless NDEBUG is defined. A condition that does not hold
// ends the process, with the id, the condition and the place; under the simulator with the replay
// line.
//
// The condition is about what the calling thread owns, or what only ever moves one way: other
// threads go on meanwhile, except under the simulator. It may read through the platform, where it
// is no step of a schedule and no access that is counted. It is never about content of the medium
// that recovery has not verified: a damaged file gets an error. tests/tidy requires that the header
// of the component numbers the id; docs/design/invariants.md says where each one is looked at.
#pragma once

namespace perdure {

// Where an assertion stands, and what it says.
struct Assertion {
  const char* id;
  const char* condition;
  const char* file;
  int line;
};

}  // namespace perdure

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): the condition has to be text, too.
#define PERDURE_ASSERT(P, id, ...)                                                 \
  do {                                                                             \
    if constexpr (P::kAsserts) {                                                   \
      [[maybe_unused]] const typename P::Unobserved unobserved{};                  \
      if (!(__VA_ARGS__)) [[unlikely]]                                             \
        P::violated(::perdure::Assertion{(id), #__VA_ARGS__, __FILE__, __LINE__}); \
    }                                                                              \
  } while (false)
