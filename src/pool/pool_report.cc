// info, stats, check and inspect. Built with exceptions: the public structs hold std::string and
// std::vector, which attempt() fills.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <new>
#include <utility>

#include "pool/left_open.h"
#include "pool/output_check.h"
#include "pool/pool_impl.h"
#include "pool/with_path.h"

namespace perdure {

namespace detail {

Text<36> uuid_text(const std::uint8_t (&uuid)[16]) noexcept {
  char text[40];
  int n = 0;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text[n++] = '-';
    n += std::snprintf(text + n, 3, "%02x", uuid[i]);
  }
  return std::string_view(text, static_cast<std::size_t>(n));
}

namespace {

// Fills `out` from a header. Throws std::bad_alloc, as all functions here that return no error.
void describe(const layout::Header& header, PoolInfo& out) {
  out.uuid = std::string_view(uuid_text(header.uuid));
  out.format_version = header.format_version;
  out.compatible_features = header.compatible;
  out.incompatible_features = header.incompatible;
  out.file_bytes = header.file_bytes;
  out.max_bytes = header.max_bytes;
  out.extent_bytes = header.extent_bytes;
  out.durability = static_cast<Durability>(header.mode);
  out.weakest_mode = static_cast<Durability>(header.weakest);
  out.clean = header.close_state == layout::CloseState::clean ||
              header.close_state == layout::CloseState::synced;
  out.synced = header.close_state >= layout::CloseState::synced;
  out.owner_pid = static_cast<std::int64_t>(header.identity.pid);
  char host[sizeof(header.identity.host) + 1] = {};
  std::memcpy(host, header.identity.host, sizeof(header.identity.host));
  out.owner_host = host;
}

MapInfo describe(const layout::Root& root) {
  return {.name = root.name,
          .engine = static_cast<Engine>(root.engine),
          .engine_version = root.engine_version,
          .key_kind = static_cast<KeyKind>(root.key_kind),
          .value_kind = static_cast<ValueKind>(root.value_kind),
          .is_signed = root.is_signed != 0,
          .key_bytes = root.key_bytes,
          .value_bytes = root.value_bytes};
}

MapStats to_public(const EngineStats& stats) {
  return {stats,
          {},
          {stats.levels.begin(), stats.levels.end()},
          {stats.resizes.begin(), stats.resizes.end()}};
}

CheckReport to_public(const Findings& findings) {
  return {findings, {findings.violations.begin(), findings.violations.end()}};
}

}  // namespace

MapStats stats_of(Index& index) noexcept {
  EngineStats stats;
  index.stats(stats);
  MapStats out;
  if (attempt([&] { out = to_public(stats); })) return out;
  stats.levels = {};
  stats.resizes = {};
  stats.partial = true;
  return to_public(stats);  // allocates nothing
}

MapTypes spec_of(const MapInfo& info) noexcept {
  return {info.key_kind, info.value_kind, info.is_signed, info.key_bytes, info.value_bytes};
}

Expected<bool> PoolImpl::describe_map(std::string_view name, MapInfo& out) const {
  LatchGuard guard(latch_);
  const Slot* slot = open_ ? find(name) : nullptr;
  if (slot == nullptr) return false;
  if (!attempt([&] { out = describe(slot->root); })) return fail(wrap(StatusCode::out_of_memory));
  return true;
}

Expected<std::vector<MapInfo>> PoolImpl::list() const {
  if (Status s = usable(); !s.ok()) return fail(std::move(s));
  std::vector<MapInfo> out;
  LatchGuard guard(latch_);
  const bool copied = attempt([&] {
    for (const Slot& slot : slots()) {
      if (slot.used) out.push_back(describe(slot.root));
    }
  });
  if (!copied) return fail(wrap(StatusCode::out_of_memory));
  return out;
}

Expected<PoolInfo> PoolImpl::info() const {
  auto maps = list();
  if (!maps) return fail(std::move(maps.error()));
  PoolInfo out;
  const FlushMode mode = platform_.mode();
  // The live image can lie elsewhere.
  const MediumReport& medium = buffered_ ? base_.medium() : storage_.medium();
  const bool copied = attempt([&] {
    describe(core_.header(), out);
    out.path = path_.c_str();
    if (buffered_) out.live_image = buffered_->live_path();
    out.filesystem = medium.filesystem;
    out.flush_instruction = mode == FlushMode::cache_line
                                ? flush_instruction_name(platform_.instruction())
                                : (mode == FlushMode::page ? "msync" : "none");
  });
  if (!copied) return fail(wrap(StatusCode::out_of_memory));
  out.medium = medium.medium;
  if (buffered_) out.durable_unix_ns = buffered_->live().durable_unix_ns();
  out.durability = durability_;
  out.clean = report_.was_clean;
  out.trusted = report_.trusted;
  out.in_use = !read_only_ || in_use_;
  out.maps = std::move(*maps);
  return out;
}

Expected<PoolStats> PoolImpl::stats() {
  if (Status s = usable(); !s.ok()) return fail(std::move(s));
  {
    // Only after the sweep of the open is it known which blocks are allocated.
    LatchGuard guard(maintenance_);
    (void)core_.sweep().finish();
  }
  PoolStats out;
  const HeapStats heap = core_.heap().stats();
  const std::uint64_t extent = core_.heap().extent_bytes();
  out.file_bytes = core_.header().file_bytes;
  out.disk_bytes = (base_.is_open() ? base_ : storage_).disk_bytes();
  out.max_bytes = core_.header().max_bytes;
  out.assigned_bytes = heap.assigned_extents * extent;
  const std::uint64_t tables = heap.table_extents * extent;
  out.used_bytes = core_.header().data_offset + tables + out.assigned_bytes;
  out.free_bytes = heap.extents * extent - tables - out.assigned_bytes;
  out.punched_bytes = heap.punched_extents * extent;
  out.allocated_bytes = heap.allocated_bytes - heap.cached_bytes;
  out.heap_dram_bytes = heap.dram_bytes;
  if (out.assigned_bytes > 0) {
    out.fragmentation =
        1.0 - static_cast<double>(out.allocated_bytes) / static_cast<double>(out.assigned_bytes);
  }
  out.limbo_blocks = core_.epochs().limbo_count();
  out.epoch = core_.epochs().epoch();
  out.stalled_readers = core_.epochs().stalled_readers();
  out.recovery_ns = recovery_ns_;
  if (buffered_) {
    const CutFigures cuts = buffered_->stream().figures();
    out.lag_ns = buffered_->stream().lag_ns();
    out.cuts = cuts.cuts;
    out.log_bytes = cuts.log_bytes;
    out.log_written_bytes = cuts.log_written_bytes;
    out.longest_stop_ns = cuts.shut_ns;
    out.log_failed_unix_ns = cuts.failed_unix_ns;
    if (cuts.holder < kMaxThreadSlots)
      out.stopped_thread = static_cast<std::uint64_t>(RealPlatform::thread_of(cuts.holder));
    out.log_bound_bytes = cuts.log_bound_bytes;
    out.live_bytes = buffered_->live().chunks().live_bytes();
    out.folds = buffered_->folds().folds;
    out.fold_written_bytes = buffered_->folds().written_bytes;
  }
  LatchGuard guard(latch_);
  for (Slot& slot : slots()) {
    if (slot.instance == nullptr) continue;
    EngineStats stats;
    slot.instance->index().stats(stats);
    stats.engine = static_cast<Engine>(slot.root.engine);
    stats.partial = stats.partial || !slot.error.ok();
    const bool copied = attempt([&] {
      out.maps.push_back(to_public(stats));
      out.maps.back().name = slot.root.name;
    });
    if (!copied) return fail(wrap(StatusCode::out_of_memory));
  }
  return out;
}

Expected<CheckReport> PoolImpl::check(const CheckOptions& options) {
  if (Status s = usable(); !s.ok()) return fail(std::move(s));
  Findings findings;
  if (Status s = find_violations(options, findings); !s.ok()) return fail(std::move(s));
  if (damaged_copy_ >= 0) {
    char line[200];
    std::snprintf(line, sizeof(line),
                  read_only_
                      ? "copy %c of the header is damaged; nothing is lost, as the other one "
                        "serves: any open for writing writes it anew (perdure sync)"
                      : "copy %c of the header was damaged when the pool was opened; nothing "
                        "is lost, as the other one served: the open has written it anew",
                  "AB"[damaged_copy_]);
    findings.add(line);
  }
  CheckReport report;
  if (!attempt([&] { report = to_public(findings); })) return fail(wrap(StatusCode::out_of_memory));
  return report;
}

Expected<CheckReport> PoolImpl::salvage(std::string_view name,
                                        FunctionRef<void(const Entry&)> visit) {
  if (Status s = usable(); !s.ok()) return fail(std::move(s));
  if (!allow_damage_) {
    return fail(wrap(Status::format(StatusCode::invalid_argument,
                                    "is not open for a salvage; open it read-only and with "
                                    "ALLOW_DAMAGE (PoolOptions::allow_damage)")));
  }
  LatchGuard guard(maintenance_);
  (void)core_.sweep().finish();
  const BackgroundHold<RealPlatform> hold(core_.background());
  // In a guard, as every callback: so the pool refuses its calls.
  const auto deliver = [&](const Entry& entry) {
    const EpochGuard<RealPlatform> guard_of_callback(core_.epochs());
    visit(entry);
  };
  const FunctionRef<void(const Entry&)> delivers(deliver);
  Findings found;
  found.whole_entries = &delivers;
  // What the open has passed over in other maps does not count here.
  char own[64];
  std::snprintf(own, sizeof(own), "map %.*s: ", length(name), name.data());
  for (const auto& what : damage_.violations) {
    const std::string_view line = what;
    if (!line.starts_with("map ") || line.starts_with(own)) found.add(line);
  }
  const Slot* slot = find(name);
  if (slot == nullptr) {
    const StatusCode code = found.ok() ? StatusCode::not_found : StatusCode::corruption;
    return fail(wrap(Status::format(code, "has no map %.*s%s", length(name), name.data(),
                                    found.ok() ? "" : " that can be found: it is damaged")));
  }
  if (slot->instance == nullptr) {
    found.add(slot->error.message());
  } else {
    slot->instance->index().check({.deep = true}, found);
    // What the walk behind the open has found; and the list of the open is limited.
    if (found.ok() && !slot->error.ok()) found.add(slot->error.message());
    if (found.ok() && damage_.violation_count > damage_.violations.size()) {
      found.add("the pool has more damage than the open has listed");
    }
  }
  CheckReport report;
  if (!attempt([&] { report = to_public(found); })) return fail(wrap(StatusCode::out_of_memory));
  return report;
}

Status PoolImpl::find_violations(const CheckOptions& options, Findings& report) {
  LatchGuard guard(maintenance_);
  const bool swept = core_.sweep().finish();
  const BackgroundHold<RealPlatform> hold(core_.background());
  if (const Status& s = core_.sweep().failure(); !s.ok()) report.add(s.message());
  for (const auto& what : damage_.violations) report.add(what);
  core_.verify([&](const char* what) { report.add(what); });
  // Engines report the bytes checked; the pool adds the total.
  struct Share {
    const CheckOptions& user;
    std::uint64_t total;
  };
  const HeapStats heap = core_.heap().stats();
  Share share{options, heap.allocated_bytes - heap.cached_bytes};
  CheckOptions inner = options;
  inner.progress_context = &share;
  if (options.progress != nullptr) {
    inner.progress = [](void* context, std::uint64_t done, std::uint64_t) {
      const auto& s = *static_cast<Share*>(context);
      s.user.progress(s.user.progress_context, std::min(done, s.total), s.total);
    };
  }
  bool whole = true;
  for (Slot& slot : slots()) {
    if (!slot.used) continue;
    if (!slot.error.ok()) whole = false;
    if (slot.instance == nullptr) {
      report.add(slot.error.message());
      continue;
    }
    report.map = slot.root.name;
    slot.instance->index().check(inner, report);
    report.map = "";
  }
  if (whole && swept) {
    if (Status s = count_leaks(report); !s.ok()) return wrap(std::move(s));
  }
  return {};
}

// Counts the blocks that are allocated and that no map reaches.
Status PoolImpl::count_leaks(Findings& report) {
  core_.epochs().drain_all();
  core_.heap().flush_caches();
  if (Status s = core_.heap().begin_audit(); !s.ok()) return s;
  for (Slot& slot : slots()) {
    if (slot.instance == nullptr) continue;
    report.map = slot.root.name;
    if (Status s = slot.instance->audit(); !s.ok()) report.add(s.message());
    report.map = "";
  }
  const std::uint64_t leaked = core_.heap().end_audit();
  const std::uint64_t limbo = core_.epochs().limbo_count();
  report.leaked_blocks = leaked > limbo ? leaked - limbo : 0;
  return {};
}

}  // namespace detail

