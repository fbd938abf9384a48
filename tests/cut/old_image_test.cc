// test: injects, three engines, nightly
// Live images of which each page is as it was at some moment, as a disk that lost writes has them.
// The next open must refuse such an image, or the pool has all that sync() returned for; those that
// the check cannot see (LIMITS in image_check.h) are counted. Each engine. With PERDURE_LONG=1 some
// ten thousand images.
#include <cstdio>
#include <string>
#include <vector>

#include "tests/cut/left_image.h"
#include "tests/support/inject.h"

namespace perdure::test {
namespace {

// A process stores, and takes copies of its image meanwhile.
void syncs(Deeds& deeds) {
  deeds.copy_image();
  deeds.put(0, 200, 1);
  deeds.copy_image();
  deeds.sync();
  deeds.copy_image();
  deeds.put(100, 300, 2);
  deeds.erase(50, 60);
  deeds.sync();
  deeds.copy_image();
  deeds.put(250, 350, 3);
  deeds.sync();
  deeds.put(0, 20, 4);
  deeds.copy_image();
  deeds.erase(20, 25);
  deeds.put(15, 30, 5);
}
void folds(Deeds& deeds) {
  deeds.put(0, 200, 1);
  deeds.sync();
  deeds.copy_image();
  deeds.put(150, 300, 2);
  deeds.fold();
  deeds.copy_image();
  deeds.put(0, 30, 3);
  deeds.copy_image();
  deeds.put(20, 60, 4);
  deeds.fold();
  deeds.put(300, 350, 5);
  deeds.sync();
  deeds.copy_image();
  deeds.put(0, 10, 6);
  deeds.put(1000, 1040, 6);
}
void compacts(Deeds& deeds) {
  deeds.put_large(1700, 1740, 'a');
  deeds.sync();
  deeds.copy_image();
  deeds.erase(1700, 1740);
  deeds.compact();
  deeds.copy_image();
  deeds.put(0, 100, 1);
  deeds.put_large(1700, 1720, 'b');
  deeds.sync();
  deeds.copy_image();
  deeds.put(50, 120, 2);
}

// How the images of one kind came out.
struct Outcomes {
  const char* kind;
  std::uint64_t images = 0;
  std::uint64_t refused = 0;
  std::uint64_t right = 0;  // opened
  // The limits of image_check.h: the lines that are older need not be compared.
  std::uint64_t unseen = 0;
  std::uint64_t unseen_wrong = 0;  // of those, not refused, and something is lost
};

enum class Judged : std::uint8_t { right, refused, wrong };

class OldImages : public LeftImages {
 protected:
  // `images` of each kind that is random.
  void explore(const Work& work, std::uint64_t images) {
    make_closed();
    leave(work);
    moments_.push_back(image_);
    truth_ = content_of(image_);
    dirty_ = image_.dirty_lines(kMaxBytes);
    try_whole_files();
    try_heads();
    for (std::uint64_t i = 0; i < images && !HasFailure(); ++i) {
      try_interrupted_pass();
      try_random_pages();
    }
    for (const Outcomes& of : {whole_, heads_, passes_, pages_}) {
      std::printf(
          "%-18s %6llu images: %llu refused, %llu right, %llu of which the check sees "
          "nothing, and %llu of these lose something\n",
          of.kind, static_cast<unsigned long long>(of.images),
          static_cast<unsigned long long>(of.refused), static_cast<unsigned long long>(of.right),
          static_cast<unsigned long long>(of.unseen),
          static_cast<unsigned long long>(of.unseen_wrong));
      EXPECT_GT(of.refused, of.images / 8) << of.kind;
    }
    EXPECT_GT(whole_.right, 0U) << "the last image is among them";
  }

 private:
  // --- images ---
  // Each page is of the moment version(page).
  template <class F>
  static std::string compose(const std::vector<ImageFiles>& moments, std::string ImageFiles::* file,
                             F&& version) {
    std::string composed((moments.back().*file).size(), '\0');
    for (std::uint64_t page = 0; page * kPage < composed.size(); ++page)
      ImageFiles::put_page(composed, moments[version(page)].*file, page);
    return composed;
  }
  std::size_t any() { return rng_.below(moments_.size()); }

  void try_whole_files() {
    for (const ImageFiles& image : moments_) {
      for (const ImageFiles& dirty : moments_)
        try_image({.image = image.image, .dirty = dirty.dirty}, whole_);
    }
  }
  void try_heads() {
    for (std::size_t head = 0; head < moments_.size(); ++head) {
      for (std::size_t rest = 0; rest < moments_.size(); ++rest) {
        const auto version = [&](std::uint64_t page) { return page == 0 ? head : rest; };
        try_image({.image = compose(moments_, &ImageFiles::image, version),
                   .dirty = moments_.back().dirty},
                  heads_);
      }
    }
  }
  // A write-back went through the files, one after the other, and stopped at a page.
  void try_interrupted_pass() {
    const std::size_t now = 1 + rng_.below(moments_.size() - 1);
    const std::size_t before = rng_.below(now);
    const bool image_first = rng_.one_in(2);
    const std::uint64_t stop = rng_.below(image_.image.size() / kPage);
    const std::uint64_t dirty_stop = rng_.below(image_.dirty.size() / kPage);
    const auto until = [&](std::uint64_t end) {
      return [before, now, end](std::uint64_t page) { return page < end ? now : before; };
    };
    constexpr std::uint64_t kAll = ~std::uint64_t{0};
    const bool in_first = rng_.one_in(2);
    const std::uint64_t of_first = in_first ? (image_first ? stop : dirty_stop) : kAll;
    const std::uint64_t of_second = in_first ? 0 : (image_first ? dirty_stop : stop);
    try_image(
        {.image = compose(moments_, &ImageFiles::image, until(image_first ? of_first : of_second)),
         .dirty = compose(moments_, &ImageFiles::dirty, until(image_first ? of_second : of_first))},
        passes_);
  }
  // Most pages are of the last moment, or of any.
  void try_random_pages() {
    const std::uint64_t share = std::uint64_t{1} << rng_.below(9);
    const auto version = [&](std::uint64_t) {
      return rng_.one_in(share) ? any() : moments_.size() - 1;
    };
    std::string image = compose(moments_, &ImageFiles::image, version);
    const bool both = rng_.one_in(2);
    try_image({.image = std::move(image),
               .dirty = both ? compose(moments_, &ImageFiles::dirty, version) : image_.dirty},
              pages_);
  }

