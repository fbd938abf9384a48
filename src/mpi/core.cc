#include "mpi/core.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "platform/real_platform.h"
#include "util/hash.h"
#include "util/log.h"

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

// The store has complete pools, which `whole` describes. Returns ok if this is one of them.
Status belongs_to(const Manifest& whole, const LocalPool& pool) noexcept {
  if (!pool.manifest()) {
    return Status::format(StatusCode::not_found,
                          "%s is missing or empty, but other pools exist; put it back",
                          pool.path());
  }
  const Manifest& m = *pool.manifest();
  if (m.run == whole.run && m.pools == whole.pools && m.number == pool.number()) return {};
  return Status::format(StatusCode::invalid_argument,
                        "%s does not belong to the run of the other pools; put the right one back",
                        pool.path());
}

}  // namespace

std::uint64_t Core::pool_of(const UntypedKey& key) const noexcept {
  std::uint64_t place = 0;
  if (partition_ == Partition::hash) {
    place = kinds_.bytes ? hash_of(key.bytes) : mix(key.word);
  } else {
    place = kinds_.bytes ? head_of(key.bytes) : key.word;
  }
  // place * pools / 2^64, in two halves.
  return ((place >> 32) * pools() + ((place & 0xFFFFFFFF) * pools() >> 32)) >> 32;
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

Status Core::usable(int root) const noexcept {
  if (root >= 0 && root < comm_.size()) [[likely]]
    return usable();
  return Status::format(StatusCode::invalid_argument, "root %d is none of the ranks 0 to %d", root,
                        comm_.size() - 1);
}

Status Core::readable(Version version) const noexcept {
  if (version >= range_.first && version <= range_.last) [[likely]]
    return {};
  return Status::format(StatusCode::invalid_argument,
                        "version %lu cannot be read; versions %lu to %lu can", version,
                        range_.first, range_.last);
}

Status Core::make_durable() noexcept {
  Status first;
  for (LocalPool& pool : pools_) {
    Status s = pool.make_durable();
    if (first.ok()) first = std::move(s);
  }
  return first;
}

Status Core::agree(Status mine) noexcept {
  if (mine.ok()) mine = make_durable();
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
  if (Status s = assign(directory); !s.ok()) return s;
  if (Status s = agree(look(directory, options)); !s.ok()) return s;
  if (Status s = settle(directory, options); !s.ok()) return s;
  if (Status s = finish_rollback(); !s.ok()) return s;
  if (Status s = agree_on_versions(options); !s.ok()) return s;
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
  if (options.pool.mode == OpenMode::read_only) {
    return Status::format(StatusCode::invalid_argument,
                          "a distributed store cannot be opened read-only; use another mode");
  }
  const bool known = partition_ == Partition::hash || partition_ == Partition::range;
  if (known && options.max_message >= kLeastMessage && options.max_message <= 1_GiB) return {};
  return Status::format(StatusCode::invalid_argument,
                        "the partition is unknown, or max_message is outside 64 bytes to 1 GiB");
}

// Gives each pool a rank. There are as many as the files say, or as many as ranks if these are
// more: then the last ones are to be created, or there are none. The pools go to the ranks in
// order, in even blocks. Where the ranks do not share a file system, a rank may not see a file of
// its block. Then the lowest rank that sees it has the pool.
Status Core::assign(std::string_view directory) noexcept {
  Array<std::uint64_t> seen, servers;
  Status mine = LocalPool::list(directory, seen);
  const auto ranks = static_cast<std::uint64_t>(comm_.size());
  const auto rank = static_cast<std::uint64_t>(comm_.rank());
  std::uint64_t count = ranks;
  for (const std::uint64_t pool : seen) count = std::max(count, pool + 1);
  if (Status s = comm_.reduce(&count, 1, MPI_MAX); !s.ok()) return s;
  const auto block = [&](std::uint64_t pool) { return pool * ranks / count; };
  if (mine.ok() && !(servers.reserve(count) && places_.reserve(count))) {
    mine = StatusCode::out_of_memory;
  }
  if (Status s = comm_.agree(std::move(mine)); !s.ok()) return s;
  // 0: the rank of the block sees it; r + 1: rank r does.
  constexpr std::uint64_t kNone = ~std::uint64_t{0};
  for (std::uint64_t pool = 0; pool < count; ++pool) (void)servers.push_back(kNone);
  for (const std::uint64_t pool : seen) servers[pool] = block(pool) == rank ? 0 : rank + 1;
  if (Status s = comm_.reduce(servers.begin(), count, MPI_MIN); !s.ok()) return s;
  for (std::uint64_t pool = 0; pool < count; ++pool) {
    const bool elsewhere = servers[pool] != 0 && servers[pool] != kNone;
    const std::uint64_t server = elsewhere ? servers[pool] - 1 : block(pool);
    (void)places_.push_back({.rank = static_cast<int>(server)});
  }
  return {};
}

Status Core::look(std::string_view directory, const Options& options) noexcept {
  for (std::uint64_t number = 0; number < pools(); ++number) {
    if (server(number) != comm_.rank()) continue;
    places_[number].own = static_cast<std::uint32_t>(pools_.size());
    if (!pools_.push_back({})) return StatusCode::out_of_memory;
    Status met = pools_.back().look(directory, number, options.pool);
    if (met.ok()) met = belongs(pools_.back());
    if (!met_.push_back(std::move(met))) return StatusCode::out_of_memory;
  }
  return {};
}

// ok unless this pool has a complete manifest that does not match its name and these options.
Status Core::belongs(const LocalPool& pool) const noexcept {
  if (!pool.is_complete()) return {};
  const Manifest& m = *pool.manifest();
  if (m.number != pool.number()) {
    return Status::format(StatusCode::invalid_argument,
                          "%s is the pool rank-%05lu.perdure; give it this name again", pool.path(),
                          m.number);
  }
  if (m.partition != static_cast<std::uint64_t>(partition_)) {
    return Status::format(
        StatusCode::invalid_argument, "%s has keys partitioned by %s; open it with that partition",
        pool.path(), m.partition == static_cast<std::uint64_t>(Partition::hash) ? "hash" : "range");
  }
  if ((m.kinds == Manifest::kBytes) == kinds_.bytes) return {};
  return Status::format(StatusCode::invalid_argument,
                        "%s has keys and values that are %s; open it with those types", pool.path(),
                        kinds_.bytes ? "integers" : "byte strings");
}

// The store has so many pools. Closes those behind them: a run that was killed while it created the
// directory has left them, and they hold no data (D3).
Status Core::keep_pools(std::uint64_t count) noexcept {
  while (pools() > count) {
    if (places_.pop_back().rank != comm_.rank()) continue;
    if (met_.pop_back().ok()) {
      if (Status s = pools_.back().close(); !s.ok()) return s;
    }
    pools_.pop_back();
  }
  return {};
}

// `whole` describes the complete pools. Returns ok if the store is there and whole, or may be
// created. Closes the pools that are none of it.
Status Core::fits(const Manifest& whole, std::string_view directory, OpenMode mode) noexcept {
  const bool exists = whole.pools != 0;
  if (exists) {
    if (Status s = keep_pools(whole.pools); !s.ok()) return s;
  }
  for (Status& met : met_) {
    if (!met.ok()) return std::move(met);
  }
  const auto size = static_cast<int>(directory.size());
  if (!exists) {
    if (mode != OpenMode::existing) return {};
    return Status::format(StatusCode::not_found,
                          "%.*s: there is no store; name its directory, or let open create one",
                          size, directory.data());
  }
  if (mode == OpenMode::create_new) {
    return Status::format(StatusCode::exists,
                          "%.*s: there is a store; choose another directory, or open it", size,
                          directory.data());
  }
  if (pools() < whole.pools) {
    return Status::format(StatusCode::not_found,
                          "%.*s/rank-%05lu.perdure is missing on all ranks, and the store has %lu "
                          "pools; put it back",
                          size, directory.data(), pools(), whole.pools);
  }
  return each([&](LocalPool& pool) { return belongs_to(whole, pool); });
}

// Creates the pools if no rank has a complete one. If some ranks have one, the other pools must
// have a manifest of the same run: the run was killed before they were complete (D3).
Status Core::settle(std::string_view directory, const Options& options) noexcept {
  Manifest whole;  // of the complete pools
  for (const LocalPool& pool : pools_) {
    if (!pool.is_complete()) continue;
    whole.run = std::max(whole.run, pool.manifest()->run);
    whole.pools = std::max(whole.pools, pool.manifest()->pools);
  }
  std::uint64_t words[] = {whole.run, whole.pools};
  if (Status s = comm_.reduce(words, std::size(words), MPI_MAX); !s.ok()) return s;
  whole = {.run = words[0], .pools = words[1]};
  const bool exists = whole.pools != 0;
  Status mine = fits(whole, directory, options.pool.mode);
  if (Status s = comm_.agree(std::move(mine)); !s.ok()) return s;
  if (!exists) {
    whole.run = RealPlatform::random();
    if (Status s = comm_.broadcast(&whole.run, sizeof(whole.run), 0); !s.ok()) return s;
  }
  Status made = each([&](LocalPool& pool) {
    if (exists) return pool.open_data(kinds_);
    return pool.create(directory, options.pool,
                       {.run = whole.run,
                        .pools = pools(),
                        .number = pool.number(),
                        .partition = static_cast<std::uint64_t>(partition_),
                        .kinds = kinds_.bytes ? Manifest::kBytes : Manifest::kIntegers});
  });
  if (Status s = agree(std::move(made)); !s.ok()) return s;
  return agree(
      each([](LocalPool& pool) { return pool.is_complete() ? Status() : pool.complete(); }));
}

Status Core::finish_rollback() noexcept {
  // All pools with a pending rollback have the same one.
  std::uint64_t version = 0;
  for (const LocalPool& pool : pools_) {
    const LocalPool::Rollback& found = pool.found_rollback();
    if (found.pending) version = std::max(version, found.version + 1);
  }
  if (Status s = comm_.reduce(&version, 1, MPI_MAX); !s.ok()) return s;
  const auto number = [](const LocalPool& pool) { return pool.found_rollback().number; };
  auto lowest = extreme(MPI_MIN, number), highest = extreme(MPI_MAX, number),
       finished = extreme(MPI_MAX, [&](const LocalPool& pool) {
         return number(pool) - (pool.found_rollback().pending ? 1 : 0);
       });
  for (auto* word : {&lowest, &highest, &finished}) {
    if (!*word) return std::move(word->error());
  }
  if (finished->word > lowest->word) {
    return Status::format(
        StatusCode::corruption,
        "rank-%05lu.perdure has finished a rollback that rank-%05lu.perdure has not recorded, so "
        "this pool is an older copy; put back the one that the store had, or restore all pools "
        "from one backup",
        finished->pool, lowest->pool);
  }
  rollbacks_ = lowest->word;
  if (lowest->word == highest->word) {
    return version == 0 ? Status() : carry_out_rollback(highest->word, version - 1);
  }
  // The pools that have recorded it discard it: the pool that has not shows that none has begun.
  return agree(each([](LocalPool& pool) {
    const LocalPool::Rollback& found = pool.found_rollback();
    return found.pending ? pool.end_rollback(found.number - 1) : Status();
  }));
}

Expected<Core::Extreme> Core::extreme(MPI_Op op, WordOf word_of) noexcept {
  std::uint64_t found = op == MPI_MIN ? ~std::uint64_t{0} : 0;
  for (const LocalPool& pool : pools_) {
    found = op == MPI_MIN ? std::min(found, word_of(pool)) : std::max(found, word_of(pool));
  }
  if (Status s = comm_.reduce(&found, 1, op); !s.ok()) return fail(std::move(s));
  std::uint64_t lowest = pools();
  for (const LocalPool& pool : pools_) {
    if (word_of(pool) == found) lowest = std::min(lowest, pool.number());
  }
  if (Status s = comm_.reduce(&lowest, 1, MPI_MIN); !s.ok()) return fail(std::move(s));
  return Extreme{.word = found, .pool = lowest};
}

Status Core::agree_on_versions(const Options& options) noexcept {
  auto first = extreme(MPI_MAX, [](const LocalPool& pool) { return pool.versions().first; });
  auto last = extreme(MPI_MIN, [](const LocalPool& pool) { return pool.versions().last; });
  if (!first) return std::move(first.error());
  if (!last) return std::move(last.error());
  range_ = {.first = first->word, .last = last->word};
  if (range_.last < range_.first) {
    return Status::format(StatusCode::corruption,
                          "the pools have no version in common: rank-%05lu.perdure begins with "
                          "%lu, and rank-%05lu.perdure ends with %lu; put back the pools that the "
                          "store had, or restore all pools from one backup",
                          first->pool, range_.first, last->pool, range_.last);
  }
  return agree(each([&](LocalPool& pool) {
    const Log log(options.pool.log, options.pool.log_context, pool.path());
    if (pool.versions().last > range_.last) {
      log.say(LogLevel::warning,
              "versions above %lu are taken back: rank-%05lu.perdure has none of them, because the "
              "run ended before all ranks had tagged",
              range_.last, last->pool);
    }
    if (pool.versions().first < range_.first) {
      log.say(LogLevel::info,
              "versions below %lu are forgotten: rank-%05lu.perdure had begun to trim them",
              range_.first, first->pool);
    }
    if (Status s = pool.forget_above(range_.last); !s.ok()) return s;
    return pool.forget_below(range_.first);
  }));
}

Status Core::finish_open(const Options& options) noexcept {
  merge_threads_ = options.merge_threads;
  auto neighbours = comm_.neighbours();
  if (!neighbours) return std::move(neighbours.error());
  neighbours_ = static_cast<std::uint64_t>(*neighbours);
  cores_ = RealPlatform::cores();
  if (options.resume == Resume::keep_writes) return {};
  return roll_back(range_.last);
}

// --- versions ---

Expected<Version> Core::tag() noexcept {
  if (Status s = usable(); !s.ok()) return fail(std::move(s));
  const Version version = range_.last + 1;
  Status agreed = agree(each([&](LocalPool& pool) {
    auto local = pool.data().tag();
    return local ? pool.name(version, *local) : std::move(local.error());
  }));
  if (agreed.ok()) {
    range_.last = version;
    return version;
  }
  // Nothing is taken back after an error of MPI: other ranks may have got the result, and continue.
  broken_ = comm_.lost() ||
            !agree(each([&](LocalPool& pool) { return pool.forget_above(version - 1); })).ok();
  return fail(std::move(agreed));
}

Status Core::carry_out_rollback(std::uint64_t number, Version version) noexcept {
  Status agreed = agree(each([&](LocalPool& pool) {
    if (Status s = pool.roll_back(version); !s.ok()) return s;
    return pool.end_rollback(number);
  }));
  broken_ = !agreed.ok();
  rollbacks_ = number;
  return agreed;
}

Status Core::roll_back(Version version) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  if (Status s = readable(version); !s.ok()) return s;
  const std::uint64_t number = rollbacks_ + 1;
  Status agreed =
      agree(each([&](LocalPool& pool) { return pool.begin_rollback(number, version); }));
  if (agreed.ok()) {
    agreed = carry_out_rollback(number, version);
    if (agreed.ok()) range_.last = version;
    return agreed;
  }
  broken_ = comm_.lost() ||
            !agree(each([&](LocalPool& pool) { return pool.end_rollback(rollbacks_); })).ok();
  return agreed;
}

