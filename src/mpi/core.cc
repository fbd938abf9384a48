#include "mpi/core.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "platform/real_platform.h"
#include "util/hash.h"

namespace perdure::mpi::detail {

namespace {

constexpr std::uint64_t kLeastMessage = 64;

// FNV-1a. It decides in which pool a key is, so it is on media: never change.
std::uint64_t hash_of(std::string_view bytes) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return mix(hash);
}
std::uint64_t head_of(std::string_view bytes) noexcept {
  std::uint64_t head = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    head = head << 8 | (i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U);
  }
  return head;
}

}  // namespace

int Core::owner(const UntypedKey& key) const noexcept {
  std::uint64_t place = 0;
  if (partition_ == Partition::hash) {
    place = kinds_.bytes ? hash_of(key.bytes) : mix(key.word);
  } else {
    place = kinds_.bytes ? head_of(key.bytes) : key.word;
  }
  // place * ranks / 2^64, in two halves.
  const auto ranks = static_cast<std::uint64_t>(comm_.size());
  return static_cast<int>(((place >> 32) * ranks + ((place & 0xFFFFFFFF) * ranks >> 32)) >> 32);
}

std::uint64_t Core::merge_threads(std::uint64_t joined) const noexcept {
  if (merge_threads_ != 0) return merge_threads_;
  return std::clamp<std::uint64_t>(cores_ * joined / neighbours_, 1, cores_);
}

Status Core::usable() const noexcept {
  if (closed_) {
    return Status::format(StatusCode::invalid_argument, "the store is closed; open it again");
  }
  if (!broken_ && !comm_.lost()) [[likely]]
    return {};
  return Status::format(StatusCode::io,
                        "an earlier collective failed on some ranks; open the store again on all");
}

Status Core::readable(Version version) const noexcept {
  const VersionRange range = pool_.versions();
  if (version >= range.first && version <= range.last) [[likely]]
    return {};
  return Status::format(StatusCode::invalid_argument,
                        "version %lu cannot be read; versions %lu to %lu can", version, range.first,
                        range.last);
}

Status Core::agree(Status mine) noexcept {
  if (mine.ok()) mine = pool_.make_durable();
  return comm_.agree(std::move(mine));
}

// --- open ---

Status Core::open(MPI_Comm comm, std::string_view directory, const Options& options,
                  Kinds kinds) noexcept {
  kinds_ = kinds;
  partition_ = options.partition;
  // Every rank must reach the first agreement, whatever its options are.
  const std::uint64_t message = std::clamp(options.max_message, kLeastMessage, 1_GiB);
  if (Status s = comm_.duplicate(comm, message); !s.ok()) return s;
  if (Status s = same_arguments(options); !s.ok()) return s;
  if (Status s = agree(look(directory, options)); !s.ok()) return s;
  if (Status s = settle(directory, options); !s.ok()) return s;
  if (Status s = finish_rollback(); !s.ok()) return s;
  const Log log(options.pool.log, options.pool.log_context, pool_.path());
  if (Status s = agree_on_versions(log); !s.ok()) return s;
  return finish_open(options);
}

Status Core::same_arguments(const Options& options) noexcept {
  std::uint64_t low[] = {static_cast<std::uint64_t>(options.partition), kinds_.bytes,
                         static_cast<std::uint64_t>(options.pool.mode),
                         static_cast<std::uint64_t>(options.resume), options.max_message};
  std::uint64_t high[std::size(low)];
  std::copy(std::begin(low), std::end(low), high);
  // Each fits one message, because the ranks may have passed different limits.
  static_assert(sizeof(low) <= kLeastMessage);
  if (Status s = comm_.reduce(low, std::size(low), MPI_MIN); !s.ok()) return s;
  if (Status s = comm_.reduce(high, std::size(high), MPI_MAX); !s.ok()) return s;
  if (!std::equal(std::begin(low), std::end(low), high)) {
    return Status::format(StatusCode::invalid_argument,
                          "the ranks open the store with different options; pass the same types, "
                          "partition, mode, resume and max_message on all");
  }
  const bool known = partition_ == Partition::hash || partition_ == Partition::range;
  if (known && options.max_message >= kLeastMessage && options.max_message <= 1_GiB) return {};
  return Status::format(StatusCode::invalid_argument,
                        "the partition is unknown, or max_message is outside 64 bytes to 1 GiB");
}

