// test: injects, three engines
// Live images that a killed process has left (image_check.h): one that is as its process had it
// loses nothing, and one that is older in any part is refused. Each engine: small_map().
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "format/header.h"
#include "platform/boot_evidence.h"
#include "tests/cut/left_image.h"
#include "tests/support/inject.h"

namespace perdure::test {
namespace {

using layout::LiveHead;

// --- which boot an image is of -------------------------------------------------------------------

constexpr std::uint64_t clocks(std::uint64_t running, std::int64_t booted) {
  return running << 32 | static_cast<std::uint32_t>(booted);
}

TEST(Boots, AreComparedByTheirClocks) {
  constexpr std::int64_t kBooted = 1'700'000'000;
  constexpr std::int64_t kWrap = std::int64_t{1} << 32;
  const struct {
    std::uint64_t before, now;
    Boot boot, shifted;  // without and in a time namespace of its own
  } kCases[] = {
      {clocks(100, kBooted), clocks(100, kBooted), Boot::same, Boot::same},
      {clocks(100, kBooted), clocks(5'000'000, kBooted), Boot::same, Boot::same},
      {clocks(100, kBooted), clocks(99, kBooted), Boot::another, Boot::unknown},
      {clocks(100, kBooted), clocks(200, kBooted + 2), Boot::same, Boot::same},
      {clocks(100, kBooted), clocks(200, kBooted - 2), Boot::same, Boot::same},
      {clocks(100, kBooted), clocks(200, kBooted + 3), Boot::unknown, Boot::unknown},
      {clocks(100, kBooted), clocks(200, kBooted - 3), Boot::unknown, Boot::unknown},
      {clocks(100, kBooted), clocks(200, kBooted + 3600), Boot::unknown, Boot::unknown},
      {clocks(100, kBooted), clocks(200, kBooted - 3600), Boot::unknown, Boot::unknown},
      // A board without a clock begins at the same time again and again.
      {clocks(100, 0), clocks(20, 0), Boot::another, Boot::unknown},
      {clocks(100, 0), clocks(200, 0), Boot::same, Boot::same},
      // The lower half is a number of 32 bits.
      {clocks(100, kWrap - 1), clocks(200, kWrap + 1), Boot::same, Boot::same},
      {clocks(100, kWrap + 1), clocks(200, kWrap - 1), Boot::same, Boot::same},
      {clocks(100, kWrap - 1), clocks(200, kWrap + 2), Boot::unknown, Boot::unknown},
      {clocks(100, kWrap + 1), clocks(200, kWrap - 2), Boot::unknown, Boot::unknown},
      {clocks(100, -1), clocks(200, 1), Boot::same, Boot::same},
      {~std::uint64_t{0}, clocks(200, kBooted), Boot::another, Boot::unknown},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(std::to_string(c.before) + " " + std::to_string(c.now));
    EXPECT_EQ(compare_boots(c.before, c.now, false), c.boot);
    EXPECT_EQ(compare_boots(c.before, c.now, true), c.shifted);
  }
  EXPECT_EQ(compare_boots(boot_clocks(), boot_clocks(), false), Boot::same);
}

TEST(Boots, ATimeNamespaceShiftsClocks) {
  const auto shifted = [](const char* offsets) {
    const Pretended offset({.file = "/proc/self/timens_offsets", .text = offsets});
    return in_time_namespace();
  };
  EXPECT_FALSE(shifted("monotonic           0         0\nboottime            0         0\n"));
  EXPECT_TRUE(shifted("monotonic           0         0\nboottime        86400         0\n"));
  EXPECT_TRUE(shifted("monotonic          -5         0\nboottime            0         0\n"));
  EXPECT_TRUE(shifted("monotonic           0         0\nboottime            0       100\n"));
  EXPECT_FALSE(shifted(nullptr)) << "a kernel without time namespaces";
}

// --- images as their process had them ------------------------------------------------------------

void two_syncs(Deeds& deeds) {
  deeds.put(0, 300, 1);
  deeds.sync();
  deeds.copy_image();
  deeds.put(100, 400, 2);
  deeds.erase(50, 60);
  deeds.sync();
  deeds.put(0, 20, 3);
  deeds.erase(390, 395);
}
void folded(Deeds& deeds) {
  deeds.put(0, 200, 1);
  deeds.copy_image();
  deeds.put(100, 400, 2);
  deeds.fold();
  deeds.put(0, 20, 3);
  deeds.sync();
  deeds.put(0, 10, 4);
}
void compacted(Deeds& deeds) {
  deeds.put_large(400, 440, 'a');
  deeds.sync();
  deeds.erase(400, 440);
  deeds.compact();
  deeds.put(0, 100, 1);
}
void compacted_and_reused(Deeds& deeds) {
  compacted(deeds);
  deeds.put_large(400, 430, 'b');
  deeds.put(100, 200, 2);
  deeds.sync();
  deeds.put_large(400, 410, 'c');
}
void grown(Deeds& deeds) {
  deeds.put(0, 10, 1);
  deeds.sync();
  deeds.copy_image();
  deeds.put_large(1'000, 1'040, 'a');
}
void nothing(Deeds&) {}

class Images : public LeftImages {
 protected:
  using LeftImages::LeftImages;
  // An image that is as its process had it.
  void expect_nothing_lost(const std::string& what) {
    SCOPED_TRACE(what);
    EXPECT_EQ(wrong_after_open(content_), "");
    EXPECT_EQ(files(), 1U);
  }
  // One that is older: nothing is changed until its loss is accepted, and then it is kept.
  void expect_refused(const std::string& what, const ImageFiles& older) {
    SCOPED_TRACE(what);
    put_back();
    write_image(older);
    const Files before = durable_files(read_files());
    EXPECT_EQ(refused(by_hand()), StatusCode::live_missing) << message_;
    EXPECT_NE(message_.find("pool-live"), std::string::npos) << message_;
    EXPECT_NE(message_.find("--accept"), std::string::npos) << message_;
    EXPECT_TRUE(durable_files(read_files()) == before) << "a refused open changes nothing";
    const ImageFiles refused_image = read_image(path("pool-live"));
    EXPECT_EQ(wrong_after_open(synced_, accepting()), "");
    expect_aside(refused_image);
  }
  void expect_aside(const ImageFiles& image) {
    EXPECT_EQ(images_aside(), 2U);
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with("pool-live.unknown-") || name.ends_with("-dirty")) continue;
      EXPECT_TRUE(read_image(entry.path()) == image);
    }
  }
  template <class F>
  ImageFiles with_head(F&& change) const {
    ImageFiles files = image_;
    LiveHead head = files.head();
    change(head);
    files.set_head(head);
    return files;
  }
  // Of calls, which do not depend on the engine.
  static std::uint64_t stride() {
    return chosen_engine().engine == Engine::phast || at_length() ? 1 : 4;
  }
  // Kills an open at each of its calls of some kinds; the next one must find this content. Returns
  // the number of kills.
  std::uint64_t kill_at_each_call(const Content& right) {
    std::uint64_t kills = 0;
    for (const Fault fault : {Fault::nothrow_new, Fault::mmap, Fault::fdatasync, Fault::fsync,
                              Fault::ftruncate, Fault::fallocate, Fault::posix_fallocate}) {
      bool killed = true;
      for (std::uint64_t call = 1; killed && !HasFailure(); call += stride()) {
        SCOPED_TRACE(std::string(fault_name(fault)) + " " + std::to_string(call));
        put_back();
        const ChildEnd end = run_child([&] {
          set_deadly(true);
          const Failing kills_it(fault, call, false);
          const Pool pool = must(Pool::open(path(), by_hand()));
          ::_exit(0);
        });
        killed = !end.exited;
        kills += killed ? 1 : 0;
        EXPECT_TRUE(killed || end.code == 0) << end;
        EXPECT_EQ(wrong_after_open(right), "");
      }
    }
    return kills;
  }
  // Pages of the image that have a line that is not dirty, and is another one in `other`.
  std::vector<std::uint64_t> pages_unlike(const std::string& other) const {
    const std::vector<bool> dirty = image_.dirty_lines(kMaxBytes);
    std::vector<std::uint64_t> pages;
    for (std::uint64_t line = 2 * kPage / kLine; line < dirty.size(); ++line) {
      const std::uint64_t at = line * kLine;
      if (dirty[line] || !image_.is_live(at) || at + kLine > other.size()) continue;
      if (std::memcmp(image_.image.data() + at, other.data() + at, kLine) == 0) continue;
      if (pages.empty() || pages.back() != at / kPage) pages.push_back(at / kPage);
    }
    return pages;
  }
  // Some of them are put into the image, one at a time.
  void expect_pages_refused(const std::string& what, const std::string& other) {
    std::vector<std::uint64_t> pages = pages_unlike(other);
    ASSERT_FALSE(pages.empty()) << what;
    const std::size_t step = pages.size() / 3 + 1;
    for (std::size_t i = 0; i < pages.size(); i += step) {
      ImageFiles older = image_;
      ImageFiles::put_page(older.image, other, pages[i]);
      expect_refused(what + ", page " + std::to_string(pages[i]), older);
    }
  }
};

