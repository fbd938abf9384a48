// Spread: bytes that one rank, the root, sends to all, with a word beside them. Few bytes go in one
// broadcast of 256 bytes, which needs no memory, so the ranks need not agree that all have it. More
// bytes follow in a second broadcast, after one agreement.
#pragma once

#include <cstdint>
#include <cstring>

#include "mpi/buffer.h"
#include "mpi/comm.h"

namespace perdure::mpi::detail {

class Spread {
 public:
  static constexpr std::uint64_t kInPlace = 240;

  // The root's bytes, before run().
  Grown<char>& bytes() noexcept { return bytes_; }
  // Returns room for `count` more bytes, or null; then run() fails.
  char* extend(std::uint64_t count) noexcept {
    char* room = bytes_.extend(count);
    short_ |= room == nullptr;
    return room;
  }

  // Collective. All ranks get `word` and the bytes of the root, or return its error `mine`. If the
  // bytes are many, `reserve(word)` reserves what a rank needs besides them, and returns false if
  // memory is short. Then all ranks return out_of_memory.
  template <class Reserve>
  Status run(Comm& comm, int root, std::uint64_t& word, Status mine, Reserve&& reserve) noexcept {
    Header header{};
    if (comm.rank() == root) {
      if (short_ && mine.ok()) mine = StatusCode::out_of_memory;
      header.bytes = mine.ok() ? bytes_.size() : kFailed;
      header.word = word;
      if (bytes_.size() <= kInPlace && bytes_.size() != 0) {
        std::memcpy(header.in_place, bytes_.data(), bytes_.size());
      }
    }
    if (Status s = comm.broadcast(&header, sizeof(header), root); !s.ok()) return s;
    if (header.bytes == kFailed) return comm.agree(std::move(mine));
    word = header.word;
    count_ = header.bytes;
    if (count_ <= kInPlace) {
      std::memcpy(in_place_, header.in_place, count_);
      return {};
    }
    if (mine.ok() && !(bytes_.reserve(count_) && reserve(word))) mine = StatusCode::out_of_memory;
    if (Status s = comm.agree(std::move(mine)); !s.ok()) return s;
    return comm.broadcast(bytes_.data(), count_, root);
  }
  Status run(Comm& comm, int root, std::uint64_t& word, Status mine) noexcept {
    return run(comm, root, word, std::move(mine), [](std::uint64_t) { return true; });
  }

  // On all ranks, after run(), until the object changes.
  const char* data() const noexcept { return count_ <= kInPlace ? in_place_ : bytes_.data(); }
  std::uint64_t size() const noexcept { return count_; }

 private:
  struct Header {
    std::uint64_t bytes;
    std::uint64_t word;
    char in_place[kInPlace];
  };
  static constexpr std::uint64_t kFailed = ~std::uint64_t{0};  // `bytes` after an error of the root

  Grown<char> bytes_;
  bool short_ = false;
  std::uint64_t count_ = 0;
  char in_place_[kInPlace];
};

}  // namespace perdure::mpi::detail
