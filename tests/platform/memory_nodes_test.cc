// test: no asan
// PoolOptions::interleave: the policy that the system has for the pages of a pool and for tables in
// DRAM. A machine with one memory node has the policies, too, but not their effect.
#include "platform/memory_nodes.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/mempolicy.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <set>
#include <vector>

#include "tests/support/support.h"
#include "util/arena.h"

namespace perdure::test {
namespace {

// -1: the system does not say.
int policy_at(const void* p) {
  int policy = -1;
  if (::syscall(SYS_get_mempolicy, &policy, nullptr, 0UL, p, MPOL_F_ADDR) != 0) return -1;
  return policy;
}

struct Mapping {
  std::byte* begin = nullptr;
  std::uint64_t bytes = 0;
};
Mapping mapping_of(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (!line.contains(path)) continue;  // a new pool has another name there
    char* end = nullptr;
    const auto from = std::strtoull(line.c_str(), &end, 16);
    return {reinterpret_cast<std::byte*>(from), std::strtoull(end + 1, nullptr, 16) - from};
  }
  return {};
}

// What the log says about nodes.
struct Lines {
  std::vector<std::string> about_nodes;
  bool alarmed = false;

  PoolOptions with(PoolOptions options) {
    options.log = [](void* self, LogLevel level, std::string_view text) {
      auto& lines = *static_cast<Lines*>(self);
      lines.alarmed |= level != LogLevel::info;
      if (text.find("interleave") != std::string_view::npos) lines.about_nodes.emplace_back(text);
    };
    options.log_context = this;
    return options;
  }
};

void refuse_call(int number, int error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // the number is the first field of seccomp_data
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  require(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no PR_SET_NO_NEW_PRIVS");
  require(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0, "no seccomp");
}

class Interleave : public ::testing::Test {
 protected:
  void SetUp() override {
    void* p = ::mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(p, MAP_FAILED);
    const bool works = interleave(p, kPage) == 0 && policy_at(p) == MPOL_INTERLEAVE;
    ::munmap(p, kPage);
    if (!works) GTEST_SKIP() << "the system refuses mbind(2) or get_mempolicy(2)";
  }
  static bool in_ram(Pool& pool) { return must(pool.info()).medium == Medium::volatile_ram; }
  // Checks the first and the last page of a pool, then the last one after it has grown.
  void expect_policy(Pool& pool, int policy) {
    const auto last = [&] {
      return mapping_of(path_).begin + must(pool.info()).file_bytes - kPage;
    };
    EXPECT_EQ(policy_at(mapping_of(path_).begin), policy);
    const std::byte* before = last();
    EXPECT_EQ(policy_at(before), policy);
    auto map = must(pool.map<std::uint64_t, std::string_view>("m", {}));
    const std::string value(1000, 'v');
    for (std::uint64_t i = 0; last() < before + 4_MiB; ++i) must(map.put(i, value));
    EXPECT_EQ(policy_at(last()), policy) << "a page that growth has added";
    const Mapping all = mapping_of(path_);
    EXPECT_EQ(policy_at(all.begin + all.bytes - kPage), policy) << "the growth to come";
  }
  static constexpr std::size_t kPage = 4096;
  const PoolOptions options_{.max_size = 64_MiB, .interleave = true};
  TempPath path_;
};

TEST_F(Interleave, PagesOfThePool) {
  Pool pool = must(Pool::open(path_, options_));
  if (!in_ram(pool)) GTEST_SKIP() << path_ << " is not in RAM";
  expect_policy(pool, MPOL_INTERLEAVE);
}

TEST_F(Interleave, NotUnlessItIsWanted) {
  Pool pool = must(Pool::open(path_, {.max_size = 64_MiB}));
  expect_policy(pool, MPOL_DEFAULT);
}

TEST_F(Interleave, APoolThatExists) {
  must(must(Pool::open(path_, {.max_size = 64_MiB})).close());
  Pool pool = must(Pool::open(path_, options_));
  if (!in_ram(pool)) GTEST_SKIP() << path_ << " is not in RAM";
  expect_policy(pool, MPOL_INTERLEAVE);
}

// What the documents say about tmpfs: if that changes, they are wrong.
TEST_F(Interleave, ThePolicyStaysWithTheFile) {
  {
    Pool pool = must(Pool::open(path_, options_));
    if (!in_ram(pool)) GTEST_SKIP() << path_ << " is not in RAM";
    must(pool.close());
  }
  Pool pool = must(Pool::open(path_, {}));
  EXPECT_EQ(policy_at(mapping_of(path_).begin), MPOL_INTERLEAVE);
  // So an open without the option places huge pages by it.
  EXPECT_TRUE(interleaved(mapping_of(path_).begin));
  int on_the_stack = 0;
  EXPECT_FALSE(interleaved(&on_the_stack));
}

TEST_F(Interleave, TablesInDramWhileSuchAPoolIsOpen) {
  Arena<std::uint64_t> table;
  const auto policy = [&](std::size_t bytes) {
    must(table.reserve(bytes / sizeof(std::uint64_t)));
    const int first = policy_at(table.data());
    EXPECT_EQ(policy_at(&table[table.capacity() - 1]), first);
    return first;
  };
  EXPECT_EQ(policy(16_MiB), MPOL_DEFAULT);
  Pool pool = must(Pool::open(path_, options_));
  {
    const TempPath path;
    Pool other = must(Pool::open(path, options_));
  }
  EXPECT_EQ(policy(16_MiB), MPOL_INTERLEAVE);
  EXPECT_EQ(policy(64_KiB), MPOL_INTERLEAVE);
  must(pool.close());
  EXPECT_EQ(policy(16_MiB), MPOL_DEFAULT);
  EXPECT_FALSE(Pool::open(path_ + "/none", options_).has_value());
  EXPECT_EQ(policy(16_MiB), MPOL_DEFAULT) << "an open that failed goes on";
}

TEST_F(Interleave, WhatTheSystemRefusesIsNoError) {
  for (const int call : {SYS_mbind, SYS_get_mempolicy}) {
    for (const int error : {ENOSYS, EPERM}) {
      const TempPath path;
      const ChildEnd end = wait_child(start_child([&] {
        refuse_call(call, error);
        Lines lines;
        Pool pool = must(Pool::open(path, lines.with(options_)));
        if (call == SYS_mbind && !in_ram(pool)) return;
        auto map = must(pool.map<std::uint64_t, std::uint64_t>("m", {}));
        must(map.put(1, 2));
        must(pool.close());
        require(!lines.alarmed, "more than level info");
        require(lines.about_nodes.size() == 1, "not one line");
        require(lines.about_nodes[0].find(std::strerror(error)) != std::string::npos,
                lines.about_nodes[0]);
      }));
      EXPECT_TRUE(end.ok()) << end << ", system call " << call;
    }
  }
}

TEST_F(Interleave, WhatHasNoEffectIsLogged) {
  Lines lines;
  Pool pool = must(Pool::open(path_, lines.with(options_)));
  EXPECT_EQ(lines.about_nodes.size(), memory_nodes() > 1 && in_ram(pool) ? 0U : 1U);
  EXPECT_FALSE(lines.alarmed);
}

// The system places small page i of a file on node i modulo their number. See deciding_page().
TEST(DecidingPage, HugePagesTakeTurns) {
  for (std::uint32_t nodes = 1; nodes <= 512; ++nodes) {
    std::set<std::uint64_t> taken;
    for (std::uint64_t huge = 100; huge < 100 + nodes; ++huge) {
      const std::uint64_t page = deciding_page(huge, nodes);
      ASSERT_LT(page, 512U);
      taken.insert((huge * 512 + page) % nodes);
    }
    EXPECT_EQ(taken.size(), nodes);
  }
}

}  // namespace
}  // namespace perdure::test
