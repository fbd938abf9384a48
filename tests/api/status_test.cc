// test: cross
// Status: one word, a bare code or an owned message.
#include "perdure/status.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

namespace perdure {
namespace {

constexpr StatusCode kCodes[] = {StatusCode::ok,
                                 StatusCode::invalid_argument,
                                 StatusCode::not_found,
                                 StatusCode::exists,
                                 StatusCode::busy,
                                 StatusCode::corruption,
                                 StatusCode::unsupported_format,
                                 StatusCode::untrusted,
                                 StatusCode::pool_full,
                                 StatusCode::out_of_memory,
                                 StatusCode::io,
                                 StatusCode::poisoned,
                                 StatusCode::unsupported,
                                 StatusCode::read_only,
                                 StatusCode::hash_overflow,
                                 StatusCode::conflict,
                                 StatusCode::live_missing};

static_assert(sizeof(Status) == sizeof(void*), "a Status is one word");
static_assert(std::is_nothrow_copy_constructible_v<Status> &&
              std::is_nothrow_move_constructible_v<Status>);

TEST(StatusTest, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::ok);
}

TEST(StatusTest, BareCodesKeepTheirCodeAndUseItsNameAsMessage) {
  std::set<std::string> names;
  for (const StatusCode code : kCodes) {
    const Status status = code;
    EXPECT_EQ(status.ok(), code == StatusCode::ok);
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), status_code_name(code));
    EXPECT_TRUE(status == code);
    names.insert(status_code_name(code));
  }
  EXPECT_EQ(names.size(), std::size(kCodes)) << "two codes have the same name";
  EXPECT_STREQ(status_code_name(StatusCode::pool_full), "pool_full");
  EXPECT_STREQ(status_code_name(StatusCode::ok), "ok");
}

TEST(StatusTest, NamesOfUnknownCodesAreNotNull) {
  EXPECT_NE(status_code_name(static_cast<StatusCode>(200)), nullptr);
}

TEST(StatusTest, FormattedMessages) {
  const Status status = Status::format(StatusCode::busy, "%s: pid %d has it", "a.perdure", 42);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::busy);
  EXPECT_EQ(status.message(), "a.perdure: pid 42 has it");
}

TEST(StatusTest, LongMessagesAreKept) {
  const std::string path(5'000, 'x');
  const Status status = Status::format(StatusCode::io, "%s", path.c_str());
  EXPECT_EQ(status.code(), StatusCode::io);
  // Cut or whole, but never longer and never different.
  EXPECT_EQ(path.substr(0, 200), std::string(status.message()).substr(0, 200));
  EXPECT_LE(status.message().size(), path.size());
}

TEST(StatusTest, CopiesAreIndependent) {
  Status first = Status::format(StatusCode::io, "first %d", 1);
  Status copy = first;
  first = Status::format(StatusCode::busy, "second");
  EXPECT_EQ(copy.message(), "first 1");
  EXPECT_EQ(copy.code(), StatusCode::io);
  EXPECT_EQ(first.message(), "second");
  copy = first;
  EXPECT_EQ(copy.message(), "second");
  copy = StatusCode::ok;
  EXPECT_TRUE(copy.ok());
  const Status& self = first;
  first = self;  // self-assignment keeps the message
  EXPECT_EQ(first.message(), "second");
}

TEST(StatusTest, MovesLeaveOkOrTheOther) {
  Status first = Status::format(StatusCode::io, "message");
  Status second = std::move(first);
  EXPECT_EQ(second.message(), "message");
  Status third;
  third = std::move(second);
  EXPECT_EQ(third.message(), "message");
  EXPECT_EQ(third.code(), StatusCode::io);
}

TEST(StatusTest, ExpectedCarriesIt) {
  auto seven = [](bool good) -> Expected<int> {
    if (good) return 7;
    return fail(StatusCode::corruption, "leaf %d", 3);
  };
  EXPECT_EQ(seven(true).value(), 7);
  ASSERT_FALSE(seven(false).has_value());
  EXPECT_EQ(seven(false).error().code(), StatusCode::corruption);
  EXPECT_EQ(seven(false).error().message(), "leaf 3");
  const Expected<void> bare = fail(StatusCode::pool_full);
  EXPECT_TRUE(bare.error() == StatusCode::pool_full);
}

// Deriving from std::expected must not make a copy of an Expected<bool> a conversion to bool.
TEST(ExpectedTest, CopiesAndMovesKeepTheValue) {
  Expected<bool> no(false);
  Expected<bool> copy(no);
  EXPECT_FALSE(*copy);
  Expected<bool> moved(std::move(copy));
  EXPECT_FALSE(*moved);
  const Expected<bool> constant = no;
  Expected<bool> again(constant);
  EXPECT_FALSE(*again);
  Expected<bool> failed = fail(StatusCode::io);
  Expected<bool> failed_too(failed);
  ASSERT_FALSE(failed_too.has_value());
  EXPECT_EQ(failed_too.error(), StatusCode::io);
  failed_too = true;
  EXPECT_TRUE(*failed_too);
  failed_too = no;
  EXPECT_FALSE(*failed_too);
}

}  // namespace
}  // namespace perdure
