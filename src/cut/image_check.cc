#include "cut/image_check.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>  // memory orders
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace perdure {

namespace {

constexpr std::uint64_t kPiece = 256_KiB;
constexpr LineWords kZeros{};
using Word = RealPlatform::Atomic<std::uint64_t>;

Status is_older() noexcept {
  return Status::format(StatusCode::corruption,
                        "it is not as the log says; the disk has lost a part of it");
}

class ImageCheck {
 public:
  ImageCheck(LiveImage& image, FileSystem& files, FileSystem::File base) noexcept
      : image_(image), files_(files), base_(base) {}

  Status run(LogReader& log) noexcept {
    if (Status s = make(); !s.ok()) return s;
    const std::uint64_t size = image_.image().size();
    if (is_shorter(size)) return is_older();
    Status again = write_all_again(image_.dirty_file(), [](std::uint64_t) { return true; });
    if (again.ok()) {
      const auto is_live = [this](std::uint64_t at) { return image_.chunks().is_live(at); };
      again = write_all_again(image_.image(), is_live);
    }
    if (!again.ok()) return again;
    for (std::uint64_t at = 0; at < size; at += kPiece) {
      if (!image_.chunks().is_live(at)) continue;
      if (Status s = compare_piece(at, std::min(kPiece, size - at)); !s.ok()) return s;
    }
    bool right = true;
    const std::uint64_t known = image_.durable().epoch;
    const auto compare = [&](std::uint64_t epoch, std::uint64_t line, const LineWords& content) {
      right = right && compare_line(line, content);
      if (right && epoch > known) image_.mark_dirty(line);  // the next epoch replaces that one
    };
    Status s = log.replay_back(compare);
    if (!s.ok()) return s;
    right = right && std::all_of(differs_.get(), differs_.get() + words_,
                                 [](std::uint64_t word) { return word == 0; });
    return right ? Status() : is_older();
  }

 private:
  Status make() noexcept {
    words_ = image_.image().size() / kLine / 64 + 1;
    differs_.reset(new (std::nothrow) std::uint64_t[words_]);
    seen_.reset(new (std::nothrow) std::uint64_t[words_]);
    pieces_.reset(new (std::nothrow) std::byte[2 * kPiece]);
    if (differs_ == nullptr || seen_ == nullptr || pieces_ == nullptr)
      return StatusCode::out_of_memory;
    std::fill_n(differs_.get(), words_, 0);
    std::fill_n(seen_.get(), words_, 0);
    return {};
  }
  // The kernel may have failed to write a page and told a process that is gone, or another one. It
  // takes such a page for clean, and can still drop it. So every page that it has in memory is made
  // dirty again, without a change, before it is compared: if it cannot be written now, this process
  // is told. What is not in memory is as the disk has it.
  template <class F>
  static Status write_all_again(FileStorage& file, F&& is_shown) noexcept {
    Holes holes(file.descriptor());
    const std::uint64_t size = align_up(file.size(), kPage);
    // Else a look at a page of a hole would bring the next ones into memory, and so on to its end.
    (void)::madvise(file.base(), size, MADV_RANDOM);
    for (std::uint64_t at = 0; at < size; at += kPiece) {
      if (!is_shown(at)) continue;
      unsigned char resident[kPiece / kPage];
      const std::uint64_t n = std::min(kPiece, size - at);
      if (::mincore(file.base() + at, n, resident) != 0) return cannot_be_read();
      const auto has = [&](std::uint64_t i) {
        const std::byte* const page = file.base() + at + i * kPage;
        return (resident[i] & 1) != 0 && (!holes.has(at + i * kPage) || !is_zero(page));
      };
      for (std::uint64_t i = 0; i < n / kPage;) {
        const std::uint64_t first = i;
        while (i < n / kPage && has(i)) ++i;
        if (i == first) {
          ++i;
        } else if (!write_again(file.base() + at + first * kPage, (i - first) * kPage)) {
          return cannot_be_written(file.base() + at + first * kPage, (i - first) * kPage);
        }
      }
    }
    (void)::madvise(file.base(), size, MADV_NORMAL);
    return {};
  }
  static bool write_again(std::byte* begin, std::uint64_t n) noexcept {
    if (::madvise(begin, n, MADV_POPULATE_WRITE) == 0) return true;
    if (errno != EINVAL) return false;
    for (std::uint64_t page = 0; page < n; page += kPage) {  // an older kernel
      reinterpret_cast<Word*>(begin + page)->fetch_or(0, std::memory_order_relaxed);
    }
    return true;
  }
  static Status cannot_be_read() noexcept {
    return Status::format(StatusCode::corruption, "it cannot be read: %s", std::strerror(errno));
  }
  // Such as btrfs without space. Nothing of the image is wrong.
  static Status cannot_be_written(std::byte* begin, std::uint64_t n) noexcept {
    if (::madvise(begin, n, MADV_POPULATE_READ) != 0) return cannot_be_read();
    return Status::format(StatusCode::io,
                          "its live image can be read, but not changed: the disk is full or has "
                          "failed; see to the disk, and open the pool again");
  }
  static bool is_zero(const std::byte* page) noexcept {
    return page[0] == std::byte{0} && std::memcmp(page, page + 1, kPage - 1) == 0;
  }
  // Where the disk has nothing. A page of zeros there has nothing to lose, and perhaps there is no
  // space for it; another page there is one that the kernel could not write. Asked in ascending
  // order.
  class Holes {
   public:
    explicit Holes(int file) noexcept : file_(file) {}
    bool has(std::uint64_t at) noexcept {
      if (at >= hole_) {
        const off_t data = ::lseek(file_, static_cast<off_t>(at), SEEK_DATA);
        const off_t hole = data < 0 ? data : ::lseek(file_, data, SEEK_HOLE);
        data_ = hole < 0 ? kEnd : static_cast<std::uint64_t>(data) / kPage * kPage;
        hole_ = hole < 0 ? kEnd : static_cast<std::uint64_t>(hole);
      }
      return at < data_;
    }

   private:
    static constexpr std::uint64_t kEnd = ~std::uint64_t{0};
    int file_;
    std::uint64_t data_ = 0, hole_ = 0;  // the next data, and the hole behind them
  };
  // The file grows before a store. A line behind its end could not be read.
  bool is_shorter(std::uint64_t size) const noexcept {
    const auto& dirty = image_.dirty();
    for (std::uint64_t line = size / kLine; dirty.covers(line); ++line) {
      if (dirty.has(line)) return true;
    }
    return false;
  }
  // An older build gave the base another header than the image.
  bool is_header(std::uint64_t offset) const noexcept {
    return image_.is_old() && offset < 2 * layout::kMarkStride;
  }
  bool is_free(const std::byte* line) const noexcept {
    return image_.may_be_punched() && std::memcmp(line, &kZeros, kLine) == 0;
  }
  Status read(std::byte* image, std::byte* base, std::uint64_t at, std::uint64_t n) noexcept {
    const std::int64_t got = image_.image().read(image, n, at);
    if (got != static_cast<std::int64_t>(n)) {
      return Status::format(StatusCode::corruption, "it cannot be read: %s",
                            got < 0 ? std::strerror(errno) : "it is too short");
    }
    auto read = files_.read(base_, base, n, at);
    if (!read) return std::move(read.error());
    std::memset(base + *read, 0, n - *read);  // the image has grown beyond it
    return {};
  }
  // Notes the lines that are not as in the base.
  Status compare_piece(std::uint64_t at, std::uint64_t n) noexcept {
    std::byte* const image = pieces_.get();
    std::byte* const base = image + kPiece;
    if (Status s = read(image, base, at, n); !s.ok()) return s;
    for (std::uint64_t page = 0; page < n; page += kPage) {
      if (std::memcmp(image + page, base + page, std::min(kPage, n - page)) == 0) continue;
      for (std::uint64_t i = page; i < std::min(page + kPage, n); i += kLine) {
        const std::uint64_t line = (at + i) / kLine;
        const bool same = std::memcmp(image + i, base + i, kLine) == 0 ||
                          layout::is_of_mark(line) || image_.dirty().has(line) ||
                          is_free(image + i) || is_header(at + i);
        if (!same) differs_[line / 64] |= bit(line);
      }
    }
    return {};
  }
  // Of an epoch that counts, the last one first.
  bool compare_line(std::uint64_t line, const LineWords& content) noexcept {
    const std::uint64_t at = line * kLine;
    if (at + kLine > image_.image().size() || !image_.chunks().is_live(at)) return false;
    if ((seen_[line / 64] & bit(line)) != 0) return true;
    seen_[line / 64] |= bit(line);
    differs_[line / 64] &= ~bit(line);
    if (is_header(at) || image_.dirty().has(line)) return true;
    // Every piece of a live chunk was read before: the access does not fail.
    const std::byte* const here = image_.image().base() + at;
    return std::memcmp(here, &content, kLine) == 0 || is_free(here);
  }
  static constexpr std::uint64_t bit(std::uint64_t line) noexcept {
    return std::uint64_t{1} << line % 64;
  }

  LiveImage& image_;
  FileSystem& files_;
  FileSystem::File base_;
  std::size_t words_ = 0;
  std::unique_ptr<std::uint64_t[]> differs_, seen_;  // a bit for each line
  std::unique_ptr<std::byte[]> pieces_;
};

}  // namespace

Status verify_image(LiveImage& image, LogReader& log, FileSystem& files,
                    FileSystem::File base) noexcept {
  if (image.has_lost(layout::kDoubtful)) {
    return Status::format(StatusCode::corruption,
                          "the kernel could not write a part of it to the disk");
  }
  if (log.end().epoch > image.begun()) return is_older();
  Status s = ImageCheck(image, files, base).run(log);
  if (s.ok() && image.has_lost(layout::kDoubtful)) return is_older();
  return s;
}

}  // namespace perdure
