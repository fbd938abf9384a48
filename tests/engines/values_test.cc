// test: cross
// Byte values of every size class, up to and beyond the limit.
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/support/subjects.h"

namespace perdure::test {
namespace {

template <class S>
class ByteValueTest : public MapTest<S> {
 protected:
  using KeyType = typename S::K;
  void SetUp() override { map_ = this->backend_.template map<KeyType, std::string_view>("map"); }
  // Depends on the position: a block of another value or a shifted copy differs.
  static std::string content(std::size_t size, std::uint64_t salt) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<char>((i * 131 + (i >> 12) * 29 + salt * 17) & 0xff);
    }
    return bytes;
  }
  bool holds(std::uint64_t k, std::string_view expected) {
    bool same = false;
    const bool found = was_present(map_->read(
        KeyType(key_at<KeyType>(k)), [&](std::string_view seen) { same = seen == expected; }));
    return found && same;
  }

  std::optional<Map<KeyType, std::string_view>> map_;
};
using ByteValueTestKinds = ByteValueKinds;

MAP_TEST(ByteValueTest, ValuesOfEverySize) {
  using K = typename TestFixture::KeyType;
  std::vector<std::size_t> sizes;
  for (std::size_t n = 0; n <= 9; ++n) sizes.push_back(n);
  sizes.insert(sizes.end(),
               {15,   16,   17,   23,     24,     25,     31,        32,        33,
                47,   48,   49,   63,     64,     65,     127,       128,       129,
                4095, 4096, 4097, 65'535, 65'536, 65'537, 1'048'575, 1'048'576, 1'048'577});
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::string value = this->content(sizes[i], i);
    ASSERT_TRUE(was_absent(this->map_->insert(K(key_at<K>(i)), value))) << sizes[i];
    ASSERT_TRUE(this->holds(i, value)) << sizes[i];
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::string value = this->content(sizes[i], i);
    ASSERT_TRUE(this->holds(i, value)) << sizes[i];
    ASSERT_EQ(must(this->map_->get(K(key_at<K>(i)))), std::optional(value)) << sizes[i];
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_TRUE(was_present(this->map_->erase(K(key_at<K>(i)))));
  }
}

MAP_TEST(ByteValueTest, SixtyFourMebibytes) {
  using K = typename TestFixture::KeyType;
  const std::string big = this->content(scaled(64_MiB, 16_MiB), 1);
  for (int round = 0; round < 2; ++round) {  // the second time in reused space
    ASSERT_TRUE(was_absent(this->map_->insert(K(key_at<K>(1)), big)));
    ASSERT_TRUE(was_absent(this->map_->insert(K(key_at<K>(2)), "small")));
    EXPECT_TRUE(this->holds(1, big));
    EXPECT_TRUE(this->holds(2, "small"));
    ASSERT_TRUE(was_present(this->map_->update(K(key_at<K>(1)), "short")));
    EXPECT_TRUE(this->holds(1, "short"));
    ASSERT_TRUE(was_present(this->map_->erase(K(key_at<K>(1)))));
    ASSERT_TRUE(was_present(this->map_->erase(K(key_at<K>(2)))));
  }
}

MAP_TEST(ByteValueTest, ValuesGrowAndShrinkOnUpdate) {
  using K = typename TestFixture::KeyType;
  PERDURE_TRACE_SEED();
  Rng rng;
  std::map<std::uint64_t, std::string> model;
  for (std::uint64_t i = 0; i < 100; ++i) {
    model[i] = this->content(i, i);
    ASSERT_TRUE(was_absent(this->map_->insert(K(key_at<K>(i)), model[i])));
  }
  for (std::uint64_t round = 0; round < scaled(4'000, 600); ++round) {
    const std::uint64_t k = rng.below(100);
    // Mostly neighbouring sizes, sometimes a jump, through every size class.
    const std::size_t size = rng.one_in(20)  ? rng.below(200'000)
                             : rng.one_in(3) ? rng.below(300)
                                             : model[k].size() + rng.below(3);
    model[k] = this->content(size, round);
    if (rng.one_in(2)) {
      ASSERT_TRUE(was_present(this->map_->update(K(key_at<K>(k)), model[k])));
    } else {
      ASSERT_FALSE(was_absent(this->map_->put(K(key_at<K>(k)), model[k])));
    }
    ASSERT_TRUE(this->holds(k, model[k])) << "round " << round << " size " << size;
    const std::uint64_t other = rng.below(100);
    ASSERT_TRUE(this->holds(other, model[other])) << "a neighbour, round " << round;
  }
}

// A value one byte beyond the limit is refused by its size, before a byte of it is read: the view
// lies over a reserved, unreadable range.
MAP_TEST(ByteValueTest, ValuesBeyondTheLimitAreRefused) {
  using K = typename TestFixture::KeyType;
  const std::size_t size = kMaxValueBytes + 1;
  void* range = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(range, MAP_FAILED);
  const std::string_view huge(static_cast<const char*>(range), size);
  ASSERT_TRUE(was_absent(this->map_->insert(K(key_at<K>(2)), "kept")));
  EXPECT_EQ(code_of(this->map_->insert(K(key_at<K>(1)), huge)), StatusCode::invalid_argument);
  EXPECT_EQ(code_of(this->map_->put(K(key_at<K>(2)), huge)), StatusCode::invalid_argument);
  EXPECT_EQ(code_of(this->map_->update(K(key_at<K>(2)), huge)), StatusCode::invalid_argument);
  EXPECT_FALSE(was_present(this->map_->contains(K(key_at<K>(1)))));
  EXPECT_TRUE(this->holds(2, "kept"));
  munmap(range, size);
}

}  // namespace
}  // namespace perdure::test
