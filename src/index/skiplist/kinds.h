// The two skiplists differ in what they guarantee of the levels above the lowest one.
#pragma once

#include <algorithm>

#include "index/traits.h"
#include "perdure/options.h"
#include "platform/site.h"

namespace perdure::skiplist {

// What a skiplist is a template over, in one parameter.
template <perdure::Platform P, class C, class K, class G>
struct Traits : perdure::Traits<P, C, G> {
  using Kind = K;
};

// All levels are durable and consistent at every moment: restarts at once.
struct As {
  static constexpr Engine kEngine = Engine::as;
  static constexpr FixedString kName{"as"};
  static constexpr const char* kBlock = "as block";
  static constexpr bool kUpperDurable = true;
};

// Level 0 is durable. The other levels are stored, never written back, and made anew at open.
struct Ascs {
  static constexpr Engine kEngine = Engine::ascs;
  static constexpr FixedString kName{"ascs"};
  static constexpr const char* kBlock = "ascs block";
  static constexpr bool kUpperDurable = false;
};

// "as" and "insert.node": "as.insert.node".
template <std::size_t A, std::size_t B>
consteval FixedString<A + B> joined(const FixedString<A>& engine, const FixedString<B>& rest) {
  char text[A + B] = {};
  std::copy_n(engine.text, A - 1, text);
  text[A - 1] = '.';
  std::copy_n(rest.text, B, text + A);
  return FixedString<A + B>(text);
}
template <class Kind, FixedString Rest>
inline constexpr Site<joined(Kind::kName, Rest)> kSite{};

}  // namespace perdure::skiplist
