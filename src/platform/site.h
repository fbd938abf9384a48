// Site: the compile-time name of a place that writes back or fences, e.g.
// "phast.insert.entry"_site; of a step, such as a step of recovery or a free; or of a checksum that
// is verified.
//
// RealPlatform ignores it, so it costs nothing in a release. The platforms in testing/ turn it into
// a number and list every site that was compiled in, so that a test can remove each one in turn.
#pragma once

#include <algorithm>
#include <cstddef>

namespace perdure {

template <std::size_t N>
struct FixedString {
  char text[N];
  consteval FixedString(const char (&source)[N]) { std::copy_n(source, N, text); }
};

template <FixedString Name>
struct Site {
  static constexpr const char* name() { return Name.text; }
};

template <FixedString Name>
consteval Site<Name> operator""_site() {
  return {};
}

// The same for virtual calls, those of a FileSystem.
class AnySite {
 public:
  template <FixedString Name>
  constexpr AnySite(Site<Name>) noexcept : name_(Name.text) {}  // NOLINT: implicit on purpose
  static constexpr AnySite none() noexcept { return {}; }
  constexpr const char* name() const noexcept { return name_; }

 private:
  constexpr AnySite() noexcept = default;
  const char* name_ = nullptr;
};
inline constexpr AnySite kNoSite = AnySite::none();  // no test leaves this call out

}  // namespace perdure
