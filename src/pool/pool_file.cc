// How a pool gets its file: path, durability, creation, opening, resize.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "platform/mounts.h"
#include "pool/buffered.h"
#include "pool/last_cut.h"
#include "pool/left_open.h"
#include "pool/output_check.h"
#include "pool/owner.h"
#include "pool/pool_impl.h"
#include "pool/with_path.h"

namespace perdure::detail {

namespace {

constexpr std::uint64_t kSmallPool = std::uint64_t{64} << 20;

// Small pools get small extents: otherwise a few size classes would fill them.
PoolShape shape_of(const PoolOptions& options) noexcept {
  PoolShape shape{.max_bytes = options.max_size};
  if (options.max_size < kSmallPool) {
    shape.extent_bytes = 16_KiB;
    shape.initial_extents = 4;
    shape.root_slots = 256;
  }
  return shape;
}

// The file was renamed or removed before, and not the rest.
Status parts_are_left(const char* path) noexcept {
  return Status::format(StatusCode::exists,
                        "its file is gone, and its log lies in %s-log; if the file was renamed or "
                        "moved, bring it back to this name: it needs the log; otherwise, if its "
                        "data is not needed, remove what is left (perdure remove %s)",
                        path, path);
}

}  // namespace

Status known(OpenMode mode) {
  if (mode <= OpenMode::read_only) return {};
  return Status::format(StatusCode::invalid_argument, "there is no open mode %u",
                        static_cast<unsigned>(mode));
}

// Chooses the durability of this open, and its instructions. `last`: that of the last open, or
// automatic for a new pool. An open that does not repeat the durability keeps it.
Status PoolImpl::choose_durability(const PoolOptions& options, Durability last) {
  if (options.durability > Durability::buffered) {
    return Status::format(StatusCode::invalid_argument, "durability %u is none",
                          static_cast<unsigned>(options.durability));
  }
  if (const long bytes = ::sysconf(_SC_PAGESIZE); bytes != static_cast<long>(kPage)) {
    return Status::format(StatusCode::unsupported,
                          "the pages of this machine have %ld bytes; perdure needs pages of 4096",
                          bytes);
  }
  const MediumReport& medium = storage_.medium();
  const bool dax = medium.medium == Medium::cache_line || medium.medium == Medium::eadr;
  durability_ = options.durability != Durability::automatic ? options.durability : last;
  if (durability_ == Durability::automatic) {
    durability_ = dax ? Durability::power : without_dax(options);
  }
  FlushMode mode = FlushMode::none;
  if (durability_ == Durability::buffered && !read_only_ && !resizes_) {
    if (Status s = may_buffer(options); !s.ok()) return s;
  }
  if (durability_ == Durability::emulated) mode = FlushMode::cache_line;
  if (durability_ == Durability::power) {
    if (dax) {
      mode = medium.medium == Medium::eadr ? FlushMode::fence_only : FlushMode::cache_line;
      if (mode == FlushMode::cache_line && !reaches_medium(best_flush_instruction())) {
        return Status::format(StatusCode::unsupported,
                              "this processor cannot give durability `power`: it has no "
                              "instruction that writes a line back to persistent memory; use "
                              "`process`");
      }
    } else if (medium.medium == Medium::page && medium.msync_is_ordered) {
      mode = FlushMode::page;
    } else {
      const char* why =
          medium.medium == Medium::volatile_ram
              ? "its file system is lost with the machine"
              : (medium.medium == Medium::network ? "network file systems cannot promise it"
                                                  : medium.msync_note);
      return Status::format(
          StatusCode::unsupported,
          "%s cannot give durability `power`: %s; use `process`, or a file on DAX or on ext4 or "
          "xfs over a local disk",
          medium.filesystem, why);
    }
  }
  if (options.write_latency_ns != 0 && durability_ != Durability::emulated) {
    return Status::format(StatusCode::invalid_argument,
                          "write_latency_ns is for durability `emulated` only");
  }
  platform_.configure(mode, best_flush_instruction(), options.write_latency_ns);
  return {};
}

// The mode of a new pool that is on no persistent memory: the strongest that costs about as much as
// `process`.
Durability PoolImpl::without_dax(const PoolOptions& options) const noexcept {
  layout::Identity here{};
  const bool boot = storage_.identity(here).ok() && layout::is_known(here.boot_id);
  const bool buffers = boot && may_buffer(options) != StatusCode::unsupported;
  if (buffers && files_ == &real_files_ && !storage_.medium().local_disk) {
    log_.say(LogLevel::warning,
             "gets durability `process`, because its file system (%s) is not known to be of a "
             "local disk; if it is, ask for `buffered`",
             storage_.medium().filesystem);
    return Durability::process;
  }
  return buffers ? Durability::buffered : Durability::process;
}

Status PoolImpl::may_buffer(const PoolOptions& options) const {
  const Medium medium = storage_.medium().medium;
  const bool real = files_ == &real_files_;
  if (real && (medium == Medium::volatile_ram || medium == Medium::network)) {
    return Status::format(StatusCode::unsupported,
                          "%s cannot give durability `buffered`: %s; use a file on a local disk, "
                          "or `process`",
                          storage_.medium().filesystem,
                          medium == Medium::network ? "network file systems cannot promise it"
                                                    : "its files are lost with the machine");
  }
  if (real && is_mounted_alone(storage_.descriptor(), path_.c_str())) {
    return Status::format(StatusCode::unsupported,
                          "its file is mounted alone, so that the log of durability `buffered` "
                          "would lie outside of that mount; mount its folder, or open it with "
                          "durability `process` (perdure sync %s --durability process)",
                          path_.c_str());
  }
  if (!RealPlatform::heavy_fence() && !RealPlatform::full_light_fences()) {
    return Status::format(
        StatusCode::unsupported,
        "durability `buffered` needs membarrier(2), which the system refuses; use "
        "`process`");
  }
  return Buffered::verify(options.buffered);
}

Status PoolImpl::create_file(const PoolOptions& options) {
  if (options.max_size < kMinPoolSize || options.max_size > kMaxPoolSize) {
    return Status::format(StatusCode::invalid_argument, "max_size %lu is outside [%lu, %lu]",
                          options.max_size, kMinPoolSize, kMaxPoolSize);
  }
  if (Status s = verify_place(path_.c_str()); !s.ok()) return s;
  if (Status s = storage_.create(path_.c_str()); !s.ok()) return s;
  created_ = true;
  if (Status s = choose_durability(options, Durability::automatic); !s.ok()) return s;
  const PoolShape shape = shape_of(options);
  if (Status s = storage_.map(shape.max_bytes); !s.ok()) return s;
  const std::uint64_t random[2] = {RealPlatform::random(), RealPlatform::random()};
  std::uint8_t uuid[16];
  std::memcpy(uuid, random, sizeof(uuid));
  Status s = storage_.identity(identity_);
  if (s.ok()) {
    s = PoolCore<RealPlatform>::create(platform_, storage_, shape, identity_, uuid, durability_);
  }
  if (s.ok()) s = storage_.publish();
  created_ = !s.ok();  // from here on it is a pool
  made_ = s.ok();
  if (!s.ok() || durability_ != Durability::buffered) return s;
  layout::Header header;
  int copy = 0;
  s = read_header(storage_.base(), storage_.size(), header, &copy);
  storage_.unmap();
  if (s.ok()) s = begin_buffered(options, header, copy);
  // Such as a `memory_directory` that does not exist.
  if (!s.ok() && (!buffered_ || buffered_->is_unused())) {
    (base_.is_open() ? base_ : storage_).remove_name();
    if (s == StatusCode::exists) return parts_are_left(path_.c_str());
  }
  return s;
}

// The path without links, so that every name of the file leads to one log.
Status PoolImpl::look_at_base(const PoolOptions& options) {
  char path[PATH_MAX];
  if (::realpath(path_.c_str(), path) == nullptr) {
    return Status::format(StatusCode::io, "cannot resolve its path: %s", std::strerror(errno));
  }
  buffered_.emplace(*files_, real_files_, storage_, log_);
  if (options.handle_sigbus) {
    buffered_->live().dirty_file().report_lost_pages(platform_.mapping_state());
  }
  platform_.say_when_lost(
      "a part of it can no longer be read or changed in memory (SIGBUS): its disk is full or has "
      "failed, or a file became shorter; nothing is acknowledged any more; close the pool, see to "
      "the disk, and open it again");
  return buffered_->look(path, options.buffered, storage_.descriptor());
}

// `header`: the one that counts, of a file that is the pool.
Status PoolImpl::begin_buffered(const PoolOptions& options, const layout::Header& header,
                                int copy) {
  storage_.remove_second_name();
  if (const std::uint64_t names = storage_.names(); names > 1) {
    return Status::format(StatusCode::invalid_argument,
                          "the file has %lu names (hard links), and its log can be beside one "
                          "only; open it for reading, use `process`, or remove the other names, "
                          "which `find FOLDER -samefile %s` prints",
                          names, path_.c_str());
  }
  if (!buffered_) {
    if (Status s = look_at_base(options); !s.ok()) return s;
  }
  const bool sealed = header.close_state == layout::CloseState::sealed;
  const bool trusted =
      distrust(header, identity_) == nullptr && !(sealed && is_copy(header, identity_));
  base_.take(storage_);
  Status s = buffered_->begin({options.buffered, identity_, base_, options.accept_untrusted},
                              header, copy, trusted);
  began_ = s.ok();
  return s;
}

// Of a pool that an owner has, or that a power failure has ended, the last cut is read: that is in
// memory, so no lock is needed any more. A killed process has left image and base.
Status PoolImpl::read_left(const layout::BaseMark& mark) {
  char path[PATH_MAX];
  if (::realpath(path_.c_str(), path) == nullptr) {
    return Status::format(StatusCode::io, "cannot resolve its path: %s", std::strerror(errno));
  }
  if (Status s = may_read_log(mark, identity_, path); !s.ok()) return s;
  if (!in_use_ && in_this_boot(mark, identity_)) {
    return observe_live(storage_, base_, mark, path, identity_);
  }
  Status s = copy_last_cut(storage_, path, mark.live.max_bytes);
  storage_.unlock();
  return s;
}

// A pool whose owner was killed, or has it (for a reader), or that a power failure ended.
Status PoolImpl::open_left(const PoolOptions& options, const layout::BaseMark& mark) {
  last_durability_ = Durability::buffered;
  logged_ = mark.live.unverified == 0;
  if (files_ == &real_files_) {
    if (Status s = has_its_parts(storage_, path_.c_str()); !s.ok()) return s;
  }
  if (read_only_) return read_left(mark);
  if (options.durability != Durability::automatic && options.durability != Durability::buffered) {
    return Status::format(StatusCode::invalid_argument,
                          "was left open in durability `buffered`; open and close it once without "
                          "naming another one");
  }
  if (Status s = choose_durability(options, Durability::buffered); !s.ok()) return s;
  if (!buffered_) {
    if (Status s = look_at_base(options); !s.ok()) return s;
  }
  base_.take(storage_);
  Status s = buffered_->go_on(
      {options.buffered, identity_, base_, options.accept_untrusted, ignores_image_});
  logged_ = buffered_->mark().live.unverified == 0;
  return s;
}

Status PoolImpl::read_start(std::byte* pages, std::uint64_t& n, std::uint64_t& size) {
  if (buffered_) {  // through a simulated file system
    auto got = buffered_->read(pages, layout::kDirectoryOffset);
    auto bytes = buffered_->size();
    if (!got) return std::move(got.error());
    if (!bytes) return std::move(bytes.error());
    n = *got;
    size = *bytes;
    return {};
  }
  if (storage_.base() != nullptr) {  // copied into memory
    size = storage_.size();
    n = std::min<std::uint64_t>(size, layout::kDirectoryOffset);
    std::memcpy(pages, storage_.base(), n);
    return {};
  }
  const std::int64_t got = storage_.read(pages, layout::kDirectoryOffset, 0);
  if (got < 0) return Status::format(StatusCode::io, "cannot read: %s", std::strerror(errno));
  storage_.refresh_size();  // it may have grown before the lock was there
  n = static_cast<std::uint64_t>(got);
  size = storage_.size();
  return {};
}

Status PoolImpl::open_existing(const PoolOptions& options, std::uint64_t capacity) {
  if (Status s = storage_.identity(identity_); !s.ok()) return s;
  layout::BaseMark mark{};
  if (files_ != &real_files_) {
    if (Status s = look_at_base(options); !s.ok()) return s;
    mark = buffered_->mark();
  } else if (Status s = read_mark(storage_, mark); !s.ok()) {
    return s;
  }
  const bool left = mark.state == layout::BaseState::open;
  if (left && resizes_) {
    return Status::format(StatusCode::invalid_argument,
                          "was left open in durability `buffered`; open and close it first");
  }
  if (left) {
    Status s = open_left(options, mark);
    if (!s.ok() || !read_only_) return s;
  }
  // The header names the capacity; it is checked before anything is mapped.
  auto pages = std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[layout::kDirectoryOffset]);
  if (pages == nullptr) return StatusCode::out_of_memory;
  std::uint64_t n = 0;
  std::uint64_t size = 0;
  if (Status s = read_start(pages.get(), n, size); !s.ok()) return s;
  layout::Header header;
  int copy = 0;
  if (n < layout::kDirectoryOffset)
    return read_header(pages.get(), n, header, nullptr, true, path_.c_str());
  if (Status s = read_header(pages.get(), size, header, &copy, true, path_.c_str()); !s.ok())
    return s;
  damaged_copy_ = find_damaged_copy(pages.get());  // before this open writes both
  last_durability_ = static_cast<Durability>(header.mode);
  if (Status s = choose_durability(options, last_durability_); !s.ok()) return s;
  if (durability_ == Durability::buffered && !read_only_ && !resizes_) {
    // What the header alone shows is refused before anything is written.
    const char* reason = options.accept_untrusted ? nullptr : distrust(header, identity_);
    if (reason != nullptr) return refuse_untrusted(reason, path_.c_str());
    return begin_buffered(options, header, copy);
  }
  if (storage_.base() == nullptr) {
    if (Status s = storage_.map(std::max(header.max_bytes, capacity)); !s.ok()) return s;
  }
  if (base_.is_open()) {
    view_.emplace(storage_, base_.descriptor());
    if (Status s = view_->go_on(); !s.ok()) return s;
  }
  const bool durable = !read_only_ && durability_ == Durability::power;
  return durable ? storage_.sync_name() : Status();
}