TEST_F(Images, AKillLosesNothing) {
  make_closed();
  leave(nothing);
  const LiveHead head = image_.head();
  EXPECT_FALSE(image_.is_live(head.covered - head.chunk_bytes)) << "some chunks are not live";
  const struct {
    const char* name;
    void (*work)(Deeds&);
  } kWorks[] = {{"syncs", two_syncs}, {"nothing", nothing},   {"folds", folded},
                {"grows", grown},     {"compact", compacted}, {"reuse", compacted_and_reused}};
  for (const auto& [name, work] : kWorks) {
    leave(work);  // of the image that the one before has left
    leave(nothing);
    expect_nothing_lost(name);
    leave(work);
    expect_nothing_lost(std::string(name) + " after a close");
  }
}

// The first open in this mode changes both headers after it has made the image.
TEST_F(Images, AKillOfTheFirstOpenLosesNothing) {
  make_closed();
  keep_base();
  EXPECT_GT(kill_at_each_call(before_), 8U);
}

TEST_F(Images, ARestoredPoolThatIsKilledLosesNothing) {
  make_closed();
  leave(two_syncs);
  machine_restarts();
  before_ = synced_;
  leave(nothing);
  leave([](Deeds& deeds) {
    deeds.put(200, 300, 9);
    deeds.sync();
    deeds.put(210, 220, 10);
  });
  expect_nothing_lost("");
}

