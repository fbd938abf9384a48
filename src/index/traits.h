// Traits: the template parameters of an engine, as one type.
#pragma once

#include "platform/platform.h"

namespace perdure {

template <perdure::Platform P, class C, class G>
struct Traits {
  using Platform = P;
  using Codec = C;
  using Geometry = G;
};

}  // namespace perdure