// An owner may close the pool, or open it, while its last cut is copied.
Status PoolImpl::open_reading(const PoolOptions& options) {
  constexpr int kAttempts = 4;
  for (int attempt = 1;; ++attempt) {
    Status s = open_as_reader(storage_, path_.c_str(), in_use_);
    if (!s.ok()) return s;
    s = open_existing(options, 0);
    if (s != StatusCode::busy || attempt == kAttempts) return s;
    storage_.close();
  }
}

Status PoolImpl::open_file(const PoolOptions& options, std::uint64_t capacity) {
  if (Status s = known(options.mode); !s.ok()) return s;
  if (read_only_) return open_reading(options);
  if (options.mode != OpenMode::create_new) {
    Status s = open_as_owner(storage_, path_.c_str());
    if (s.ok()) return open_existing(options, capacity);
    if (s == StatusCode::busy) return s;
    if (s != StatusCode::not_found || options.mode != OpenMode::open_or_create) return s;
  }
  return create_file(options);
}

Status PoolImpl::set_path(std::string_view path) {
  if (path.empty()) {
    return Status::format(StatusCode::invalid_argument, "the path is empty; name a file");
  }
  if (!path_.assign(path)) {
    return Status::format(StatusCode::invalid_argument,
                          "%.*s..: a path has less than %d bytes and no NUL",
                          length(path.substr(0, 64)), path.data(), PATH_MAX);
  }
  platform_.name(path_.c_str());
  return {};
}

