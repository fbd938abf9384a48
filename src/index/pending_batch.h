// PendingBatch: what mutations beside a batch in pieces ask it (pool/piece_batch.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "perdure/index.h"

namespace perdure {

// The caller is pinned as a mutation, holds the gate, or is beside the batch (reclaim/gate.h).
class PendingBatch {
 public:
  // Whether the batch changes the map with this root.
  virtual bool names(std::uint64_t root) const noexcept = 0;
  // Whether the batch is committed, and is still to change this key of that map. Then no other
  // thread may change the key before finish() has returned ok.
  virtual bool is_due(std::uint64_t root, const detail::Key& key) const noexcept = 0;
  // Does the mutation of the key, and others. The caller is beside, and in no guard. Errors:
  // poisoned.
  virtual Status finish(std::uint64_t root, const detail::Key& key) noexcept = 0;

  // --- the puts of the map that the batch has made room for, by key ---
  // The number of the first that does not come before the key; or how many there are.
  virtual std::size_t first_put(std::uint64_t root, const detail::Key& key) const noexcept = 0;
  // Null if there are no so many.
  virtual const detail::Mutation* put(std::uint64_t root, std::size_t number) const noexcept = 0;
  // Whether it is still to be done, and needs the room.
  virtual bool needs_room(std::uint64_t root, std::size_t number) const noexcept = 0;

 protected:
  ~PendingBatch() = default;
};

}  // namespace perdure
