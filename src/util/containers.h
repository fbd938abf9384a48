// Text and Array: std::string and std::vector for the sources that are built without exceptions. A
// Text never allocates. An Array returns whether it could allocate.
//
// Thread safety: values; distinct objects may be used from distinct threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

namespace perdure {

// Up to N bytes of text in place, NUL-terminated. Longer text is cut.
template <std::size_t N>
class Text {
 public:
  constexpr Text() noexcept = default;
  constexpr Text(std::string_view text) noexcept { *this = text; }  // NOLINT: implicit on purpose
  constexpr Text& operator=(std::string_view text) noexcept {
    size_ = text.copy(bytes_, N);
    bytes_[size_] = '\0';
    return *this;
  }

  constexpr operator std::string_view() const noexcept { return {bytes_, size_}; }  // NOLINT
  constexpr const char* c_str() const noexcept { return bytes_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }

  friend constexpr bool operator==(const Text& a, std::string_view b) noexcept {
    return std::string_view(a) == b;
  }
  friend constexpr bool operator==(const Text& a, const Text& b) noexcept {
    return a == std::string_view(b);
  }
  template <class Stream>
  friend Stream& operator<<(Stream& out, const Text& text) {
    out << std::string_view(text);
    return out;
  }

 private:
  std::size_t size_ = 0;
  char bytes_[N + 1] = {};
};

// A vector that can be moved and not copied. push_back() returns false if memory is short. Room
// that has no item yet is not touched.
template <class T>
class Array {
 public:
  Array() noexcept = default;
  Array(Array&& other) noexcept
      : items_(std::exchange(other.items_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Array& operator=(Array&& other) noexcept {
    Array moved(std::move(other));
    std::swap(items_, moved.items_);
    std::swap(size_, moved.size_);
    std::swap(capacity_, moved.capacity_);
    return *this;
  }
  ~Array() {
    clear();
    ::operator delete(static_cast<void*>(items_));
  }

  // Returns false, and changes nothing, if memory is short. Amortised O(1).
  [[nodiscard]] bool push_back(T item) noexcept {
    if (size_ == capacity_ && !reserve(std::max<std::size_t>(2 * capacity_, 4))) return false;
    std::construct_at(items_ + size_, std::move(item));
    ++size_;
    return true;
  }

  // Makes room for so many items at once. Returns false if memory is short.
  [[nodiscard]] bool reserve(std::size_t capacity) noexcept {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    if (capacity <= capacity_) return true;
    if (capacity > PTRDIFF_MAX / kBytes) return false;
    auto* items = static_cast<T*>(::operator new(capacity * kBytes, std::nothrow));
    if (items == nullptr) return false;
    std::uninitialized_move(begin(), end(), items);
    std::destroy(begin(), end());
    ::operator delete(static_cast<void*>(items_));
    items_ = items;
    capacity_ = capacity;
    return true;
  }
  // Removes the last item and returns it. There must be one.
  T pop_back() noexcept {
    T item = std::move(back());
    std::destroy_at(items_ + --size_);
    return item;
  }

  // Keeps the room.
  void clear() noexcept {
    std::destroy(begin(), end());
    size_ = 0;
  }

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  T* begin() noexcept { return items_; }
  T* end() noexcept { return items_ + size_; }
  const T* begin() const noexcept { return items_; }
  const T* end() const noexcept { return items_ + size_; }
  T& operator[](std::size_t i) noexcept { return items_[i]; }
  const T& operator[](std::size_t i) const noexcept { return items_[i]; }
  T& front() noexcept { return items_[0]; }
  const T& front() const noexcept { return items_[0]; }
  T& back() noexcept { return items_[size_ - 1]; }

 private:
  // NOLINTNEXTLINE(bugprone-sizeof-expression): of a pointer, if the items are pointers.
  static constexpr std::size_t kBytes = sizeof(T);

  T* items_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace perdure
