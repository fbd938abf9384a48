// EXPECT_VIOLATES(id, statement): the statement violates the assertion of this invariant.
//
// It runs in a child process, which the assertion ends. Assertions also work here under mutants
// that the statement sets, unlike elsewhere (SimPlatform::violated). tests/tidy requires one use
// for each asserted id.
#pragma once

#include <gtest/gtest.h>

#include "testing/sim/sim_platform.h"

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): as the macro of GoogleTest that it uses.
#define EXPECT_VIOLATES(id, statement)                   \
  EXPECT_DEATH(                                          \
      {                                                  \
        ::perdure::testing::SimPlatform::planted = true; \
        statement;                                       \
      },                                                 \
      id " does not hold")