Status PoolImpl::open(std::string_view path, const PoolOptions& options) {
  if (Status s = set_path(path); !s.ok()) return s;
  log_ = Log(options.log, options.log_context, path_.c_str());
  platform_.set_log(log_);
  storage_.set_log(log_);
  core_.background().set_log(log_);
  read_only_ = options.mode == OpenMode::read_only;
  allow_damage_ = options.allow_damage && read_only_;
  threads_ = options.recovery_threads != 0 ? options.recovery_threads : RealPlatform::cores();
  if (options.background_threads > kMaxBackgroundThreads) {
    return wrap(Status::format(StatusCode::invalid_argument, "background_threads %u; at most %u",
                               options.background_threads, kMaxBackgroundThreads));
  }
  core_.background().set_threads(options.background_threads);
  if (options.handle_sigbus) storage_.report_lost_pages(platform_.mapping_state());
  if (options.interleave) {
    interleaved_.begin();
    storage_.interleave();
  }
  const std::uint64_t begin = RealPlatform::now_ns();
  if (Status s = open_file(options); !s.ok()) {
    if (created_) storage_.discard_new();  // before the lock goes
    storage_.close();
    return platform_.lost() ? platform_.failure() : wrap(std::move(s));
  }
  owner_pid_ = getpid();
  if (buffered_) {
    Status s = buffered_->attach(platform_, core_.heap(), core_.epochs(), options.buffered);
    if (!s.ok()) {
      if (began_) buffered_->undo();
      return platform_.lost() ? platform_.failure() : wrap(std::move(s));
    }
  }
  const OpenRequest request{.identity = identity_,
                            .mode = durability_,
                            .accept_untrusted = options.accept_untrusted,
                            .allow_damage = allow_damage_,
                            .logged = logged_,
                            .write_back_by_sync = platform_.mode() == FlushMode::page,
                            .serve = !read_only_,
                            .at_once = read_only_ ? nullptr : &restarts_at_once,
                            .threads = threads_,
                            .path = path_.c_str()};
  Status s = open_pool(core_, request, report_, *this);
  if (s.ok() && buffered_) s = buffered_->set_verified();
  if (!s.ok()) {
    core_.background().stop();
    // Not closed: the file stays as it was.
    slots_.reset();
    if (began_) {
      core_.epochs().drain_all();
      buffered_->undo();
    }
    // Lost pages read as zeros: no error that these have caused counts.
    if (platform_.lost()) return platform_.failure();
    // What an unfinished batch needs may be missing for other reasons.
    const bool damaged = s == StatusCode::corruption && !report_.batch_damaged;
    return wrap(damaged && buffered_ ? buffered_->blame_image(std::move(s)) : std::move(s));
  }
  if (buffered_) {
    buffered_->start(options.background_threads != 0);
    settle_versions();
  }
  open_ = true;
  recovery_ns_ = RealPlatform::now_ns() - begin;
  tell_opened();
  return {};
}

