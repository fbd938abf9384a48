// Grown: an array of trivial items that grows by doubling, without exceptions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "perdure/mpi_types.h"

namespace perdure::mpi::detail {

template <class T>
class Grown {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  std::uint64_t size() const noexcept { return size_; }
  T* data() noexcept { return items_.get(); }
  const T* data() const noexcept { return items_.get(); }
  T& operator[](std::uint64_t i) noexcept { return items_[i]; }

  // Returns false, and changes nothing, if memory is short.
  [[nodiscard]] bool reserve(std::uint64_t count) noexcept {
    if (count <= capacity_) return true;
    if (count > SIZE_MAX / sizeof(T)) return false;
    void* moved = std::realloc(items_.get(), count * sizeof(T));
    if (moved == nullptr) return false;
    (void)items_.release();
    items_.reset(static_cast<T*>(moved));
    capacity_ = count;
    return true;
  }
  // Returns room for `count` more items, or null if memory is short.
  [[nodiscard]] T* extend(std::uint64_t count) noexcept {
    if (size_ + count > capacity_ &&
        !reserve(std::max(size_ + count, std::max<std::uint64_t>(2 * capacity_, 64)))) {
      return nullptr;
    }
    size_ += count;
    return items_.get() + size_ - count;
  }
  [[nodiscard]] bool append(const T* items, std::uint64_t count) noexcept {
    if (count == 0) return true;
    T* room = extend(count);
    if (room == nullptr) return false;
    std::memcpy(static_cast<void*>(room), items, count * sizeof(T));
    return true;
  }
  // `count` must not exceed what was reserved. New items are not initialized.
  void resize(std::uint64_t count) noexcept { size_ = count; }
  Buffer<T> take() noexcept {
    size_ = capacity_ = 0;
    return std::move(items_);
  }

 private:
  Buffer<T> items_;
  std::uint64_t size_ = 0;
  std::uint64_t capacity_ = 0;
};

}  // namespace perdure::mpi::detail