// --- images that are older -----------------------------------------------------------------------

TEST_F(Images, AnOlderPageIsRefused) {
  make_closed();
  leave(two_syncs);
  expect_pages_refused("as in the base", left_.at("pool"));
  expect_pages_refused("as at the first sync", moments_[0].image);
  expect_pages_refused("zeros", std::string(image_.image.size(), '\0'));
}

// The log has nothing of what changed before.
TEST_F(Images, APageThatIsOlderThanTheBaseIsRefused) {
  make_closed();
  leave(folded);
  expect_pages_refused("as before the fold", moments_[0].image);
  expect_pages_refused("zeros", std::string(image_.image.size(), '\0'));
}

TEST_F(Images, AnImageOfAnEarlierSyncIsRefused) {
  make_closed();
  leave(two_syncs);
  expect_refused("both files", moments_[0]);
  expect_refused("the image", {.image = moments_[0].image, .dirty = image_.dirty});
  ImageFiles head = image_;
  std::memcpy(head.image.data(), moments_[0].image.data(), kPage);
  expect_refused("the head", head);
  expect_refused("the log has an epoch that the image does not know",
                 with_head([](LiveHead& head_now) { --head_now.begun; }));
  expect_refused("what is dirty", {.image = image_.image, .dirty = moments_[0].dirty});
}

