// SparseStorage: a Storage in memory that a child of fork shares, for logs of dirty lines.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "platform/storage.h"

namespace perdure::testing {

class SparseStorage final : public Storage {
 public:
  explicit SparseStorage(std::uint64_t capacity) : capacity_(capacity) {
    void* at = ::mmap(nullptr, capacity, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("no address space");
    base_ = static_cast<std::byte*>(at);
  }
  ~SparseStorage() override { ::munmap(base_, capacity_); }
  SparseStorage(const SparseStorage&) = delete;
  SparseStorage& operator=(const SparseStorage&) = delete;

  std::byte* base() const noexcept override { return base_; }
  std::uint64_t size() const noexcept override { return size_; }
  std::uint64_t capacity() const noexcept override { return capacity_; }
  // Fails if the storage is full.
  Status allocate(std::uint64_t offset, std::uint64_t length) noexcept override {
    if (full_) return Status::format(StatusCode::pool_full, "the memory is full");
    if (offset + length > capacity_) return StatusCode::pool_full;
    size_ = std::max(size_, offset + length);
    ranges_.emplace_back(offset, length);
    return {};
  }
  Status punch(std::uint64_t, std::uint64_t) noexcept override { return {}; }
  Status sync(std::uint64_t, std::uint64_t) noexcept override { return {}; }

  void set_full(bool full) { full_ = full; }
  // Becomes what `other` is now.
  void load(const SparseStorage& other) {
    clear();
    for (const auto& [offset, length] : other.ranges_) {
      std::memcpy(base_ + offset, other.base_ + offset, length);
    }
    ranges_ = other.ranges_;
    size_ = other.size_;
  }
  // Becomes empty. Its space reads as zero.
  void clear() {
    for (const auto& [offset, length] : ranges_) std::memset(base_ + offset, 0, length);
    ranges_.clear();
    size_ = 0;
  }

 private:
  std::byte* base_ = nullptr;
  std::uint64_t capacity_;
  std::uint64_t size_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;
  bool full_ = false;
};

}  // namespace perdure::testing
