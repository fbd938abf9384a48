// Storage: the interface of the file under a pool. FileStorage implements it for files;
// testing/ implements it in memory.
//
// The whole capacity is mapped at one address for the life of the object, so growth moves nothing.
// Only [0, size()) may be accessed.
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
  // Backs [offset, offset+length) with space of the medium. New space reads as zero. Lengthens the
  // file if it ends earlier. The range is never sparse: a full medium returns pool_full here
  // instead of raising a signal later.
  virtual Status allocate(std::uint64_t offset, std::uint64_t length) noexcept = 0;
  // Returns the space of a range to the file system. The range reads as zero and must be allocated
  // again before use.
  // Errors: unsupported if the file system cannot punch holes.
  virtual Status punch(std::uint64_t offset, std::uint64_t length) noexcept = 0;
  // Makes a range, or the whole file with its size, durable against power loss.
  virtual Status sync(std::uint64_t offset, std::uint64_t length) noexcept = 0;

  // Hints, for a medium that is slower than memory. The range will be read soon, all of it.
  virtual void will_read(std::uint64_t /*offset*/, std::uint64_t /*length*/) noexcept {}
  // From now on, whether what lies beside a read is not worth reading.
  virtual void read_alone(bool /*alone*/) noexcept {}
};

// Is asked before a storage gets space beyond its present size.
class GrowthWatch {
 public:
  // `bytes`: the size that it would have. An error refuses the growth.
  virtual Status before_growth(std::uint64_t bytes) noexcept = 0;
  // A range of the file, which may be punched, gets its space again. An error refuses it.
  virtual Status before_reuse(std::uint64_t offset, std::uint64_t length) noexcept = 0;
  // A range of the file will be punched.
  virtual void before_punch(std::uint64_t /*offset*/, std::uint64_t /*length*/) noexcept {}

 protected:
  ~GrowthWatch() = default;
};

}  // namespace perdure
