// write_many. Every rank sends its mutations to the owners of their keys. The owners apply them and
// send back what they found.
//
// STEPS   1. All ranks count what they have for each rank, and agree.
//         2. All-to-all: each rank learns how much it gets from each.
//         3. All ranks reserve what they need, for the results too, and agree. Nothing fails for
//            want of memory after that, and nothing has been applied before.
//         4. In step s = 1, 2, .. each rank sends to rank + s and receives from rank - s.
//         5. Each rank applies what it got, durably: in the order of the ranks that sent it, and in
//            the order of each batch. A rank with several pools does it pool by pool, 64 mutations
//            at a time: those of one key are in one pool, and keep their order.
//         6. The results go back as the mutations came. All make durable what was applied, and
//            agree.
// MESSAGES  Mutations: {kind: a byte, key, value unless it is an erase}. A result: a byte.
#include <algorithm>
#include <array>

#include "mpi/buffer.h"
#include "mpi/core.h"
#include "mpi/packing.h"

namespace perdure::mpi::detail {

namespace {

// A result as a byte.
constexpr std::uint8_t kAbsent = 0, kPresent = 1, kFailed = 2;  // kFailed + StatusCode

std::uint8_t byte_of(const Found& found) noexcept {
  if (found.ok()) return found.present() ? kPresent : kAbsent;
  return static_cast<std::uint8_t>(kFailed + static_cast<std::uint8_t>(found.status().code()));
}
Found found_of(std::uint8_t byte) noexcept {
  if (byte < kFailed) return Found(byte == kPresent);
  return Status(static_cast<StatusCode>(byte - kFailed));
}

class Writer {
  static constexpr std::size_t kBatch = 64;
  // What one rank has for another.
  struct Size {
    std::uint64_t mutations, bytes;
  };
  // The places of one rank's mutations, and of their results.
  struct Place {
    std::uint64_t bytes, results;
  };

 public:
  Writer(Core& core, std::size_t count, MutationAt at) noexcept
      : core_(core), comm_(core.comm()), count_(count), at_(at) {}

  Status run(FunctionRef<void(std::size_t, const Found&)> done) noexcept {
    if (Status s = comm_.agree(count()); !s.ok()) return s;
    if (Status s = comm_.all_to_all(out_sizes_.data(), sizeof(Size), in_sizes_.data()); !s.ok()) {
      return s;
    }
    if (Status s = comm_.agree(reserve()); !s.ok()) return s;
    pack();
    if (Status s = exchange_mutations(); !s.ok()) return s;
    apply();
    if (Status s = exchange_results(); !s.ok()) return s;
    Status durable = core_.make_durable();  // what was applied, also if some failed
    if (met_.ok()) met_ = std::move(durable);
    Status agreed = comm_.agree(std::move(met_));
    if (!comm_.lost()) deliver(done);
    return agreed;
  }

 private:
  std::uint64_t ranks() const noexcept { return static_cast<std::uint64_t>(comm_.size()); }
  std::uint64_t rank() const noexcept { return static_cast<std::uint64_t>(comm_.rank()); }
  std::uint64_t owner(const UntypedMutation& mutation) const noexcept {
    return static_cast<std::uint64_t>(core_.owner(mutation.key));
  }
  std::uint64_t size_of(const UntypedMutation& mutation) const noexcept {
    const bool bytes = core_.has_bytes();
    const bool erases = mutation.kind == MutationKind::erase;
    return 1 + Packer::size(mutation.key, bytes) +
           (erases ? 0 : Packer::size(mutation.value, bytes));
  }

  Status count() noexcept {
    for (Grown<Size>* sizes : {&out_sizes_, &in_sizes_}) {
      if (!sizes->reserve(ranks())) return StatusCode::out_of_memory;
    }
    for (Grown<Place>* places : {&out_places_, &in_places_}) {
      if (!places->reserve(ranks())) return StatusCode::out_of_memory;
    }
    std::fill_n(out_sizes_.data(), ranks(), Size{0, 0});
    for (std::size_t i = 0; i < count_; ++i) {
      const UntypedMutation mutation = at_(i);
      Size& size = out_sizes_[owner(mutation)];
      ++size.mutations;
      size.bytes += size_of(mutation);
    }
    return {};
  }

