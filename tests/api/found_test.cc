// test: cross
// Found: three outcomes that cannot be confused.
#include <gtest/gtest.h>

#include <concepts>
#include <type_traits>

#include "perdure/perdure.h"

namespace perdure {
namespace {

// `if (map.erase(key))` must not compile, because it could mean the error or the key.
static_assert(!std::is_convertible_v<Found, bool>);
static_assert(!std::is_constructible_v<bool, Found>);
static_assert(!std::is_constructible_v<Found, int>);
static_assert(!std::is_convertible_v<bool, Found>);

// Every mutation and lookup of a map returns Found.
template <class T>
inline constexpr bool kSaysFound = std::same_as<T, Found>;
using Numbers = Map<int, int>;
using Layers = VersionedMap<int, int>;
static_assert(kSaysFound<decltype(std::declval<Numbers&>().put(1, 1))>);
static_assert(kSaysFound<decltype(std::declval<Numbers&>().insert(1, 1))>);
static_assert(kSaysFound<decltype(std::declval<Numbers&>().update(1, 1))>);
static_assert(kSaysFound<decltype(std::declval<Numbers&>().erase(1))>);
static_assert(kSaysFound<decltype(std::declval<Numbers&>().contains(1))>);
static_assert(kSaysFound<decltype(std::declval<Numbers&>().read(1, [](int) {}))>);
static_assert(kSaysFound<decltype(std::declval<Layers&>().read(1, 1, [](int) {}))>);
static_assert(kSaysFound<decltype(std::declval<Store&>().put("", ""))>);
static_assert(kSaysFound<decltype(std::declval<UntypedMap&>().erase({}))>);

TEST(Found, IsPresentOrAbsentOrNeither) {
  const Found present(true);
  EXPECT_TRUE(present.ok() && present.present() && !present.absent());
  EXPECT_TRUE(present.status().ok());
  const Found absent(false);
  EXPECT_TRUE(absent.ok() && !absent.present() && absent.absent());
  const Found failed(Status::format(StatusCode::pool_full, "%s", "full"));
  EXPECT_FALSE(failed.ok() || failed.present() || failed.absent());
  EXPECT_EQ(failed.status(), StatusCode::pool_full);
  EXPECT_EQ(failed.status().message(), "full");
}

TEST(Found, GivesItsStatusAway) {
  Found failed = fail(Status::format(StatusCode::io, "%s", "broken"));
  const Status status = std::move(failed).status();
  EXPECT_EQ(status, StatusCode::io);
  EXPECT_EQ(status.message(), "broken");
}

}  // namespace
}  // namespace perdure
