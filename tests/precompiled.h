// What most tests include, compiled once. Each includes what it uses all the same.
#pragma once

#include <gtest/gtest.h>

#include "testing/precompiled.h"
