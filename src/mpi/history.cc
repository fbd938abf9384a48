// history. The root broadcasts the key. Its owner broadcasts the entries, piece after piece, so
// that a long history needs little memory.
//
// VERSIONS  An entry is from a version of the owner's `data`, and is delivered with the version of
//   the store that has it. One version of the store may have several entries: a tag was taken back,
//   the run was killed in between, or trim() has left older ones. The last of them counts.
//   The first version of the store stands for all that were trimmed: its entry is what the key had
//   there. A removal counts only if the key was there in the version before. The engine may keep
//   the others, and forgets them at an open.
// MESSAGES  The key; then pieces of {version, value, which may be absent}, with 1 if more follow
//   (spread.h).
#include "mpi/core.h"
#include "mpi/packing.h"
#include "mpi/spread.h"

namespace perdure::mpi::detail {

namespace {

class Historian {
 public:
  explicit Historian(Core& core) noexcept : core_(core) {}

  Status run(int root, const UntypedKey& key, VisitUntypedVersion visit) noexcept {
    if (Status s = core_.usable(root); !s.ok()) return s;
    Comm& comm = core_.comm();
    Spread asked;
    if (comm.rank() == root) {
      char* room = asked.extend(Packer::size(key, core_.has_bytes()));
      if (room != nullptr) Packer(room, core_.has_bytes()).put(key);
    }
    std::uint64_t unused = 0;
    if (Status s = asked.run(comm, root, unused, {}); !s.ok()) return s;
    const UntypedKey wanted = Unpacker(asked.data(), asked.size(), core_.has_bytes()).key();
    const int owner = core_.owner(wanted);
    bool visits = true;
    for (std::uint64_t more = 1; more != 0;) {
      Spread piece;
      Status mine;
      if (owner == comm.rank()) mine = fill(wanted, piece.bytes(), more);
      if (Status s = piece.run(comm, owner, more, std::move(mine)); !s.ok()) return s;
      Unpacker from(piece.data(), piece.size(), core_.has_bytes());
      while (visits && !from.at_end()) {
        const Version version = from.word();
        visits = visit(version, from.optional_value());
      }
    }
    return {};
  }

 private:
  // Packs the entries of the versions from next_ on, until the piece is full. `more`: 1 if others
  // follow.
  Status fill(const UntypedKey& key, Grown<char>& piece, std::uint64_t& more) noexcept {
    LocalPool& pool = core_.own_pool(key);
    std::uint64_t begin = 0;  // of the entries of the last version
    Version last = 0;
    bool any = false, now_present = present_, room = true;
    more = 0;
    auto done =
        pool.data().history(key, [&](Version local, const std::optional<UntypedValue>& value) {
          const Version version = pool.containing(local);
          if (version < next_) return true;
          if (!any || version != last) {
            if (piece.size() >= kPieceBytes) {
              more = 1;
              return false;
            }
            begin = piece.size();
            present_ = now_present;
          }
          any = true;
          last = version;
          now_present = value.has_value();
          piece.resize(begin);  // a later entry of the same version replaces the one before
          return room = (!value && !present_) || append(piece, version, value);
        });
    if (!done) return std::move(done.error());
    if (any) next_ = last + 1;
    present_ = now_present;
    return room ? Status() : StatusCode::out_of_memory;
  }
  bool append(Grown<char>& piece, Version version,
              const std::optional<UntypedValue>& value) noexcept {
    char* room = piece.extend(sizeof(version) + Packer::size(value, core_.has_bytes()));
    if (room == nullptr) return false;
    Packer packer(room, core_.has_bytes());
    packer.word(version);
    packer.put(value);
    return true;
  }

  Core& core_;
  Version next_ = 0;
  bool present_ = false;  // in the version before the one that is packed
};

}  // namespace

Status history(Core& core, int root, const UntypedKey& key, VisitUntypedVersion visit) {
  if (Status s = core.router().meet(); !s.ok()) return s;
  return Historian(core).run(root, key, visit);
}

}  // namespace perdure::mpi::detail
