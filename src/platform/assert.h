// PERDURE_ASSERT(P, "phast.D2", condition) asserts that the invariant of that id holds here.
//
// The type of the Platform decides whether it checks, never a macro of a target. SimPlatform and
// LossyPlatform always check, in every build. RealPlatform checks unless NDEBUG is defined. A
// condition that does not hold ends the process, with the id, the condition and the place; under
// the simulator also with the replay line.
//
// PERDURE_ASSERT_BY(files, "log.E6", condition) does the same in classes over a FileSystem, which
// are compiled once. It always evaluates the condition; the FileSystem decides what follows.
//
// The condition must be about what the calling thread owns, or about what moves one way only,
// because other threads run meanwhile, except under the simulator. It may read through the
// platform: such reads are no steps of a schedule and are not counted. It must not be about content
// of the medium that recovery has not verified, because a damaged file must give an error.
// tests/tidy requires that the header of the component numbers the id. docs/design/invariants.md
// lists where each one is checked.
#pragma once

namespace perdure {

// The place and the text of an assertion.
struct Assertion {
  const char* id;
  const char* condition;
  const char* file;
  int line;
};

}  // namespace perdure

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): the condition is also used as text.
#define PERDURE_ASSERT(P, id, ...)                                                 \
  do {                                                                             \
    if constexpr (P::kAsserts) {                                                   \
      [[maybe_unused]] const typename P::Unobserved unobserved{};                  \
      if (!(__VA_ARGS__)) [[unlikely]]                                             \
        P::violated(::perdure::Assertion{(id), #__VA_ARGS__, __FILE__, __LINE__}); \
    }                                                                              \
  } while (false)

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): the condition is also used as text.
#define PERDURE_ASSERT_BY(files, id, ...)                                             \
  do {                                                                                \
    if (!(__VA_ARGS__)) [[unlikely]]                                                  \
      (files).violated(::perdure::Assertion{(id), #__VA_ARGS__, __FILE__, __LINE__}); \
  } while (false)