// Only lines that are dirty are older, but the file has no place for them.
TEST_F(Images, AnImageThatIsShorterThanItsDirtyLinesIsRefused) {
  make_closed();
  leave(grown);
  ASSERT_LT(moments_[0].image.size(), image_.image.size());
  expect_refused("as before it grew", {.image = moments_[0].image, .dirty = image_.dirty});
}

TEST_F(Images, AChunkWithoutItsBitIsRefused) {
  make_closed();
  leave(two_syncs);
  const std::vector<std::uint64_t> pages = pages_unlike(left_.at("pool"));
  ASSERT_FALSE(pages.empty());
  std::uint64_t before = 0;
  for (const std::uint64_t page : pages) {
    const std::uint64_t chunk = page * kPage / image_.head().chunk_bytes;
    if (chunk == before || chunk * image_.head().chunk_bytes >= image_.head().covered) continue;
    before = chunk;
    expect_refused("chunk " + std::to_string(chunk), with_head([&](LiveHead& head) {
                     head.live[chunk / 64] &= ~(std::uint64_t{1} << chunk % 64);
                   }));
  }
  EXPECT_NE(before, 0U);
}

// A fold was writing to the base, which has the lines of the log by now.
TEST_F(Images, AChunkWithoutItsBitIsRefusedInAFold) {
  make_closed();
  leave([](Deeds& deeds) {
    deeds.put(0, 300, 1);
    deeds.sync();
    deeds.copy_image();
    deeds.put(0, 300, 2);
  });
  const std::uint64_t bytes = image_.head().chunk_bytes;
  std::uint64_t chunk = 0;  // one that the base has, but for its first
  for (const std::uint64_t page : pages_unlike(left_.at("pool"))) {
    if (page * kPage < image_.head().covered) chunk = page * kPage / bytes;
  }
  ASSERT_NE(chunk, 0U);
  std::string& base = left_.at("pool");
  const std::uint64_t n = std::min(bytes, base.size() - chunk * bytes);
  base.replace(chunk * bytes, n, moments_[0].image, chunk * bytes, n);
  expect_refused("", with_head([&](LiveHead& head) {
                   head.live[chunk / 64] &= ~(std::uint64_t{1} << chunk % 64);
                 }));
}

// A process was killed between the sync of an epoch and the store that says so. The image need not
// say that the lines of that epoch are dirty, but the next epoch replaces it.
TEST_F(Images, AnEpochThatTheHeadDoesNotKnowIsWrittenAgain) {
  make_closed();
  leave(two_syncs);
  write_image(with_head([](LiveHead& head) { --head.changes; }));
  leave([](Deeds& deeds) {
    deeds.put(0, 1, 7);
    deeds.sync();
  });
  machine_restarts();
  EXPECT_EQ(wrong_after_open(synced_), "");
}

// --- a write-back that failed --------------------------------------------------------------------

TEST_F(Images, AnImageThatAnotherProcessFoundDoubtfulIsRefused) {
  make_closed();
  leave(two_syncs);
  expect_refused("flag", with_head([](LiveHead& head) { head.flags |= layout::kDoubtful; }));
  // The kernel tells the process that opens it.
  for (const std::uint64_t call : {1U, 2U}) {
    put_back();
    {
      const Failing fails(Fault::write_back, call, false);
      EXPECT_EQ(refused(by_hand()), StatusCode::live_missing) << message_;
      EXPECT_EQ(faults_fired(), 1U);
    }
    expect_refused("told once", read_image(path("pool-live")));
  }
}