namespace {

// Reads the header and the root directory once. `torn`: the header was inconsistent, perhaps
// because the owner was writing it.
// `logged`: a log vouches for the content.
Status read_info(FileStorage& storage, std::string_view path, bool logged, PoolInfo& out,
                 bool& torn) {
  auto head = std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[layout::kDirectoryOffset]);
  if (head == nullptr) return StatusCode::out_of_memory;
  const std::int64_t n = storage.read(head.get(), layout::kDirectoryOffset, 0);
  if (n < 0) return Status::format(StatusCode::io, "cannot read: %s", std::strerror(errno));
  layout::Header header;
  const bool short_file = n < static_cast<std::int64_t>(layout::kDirectoryOffset);
  storage.refresh_size();
  Status s = read_header(head.get(), short_file ? static_cast<std::uint64_t>(n) : storage.size(),
                         header, nullptr, true, path);
  torn = !s.ok();
  if (torn) return s;
  layout::Identity identity;
  if (Status i = storage.identity(identity); !i.ok()) return i;
  const char* reason = out.in_use || logged ? nullptr : distrust(header, identity);
  out.medium = storage.medium().medium;
  out.trusted = reason == nullptr;
  bool copied = detail::attempt([&] {
    detail::describe(header, out);
    out.path = path;
    out.filesystem = storage.medium().filesystem;
    out.trust_note = reason == nullptr ? "" : reason;
    out.flush_instruction = "none";
  });
  layout::Root roots[64];
  for (std::uint32_t slot = 0; slot < header.root_slots && copied; ++slot) {
    const std::uint32_t at = slot % std::size(roots);
    if (at == 0) {
      const std::size_t bytes =
          std::min<std::size_t>(std::size(roots), header.root_slots - slot) * sizeof(layout::Root);
      if (storage.read(roots, bytes,
                       layout::kDirectoryOffset + std::uint64_t{slot} * sizeof(layout::Root)) !=
          static_cast<std::int64_t>(bytes)) {
        return Status::format(StatusCode::io, "cannot read its root directory");
      }
    }
    const layout::Root& root = roots[at];
    if (root.root != 0 && root.crc == root_crc(root) && root.name[sizeof(root.name) - 1] == '\0') {
      copied = detail::attempt([&] { out.maps.push_back(detail::describe(root)); });
    }
  }
  return copied ? Status() : Status(StatusCode::out_of_memory);
}

