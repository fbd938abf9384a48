// The open of a distributed store.
#include <algorithm>

#include "mpi/carrier.h"
#include "mpi/core.h"
#include "util/log.h"

namespace perdure::mpi::detail {

namespace {

constexpr std::uint64_t kLeastMessage = 64;

// The store has complete pools, which `whole` describes. Returns ok if this is one of them.
Status belongs_to(const Manifest& whole, const LocalPool& pool) noexcept {
  if (!pool.manifest()) {
    return Status::format(
        StatusCode::not_found, "%s is missing or empty, but other pools exist; put it back%s",
        pool.path(), whole.copies ? ", or let Options::restore_lost take its copy" : "");
  }
  const Manifest& m = *pool.manifest();
  if (m.run == whole.run && m.pools == whole.pools && m.number == pool.number()) return {};
  return Status::format(StatusCode::invalid_argument,
                        "%s does not belong to the run of the other pools; put the right one back",
                        pool.path());
}

// The rank that has the copies of another one's pools: on the machine behind, in the same place as
// that one on its own. With one machine it is the rank behind.
std::uint64_t buddy(std::span<const std::uint64_t> machines, std::uint64_t rank) noexcept {
  const std::uint64_t ranks = machines.size();
  std::uint64_t next = 1;
  while (next < ranks && machines[(rank + next) % ranks] == machines[rank]) ++next;
  if (next >= ranks) return (rank + 1) % ranks;
  const std::uint64_t machine = machines[(rank + next) % ranks];
  const auto before = static_cast<std::uint64_t>(std::count(
      machines.begin(), machines.begin() + static_cast<std::ptrdiff_t>(rank), machines[rank]));
  const auto there =
      static_cast<std::uint64_t>(std::count(machines.begin(), machines.end(), machine));
  std::uint64_t place = before % there;
  for (std::uint64_t other = 0;; ++other) {
    if (machines[other] == machine && place-- == 0) return other;
  }
}

}  // namespace

Status Core::open(MPI_Comm comm, std::string_view directory, const Options& options,
                  Kinds kinds) noexcept {
  kinds_ = kinds;
  partition_ = options.partition;
  // Every rank must reach the first agreement, whatever its options are.
  const std::uint64_t message = std::clamp(options.max_message, kLeastMessage, 1_GiB);
  if (Status s = comm_.duplicate(comm, message); !s.ok()) return s;
  if (Status s = same_arguments(options); !s.ok()) return s;
  if (Status s = assign(directory); !s.ok()) return s;
  if (Status s = agree(look(directory, Role::pool, options)); !s.ok()) return s;
  if (Status s = settle(directory, options); !s.ok()) return s;
  if (Status s = choose_members(options); !s.ok()) return s;
  if (Status s = finish_rollback(); !s.ok()) return s;
  if (Status s = agree_on_versions(options); !s.ok()) return s;
  if (Status s = fill_missing(directory, options); !s.ok()) return s;
  if (Status s = finish_open(options); !s.ok()) return s;
  return options.route ? router_.start(*this, comm, message) : Status();
}

Status Core::same_arguments(const Options& options) noexcept {
  std::uint64_t low[] = {static_cast<std::uint64_t>(options.partition),
                         kinds_.bytes,
                         static_cast<std::uint64_t>(options.pool.mode),
                         static_cast<std::uint64_t>(options.resume),
                         options.max_message,
                         options.copies ? 1 + std::uint64_t{*options.copies} : 0,
                         options.restore_lost,
                         options.route ? 1U + Comm::threads_may_call() : 0U};
  std::uint64_t high[std::size(low)];
  std::copy(std::begin(low), std::end(low), high);
  // Each fits one message, because the ranks may have passed different limits.
  static_assert(sizeof(low) <= kLeastMessage);
  if (Status s = comm_.reduce(low, std::size(low), MPI_MIN); !s.ok()) return s;
  if (Status s = comm_.reduce(high, std::size(high), MPI_MAX); !s.ok()) return s;
  if (!std::equal(std::begin(low), std::end(low), high)) {
    return Status::format(
        StatusCode::invalid_argument,
        "the ranks open the store with different options; pass the same types, partition, mode, "
        "resume, max_message, route, copies and restore_lost, and the same level of threads to "
        "MPI_Init_thread, on all");
  }
  if (options.route && !Comm::threads_may_call()) {
    return Status::format(StatusCode::invalid_argument,
                          "Options::route needs MPI_THREAD_MULTIPLE: call MPI_Init_thread(&argc, "
                          "&argv, MPI_THREAD_MULTIPLE, &provided) in place of MPI_Init");
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

// Gives each pool a rank, and each copy. There are as many as the files say, or as many as ranks if
// these are more: then the last ones are to be created, or there are none. The pools go to the
// ranks in order, in even blocks.
Status Core::assign(std::string_view directory) noexcept {
  Array<std::uint64_t> pools, copies, machines;
  Status mine = LocalPool::list(directory, pools, copies);
  const auto ranks = static_cast<std::uint64_t>(comm_.size());
  std::uint64_t count = ranks;
  for (const auto* seen : {&pools, &copies}) {
    for (const std::uint64_t number : *seen) count = std::max(count, number + 1);
  }
  if (Status s = comm_.reduce(&count, 1, MPI_MAX); !s.ok()) return s;
  bool room = machines.reserve(ranks);
  for (Served& served : served_) room = room && served.places.reserve(count);
  if (mine.ok() && !room) mine = StatusCode::out_of_memory;
  if (Status s = comm_.agree(std::move(mine)); !s.ok()) return s;
  for (Served& served : served_) {
    for (std::uint64_t number = 0; number < count; ++number) (void)served.places.push_back({});
  }
  if (Status s = comm_.machines(machines.begin()); !s.ok()) return s;
  const std::span<const std::uint64_t> by_rank(machines.begin(), ranks);
  neighbours_ = static_cast<std::uint64_t>(
      std::count(by_rank.begin(), by_rank.end(), by_rank[static_cast<std::size_t>(comm_.rank())]));
  const auto buddy_of = [&](Role role, std::uint64_t pool) {
    return buddy(by_rank, static_cast<std::uint64_t>(server(role, pool)));
  };
  Status s = give_out(Role::pool, pools, [&](std::uint64_t pool) { return pool * ranks / count; });
  if (!s.ok()) return s;
  s = give_out(Role::copy, copies, [&](std::uint64_t pool) { return buddy_of(Role::pool, pool); });
  // A pool and its copy on one rank would be lost together. So one that is made goes elsewhere.
  for (std::uint64_t pool = 0; pool < count; ++pool) {
    Place& place = of(Role::pool).places[pool];
    const Place& copy = of(Role::copy).places[pool];
    if (place.rank != copy.rank || place.is_seen || !copy.is_seen) continue;
    place.rank = static_cast<int>(buddy_of(Role::copy, pool));
  }
  return s;
}

// Where the ranks do not share a file system, the preferred rank may not see the file. Then the
// lowest rank that sees it has the pool. If no rank sees it, the preferred one has.
Status Core::give_out(Role role, const Array<std::uint64_t>& seen,
                      FunctionRef<std::uint64_t(std::uint64_t)> preferred) noexcept {
  constexpr std::uint64_t kNone = ~std::uint64_t{0};
  const auto rank = static_cast<std::uint64_t>(comm_.rank());
  Array<Place>& places = of(role).places;
  Array<std::uint64_t> servers;
  Status room = servers.reserve(places.size()) ? Status() : StatusCode::out_of_memory;
  if (Status s = comm_.agree(std::move(room)); !s.ok()) return s;
  // 0: the preferred rank sees it; r + 1: rank r does.
  while (servers.size() < places.size()) (void)servers.push_back(kNone);
  for (const std::uint64_t pool : seen) servers[pool] = preferred(pool) == rank ? 0 : rank + 1;
  if (Status s = comm_.reduce(servers.begin(), servers.size(), MPI_MIN); !s.ok()) return s;
  for (std::uint64_t pool = 0; pool < places.size(); ++pool) {
    const bool elsewhere = servers[pool] != 0 && servers[pool] != kNone;
    places[pool] = {.rank = static_cast<int>(elsewhere ? servers[pool] - 1 : preferred(pool)),
                    .is_seen = servers[pool] != kNone};
  }
  return {};
}

Status Core::look(std::string_view directory, Role role, const Options& options) noexcept {
  Served& served = of(role);
  for (std::uint64_t number = 0; number < served.places.size(); ++number) {
    if (server(role, number) != comm_.rank()) continue;
    served.places[number].own = static_cast<std::uint32_t>(served.pools.size());
    if (!served.pools.push_back({})) return StatusCode::out_of_memory;
    Status met = served.pools.back().look(directory, role, number, options.pool);
    if (met.ok()) met = belongs(served.pools.back());
    if (!served.met.push_back(std::move(met))) return StatusCode::out_of_memory;
  }
  return {};
}

// ok unless this pool has a complete manifest that does not match its name and these options.
Status Core::belongs(const LocalPool& pool) const noexcept {
  if (!pool.is_complete()) return {};
  const Manifest& m = *pool.manifest();
  if (m.number != pool.number()) {
    return Status::format(StatusCode::invalid_argument,
                          "%s is the pool %s; give it this name again", pool.path(),
                          file_name(pool.role(), m.number).c_str());
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
  for (Served& served : served_) {
    while (served.places.size() > count) {
      const bool is_own = served.places.pop_back().rank == comm_.rank();
      if (!is_own || served.pools.empty()) continue;
      if (served.met.pop_back().ok()) {
        if (Status s = served.pools.back().close(); !s.ok()) return s;
      }
      served.pools.pop_back();
    }
  }
  return {};
}

// Of the complete pools, or copies: what they say of the store. `pools` is 0 if there are none.
Expected<Manifest> Core::describe(Role role) noexcept {
  std::uint64_t words[3] = {};
  for (const LocalPool& pool : of(role).pools) {
    if (!pool.is_complete()) continue;
    const Manifest& m = *pool.manifest();
    const std::uint64_t own[] = {m.run, m.pools, m.copies};
    for (std::size_t i = 0; i < std::size(words); ++i) words[i] = std::max(words[i], own[i]);
  }
  if (Status s = comm_.reduce(words, std::size(words), MPI_MAX); !s.ok()) return fail(std::move(s));
  return Manifest{.run = words[0],
                  .pools = words[1],
                  .partition = static_cast<std::uint64_t>(partition_),
                  .kinds = kinds_.bytes ? Manifest::kBytes : Manifest::kIntegers,
                  .copies = words[2] != 0};
}

// Returns ok if the store is there and whole, or may be created. Closes the pools that are none of
// it, and decides which take part.
Status Core::fits(std::string_view directory, const Options& options) noexcept {
  const bool exists = whole_.pools != 0;
  if (exists) {
    if (Status s = keep_pools(whole_.pools); !s.ok()) return s;
  }
  const auto or_else = [](const Status& met, const char* what) {
    return Status::format(met.code(), "%.*s; or %s", static_cast<int>(met.message().size()),
                          met.message().data(), what);
  };
  constexpr const char* kLost =
      "remove it, if it is lost, and let Options::restore_lost take its copy";
  constexpr const char* kCopy = "remove this copy: it is made again from its pool";
  for (Status& met : of(Role::pool).met) {
    if (met.ok()) continue;
    const bool is_damaged = met != StatusCode::invalid_argument;  // rather than of other options
    return whole_.copies && is_damaged ? or_else(met, kLost) : std::move(met);
  }
  for (const Status& met : of(Role::copy).met) {
    if (!met.ok()) return or_else(met, kCopy);
  }
  const auto size = static_cast<int>(directory.size());
  if (!exists) {
    // Copies that were left over make no pools.
    auto count = static_cast<std::uint64_t>(comm_.size());
    for (std::uint64_t pool = 0; pool < pools(); ++pool) {
      if (of(Role::pool).places[pool].is_seen) count = std::max(count, pool + 1);
    }
    if (Status s = keep_pools(count); !s.ok()) return s;
    if (options.pool.mode != OpenMode::existing) return {};
    return Status::format(StatusCode::not_found,
                          "%.*s: there is no store; name its directory, or let open create one",
                          size, directory.data());
  }
  if (options.pool.mode == OpenMode::create_new) {
    return Status::format(StatusCode::exists,
                          "%.*s: there is a store; choose another directory, or open it", size,
                          directory.data());
  }
  if (pools() < whole_.pools) {
    return Status::format(StatusCode::not_found,
                          "%.*s/%s is missing on all ranks, and the store has %lu pools; put it "
                          "back",
                          size, directory.data(), file_name(Role::pool, pools()).c_str(),
                          whole_.pools);
  }
  for (LocalPool& pool : of(Role::pool).pools) {
    if (!pool.manifest() && options.restore_lost) continue;
    if (Status s = belongs_to(whole_, pool); !s.ok()) return s;
    pool.set_part(true);
  }
  for (LocalPool& copy : of(Role::copy).pools) {
    if (!copy.is_complete()) continue;
    if (Status s = belongs_to(whole_, copy); !s.ok()) return or_else(s, kCopy);
    copy.set_part(true);
  }
  return {};
}

// Creates the pools if no rank has a complete one. If some ranks have one, the other pools must
// have a manifest of the same run: the run was killed before they were complete (D3).
Status Core::settle(std::string_view directory, const Options& options) noexcept {
  auto found = describe(Role::pool);
  if (!found) return std::move(found.error());
  const bool wants = options.copies.value_or(false) || options.restore_lost;
  if (found->pools == 0 || found->copies || wants) {
    if (Status s = agree(look(directory, Role::copy, options)); !s.ok()) return s;
    auto copies = describe(Role::copy);
    if (!copies) return std::move(copies.error());
    // All pools are lost, unless the store had stopped to keep copies.
    if (found->pools == 0 && copies->copies) found = std::move(copies);
  }
  whole_ = *found;
  if (Status s = comm_.agree(fits(directory, options)); !s.ok()) return s;
  const bool exists = whole_.pools != 0;
  if (!exists) {
    whole_.pools = pools();
    whole_.run = RealPlatform::random();
    if (Status s = comm_.broadcast(&whole_.run, sizeof(whole_.run), 0); !s.ok()) return s;
    for (LocalPool& pool : of(Role::pool).pools) pool.set_part(true);
  }
  keeps_copies_ = whole_.copies;
  Status made = each([&](LocalPool& pool) {
    return exists ? pool.open_data(kinds_)
                  : pool.create(directory, options.pool, manifest_of(pool.number(), false));
  });
  if (Status s = agree(std::move(made)); !s.ok()) return s;
  return agree(
      each([](LocalPool& pool) { return pool.is_complete() ? Status() : pool.complete(); }));
}

Manifest Core::manifest_of(std::uint64_t number, bool complete) const noexcept {
  Manifest manifest = whole_;
  manifest.number = number;
  manifest.complete = complete;
  return manifest;
}

// Which files take part. A copy that is older is made again. A pool that is older than another file
// is refused: what it lacks may be nowhere else.
Status Core::choose_members(const Options& options) noexcept {
  constexpr unsigned kRandomBits = 24;
  least_number_ = RealPlatform::unix_ns() / 1'000'000'000 << kRandomBits;
  salt_ = RealPlatform::random() >> (64 - kRandomBits);
  for (std::uint64_t* word : {&least_number_, &salt_}) {
    if (Status s = comm_.broadcast(word, sizeof(*word), 0); !s.ok()) return s;
  }
  auto last =
      extreme(MPI_MAX, [](const LocalPool& pool) { return pool.found_rollback().finished(); });
  if (!last) return std::move(last.error());
  rollback_ = last->word;
  const bool copies = keeps_copies_ || options.copies.value_or(false) || options.restore_lost;
  Status mine = each([&](LocalPool& pool) {
    if (pool.found_rollback().has(rollback_)) return Status();
    if (pool.role() == Role::copy) {
      pool.set_part(false);
      return Status();
    }
    return Status::format(
        StatusCode::corruption,
        "%s is older than %s, which has finished a rollback, or a change of the files that take "
        "part, that this one has not recorded; put back the one that the store had, or restore "
        "all pools from one backup%s",
        pool.path(), last->name.c_str(),
        copies ? ", and remove the copies; or remove this one and let Options::restore_lost take "
                 "its copy"
               : "");
  });
  if (Status s = comm_.agree(std::move(mine)); !s.ok()) return s;
  if (Status s = look_who_is_there(); !s.ok()) return s;
  for (std::uint64_t pool = 0; pool < pools(); ++pool) {
    if (is_there(Role::pool, pool) || is_there(Role::copy, pool)) continue;
    return Status::format(StatusCode::not_found,
                          "%s is missing, and %s is, too, or is older than the store; put one of "
                          "them back",
                          file_name(Role::pool, pool).c_str(), file_name(Role::copy, pool).c_str());
  }
  return {};
}

Status Core::look_who_is_there() noexcept {
  there_.clear();
  Status room = there_.reserve(2 * pools()) ? Status() : StatusCode::out_of_memory;
  if (Status s = comm_.agree(std::move(room)); !s.ok()) return s;
  while (there_.size() < 2 * pools()) (void)there_.push_back(kAway);
  (void)each([&](const LocalPool& pool) {
    const bool has_last = pool.versions().last >= range_.last;
    there_[index_of(pool.role(), pool.number())] = has_last ? kInStep : kBehind;
    return Status();
  });
  return comm_.reduce(there_.begin(), there_.size(), MPI_MAX);
}

Status Core::finish_rollback() noexcept {
  // What is pending, plus 1: the one that some have finished, and another one behind it.
  std::uint64_t begun = 0, next = 0;
  std::uint64_t least = ~std::uint64_t{0}, most = 0;  // number of the other one, where it decides
  (void)each([&](const LocalPool& pool) {
    const LocalPool::Rollback& found = pool.found_rollback();
    const bool is_next = found.pending && found.number != rollback_;
    if (found.pending && !is_next) begun = found.version + 1;
    if (!decides(pool)) return Status();
    if (is_next) next = found.version + 1;
    least = std::min(least, is_next ? found.number : 0);
    most = std::max(most, is_next ? found.number : 0);
    return Status();
  });
  std::uint64_t highest[] = {begun, next, most};
  if (Status s = comm_.reduce(&least, 1, MPI_MIN); !s.ok()) return s;
  if (Status s = comm_.reduce(highest, std::size(highest), MPI_MAX); !s.ok()) return s;
  const auto carry_out = [this](std::uint64_t number, Version version) {
    for (LocalPool& copy : of(Role::copy).pools) {
      const bool lacks = version != kMembers && !decides(copy) && !copy.has_version(version);
      if (lacks) copy.set_part(false);  // it is not the one that the store had
    }
    return carry_out_rollback(number, version);
  };
  if (highest[0] != 0) return carry_out(rollback_, highest[0] - 1);
  if (least == highest[2] && least != 0) return carry_out(least, highest[1] - 1);
  // The pools that have recorded it discard it: the pool that has not shows that none has begun.
  return agree(each([this](LocalPool& pool) {
    return pool.found_rollback().pending ? pool.end_rollback(rollback_) : Status();
  }));
}

Expected<Core::Extreme> Core::extreme(MPI_Op op, WordOf word_of) noexcept {
  std::uint64_t found = op == MPI_MIN ? ~std::uint64_t{0} : 0;
  (void)each([&](const LocalPool& pool) {
    found = op == MPI_MIN ? std::min(found, word_of(pool)) : std::max(found, word_of(pool));
    return Status();
  });
  if (Status s = comm_.reduce(&found, 1, op); !s.ok()) return fail(std::move(s));
  std::uint64_t first = 2 * pools();  // pools by number, then copies
  (void)each([&](const LocalPool& pool) {
    if (word_of(pool) != found) return Status();
    first = std::min(first, index_of(pool.role(), pool.number()));
    return Status();
  });
  if (Status s = comm_.reduce(&first, 1, MPI_MIN); !s.ok()) return fail(std::move(s));
  const Role role = first < pools() ? Role::pool : Role::copy;
  const std::uint64_t number = first - (role == Role::copy ? pools() : 0);
  return Extreme{.word = found, .role = role, .name = file_name(role, number)};
}

Status Core::agree_on_versions(const Options& options) noexcept {
  const auto last_of = [](const LocalPool& pool) { return pool.versions().last; };
  auto last = extreme(MPI_MIN, [&](const LocalPool& pool) {
    return decides(pool) ? last_of(pool) : ~std::uint64_t{0};
  });
  auto most = extreme(MPI_MAX, last_of);
  if (!last) return std::move(last.error());
  if (!most) return std::move(most.error());
  range_.last = last->word;
  const bool by_copies = keeps_copies_ || last->role == Role::copy;
  if (by_copies && last->word + 1 < most->word) {
    return Status::format(StatusCode::corruption,
                          "%s ends with version %lu, and %s with %lu, so it is an older one; "
                          "remove it and let Options::restore_lost take its copy, or put back the "
                          "one that the store had. If all pools come from one backup, remove the "
                          "copies",
                          last->name.c_str(), last->word, most->name.c_str(), most->word);
  }
  // A copy that is further behind is not the one that the store had.
  for (LocalPool& copy : of(Role::copy).pools) {
    if (copy.takes_part() && last_of(copy) + 1 < range_.last) copy.set_part(false);
  }
  auto first = extreme(MPI_MAX, [](const LocalPool& pool) { return pool.versions().first; });
  if (!first) return std::move(first.error());
  range_.first = first->word;
  if (range_.last < range_.first) {
    return Status::format(StatusCode::corruption,
                          "the pools have no version in common: %s begins with %lu, and %s ends "
                          "with %lu; put back the pools that the store had, or restore all pools "
                          "from one backup",
                          first->name.c_str(), range_.first, last->name.c_str(), range_.last);
  }
  return agree(each([&](LocalPool& pool) {
    const Log log(options.pool.log, options.pool.log_context, pool.path());
    if (pool.versions().last > range_.last) {
      log.say(LogLevel::warning,
              "versions above %lu are taken back: %s has none of them, because the run ended "
              "before all ranks had tagged",
              range_.last, last->name.c_str());
    }
    if (pool.versions().first < range_.first) {
      log.say(LogLevel::info, "versions below %lu are forgotten: %s had begun to trim them",
              range_.first, first->name.c_str());
    }
    const Version kept = std::min(range_.last, pool.versions().last);
    if (kept < range_.first) {
      pool.set_part(false);  // a copy
      return Status();
    }
    if (Status s = pool.take_back(kept); !s.ok()) return s;
    return pool.forget_below(range_.first);
  }));
}

Status Core::fill_missing(std::string_view directory, const Options& options) noexcept {
  const bool wants = options.copies.value_or(keeps_copies_);
  if (!wants) {
    for (LocalPool& copy : of(Role::copy).pools) {
      if (!decides(copy)) copy.set_part(false);
    }
  }
  if (Status s = look_who_is_there(); !s.ok()) return s;
  if (Status s = catch_up(); !s.ok()) return s;
  bool needed = false;
  for (std::uint64_t pool = 0; pool < pools(); ++pool) {
    needed |= !is_there(Role::pool, pool) || (wants && !is_there(Role::copy, pool));
  }
  if (needed) {
    if (Status s = fill(directory, options, wants); !s.ok()) return s;
    if (Status s = look_who_is_there(); !s.ok()) return s;
  }
  // A run that was killed may have left files that say otherwise.
  std::uint64_t differs = keeps_copies_ != wants ? 1 : 0;
  (void)each([&](const LocalPool& pool) {
    differs |= pool.manifest()->copies != wants ? 1 : 0;
    return Status();
  });
  if (Status s = comm_.reduce(&differs, 1, MPI_MAX); !s.ok()) return s;
  return differs != 0 ? keep_copies(wants) : close_copies(wants);
}

// A copy that lacks the last version, because the run was killed while it was sent, gets it.
Status Core::catch_up() noexcept {
  const bool behind = std::find(there_.begin(), there_.end(), kBehind) != there_.end();
  return behind ? send_version(range_.last, kBehind, {}) : Status();
}

// Makes the files that do not take part, and `copies` of pools only if they are wanted.
Status Core::fill(std::string_view directory, const Options& options, bool copies) noexcept {
  const auto for_each_target = [&](auto&& step) {
    Status s;
    for (Served& served : served_) {
      for (LocalPool& target : served.pools) {
        const bool wanted = target.role() == Role::pool || copies;
        if (s.ok() && wanted && !is_there(target.role(), target.number())) s = step(target);
      }
    }
    return s;
  };
  const auto other = [](const LocalPool& pool) {
    return pool.role() == Role::pool ? Role::copy : Role::pool;
  };
  Status begun = for_each_target([&](LocalPool& target) {
    const Log log(options.pool.log, options.pool.log_context, target.path());
    const bool is_pool = target.role() == Role::pool;
    log.say(is_pool ? LogLevel::warning : LogLevel::info,
            "it is made from %s, with versions %lu to %lu%s",
            file_name(other(target), target.number()).c_str(), range_.first, range_.last,
            is_pool ? "; what was written after them is lost" : "");
    return target.begin_fill(directory, options.pool, kinds_);
  });
  Carrier carrier(*this, range_, true);
  Status added = each([&](LocalPool& source) {
    const bool wanted = other(source) == Role::pool || copies;
    if (!wanted || is_there(other(source), source.number())) return Status();
    return carrier.add(source, other(source)) ? Status() : StatusCode::out_of_memory;
  });
  if (begun.ok()) begun = std::move(added);
  if (Status s = carrier.run(std::move(begun)); !s.ok()) return s;
  if (Status s = record_and_roll_back(kMembers); !s.ok()) return s;
  // Before a copy is whole: one that the pools do not know of would never become older.
  if (copies && !keeps_copies_) {
    Status told = agree(each([](LocalPool& pool) { return pool.set_copies(true); }));
    if (!told.ok()) return told;
  }
  whole_.copies = copies || keeps_copies_;
  return agree(for_each_target([&](LocalPool& target) {
    target.set_part(true);
    return target.end_fill(manifest_of(target.number(), true), rollback_);
  }));
}

// What the files say of that. Copies that are given up are older than the pools from here on.
Status Core::keep_copies(bool keeps) noexcept {
  if (!keeps) {
    Status told;
    for (LocalPool& copy : of(Role::copy).pools) {
      if (told.ok() && copy.is_complete()) told = copy.set_copies(false);
      copy.set_part(false);
    }
    if (Status s = agree(std::move(told)); !s.ok()) return s;
    if (Status s = record_and_roll_back(kMembers); !s.ok()) return s;
  }
  Status set = agree(each([&](LocalPool& pool) { return pool.set_copies(keeps); }));
  return set.ok() ? close_copies(keeps) : std::move(set);
}

Status Core::close_copies(bool keeps) noexcept {
  keeps_copies_ = keeps;
  if (keeps) return {};
  Status closed;
  for (LocalPool& copy : of(Role::copy).pools) {
    Status s = copy.close();
    if (closed.ok()) closed = std::move(s);
  }
  of(Role::copy).pools.clear();
  return comm_.agree(std::move(closed));
}

Status Core::finish_open(const Options& options) noexcept {
  merge_threads_ = options.merge_threads;
  cores_ = RealPlatform::cores();
  if (options.resume == Resume::keep_writes) return {};
  return roll_back(range_.last);
}

}  // namespace perdure::mpi::detail