// The check makes its pages dirty. On a full disk that may fail, and says nothing of the image.
TEST_F(Images, AnImageThatCannotBeChangedIsKept) {
  make_closed();
  leave(two_syncs);
  std::uint64_t told = 0;
  std::uint64_t fired = 1;
  for (std::uint64_t call = 1; fired != 0 && !HasFailure(); ++call) {
    SCOPED_TRACE(call);
    put_back();
    {
      const Failing fails(Fault::madvise, call, false);
      const StatusCode code = refused(accepting());
      EXPECT_TRUE(code == StatusCode::ok || code == StatusCode::io) << message_;
      if (code == StatusCode::io) {
        EXPECT_NE(message_.find("its live image can be read"), std::string::npos) << message_;
        ++told;
      }
      fired = faults_fired();
    }
    EXPECT_EQ(wrong_after_open(content_), "");
  }
  EXPECT_GT(told, 0U);
}

// What is dirty cannot be compared with anything. Here it is the table of extents. An engine that
// restarts at once reads it later.
TEST_F(Images, AnImageThatRecoveryFindsDamagedIsRefused) {
  make_closed();
  leave(grown);
  layout::Header header;
  must(read_header(reinterpret_cast<const std::byte*>(image_.image.data()), image_.image.size(),
                   header));
  const std::vector<bool> dirty = image_.dirty_lines(kMaxBytes);
  std::uint64_t found = 0;
  for (std::uint64_t line = header.table_offset / kLine; line * kLine < header.table_offset + kPage;
       ++line) {
    if (!dirty[line]) continue;
    SCOPED_TRACE(line);
    ImageFiles damaged = image_;
    std::memset(damaged.image.data() + line * kLine, 0x5A, kLine);
    put_back();
    write_image(damaged);
    if (refused(by_hand()) == StatusCode::ok) continue;
    for (int attempt = 0; attempt < 2; ++attempt) {
      EXPECT_EQ(refused(by_hand()), StatusCode::live_missing) << message_;
      EXPECT_NE(message_.find("damaged"), std::string::npos) << message_;
    }
    EXPECT_EQ(wrong_after_open(synced_, accepting()), "");
    EXPECT_EQ(images_aside(), 2U);
    put_back();
    write_image(damaged);
    EXPECT_EQ(wrong_after_open(synced_, accepting()), "") << "at once";
    ++found;
  }
  const Engine engine = chosen_engine().engine;
  EXPECT_TRUE(found > 0 || engine == Engine::clevel || engine == Engine::as);
}

// Its owner acknowledged nothing after it had seen the failure.
TEST_F(Images, AnImageWhoseOwnerSawTheFailureIsRestored) {
  make_closed();
  leave(two_syncs);
  const ImageFiles lost = with_head([](LiveHead& head) { head.flags |= layout::kLost; });
  write_image(lost);
  EXPECT_EQ(wrong_after_open(synced_), "");
  expect_aside(lost);
}

// Every call of a restore fails, once or from there on.
TEST_F(Images, ARestoreThatFailsIsMadeByTheNextOpen) {
  make_closed();
  leave(two_syncs);
  const ImageFiles lost = with_head([](LiveHead& head) { head.flags |= layout::kLost; });
  std::uint64_t failed = 0;
  for (const Fault fault : {Fault::fsync, Fault::fdatasync, Fault::ftruncate, Fault::fallocate,
                            Fault::posix_fallocate, Fault::mmap}) {
    std::uint64_t fired = 1;
    for (std::uint64_t call = 1; fired != 0 && !HasFailure(); call += stride()) {
      SCOPED_TRACE(std::string(fault_name(fault)) + " " + std::to_string(call));
      put_back();
      write_image(lost);
      {
        const Failing fails(fault, call, call % 2 == 0);
        auto pool = Pool::open(path(), by_hand());
        failed += pool ? 0 : 1;
        fired = faults_fired();
      }
      ASSERT_EQ(wrong_after_open(synced_), "");
    }
  }
  EXPECT_GT(failed, 6U);
}

// A read of the marks that fails once must not make the pool look like one that was closed.
TEST_F(Images, AFailedReadOfTheMarksLosesNothing) {
  make_closed();
  leave(two_syncs);
  std::uint64_t fired = 1;
  for (std::uint64_t call = 1; call <= 12 && fired != 0 && !HasFailure(); ++call) {
    SCOPED_TRACE(call);
    put_back();
    {
      const Failing fails(Fault::pread, call, false);
      const auto pool = Pool::open(path(), by_hand());
      fired = faults_fired();
    }
    EXPECT_EQ(wrong_after_open(content_), "");
  }
}

