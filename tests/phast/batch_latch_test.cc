// test: explores
// Which batches of a PhaST map close the gate, and that a small one finds its places without it.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "testing/crash/workloads.h"
#include "testing/engines/phast_subject.h"

namespace perdure::testing {
namespace {

using Words = PhastSubject<phast::IntegerCodec>;
using Strings = PhastSubject<phast::BytesCodec>;

template <class Subject>
class Pool {
 public:
  explicit Pool(ValueKind values) : memory_(1 << 20), subject_({values}) {
    memory_.set_mode(SimMode::recording);
    EXPECT_TRUE(subject_.create(memory_).ok());
    EXPECT_TRUE(subject_.open(memory_, 1).ok());
  }
  void put(std::uint64_t key) { EXPECT_TRUE(subject_.apply(put_of(key))); }
  // Whether the batch went beside other mutations. Its number of parts must be even.
  bool goes_beside(const std::vector<Op>& parts) {
    const std::uint64_t before = subject_.besides();
    EXPECT_TRUE(subject_.apply({.kind = OpKind::batch, .parts = parts}));
    for (const Op& part : parts) {
      const auto found = subject_.apply({OpKind::find, part.key, {}});
      EXPECT_TRUE(found);
      EXPECT_EQ(*found, part.kind != OpKind::erase);
    }
    return subject_.besides() != before;
  }
  static Op put_of(std::uint64_t key) { return {OpKind::upsert, integer_key(key), "value"}; }
  static Op erase_of(std::uint64_t key) { return {OpKind::erase, integer_key(key), {}}; }

 private:
  SimMemory memory_;
  Subject subject_;
};

template <class Subject>
void expect_small_ones_go_beside(ValueKind values) {
  Pool<Subject> pool(values);
  for (std::uint64_t key = 10; key <= 200; key += 10) pool.put(key);
  EXPECT_TRUE(pool.goes_beside({pool.put_of(10), pool.put_of(90)}));
  EXPECT_TRUE(pool.goes_beside({pool.put_of(10), pool.put_of(20)})) << "in one leaf";
  EXPECT_TRUE(pool.goes_beside({pool.put_of(10), pool.erase_of(20)}));
  EXPECT_TRUE(pool.goes_beside({pool.erase_of(20), pool.erase_of(21)})) << "nothing changes";
  std::uint64_t beside = 0;
  for (std::uint64_t key = 11; key <= 101; key += 10) {  // full leaves are split
    beside += pool.goes_beside({pool.put_of(key), pool.put_of(key + 100)}) ? 1 : 0;
  }
  EXPECT_EQ(beside, 10U);
}

TEST(BatchLatch, SmallBatchesGoBesideOtherMutations) {
  expect_small_ones_go_beside<Words>(ValueKind::word);
  expect_small_ones_go_beside<Words>(ValueKind::bytes);
  expect_small_ones_go_beside<Strings>(ValueKind::bytes);
}

TEST(BatchLatch, OthersCloseTheGate) {
  Pool<Words> words(ValueKind::word);
  words.put(1);
  EXPECT_FALSE(words.goes_beside({words.put_of(0), words.put_of(1)})) << "key 0 has no stripe";
  Pool<Strings> in_records(ValueKind::word);
  in_records.put(1);
  EXPECT_FALSE(in_records.goes_beside({in_records.put_of(1), in_records.put_of(2)}))
      << "an update of a word needs no record, and an insert has one";
  // Of six new keys two share one of four stripes.
  Pool<Strings> strings(ValueKind::bytes);
  EXPECT_FALSE(strings.goes_beside({strings.put_of(1), strings.put_of(2), strings.put_of(3),
                                    strings.put_of(4), strings.put_of(5), strings.put_of(6)}));
  std::vector<Op> many;
  for (std::uint64_t key = 0; key < 258; ++key) many.push_back(strings.put_of(100 + 1000 * key));
  EXPECT_FALSE(strings.goes_beside(many)) << "too many keys";
}

}  // namespace
}  // namespace perdure::testing