Status Core::look(std::string_view directory, const Options& options) noexcept {
  if (options.pool.mode == OpenMode::read_only) {
    return Status::format(StatusCode::invalid_argument,
                          "a distributed store cannot be opened read-only; use another mode");
  }
  bool present = false;
  if (Status s = pool_.look(directory, comm_.rank(), options.pool, present); !s.ok()) return s;
  return belongs();
}

// ok unless this pool has a complete manifest that does not match this rank and these options.
Status Core::belongs() const noexcept {
  if (!pool_.manifest() || !pool_.manifest()->complete) return {};
  const Manifest& m = *pool_.manifest();
  if (m.ranks != static_cast<std::uint64_t>(comm_.size())) {
    return Status::format(StatusCode::invalid_argument,
                          "%s belongs to a run of %lu ranks; start as many, not %d", pool_.path(),
                          m.ranks, comm_.size());
  }
  if (m.rank != static_cast<std::uint64_t>(comm_.rank())) {
    return Status::format(StatusCode::invalid_argument, "%s is the pool of rank %lu; put it back",
                          pool_.path(), m.rank);
  }
  if (m.partition != static_cast<std::uint64_t>(partition_)) {
    return Status::format(
        StatusCode::invalid_argument, "%s has keys partitioned by %s; open it with that partition",
        pool_.path(),
        m.partition == static_cast<std::uint64_t>(Partition::hash) ? "hash" : "range");
  }
  if ((m.kinds == Manifest::kBytes) == kinds_.bytes) return {};
  return Status::format(StatusCode::invalid_argument,
                        "%s has keys and values that are %s; open it with those types",
                        pool_.path(), kinds_.bytes ? "integers" : "byte strings");
}

// Creates the pools if no rank has a complete one. If some ranks have one, the others must have a
// manifest of the same run: the run was killed before they were complete (D3).
Status Core::settle(std::string_view directory, const Options& options) noexcept {
  const bool complete = pool_.manifest() && pool_.manifest()->complete;
  std::uint64_t any_complete = complete ? 1 : 0;
  if (Status s = comm_.reduce(&any_complete, 1, MPI_MAX); !s.ok()) return s;
  std::uint64_t run =
      any_complete != 0 ? (complete ? pool_.manifest()->run : 0) : RealPlatform::random();
  if (any_complete != 0) {
    if (Status s = comm_.reduce(&run, 1, MPI_MAX); !s.ok()) return s;
  } else if (Status s = comm_.broadcast(&run, sizeof(run), 0); !s.ok()) {
    return s;
  }
  Status mine;
  if (any_complete != 0 && !pool_.manifest()) {
    mine = Status::format(StatusCode::not_found,
                          "%s is missing or empty, but other pools exist; put it back, or start as "
                          "many ranks as there are pools",
                          pool_.path());
  } else if (any_complete != 0 &&
             (pool_.manifest()->run != run ||
              pool_.manifest()->rank != static_cast<std::uint64_t>(comm_.rank()))) {
    mine = Status::format(
        StatusCode::invalid_argument,
        "%s does not belong to the run of the other pools; put the right one back", pool_.path());
  } else if (any_complete == 0 && options.pool.mode == OpenMode::existing) {
    mine = Status::format(StatusCode::not_found,
                          "%s: there is no store; name its directory, or let open create one",
                          pool_.path());
  } else if (any_complete != 0 && options.pool.mode == OpenMode::create_new) {
    mine =
        Status::format(StatusCode::exists,
                       "%s: there is a store; choose another directory, or open it", pool_.path());
  }
  if (Status s = comm_.agree(std::move(mine)); !s.ok()) return s;
  Status made;
  if (any_complete == 0) {
    made = pool_.create(directory, options.pool,
                        {.run = run,
                         .ranks = static_cast<std::uint64_t>(comm_.size()),
                         .rank = static_cast<std::uint64_t>(comm_.rank()),
                         .partition = static_cast<std::uint64_t>(partition_),
                         .kinds = kinds_.bytes ? Manifest::kBytes : Manifest::kIntegers});
  } else {
    made = pool_.open_data(kinds_);
  }
  if (Status s = agree(std::move(made)); !s.ok()) return s;
  return agree(complete ? Status() : pool_.complete());
}