Status Core::trim(Version version) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  if (Status s = readable(version); !s.ok()) return s;
  Status agreed = agree(each([&](LocalPool& pool) { return pool.forget_below(version); }));
  broken_ = !agreed.ok();
  if (!agreed.ok()) return agreed;
  range_.first = version;
  // The names decide. A power failure can bring back data that no name needs, until the next trim.
  return comm_.agree(each([&](LocalPool& pool) {
    auto done = pool.data().trim(pool.local(version));
    return done ? Status() : std::move(done.error());
  }));
}

Status Core::close() noexcept {
  if (closed_) return {};
  closed_ = true;
  Status mine;
  for (LocalPool& pool : pools_) {
    Status s = pool.close();
    if (mine.ok()) mine = std::move(s);
  }
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
std::uint64_t pools_of(const Core& core) noexcept { return core.pools(); }
int owner_of(const Core& core, const UntypedKey& key) noexcept { return core.owner(key); }
Expected<UntypedMap*> own_data(Core& core, const UntypedKey& key) noexcept {
  if (Status s = core.usable(); !s.ok()) return fail(std::move(s));
  const std::uint64_t pool = core.pool_of(key);
  const int owner = core.server(pool);
  if (owner == core.comm().rank()) [[likely]]
    return &core.own_pools()[core.place(pool)].data();
  return fail(Status::format(StatusCode::invalid_argument,
                             "rank %d owns the key, this is rank %d; write it there", owner,
                             core.comm().rank()));
}
VersionRange versions_of(const Core& core) noexcept { return core.versions(); }
Expected<Version> tag(Core& core) { return core.tag(); }
Status roll_back(Core& core, Version version) { return core.roll_back(version); }
Status trim(Core& core, Version version) { return core.trim(version); }
Status close(Core& core) { return core.close(); }

}  // namespace perdure::mpi::detail