  // What a rank has for itself is applied where it was packed.
  Status reserve() noexcept {
    const Place out = place(out_sizes_, out_places_);
    in_sizes_[rank()].bytes = 0;
    const Place in = place(in_sizes_, in_places_);
    in_sizes_[rank()].bytes = out_sizes_[rank()].bytes;
    const bool room = out_.reserve(out.bytes) && in_.reserve(in.bytes) &&
                      out_results_.reserve(out.results) && in_results_.reserve(in.results);
    return room ? Status() : StatusCode::out_of_memory;
  }
  // Places the parts one after the other. Returns the end.
  Place place(Grown<Size>& sizes, Grown<Place>& places) noexcept {
    Place end{0, 0};
    for (std::uint64_t r = 0; r < ranks(); ++r) {
      places[r] = end;
      end.bytes += sizes[r].bytes;
      end.results += sizes[r].mutations;
    }
    return end;
  }

  void pack() noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      const UntypedMutation mutation = at_(i);
      std::uint64_t& place = out_places_[owner(mutation)].bytes;
      Packer packer(out_.data() + place, core_.has_bytes());
      packer.byte(static_cast<std::uint8_t>(mutation.kind));
      packer.put(mutation.key);
      if (mutation.kind != MutationKind::erase) packer.put(mutation.value);
      place += size_of(mutation);
    }
    (void)place(out_sizes_, out_places_);  // packing has moved them
  }

  Status exchange_mutations() noexcept {
    return comm_.with_all([this](std::uint64_t to, std::uint64_t from) {
      return comm_.exchange(out_.data() + out_places_[to].bytes, out_sizes_[to].bytes,
                            static_cast<int>(to), in_.data() + in_places_[from].bytes,
                            in_sizes_[from].bytes, static_cast<int>(from));
    });
  }
  Status exchange_results() noexcept {
    std::copy_n(in_results_.data() + in_places_[rank()].results, in_sizes_[rank()].mutations,
                out_results_.data() + out_places_[rank()].results);
    return comm_.with_all([this](std::uint64_t to, std::uint64_t from) {
      return comm_.exchange(in_results_.data() + in_places_[to].results, in_sizes_[to].mutations,
                            static_cast<int>(to), out_results_.data() + out_places_[from].results,
                            out_sizes_[from].mutations, static_cast<int>(from));
    });
  }

  void apply() noexcept {
    for (std::uint64_t r = 0; r < ranks(); ++r) {
      const char* bytes =
          r == rank() ? out_.data() + out_places_[r].bytes : in_.data() + in_places_[r].bytes;
      Unpacker from(bytes, in_sizes_[r].bytes, core_.has_bytes());
      std::uint8_t* results = in_results_.data() + in_places_[r].results;
      while (!from.at_end()) {
        std::size_t size = 0;
        for (; size < kBatch && !from.at_end(); ++size) {
          const auto kind = static_cast<MutationKind>(from.byte());
          batch_[size] = {.kind = kind, .key = from.key()};
          if (kind != MutationKind::erase) batch_[size].value = from.value();
        }
        apply(size, results);
        results += size;
      }
    }
  }
  // Applies the first `count` mutations of batch_, pool by pool.
  void apply(std::size_t count, std::uint8_t* results) noexcept {
    std::array<std::size_t, kBatch> pools;
    for (std::size_t i = 0; i < count; ++i) pools[i] = core_.own_place(batch_[i].key);
    for (std::size_t pool = 0; pool < core_.own_pools().size(); ++pool) {
      std::array<std::size_t, kBatch> places;
      std::size_t size = 0;
      for (std::size_t i = 0; i < count; ++i) {
        if (pools[i] != pool) continue;
        part_[size] = batch_[i];
        places[size++] = i;
      }
      if (size == 0) continue;
      Status s = core_.own_pools()[pool].data().write_many(
          {part_.data(), size},
          [&](std::size_t i, const Found& found) { results[places[i]] = byte_of(found); });
      if (met_.ok()) met_ = std::move(s);
    }
  }

  void deliver(FunctionRef<void(std::size_t, const Found&)> done) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      done(i, found_of(out_results_[out_places_[owner(at_(i))].results++]));
    }
  }

  Core& core_;
  Comm& comm_;
  std::size_t count_;
  MutationAt at_;
  // By rank: of what goes to it, and of what came from it.
  Grown<Size> out_sizes_, in_sizes_;
  Grown<Place> out_places_, in_places_;
  Grown<char> out_, in_;
  Grown<std::uint8_t> out_results_, in_results_;
  std::array<UntypedMutation, kBatch> batch_, part_;
  Status met_;  // the first error of a mutation that this rank applied
};

}  // namespace

Status write_many(Core& core, std::size_t count, MutationAt at,
                  FunctionRef<void(std::size_t, const Found&)> done) {
  if (Status s = core.usable(); !s.ok()) return s;
  return Writer(core, count, at).run(done);
}

}  // namespace perdure::mpi::detail