// A process that was killed may have left numbers of versions that no cut has, and a map shows them
// as closed. If the log cannot be written, mutations say so; reads go on.
void PoolImpl::settle_versions() noexcept {
  if (!buffered_->inherited()) return;
  for (const Slot& slot : slots()) {
    if (slot.instance == nullptr || slot.instance->versioned() == nullptr) continue;
    (void)buffered_->make_durable();
    return;
  }
}

// The maps are not opened: a pool of a killed process stays one, and its next open recovers it. The
// new maximum is mapped first, so a pool that could no longer be opened is refused.
Status PoolImpl::resize(std::string_view path, std::uint64_t max_size) {
  if (Status s = set_path(path); !s.ok()) return s;
  resizes_ = true;
  const PoolOptions options{.mode = OpenMode::existing};
  Status s = open_file(options, std::min(max_size, kMaxPoolSize));
  if (s.ok()) {
    const OpenRequest request{.identity = identity_,
                              .mode = durability_,
                              .threads = RealPlatform::cores(),
                              .path = path_.c_str()};
    s = core_.resize(request, max_size);
  }
  platform_.leave_mapping();
  storage_.close();
  return platform_.poisoned() ? platform_.failure() : wrap(std::move(s));
}

void PoolImpl::tell_opened() const {
  std::uint32_t maps = 0;
  for (const Slot& slot : slots()) maps += slot.used ? 1 : 0;
  const char* how = "closed properly";
  if (!report_.was_clean) how = "not closed: recovered";
  if (made_) how = "new";
  log_.say(LogLevel::info, "opened in %.1f ms, %s; %u maps, durability %s%s",
           milliseconds(recovery_ns_), how, maps, EngineText(durability_name(durability_)).c_str(),
           read_only_ ? ", read-only" : "");
  if (last_durability_ == Durability::power && durability_ != Durability::power && !read_only_) {
    log_.say(LogLevel::warning,
             "its durability was `power` and is `%s` from now on: a power failure can lose it",
             EngineText(durability_name(durability_)).c_str());
  }
  if (damaged_copy_ >= 0) {
    log_.say(LogLevel::warning, "copy %c of its header was damaged%s", "AB"[damaged_copy_],
             read_only_ ? "" : ", and is written anew; see to the disk");
  }
  for (const Slot& slot : slots()) {
    if (!slot.used || slot.error.ok()) continue;
    const std::string_view why = slot.error.message();
    log_.say(LogLevel::error, "map %s is not served: %.*s", slot.root.name, length(why),
             why.data());
  }
}

}  // namespace perdure::detail
