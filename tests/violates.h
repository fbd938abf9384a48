// EXPECT_VIOLATES(id, statement): the statement runs into the assertion of this invariant.
//
// In a child process: an assertion ends it. Mutants that the statement sets are seen by assertions
// here, which elsewhere they are not (SimPlatform::violated). tests/tidy requires one for each id
// that is asserted.
#pragma once

#include <gtest/gtest.h>

#include "testing/sim_platform.h"

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): as the macro of GoogleTest that it is.
#define EXPECT_VIOLATES(id, statement)                   \
  EXPECT_DEATH(                                          \
      {                                                  \
        ::perdure::testing::SimPlatform::planted = true; \
        statement;                                       \
      },                                                 \
      id " does not hold")
