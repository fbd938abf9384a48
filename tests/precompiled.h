// Headers of most tests, compiled once. Each test includes what it uses nevertheless.
#pragma once

#include <gtest/gtest.h>

#include "testing/precompiled.h"