Status Core::finish_rollback() noexcept {
  auto last = pool_.last_rollback();
  const LocalPool::Rollback own = last ? *last : LocalPool::Rollback{};
  if (Status s = comm_.agree(last ? Status() : std::move(last.error())); !s.ok()) return s;
  // All ranks with a pending rollback have the same one.
  std::uint64_t version = own.pending ? own.version + 1 : 0;
  if (Status s = comm_.reduce(&version, 1, MPI_MAX); !s.ok()) return s;
  auto lowest = extreme(own.number, MPI_MIN), highest = extreme(own.number, MPI_MAX),
       finished = extreme(own.number - (own.pending ? 1 : 0), MPI_MAX);
  for (auto* word : {&lowest, &highest, &finished}) {
    if (!*word) return std::move(word->error());
  }
  if (finished->word > lowest->word) {
    return Status::format(
        StatusCode::corruption,
        "rank %d has finished a rollback that the pool of rank %d has not "
        "recorded, so this pool is an older copy; put back the one that the store "
        "had, or restore the pools of all ranks from one backup",
        finished->rank, lowest->rank);
  }
  rollbacks_ = lowest->word;
  if (lowest->word == highest->word) {
    return version == 0 ? Status() : carry_out_rollback(highest->word, version - 1);
  }
  // The ranks that have recorded it discard it: the rank that has not shows that no rank began it.
  return agree(own.pending ? pool_.end_rollback(own.number - 1) : Status());
}

Expected<Core::Extreme> Core::extreme(std::uint64_t word, MPI_Op op) noexcept {
  std::uint64_t found = word;
  if (Status s = comm_.reduce(&found, 1, op); !s.ok()) return fail(std::move(s));
  auto rank = static_cast<std::uint64_t>(found == word ? comm_.rank() : comm_.size());
  if (Status s = comm_.reduce(&rank, 1, MPI_MIN); !s.ok()) return fail(std::move(s));
  return Extreme{.word = found, .rank = static_cast<int>(rank)};
}

Status Core::agree_on_versions(const Log& log) noexcept {
  const VersionRange own = pool_.versions();
  auto first = extreme(own.first, MPI_MAX), last = extreme(own.last, MPI_MIN);
  if (!first) return std::move(first.error());
  if (!last) return std::move(last.error());
  const auto from = first->word, to = last->word;
  if (to < from) {
    return Status::format(StatusCode::corruption,
                          "the pools have no version in common: that of rank %d begins with %lu, "
                          "and that of rank %d ends with %lu; put back the pools that the store "
                          "had, or restore those of all ranks from one backup",
                          first->rank, from, last->rank, to);
  }
  Status mine = pool_.forget_above(last->word);
  if (mine.ok()) mine = pool_.forget_below(first->word);
  if (own.last > last->word) {
    log.say(LogLevel::warning,
            "versions above %lu are taken back: rank %d has none of them, because the run ended "
            "before all ranks had tagged",
            to, last->rank);
  }
  if (own.first < first->word) {
    log.say(LogLevel::info, "versions below %lu are forgotten: rank %d had begun to trim them",
            from, first->rank);
  }
  return agree(std::move(mine));
}

