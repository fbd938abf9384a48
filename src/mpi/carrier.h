// Carrier: brings closed versions of pools to other pools, which then have the same versions.
//
// WHAT  A source packs what a version has changed since the one before it: the keys that differ,
//   with their new values. Of the first version of a fill it packs all. The target applies that and
//   closes the version.
// ROUNDS  In a round each source packs a piece (part.h). An all-to-all tells the sizes, and which
//   ranks have more; all reserve memory, and agree; the pieces go from each rank to each; the
//   targets apply them. The error of a target is agreed upon in the next round, or at the end.
// MEMORY  A piece for each source of a rank, and one for each of its targets.
// AFTER AN ERROR  A target has a part of a version. LocalPool::take_back() and begin_fill() remove
//   it.
#pragma once

#include <memory>

#include "mpi/core.h"
#include "mpi/part.h"

namespace perdure::mpi::detail {

class Carrier {
 public:
  // `all`: targets have none of these versions, nor one before.
  Carrier(Core& core, VersionRange versions, bool all) noexcept
      : core_(core), comm_(core.comm()), versions_(versions), all_(all) {}

  // Before run(): the pool of this rank goes to the file of this role with its number. Returns
  // false if memory is short.
  [[nodiscard]] bool add(LocalPool& source, Role target) noexcept;
  // Collective. Returns ok if all pass ok and all targets have the versions, durably.
  Status run(Status mine) noexcept;

 private:
  struct Source {
    LocalPool* pool = nullptr;
    Role target = Role::copy;
    int to = 0;
    Version version = 0;  // which it packs
    bool begun = false;
    bool done = false;
    std::unique_ptr<Part> part;
    std::unique_ptr<Request> request;
  };
  // What a rank has for another one in a round; `more`: it has something for any in the next.
  struct Size {
    std::uint64_t bytes = 0;
    std::uint64_t more = 0;
  };
  // Before the entries of one version, or of a part of it.
  struct Section {
    std::uint64_t role, number;  // of the target
    Version version;
    std::uint64_t closes;  // it is the last of the version
    std::uint64_t bytes;   // of the entries
  };

  std::uint64_t ranks() const noexcept { return static_cast<std::uint64_t>(comm_.size()); }
  std::uint64_t rank() const noexcept { return static_cast<std::uint64_t>(comm_.rank()); }
  Status reserve() noexcept;
  Status pack() noexcept;
  Status pack(Source& source) noexcept;
  bool begin(Source& source) noexcept;
  Status receive() noexcept;
  Status apply() noexcept;
  Status apply(const char* from, std::uint64_t count) noexcept;
  Status apply(const Section& section, const char* entries) noexcept;

  Core& core_;
  Comm& comm_;
  const VersionRange versions_;
  const bool all_;
  Array<Source> sources_;             // by `to`
  Grown<Size> out_sizes_, in_sizes_;  // by rank
  Grown<std::uint64_t> out_begins_, in_begins_;
  Grown<char> out_, in_;
};

}  // namespace perdure::mpi::detail