TEST_F(Images, ARestoreThatIsKilledIsMadeByTheNextOpen) {
  make_closed();
  leave(two_syncs);
  write_image(with_head([](LiveHead& head) { head.flags |= layout::kLost; }));
  keep();
  EXPECT_GT(kill_at_each_call(synced_), 8U);
}

// The kernel tells a process that has the pool open that it could not write a page: at the n-th
// call that asks for it.
class LostWrites : public Images {
 protected:
  // Calls `work`, in which the n-th such call fails. Returns false if there were fewer.
  template <class F>
  bool lose(std::uint64_t n, F&& work) {
    SCOPED_TRACE(n);
    make_closed();
    bool fired = false;
    {
      Pool pool = must(Pool::open(path(), by_hand()));
      Deeds deeds(&pool);
      deeds.take(before_);
      deeds.put(0, 100, 1);
      deeds.sync();
      deeds.put(50, 150, 2);
      content_ = deeds.content();
      synced_ = deeds.synced();
      const Failing planted(Fault::write_back, n, false);
      const Status s = work(pool);
      fired = faults_fired() != 0;
      EXPECT_EQ(s.code(), fired ? StatusCode::poisoned : StatusCode::ok) << describe(s);
      if (fired) expect_poisoned(pool);
    }
    if (fired) expect_restored();
    for (const auto& entry : fs::directory_iterator(folder_)) fs::remove_all(entry.path());
    return fired;
  }

 private:
  void expect_poisoned(Pool& pool) {
    const Files then = durable_files(read_files());
    EXPECT_FALSE(Deeds::try_put(pool));
    EXPECT_FALSE(pool.sync().ok());
    EXPECT_FALSE(pool.fold_log().ok());
    EXPECT_FALSE(pool.resume_log().ok());
    EXPECT_FALSE(pool.compact());
    EXPECT_FALSE(pool.close().ok());
    EXPECT_TRUE(durable_files(read_files()) == then) << "nothing reaches base or log after it";
  }
  // The next open does not ask. An image that lost something may neither be shown nor used.
  void expect_restored() {
    EXPECT_EQ(refused({.mode = OpenMode::read_only}), StatusCode::live_missing);
    {
      Pool pool = must(Pool::open(path(), by_hand()));
      const std::string last = wrong(pool, content_);  // a fold begins with a cut
      EXPECT_TRUE(last.empty() || wrong(pool, synced_).empty()) << last;
    }
    EXPECT_EQ(images_aside(), 2U);
  }
};

TEST_F(LostWrites, FailACut) {
  std::uint64_t n = 1;
  while (lose(n, [](Pool& pool) { return pool.sync(); })) ++n;
  EXPECT_EQ(n, 3U) << "one of each file";
}

TEST_F(LostWrites, FailAFold) {
  std::uint64_t n = 1;
  while (lose(n, [](Pool& pool) { return pool.fold_log(); })) ++n;
  EXPECT_GT(n, 4U) << "those of the cuts, and of each piece";
}

// The last cut, and the fold after it.
TEST_F(LostWrites, FailAClose) {
  std::uint64_t n = 1;
  while (lose(n, [](Pool& pool) { return pool.close(); })) ++n;
  EXPECT_GT(n, 4U);
}

// --- another boot --------------------------------------------------------------------------------

class OtherBoots : public Images {
 protected:
  using Images::Images;
  // The base and the image say that they were open in another boot.
  void enter_other_boot(const std::function<void(LiveHead&)>& change) {
    machine_restarts();  // sets the clocks of the image, too
    write_image(with_head([&](LiveHead& head) {
      std::memset(head.boot_id, 0x55, sizeof(head.boot_id));
      change(head);
    }));
  }
};