Status Core::finish_open(const Options& options) noexcept {
  merge_threads_ = options.merge_threads;
  auto neighbours = comm_.neighbours();
  if (!neighbours) return std::move(neighbours.error());
  neighbours_ = static_cast<std::uint64_t>(*neighbours);
  cores_ = RealPlatform::cores();
  if (options.resume == Resume::keep_writes) return {};
  return roll_back(pool_.versions().last);
}

// --- versions ---

Expected<Version> Core::tag() noexcept {
  if (Status s = usable(); !s.ok()) return fail(std::move(s));
  const Version version = pool_.versions().last + 1;
  auto local = pool_.data().tag();
  Status agreed = agree(local ? pool_.name(version, *local) : std::move(local.error()));
  if (agreed.ok()) return version;
  // Nothing is taken back after an error of MPI: other ranks may have got the result, and continue.
  broken_ = comm_.lost() || !agree(pool_.forget_above(version - 1)).ok();
  return fail(std::move(agreed));
}

Status Core::carry_out_rollback(std::uint64_t number, Version version) noexcept {
  Status mine = readable(version);
  if (mine.ok()) mine = pool_.forget_above(version);
  if (mine.ok()) mine = pool_.roll_back(version);
  if (mine.ok()) mine = pool_.end_rollback(number);
  Status agreed = agree(std::move(mine));
  broken_ = !agreed.ok();
  rollbacks_ = number;
  return agreed;
}

Status Core::roll_back(Version version) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  if (Status s = readable(version); !s.ok()) return s;
  const std::uint64_t number = rollbacks_ + 1;
  Status agreed = agree(pool_.begin_rollback(number, version));
  if (agreed.ok()) return carry_out_rollback(number, version);
  broken_ = comm_.lost() || !agree(pool_.end_rollback(rollbacks_)).ok();
  return agreed;
}

Status Core::trim(Version version) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  if (Status s = readable(version); !s.ok()) return s;
  Status agreed = agree(pool_.forget_below(version));
  broken_ = !agreed.ok();
  if (!agreed.ok()) return agreed;
  // The names decide. A power failure can bring back data that no name needs, until the next trim.
  auto done = pool_.data().trim(pool_.local(version));
  return comm_.agree(done ? Status() : std::move(done.error()));
}

Status Core::close() noexcept {
  if (closed_) return {};
  closed_ = true;
  Status mine = pool_.close();
  Status agreed = comm_.agree(std::move(mine));
  comm_.release();
  return agreed;
}

// --- what the header calls ---

void FreeBuffer::operator()(void* buffer) const noexcept { std::free(buffer); }
void CloseCore::operator()(Core* core) const noexcept { delete core; }

Expected<CorePointer> open_core(MPI_Comm comm, std::string_view directory, const Options& options,
                                Kinds kinds) {
  CorePointer core(new (std::nothrow) Core);
  if (core == nullptr) return fail(StatusCode::out_of_memory);
  if (Status s = core->open(comm, directory, options, kinds); !s.ok()) return fail(std::move(s));
  return core;
}
int rank_of(const Core& core) noexcept { return core.comm().rank(); }
int ranks_of(const Core& core) noexcept { return core.comm().size(); }
int owner_of(const Core& core, const UntypedKey& key) noexcept { return core.owner(key); }
Status refused(const Core& core, const UntypedKey& key) noexcept {
  if (Status s = core.usable(); !s.ok()) return s;
  const int owner = core.owner(key);
  if (owner == core.comm().rank()) [[likely]]
    return {};
  return Status::format(StatusCode::invalid_argument,
                        "rank %d owns the key, this is rank %d; write it there", owner,
                        core.comm().rank());
}
UntypedMap& data_of(Core& core) noexcept { return core.pool().data(); }
VersionRange versions_of(const Core& core) noexcept { return core.pool().versions(); }
Expected<Version> tag(Core& core) { return core.tag(); }
Status roll_back(Core& core, Version version) { return core.roll_back(version); }
Status trim(Core& core, Version version) { return core.trim(version); }
Status close(Core& core) { return core.close(); }

}  // namespace perdure::mpi::detail
