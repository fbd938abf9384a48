// PageSet: a set of pages of a pool, one bit each.
//
// Memory: a bit for every page up to the greatest. Thread safety: one thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace perdure {

class PageSet {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  PageSet() noexcept = default;
  PageSet(PageSet&& other) noexcept
      : words_(std::move(other.words_)), size_(std::exchange(other.size_, 0)) {}
  PageSet& operator=(PageSet&& other) noexcept {
    words_ = std::move(other.words_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  // Returns false, and changes nothing, if memory is short.
  [[nodiscard]] bool add(std::uint64_t page) noexcept {
    if (page / 64 >= size_ && !grow(page / 64 + 1)) return false;
    words_[page / 64] |= std::uint64_t{1} << page % 64;
    return true;
  }
  // Adds the pages of another set. Returns false, and changes nothing, if memory is short.
  [[nodiscard]] bool add(const PageSet& other) noexcept {
    if (other.size_ > size_ && !grow(other.size_)) return false;
    for (std::size_t i = 0; i < other.size_; ++i) words_[i] |= other.words_[i];
    return true;
  }
  // The first page from `from` on, or kNone.
  std::uint64_t next(std::uint64_t from) const noexcept {
    std::size_t i = from / 64;
    if (i >= size_) return kNone;
    std::uint64_t word = words_[i] & ~std::uint64_t{0} << from % 64;
    while (word == 0) {
      if (++i == size_) return kNone;
      word = words_[i];
    }
    return i * 64 + static_cast<std::uint64_t>(std::countr_zero(word));
  }
  bool empty() const noexcept { return next(0) == kNone; }
  void clear() noexcept {
    words_.reset();
    size_ = 0;
  }

 private:
  bool grow(std::size_t least) noexcept {
    const std::size_t size = std::max({least, 2 * size_, std::size_t{64}});
    std::unique_ptr<std::uint64_t[]> words(new (std::nothrow) std::uint64_t[size]());
    if (words == nullptr) return false;
    std::copy_n(words_.get(), size_, words.get());
    words_ = std::move(words);
    size_ = size;
    return true;
  }

  std::unique_ptr<std::uint64_t[]> words_;
  std::size_t size_ = 0;
};

}  // namespace perdure