// A container can have an id of the boot of its own, which another start of it does not have.
TEST_F(OtherBoots, WithClocksThatAgreeNothingIsLost) {
  make_closed();
  leave(two_syncs);
  enter_other_boot([](LiveHead&) {});
  expect_nothing_lost("");
}

TEST_F(OtherBoots, WithClocksThatDisagreeThePoolIsAsAtItsLastCut) {
  make_closed();
  leave(two_syncs);
  const auto hours_apart = [](std::uint64_t was, std::int64_t hours) {
    return (was >> 32 << 32) | static_cast<std::uint32_t>(was + 3600 * hours);
  };
  const std::uint64_t was = image_.head().clocks;
  for (const std::uint64_t now : {hours_apart(was, 1), hours_apart(was, -1)}) {
    put_back();
    enter_other_boot([&](LiveHead& head) { head.clocks = now; });
    const ImageFiles image = read_image(path("pool-live"));
    EXPECT_EQ(wrong_after_open(synced_), "");
    expect_aside(image);  // the clock of the machine may have been set
  }
  put_back();
  enter_other_boot([&](LiveHead& head) {
    head.clocks = clocks((was >> 32) + 1'000'000, static_cast<std::int64_t>(was));
  });
  EXPECT_EQ(wrong_after_open(synced_), "");
  EXPECT_EQ(files(), 1U) << "an image of before a restart is of no use";
}

// Also when its content is not as the log says.
TEST_F(OtherBoots, AnOlderImageIsNotTrusted) {
  make_closed();
  leave(two_syncs);
  image_ = moments_[0];
  enter_other_boot([](LiveHead&) {});
  const ImageFiles older = read_image(path("pool-live"));
  EXPECT_EQ(wrong_after_open(synced_), "");
  expect_aside(older);
}

// The kernel may not have had it in memory since that boot.
class OtherBootsOnDisk : public OtherBoots {
 protected:
  OtherBootsOnDisk() : OtherBoots(false) {}
  void evict() const {
    for (const char* name : {"pool-live", "pool-live-dirty"}) {
      const int file = ::open(path(name).c_str(), O_RDWR | O_CLOEXEC);
      ASSERT_EQ(::fsync(file), 0);
      ASSERT_EQ(::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
      ::close(file);
    }
  }
};

// A kernel without numbers of mounts does not tell whether the file system was mounted anew.
TEST_F(OtherBootsOnDisk, WithoutAMountAnImageThatIsNotInMemoryIsRefused) {
  make_closed();
  leave(two_syncs);
  const auto forget_mount = [this] {
    std::string bytes = read_bytes(path());
    for (std::uint64_t i = 0; i < 2; ++i) {
      char* at = bytes.data() + i * layout::kMarkStride + layout::kMarkOffset;
      layout::BaseMark mark;
      std::memcpy(&mark, at, sizeof(mark));
      mark.live.mount_id = 0;
      mark.crc = layout::mark_crc(mark);
      std::memcpy(at, &mark, sizeof(mark));
    }
    write_bytes(path(), bytes);
  };
  forget_mount();
  expect_nothing_lost("in memory");
  put_back();
  write_image(image_);
  forget_mount();
  evict();
  EXPECT_EQ(refused(by_hand()), StatusCode::live_missing) << message_;
  EXPECT_EQ(wrong_after_open(synced_, accepting()), "");
  put_back();
  write_image(with_head([](LiveHead& head) { head.flags |= layout::kLost; }));
  forget_mount();
  evict();
  EXPECT_EQ(wrong_after_open(synced_), "") << "its owner acknowledged nothing after that";
}

TEST_F(OtherBootsOnDisk, AnImageThatIsNotInMemoryIsKept) {
  make_closed();
  leave(two_syncs);
  enter_other_boot([](LiveHead&) {});
  const ImageFiles image = read_image(path("pool-live"));
  evict();
  EXPECT_EQ(wrong_after_open(synced_), "");
  expect_aside(image);
}

}  // namespace
}  // namespace perdure::test
