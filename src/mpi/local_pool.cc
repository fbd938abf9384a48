#include "mpi/local_pool.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "platform/file_system.h"

namespace perdure::mpi::detail {

namespace {

// A file with a greater number is none of a store. It bounds the memory of an open: 5 KiB a number.
constexpr std::uint64_t kMostPools = 1 << 14;
// By role. A pool has been named for a rank since a store had as many pools as ranks.
constexpr std::string_view kNamed[] = {"rank-", "copy-"};
constexpr std::string_view kData = "data", kNames = "mpi.versions", kFields = "mpi.manifest";

Status bad_path() noexcept {
  return Status::format(StatusCode::invalid_argument,
                        "the path of the directory is too long or contains a NUL");
}

MapTypes spec_of(Kinds kinds) noexcept {
  return kinds.bytes ? map_types<std::string_view, std::string_view>()
                     : map_types<std::uint64_t, std::uint64_t>();
}

Status corrupt(const char* path, const char* what) noexcept {
  return Status::format(StatusCode::corruption, "%s: %s; restore it from a backup", path, what);
}

Status broken(const char* path, const char* id, const char* what) noexcept {
  return Status::format(StatusCode::corruption, "%s: %s (%s); restore it from a backup", path, what,
                        id);
}

// Returns whether it has made it.
Expected<bool> make_directory(std::string_view directory) noexcept {
  PathText folder;
  if (!folder.assign(directory)) return fail(StatusCode::invalid_argument);
  if (mkdir(folder.c_str(), 0777) == 0) return true;
  if (errno == EEXIST) return false;
  return fail(Status::format(StatusCode::io, "%s: %s", folder.c_str(), std::strerror(errno)));
}

// The name of a directory survives a power failure as its pools do.
Status sync_name_of(std::string_view directory) noexcept {
  PathText parent;
  if (!parent.assign(directory, "/..")) return StatusCode::invalid_argument;
  return RealFileSystem().sync_folder(parent.c_str(), kNoSite);
}

bool same_kinds(const MapInfo& a, const MapTypes& b) noexcept {
  return a.key_kind == b.key_kind && a.value_kind == b.value_kind;
}

// The number in a file's name, if it is that of a pool or a copy.
std::optional<std::uint64_t> number_of(Role role, std::string_view name) noexcept {
  const char* digits = name.data() + kNamed[static_cast<std::size_t>(role)].size();
  if (!name.starts_with(kNamed[static_cast<std::size_t>(role)])) return std::nullopt;
  const std::uint64_t number = std::strtoull(digits, nullptr, 10);
  if (number >= kMostPools || file_name(role, number) != name) return std::nullopt;
  return number;
}

}  // namespace

Text<32> file_name(Role role, std::uint64_t number) noexcept {
  char name[32];
  std::snprintf(name, sizeof(name), "%s%05lu.perdure",
                kNamed[static_cast<std::size_t>(role)].data(), number);
  return std::string_view(name);
}

Status LocalPool::list(std::string_view directory, Array<std::uint64_t>& pools,
                       Array<std::uint64_t>& copies) noexcept {
  PathText folder;
  if (!folder.assign(directory)) return bad_path();
  DIR* const files = opendir(folder.c_str());
  if (files == nullptr) {
    if (errno == ENOENT || errno == ENOTDIR) return {};
    return Status::format(StatusCode::io, "%s: %s", folder.c_str(), std::strerror(errno));
  }
  Status status;
  const auto next = [&] {
    errno = 0;
    return status.ok() ? readdir(files) : nullptr;
  };
  while (const dirent* file = next()) {
    const auto pool = number_of(Role::pool, file->d_name);
    const auto copy = number_of(Role::copy, file->d_name);
    if (pool && !pools.push_back(*pool)) status = StatusCode::out_of_memory;
    if (copy && !copies.push_back(*copy)) status = StatusCode::out_of_memory;
  }
  if (status.ok() && errno != 0) {
    status = Status::format(StatusCode::io, "%s: %s", folder.c_str(), std::strerror(errno));
  }
  closedir(files);
  return status;
}

Status LocalPool::look(std::string_view directory, Role role, std::uint64_t number,
                       const PoolOptions& options) noexcept {
  role_ = role;
  number_ = number;
  PathText folder;
  if (!folder.assign(directory, "/") || !path_.assign(folder.c_str(), file_name(role, number))) {
    return bad_path();
  }
  struct stat file;
  if (stat(path(), &file) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return {};
    return Status::format(StatusCode::io, "%s: %s", path(), std::strerror(errno));
  }
  PoolOptions existing = options;
  existing.mode = OpenMode::existing;
  auto pool = Pool::open(path(), existing);
  if (!pool) return std::move(pool.error());
  take(std::move(*pool));
  return read_manifest();
}

// `power` has no cuts, and returns 0. The other modes return `unsupported`.
void LocalPool::take(Pool pool) noexcept {
  pool_.emplace(std::move(pool));
  const auto cut = pool_->epoch();
  cuts_ = cut ? *cut != 0 : cut.error() != StatusCode::unsupported;
}

Status LocalPool::make_durable() noexcept {
  if (!cuts_) return {};
  auto cut = pool_->epoch();
  return cut ? pool_->wait_durable(*cut) : std::move(cut.error());
}

Status LocalPool::read_manifest() noexcept {
  auto fields = pool_->map<std::uint64_t, std::uint64_t>(kFields, {.mode = OpenMode::existing});
  if (!fields) {
    if (fields.error() != StatusCode::not_found) return std::move(fields.error());
    auto maps = pool_->list();
    if (!maps) return std::move(maps.error());
    if (maps->empty()) return {};
    return Status::format(StatusCode::invalid_argument,
                          "%s is not a pool of a distributed store; choose another directory",
                          path());
  }
  fields_.emplace(std::move(*fields));
  Manifest m;
  std::uint64_t format = 0, complete = 0, copies = 0;
  const std::pair<Field, std::uint64_t*> wanted[] = {
      {kRun, &m.run},     {kPools, &m.pools}, {kNumber, &m.number}, {kPartition, &m.partition},
      {kKinds, &m.kinds}, {kFormat, &format}};
  for (const auto& [field, word] : wanted) {
    auto value = fields_->get(field);
    if (!value) return std::move(value.error());
    if (!*value) return {};  // the run was killed while it wrote this; it is written again
    *word = **value;
  }
  if (format != kFormatVersion) {
    return Status::format(StatusCode::unsupported_format,
                          "%s: its manifest has format %lu; use the release that wrote it", path(),
                          format);
  }
  for (const auto& [field, word] : {std::pair{kComplete, &complete}, {kCopies, &copies}}) {
    auto value = fields_->get(field);
    if (!value) return std::move(value.error());
    *word = value->value_or(0);
  }
  m.copies = copies != 0;
  m.complete = complete != 0;
  if (m.complete && m.number >= m.pools) return corrupt(path(), "its manifest has no such pool");
  manifest_ = m;
  return {};
}

Status LocalPool::make_file(std::string_view directory, const PoolOptions& options) noexcept {
  if (pool_) return {};
  const auto made = make_directory(directory);
  if (!made) return Status(made.error());
  PoolOptions fresh = options;
  fresh.mode = OpenMode::create_new;
  auto pool = Pool::open(path(), fresh);
  if (!pool) return std::move(pool.error());
  take(std::move(*pool));
  if (*made) {
    Status synced = sync_name_of(directory);
    if (!synced.ok() && cuts_) return synced;
  }
  return {};
}

Status LocalPool::drop_versions() noexcept {
  names_.reset();
  data_.reset();
  for (const std::string_view left : {kData, kNames}) {
    if (Status s = pool_->drop(left); !s.ok() && s != StatusCode::not_found) return s;
  }
  return {};
}

Status LocalPool::make_fields() noexcept {
  auto fields = pool_->map<std::uint64_t, std::uint64_t>(kFields);
  if (!fields) return std::move(fields.error());
  fields_.emplace(std::move(*fields));
  return {};
}

// Without its run it is none. So that comes last. All fields have their space from here on.
Status LocalPool::put(const Manifest& manifest, std::uint64_t rollback) noexcept {
  const std::pair<Field, std::uint64_t> all[] = {
      {kRollbackBefore, 0},           {kRollbackVersion, 0},      {kRollback, 2 * rollback},
      {kPools, manifest.pools},       {kNumber, manifest.number}, {kCopies, manifest.copies},
      {kComplete, manifest.complete}, {kKinds, manifest.kinds},   {kPartition, manifest.partition},
      {kFormat, kFormatVersion},      {kRun, manifest.run}};
  for (const auto& [field, word] : all) {
    if (Status s = put(field, word); !s.ok()) return s;
  }
  manifest_ = manifest;
  return {};
}

Status LocalPool::create(std::string_view directory, const PoolOptions& options,
                         const Manifest& manifest) noexcept {
  if (Status s = make_file(directory, options); !s.ok()) return s;
  // A run that was killed while it created these maps left them without data, perhaps with other
  // types.
  if (Status s = drop_versions(); !s.ok()) return s;
  if (Status s = make_fields(); !s.ok()) return s;
  if (Status s = put(manifest, 0); !s.ok()) return s;
  if (Status s = open_data({manifest.kinds == Manifest::kBytes}); !s.ok()) return s;
  return close_version(0);
}

Status LocalPool::begin_fill(std::string_view directory, const PoolOptions& options,
                             Kinds kinds) noexcept {
  if (Status s = make_file(directory, options); !s.ok()) return s;
  if (Status s = make_fields(); !s.ok()) return s;
  if (auto done = fields_->erase(kRun); !done.ok()) return std::move(done).status();
  manifest_.reset();
  if (Status s = drop_versions(); !s.ok()) return s;
  return open_versions(kinds, OpenMode::open_or_create);
}

Status LocalPool::set_copies(bool on) noexcept {
  if (Status s = put(kCopies, on ? 1 : 0); !s.ok()) return s;
  if (manifest_) manifest_->copies = on;
  return {};
}

Status LocalPool::open_data(Kinds kinds) noexcept {
  const OpenMode mode = manifest_->complete ? OpenMode::existing : OpenMode::open_or_create;
  if (Status s = open_versions(kinds, mode); !s.ok()) return s;
  return read_rollback();
}

Status LocalPool::open_versions(Kinds kinds, OpenMode mode) noexcept {
  const bool create = mode != OpenMode::existing;
  auto names = pool_->ordered_map<std::uint64_t, std::uint64_t>(kNames, {.mode = mode});
  if (!names) return std::move(names.error());
  names_.emplace(std::move(*names));
  const MapTypes spec = spec_of(kinds);
  auto data = pool_->untyped_map(kData, {.engine = Engine::pskiplist, .mode = mode},
                                 create ? std::optional(spec) : std::nullopt);
  if (!data) return std::move(data.error());
  if (!data->versioned() || !same_kinds(data->info(), spec)) {
    return corrupt(path(), "map `data` does not have the types of the manifest");
  }
  data_.emplace(std::move(*data));
  return read_versions();
}

// Verifies what it reads. Otherwise a version that cannot be read would fail only when it is used.
Status LocalPool::read_versions() noexcept {
  local_ = {};
  range_ = {.first = 1, .last = 0};
  auto readable = data().versions();
  if (!readable) return std::move(readable.error());
  Status status;
  Version before = 0;
  auto done = names_->scan({}, [&](std::uint64_t version, std::uint64_t local) {
    const bool first = local_.empty();
    if (first) base_ = range_.first = version;
    if (!first && version != range_.last + 1) {
      status = broken(path(), "mpi.L1", "map `mpi.versions` has a gap");
    } else if ((!first && local <= before) || local < readable->first || local > readable->last) {
      status = broken(path(), "mpi.L2", "map `mpi.versions` names a version that is not there");
    } else if (!local_.push_back(local)) {
      status = StatusCode::out_of_memory;
    }
    range_.last = version;
    before = local;
    return status.ok();
  });
  if (!done) return std::move(done.error());
  if (!status.ok()) return status;
  if (local_.empty() && is_complete()) return corrupt(path(), "it has no version");
  return {};
}

Version LocalPool::containing(Version local) const noexcept {
  const Version* first = local_.begin() + (range_.first - base_);
  const Version* end = local_.begin() + (range_.last + 1 - base_);
  return range_.first + static_cast<Version>(std::lower_bound(first, end, local) - first);
}

Status LocalPool::put(Field field, std::uint64_t value) noexcept {
  return fields_->put(field, value).status();
}

// Takes the place in DRAM first, because nothing may fail after the store.
Status LocalPool::name(Version version, Version local) noexcept {
  if (range_.last < range_.first) {
    local_ = {};
    base_ = range_.first = version;
  }
  const Version place = version - base_;
  if (place < local_.size()) {
    local_[place] = local;
  } else if (!local_.push_back(local)) {
    return StatusCode::out_of_memory;
  }
  range_.last = version;  // also if the store fails; see the header
  return names_->put(version, local).status();
}

Status LocalPool::close_version(Version version) noexcept {
  auto local = data().tag();
  return local ? name(version, *local) : std::move(local.error());
}

Status LocalPool::forget_above(Version version) noexcept {
  while (range_.last > version) {
    if (auto done = names_->erase(range_.last); !done.ok()) return done.status();
    --range_.last;
  }
  return {};
}

Status LocalPool::forget_below(Version version) noexcept {
  while (range_.first < version) {
    if (auto done = names_->erase(range_.first); !done.ok()) return done.status();
    ++range_.first;
  }
  return {};
}

Status LocalPool::read_rollback() noexcept {
  auto state = fields_->get(kRollback);
  if (!state) return std::move(state.error());
  auto version = fields_->get(kRollbackVersion);
  if (!version) return std::move(version.error());
  auto before = fields_->get(kRollbackBefore);
  if (!before) return std::move(before.error());
  const std::uint64_t word = state->value_or(0), number = word / 2;
  rollback_ = {.number = number,
               .pending = word % 2 != 0,
               .before = before->value_or(number - 1),  // rollbacks were counted once
               .version = version->value_or(0)};
  return {};
}

Status LocalPool::roll_back(Version version) noexcept {
  if (!has_version(version)) {
    return corrupt(path(), "it lacks the version of a rollback that it has recorded");
  }
  if (Status s = forget_above(version); !s.ok()) return s;
  return data().rollback(local(version));
}

Status LocalPool::take_back(Version version) noexcept {
  if (Status s = forget_above(version); !s.ok()) return s;
  return role_ == Role::copy ? data().rollback(local(version)) : Status();
}

// The last store commits.
Status LocalPool::begin_rollback(std::uint64_t before, std::uint64_t number,
                                 Version version) noexcept {
  if (Status s = put(kRollbackBefore, before); !s.ok()) return s;
  if (Status s = put(kRollbackVersion, version); !s.ok()) return s;
  return put(kRollback, 2 * number + 1);
}

Status LocalPool::close() noexcept {
  fields_.reset();
  names_.reset();
  data_.reset();
  if (!pool_) return {};
  Status status = pool_->close();
  pool_.reset();
  cuts_ = false;
  return status;
}

}  // namespace perdure::mpi::detail