// Adds the images at `image` that were set aside. Returns false if memory is short.
bool add_aside(const FileStorage& base, std::string_view image, std::vector<AsideImage>& out) {
  RealFileSystem files;
  bool memory = true;
  (void)list_aside(files, image, [&](std::string_view name) {
    PathText path;
    layout::LiveHead head;
    if (!memory || !path.assign(image.substr(0, image.rfind('/') + 1), name)) return;
    if (!LiveImage::read_head(files, path.c_str(), head, base).ok()) return;  // its dirty lines
    memory = detail::attempt([&] {
      const std::uint64_t at = head.durable_unix_ns & ~layout::kNothingSince;
      out.push_back({.path = path.c_str(), .durable_unix_ns = at});
    });
  });
  return memory;
}

Status find_aside(const FileStorage& base, std::string_view path, std::vector<AsideImage>& out) {
  char resolved[PATH_MAX];
  PathText text;
  if (!text.assign(path) || ::realpath(text.c_str(), resolved) == nullptr) return {};
  if (!text.assign(resolved, kPoolParts[1])) return {};
  if (!add_aside(base, text.c_str(), out)) return StatusCode::out_of_memory;
  std::ranges::sort(out, std::greater(), &AsideImage::durable_unix_ns);
  return {};
}

bool has_log(std::string_view path) {
  char resolved[PATH_MAX];
  PathText text;
  struct stat info{};
  return text.assign(path) && ::realpath(text.c_str(), resolved) != nullptr &&
         text.assign(resolved, kPoolParts[0]) && ::lstat(text.c_str(), &info) == 0;
}

