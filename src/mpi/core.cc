#include "mpi/core.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "mpi/carrier.h"
#include "platform/real_platform.h"
#include "util/hash.h"

namespace perdure::mpi::detail {

namespace {

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
  if (!broken_ && !comm_.lost() && !router_.lost()) [[likely]]
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
  for (Served& served : served_) {
    for (LocalPool& pool : served.pools) {
      Status s = pool.make_durable();
      if (first.ok()) first = std::move(s);
    }
  }
  return first;
}

Status Core::agree(Status mine) noexcept {
  if (mine.ok()) mine = make_durable();
  return comm_.agree(std::move(mine));
}

// --- versions ---

Expected<Version> Core::tag() noexcept {
  if (Status s = usable(); !s.ok()) return fail(std::move(s));
  const Version version = range_.last + 1;
  Status closed = each([&](LocalPool& pool) {
    return pool.role() == Role::pool ? pool.close_version(version) : Status();
  });
  Status agreed =
      keeps_copies_ ? send_version(version, kInStep, std::move(closed)) : agree(std::move(closed));
  if (agreed.ok()) {
    range_.last = version;
    return version;
  }
  // Nothing is taken back after an error of MPI: other ranks may have got the result, and continue.
  broken_ = comm_.lost() ||
            !agree(each([&](LocalPool& pool) { return pool.take_back(version - 1); })).ok();
  return fail(std::move(agreed));
}

// What the pools have closed goes to their copies; if `most_there` is kBehind, only to those.
Status Core::send_version(Version version, std::uint64_t most_there, Status mine) noexcept {
  Carrier carrier(*this, {.first = version, .last = version}, false);
  for (LocalPool& pool : own_pools()) {
    const std::uint64_t there = there_[index_of(Role::copy, pool.number())];
    if (!pool.takes_part() || there == kAway || there > most_there) continue;
    if (mine.ok() && !carrier.add(pool, Role::copy)) mine = StatusCode::out_of_memory;
  }
  return carrier.run(std::move(mine));
}

Status Core::carry_out_rollback(std::uint64_t number, Version version) noexcept {
  Status agreed = agree(each([&](LocalPool& pool) {
    if (Status s = version == kMembers ? Status() : pool.roll_back(version); !s.ok()) return s;
    return pool.end_rollback(number);
  }));
  broken_ = !agreed.ok();
  rollback_ = number;
  return agreed;
}

Status Core::roll_back(Version version) noexcept {
  if (Status s = usable(); !s.ok()) return s;
  if (Status s = readable(version); !s.ok()) return s;
  Status agreed = record_and_roll_back(version);
  if (agreed.ok()) range_.last = version;
  return agreed;
}

Status Core::record_and_roll_back(Version version) noexcept {
  const std::uint64_t number = std::max(rollback_, least_number_) + 1 + salt_;
  Status agreed =
      agree(each([&](LocalPool& pool) { return pool.begin_rollback(rollback_, number, version); }));
  if (agreed.ok()) return carry_out_rollback(number, version);
  broken_ = comm_.lost() ||
            !agree(each([&](LocalPool& pool) { return pool.end_rollback(rollback_); })).ok();
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
  router_.stop();  // until then other ranks may ask this one
  closed_ = true;
  Status mine;
  for (Served& served : served_) {
    for (LocalPool& pool : served.pools) {
      Status s = pool.close();
      if (mine.ok()) mine = std::move(s);
    }
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
  return fail(
      Status::format(StatusCode::invalid_argument,
                     "rank %d owns the key, this is rank %d; call it there, or open the store "
                     "with Options::route",
                     owner, core.comm().rank()));
}
VersionRange versions_of(const Core& core) noexcept { return core.versions(); }
Expected<Version> tag(Core& core) {
  if (Status s = core.router().meet(); !s.ok()) return fail(std::move(s));
  return core.tag();
}
Status roll_back(Core& core, Version version) { return core.roll_back(version); }
Status trim(Core& core, Version version) {
  Status met = core.router().meet();
  return met.ok() ? core.trim(version) : std::move(met);
}
Status close(Core& core) { return core.close(); }

}  // namespace perdure::mpi::detail
