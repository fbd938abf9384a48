// The two skiplists: what they promise of the levels above the lowest one.
#pragma once

#include <algorithm>

#include "perdure/options.h"
#include "platform/site.h"

namespace perdure::skiplist {

// "as" and "insert.node": "as.insert.node".
template <std::size_t A, std::size_t B>
consteval FixedString<A + B> joined(const char (&engine)[A], const FixedString<B>& rest) {
  char text[A + B] = {};
  std::copy_n(engine, A - 1, text);
  text[A - 1] = '.';
  std::copy_n(rest.text, B, text + A);
  return FixedString<A + B>(text);
}

// All levels are durable and consistent at every moment: restarts at once.
struct As {
  static constexpr Engine kEngine = Engine::as;
  static constexpr const char* kBlock = "as block";
  static constexpr bool kUpperDurable = true;
  template <FixedString Rest>
  static consteval auto site() {
    return Site<joined("as", Rest)>{};
  }
};

// The lowest level is; the others are written, never written back, and made anew at open.
struct Ascs {
  static constexpr Engine kEngine = Engine::ascs;
  static constexpr const char* kBlock = "ascs block";
  static constexpr bool kUpperDurable = false;
  template <FixedString Rest>
  static consteval auto site() {
    return Site<joined("ascs", Rest)>{};
  }
};

}  // namespace perdure::skiplist
