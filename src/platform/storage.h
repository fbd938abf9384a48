// Storage: the file under a pool, as narrow as it can be. FileStorage is the real one;
// testing/ has one in memory.
//
// The whole capacity is mapped at one address for the life of the object, so growth moves nothing;
// only [0, size()) may be touched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "perdure/status.h"

namespace perdure {

class Storage {
 public:
  virtual ~Storage() = default;

  virtual std::byte* base() const noexcept = 0;
  virtual std::uint64_t size() const noexcept = 0;      // bytes backed by the medium
  virtual std::uint64_t capacity() const noexcept = 0;  // bytes mapped
  // Backs [offset, offset+length) with real space that reads as zero where it is new, and lengthens
  // the file if it ends before. Never sparse: on a full medium this fails with pool_full; there is
  // no signal later.
  virtual Status allocate(std::uint64_t offset, std::uint64_t length) noexcept = 0;
  // Gives the space of a range back; it reads as zero and must be allocated again before use.
  virtual Status punch(std::uint64_t offset, std::uint64_t length) noexcept = 0;
  // Makes a range, or the whole file with its size, durable against power loss.
  virtual Status sync(std::uint64_t offset, std::uint64_t length) noexcept = 0;
};

}  // namespace perdure