// observe_live(), or the base again if that fails. `image`: path of the live image.
Status observe_base(FileStorage& storage, const layout::BaseMark& mark, std::string_view path,
                    const layout::Identity& identity, PathText& image) {
  char resolved[PATH_MAX];
  PathText text;
  if (!text.assign(path) || ::realpath(text.c_str(), resolved) == nullptr) return StatusCode::io;
  if (Status s = LiveImage::path_of(mark, resolved, image); !s.ok()) return s;
  FileStorage base;
  Status live = observe_live(storage, base, mark, resolved, identity);
  if (live.ok()) return live;
  storage.close();
  Status s = storage.open(path, FileStorage::Access::observer);
  return s.ok() ? std::move(live) : std::move(s);
}

}  // namespace

Expected<PoolInfo> Pool::inspect(std::string_view path) {
  FileStorage storage;
  if (Status s = storage.open(path, FileStorage::Access::observer); !s.ok())
    return fail(with_path(path, s));
  const bool in_use = storage.lock_holder() != 0;
  const MediumReport medium = storage.medium();
  layout::BaseMark mark;
  layout::Identity identity;
  Status live;
  if (Status s = read_mark(storage, mark); !s.ok()) return fail(with_path(path, s));
  if (Status s = storage.identity(identity); !s.ok()) return fail(with_path(path, s));
  const bool left = mark.state == layout::BaseState::open;
  std::vector<AsideImage> aside;
  if (Status s = find_aside(storage, path, aside); !s.ok()) return fail(with_path(path, s));
  PathText image;
  if (left) live = observe_base(storage, mark, path, identity, image);
  layout::LiveHead head{};
  const std::uint64_t now = RealPlatform::unix_ns();  // before the head
  if (left && live.ok()) (void)storage.read(&head, sizeof(head), layout::kMarkOffset);
  // The owner may be writing a header or a root line meanwhile, so a torn read is repeated.
  for (int attempt = 0;; ++attempt) {
    PoolInfo out;
    out.in_use = in_use;
    bool torn = false;
    Status s = read_info(storage, path, left, out, torn);
    if (s.ok()) {
      out.medium = medium.medium;
      // The log decides after a restart of the machine; an open reads it.
      const bool from_log = live == StatusCode::untrusted && of_this_file(mark, identity);
      const bool unverified = mark.live.unverified != 0;
      const bool lacks_log = left && !in_use && !has_log(path);
      out.trusted = out.trusted && (live.ok() || from_log) && !(left && unverified) && !lacks_log;
      if (left) out.clean = out.synced = false;  // the file alone is not the pool
      const bool copied = detail::attempt([&] {
        out.filesystem = medium.filesystem;
        out.live_image = image.c_str();
        out.durable_unix_ns = head.durable_unix_ns & ~layout::kNothingSince;
        if (in_use && out.durable_unix_ns != head.durable_unix_ns) out.durable_unix_ns = now;
        if (left && !out.trusted) {
          out.trust_note = !live.ok() ? std::string(live.message())
                           : lacks_log
                               ? "its log is missing"
                               : "its content was not trusted, and no check has passed since";
        }
      });
      if (!copied) return fail(with_path(path, StatusCode::out_of_memory));
      out.aside_images = std::move(aside);
      return out;
    }
    if (!torn || attempt == 3) return fail(with_path(path, s));
  }
}

}  // namespace perdure