  // --- what comes of them ---
  // What the pool shows: image and base.
  std::string content_of(const ImageFiles& files) const {
    std::string content = files.image;
    const std::string& base = left_.at("pool");
    for (std::uint64_t at = 0; at < content.size(); at += kPage) {
      if (!files.is_live(at)) ImageFiles::put_page(content, base, at / kPage);
    }
    return content;
  }
  // What the check cannot see: each line in which it is not the last image may be anything, because
  // it is dirty there or here, or because it is zero and space was given back.
  bool is_unseen(const ImageFiles& files) const {
    const std::string content = content_of(files);
    if (content == truth_ || content.size() != truth_.size()) return false;
    const std::vector<bool> dirty =
        files.dirty == image_.dirty ? dirty_ : files.dirty_lines(kMaxBytes);
    const bool punched = (files.head().flags & layout::kPunched) != 0;
    const std::string zeros(kLine, '\0');
    for (std::uint64_t line = 0; line < dirty.size(); ++line) {
      const std::uint64_t at = line * kLine;
      const bool same = std::memcmp(content.data() + at, truth_.data() + at, kLine) == 0;
      if (same || dirty[line] || dirty_[line] || is_of_mark(at)) continue;
      if (!punched || content.compare(at, kLine, zeros) != 0) return false;
    }
    return true;
  }
  static bool is_of_mark(std::uint64_t at) {
    const std::uint64_t in_page = at % layout::kMarkStride;
    return at < 2 * layout::kMarkStride && in_page >= layout::kMarkOffset &&
           in_page < layout::kMarkOffset + sizeof(layout::BaseMark);
  }
  void try_image(const ImageFiles& files, Outcomes& outcomes) {
    if (HasFailure()) return;
    if (is_changed_) put_back();
    write_image(files);
    ++outcomes.images;
    const bool unseen = &outcomes != &whole_ && is_unseen(files);
    std::string why;
    // What is damaged in dirty lines only may be anything, so it is opened in another process.
    const Judged judged = unseen ? judge_in_child(why) : judge(why);
    is_changed_ = unseen || judged != Judged::refused || is_accepted();
    outcomes.refused += judged == Judged::refused ? 1 : 0;
    outcomes.right += judged == Judged::right ? 1 : 0;
    outcomes.unseen += unseen ? 1 : 0;
    outcomes.unseen_wrong += unseen && judged == Judged::wrong ? 1 : 0;
    if (judged != Judged::wrong || unseen) return;
    ADD_FAILURE() << outcomes.kind << ", image " << outcomes.images << ": " << why;
  }
  Judged judge(std::string& why) {
    auto pool = Pool::open(path(), by_hand());
    if (pool) {
      why = wrong(*pool, synced_, since_sync_);
      if (why.empty()) why = use(*pool);
      return why.empty() ? Judged::right : Judged::wrong;
    }
    why = describe(pool.error());
    if (pool.error() != StatusCode::live_missing) return Judged::wrong;
    ++refusals_;
    if (!is_accepted()) return Judged::refused;
    why = "accepted: " + wrong_after_open(synced_, accepting());
    return why == "accepted: " ? Judged::refused : Judged::wrong;
  }
  // Of the refused ones some: the restore is always the same.
  bool is_accepted() const { return refusals_ % 8 == 0; }
  Judged judge_in_child(std::string& why) {
    const ChildEnd end = run_child([&] {
      ::alarm(20);
      ::_exit(static_cast<int>(judge(why)));
    });
    return end.exited && end.code <= static_cast<int>(Judged::wrong) ? static_cast<Judged>(end.code)
                                                                     : Judged::wrong;
  }
  static std::string use(Pool& pool) {
    Deeds deeds(&pool);
    deeds.put(0, 40, 99);
    deeds.put(1'700, 1'720, 99);
    deeds.sync();
    const std::string damage = unsound(pool);
    const Status s = pool.close();
    return damage.empty() && !s.ok() ? describe(s) : damage;
  }

  Rng rng_;
  std::string truth_;        // what the pool showed when it was killed
  std::vector<bool> dirty_;  // lines, then
  std::uint64_t refusals_ = 0;
  bool is_changed_ = false;  // base or log
  Outcomes whole_{.kind = "whole files"}, heads_{.kind = "the head"},
      passes_{.kind = "interrupted passes"}, pages_{.kind = "random pages"};
};

std::uint64_t images() {
  const bool thorough = chosen_engine().engine == Engine::phast;
  return scaled(5'000, thorough ? 60 : 12, 6);
}

TEST_F(OldImages, AfterSyncs) {
  PERDURE_TRACE_SEED();
  explore(syncs, images());
}
TEST_F(OldImages, AfterFolds) {
  PERDURE_TRACE_SEED();
  explore(folds, images());
}
TEST_F(OldImages, AfterACompaction) {
  PERDURE_TRACE_SEED();
  explore(compacts, images());
}

}  // namespace
}  // namespace perdure::test
