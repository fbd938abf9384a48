// get and get_many. The root broadcasts its queries and the owners look them up. An all-reduce
// gives all ranks the results: a rank that does not own a key contributes zeros.
//
// MESSAGES  The queries (spread.h), {version, key} each. Then words:
//     integers      errors | a bit per query, found | value per query
//     byte strings  errors | length + 1 per query, 0: absent; then, owner by owner, their values
//   `errors` is 1 if a rank had an error; then all ranks agree on which.
#include <algorithm>

#include "mpi/buffer.h"
#include "mpi/core.h"
#include "mpi/packing.h"
#include "mpi/spread.h"

namespace perdure::mpi::detail {

namespace {

constexpr std::size_t kFew = Spread::kInPlace / 16;  // the most queries that are spread in place
constexpr std::uint64_t kInPlaceValues = 4096;

class Finder {
 public:
  Finder(Core& core, int root) noexcept : core_(core), root_(root) {}

  Expected<std::uint64_t> run(std::span<const Query> queries,
                              FunctionRef<void(const Result&)> visit) noexcept {
    if (Status s = core_.usable(root_); !s.ok()) return fail(std::move(s));
    if (Status s = spread(queries); !s.ok()) return fail(std::move(s));
    for (std::uint64_t q = 0; q < count_; ++q) {
      if (Status s = core_.readable(queries_[q].version); !s.ok()) return fail(std::move(s));
    }
    Status s = core_.has_bytes() ? find_bytes(visit) : find_words(visit);
    if (!s.ok()) return fail(std::move(s));
    return count_;
  }

 private:
  void pack(const Query& query) noexcept {
    const bool bytes = core_.has_bytes();
    char* room = asked_.extend(sizeof(Version) + Packer::size(query.key, bytes));
    if (room == nullptr) return;
    Packer packer(room, bytes);
    packer.word(query.version);
    packer.put(query.key);
  }
  std::uint64_t words_for(std::uint64_t count) const noexcept {
    return 1 + count + (core_.has_bytes() ? 0 : (count + 63) / 64);
  }

  Status spread(std::span<const Query> queries) noexcept {
    if (core_.comm().rank() == root_) {
      for (const Query& query : queries) pack(query);
      count_ = queries.size();
    }
    Status s = asked_.run(core_.comm(), root_, count_, {}, [this](std::uint64_t count) {
      return many_.reserve(count) && many_words_.reserve(words_for(count));
    });
    if (!s.ok()) return s;
    if (asked_.size() > Spread::kInPlace) {
      queries_ = many_.data();
      results_ = many_words_.data();
    }
    Unpacker from(asked_.data(), asked_.size(), core_.has_bytes());
    for (std::uint64_t q = 0; q < count_; ++q) {
      const Version version = from.word();
      queries_[q] = {.key = from.key(), .version = version};
    }
    words_ = words_for(count_);
    std::fill_n(results_, words_, 0);
    return {};
  }

  std::uint64_t bitmap_words() const noexcept { return (count_ + 63) / 64; }
  bool mine(const Query& query) const noexcept {
    return core_.owner(query.key) == core_.comm().rank();
  }
  template <class Visit>
  void look_up(const Query& query, Visit&& visit) noexcept {
    LocalPool& pool = core_.own_pool(query.key);
    auto found = pool.data().read(query.key, pool.local(query.version), visit);
    if (!found.ok()) note(std::move(found).status());
  }
  void note(Status met) noexcept {
    results_[0] = 1;
    met_ = std::move(met);
  }
  Status reduce() noexcept {
    if (Status s = core_.comm().reduce(results_, words_, MPI_BOR); !s.ok()) return s;
    return results_[0] == 0 ? Status() : core_.comm().agree(std::move(met_));
  }

  Status find_words(FunctionRef<void(const Result&)> visit) noexcept {
    std::uint64_t* found = results_ + 1;
    std::uint64_t* values = found + bitmap_words();
    for (std::uint64_t q = 0; q < count_; ++q) {
      if (!mine(queries_[q])) continue;
      look_up(queries_[q], [&](const UntypedValue& value) {
        found[q / 64] |= 1ULL << q % 64;
        values[q] = value.word;
      });
    }
    if (Status s = reduce(); !s.ok()) return s;
    for (std::uint64_t q = 0; q < count_; ++q) {
      if ((found[q / 64] >> q % 64 & 1) == 0) continue;
      visit({.query = q, .value = {.word = values[q], .word_size = sizeof(std::uint64_t)}});
    }
    return {};
  }

  Status find_bytes(FunctionRef<void(const Result&)> visit) noexcept {
    std::uint64_t* lengths = results_ + 1;
    Grown<char> values;  // of the queries whose keys this rank owns, in order
    for (std::uint64_t q = 0; q < count_; ++q) {
      if (!mine(queries_[q])) continue;
      look_up(queries_[q], [&](const UntypedValue& value) {
        if (!values.append(value.bytes.data(), value.bytes.size())) note(StatusCode::out_of_memory);
        lengths[q] = value.bytes.size() + 1;
      });
    }
    if (Status s = reduce(); !s.ok()) return s;
    return spread_values(lengths, values, visit);
  }

  // All ranks know from `lengths` how many bytes each owner broadcasts.
  Status spread_values(const std::uint64_t* lengths, Grown<char>& values,
                       FunctionRef<void(const Result&)> visit) noexcept {
    Comm& comm = core_.comm();
    char in_place[kInPlaceValues];
    Grown<char> received;
    for (int owner = 0; owner < comm.size(); ++owner) {
      std::uint64_t bytes = 0;
      bool any = false;
      for (std::uint64_t q = 0; q < count_; ++q) {
        if (lengths[q] == 0 || core_.owner(queries_[q].key) != owner) continue;
        any = true;
        bytes += lengths[q] - 1;
      }
      if (!any) continue;
      char* place = in_place;
      if (owner == comm.rank()) place = values.data();
      if (bytes > kInPlaceValues) {
        const bool room = owner == comm.rank() || received.reserve(bytes);
        if (Status s = comm.agree(room ? Status() : StatusCode::out_of_memory); !s.ok()) return s;
        if (owner != comm.rank()) place = received.data();
      }
      if (Status s = comm.broadcast(place, bytes, owner); !s.ok()) return s;
      for (std::uint64_t q = 0; q < count_; ++q) {
        if (lengths[q] == 0 || core_.owner(queries_[q].key) != owner) continue;
        visit({.query = q, .value = {.bytes = {place, lengths[q] - 1}}});
        place += lengths[q] - 1;
      }
    }
    return {};
  }

  Core& core_;
  int root_;
  std::uint64_t count_ = 0;
  std::uint64_t words_ = 0;  // of results_
  Spread asked_;
  Query few_[kFew];
  std::uint64_t few_words_[2 + kFew];
  Status met_;  // the error of this rank, if any
  Grown<Query> many_;
  Grown<std::uint64_t> many_words_;
  Query* queries_ = few_;
  std::uint64_t* results_ = few_words_;
};

}  // namespace

Expected<std::uint64_t> get_many(Core& core, int root, std::span<const Query> queries,
                                 FunctionRef<void(const Result&)> visit) {
  return Finder(core, root).run(queries, visit);
}

}  // namespace perdure::mpi::detail
