// test: tsan
// Media whose pages are written back: the pages that threads have noted for a fence, when the pool
// is closed meanwhile.
#include <sys/mman.h>

#include <optional>
#include <thread>

#include "platform/real_platform.h"
#include "tests/support/support.h"

namespace perdure::test {
namespace {

// Some pages, mapped until unmap().
class Pages {
 public:
  Pages() : at_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    require(at_ != MAP_FAILED, "mmap");
  }
  ~Pages() { unmap(); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::uint64_t& word(std::size_t page) const {
    return *reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(at_) + page * kPage);
  }
  // Unmaps, and prevents other maps there: a write-back of it fails.
  void unmap() {
    if (at_ == nullptr) return;
    munmap(at_, kBytes);
    at_ = nullptr;
  }

 private:
  static constexpr std::size_t kBytes = 16 * kPage;
  void* at_;
};

class PagePools : public ::testing::Test {
 protected:
  static void configure(RealPlatform& platform) {
    platform.configure(FlushMode::page, best_flush_instruction(), 0);
  }
  static void write(RealPlatform& platform, const Pages& pages, std::size_t page) {
    platform.store(pages.word(page), 1);
    platform.flush(&pages.word(page), 8, "test.page"_site);
  }
  const Pages second_;  // mapped before the first, and as long
};

// Another thread closes the pool. The next pool's object may lie at the same place.
TEST_F(PagePools, PagesOfAPoolThatWasClosedAreDropped) {
  for (const bool same_place : {false, true}) {
    Pages first;
    std::optional<RealPlatform> a, b;
    configure(a.emplace());
    write(*a, first, 0);
    std::thread([&] {
      a->leave_mapping();
      first.unmap();
      a.reset();
    }).join();
    RealPlatform& next = same_place ? a.emplace() : b.emplace();
    configure(next);
    write(next, second_, 0);
    EXPECT_TRUE(next.fence("test.page"_site)) << same_place;
    write(next, second_, 1);
    EXPECT_TRUE(next.fence("test.page"_site)) << same_place;
    // Without a page of its own a fence waits for nothing.
    RealPlatform other;
    configure(other);
    EXPECT_TRUE(other.fence("test.page"_site));
  }
}

// The pages of an open pool are not lost: switching to another pool is a fence.
TEST_F(PagePools, PagesOfAnOpenPoolAreWrittenBackBeforeThoseOfTheNext) {
  for (const bool mapped : {true, false}) {
    Pages first;
    RealPlatform a, b;
    configure(a);
    configure(b);
    write(a, first, 0);
    if (!mapped) first.unmap();  // so that the write-back fails visibly
    write(b, second_, 0);
    EXPECT_EQ(a.poisoned(), !mapped);
    EXPECT_FALSE(b.poisoned());
    EXPECT_TRUE(b.fence("test.page"_site));
  }
}

TEST_F(PagePools, AThreadThatEndsWritesItsPagesBack) {
  for (const bool open : {true, false}) {
    Pages first;
    RealPlatform a;
    configure(a);
    std::thread([&] {
      (void)RealPlatform::thread_slot();
      write(a, first, 0);
      if (!open) a.leave_mapping();
      first.unmap();
    }).join();
    EXPECT_EQ(a.poisoned(), open);
  }
}

// A child of fork has no pool of its parent, whatever its only thread was about to do.
TEST_F(PagePools, AChildDropsThoseOfItsParent) {
  Pages first;
  RealPlatform a;
  configure(a);
  write(a, first, 0);
  const ChildEnd end = run_child([&] {
    first.unmap();
    RealPlatform b;
    configure(b);
    write(b, second_, 0);
    require(b.fence("test.page"_site), "the child's own pool");
    require(!a.poisoned(), "the parent's");
  });
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_TRUE(a.fence("test.page"_site));
}

}  // namespace
}  // namespace perdure::test
