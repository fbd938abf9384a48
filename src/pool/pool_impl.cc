#include "pool/pool_impl.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "pool/owner.h"
#include "pool/with_path.h"

namespace perdure::detail {

namespace {

// The engine of a new map whose options name none.
constexpr Engine natural_engine(PoolImpl::View view) noexcept {
  return view == PoolImpl::View::versioned ? Engine::pskiplist : Engine::phast;
}

// Whether maps of the engine can be opened as the view. An engine that this build does not have is
// refused elsewhere.
Status offers(Engine engine, PoolImpl::View view) {
  const EngineRow* row = find_engine(engine);
  if (view == PoolImpl::View::plain || row == nullptr) return {};
  const bool ordered = view == PoolImpl::View::ordered;
  if (ordered ? row->ordered : row->versioned) return {};
  return Status::format(StatusCode::unsupported, "engine %s keeps no %s; use %s",
                        EngineText(row->name).c_str(), ordered ? "order" : "versions",
                        EngineText(engine_name(natural_engine(view))).c_str());
}

// The types of a map's keys and values, in words.
using TypeText = Text<31>;
TypeText numbered(const char* before, unsigned number, const char* after) {
  char text[32];
  std::snprintf(text, sizeof(text), "%s%u%s", before, number, after);
  return std::string_view(text);
}
TypeText key_words(const MapTypes& types) {
  if (types.key_kind == KeyKind::bytes) return std::string_view("byte-string");
  if (types.key_kind == KeyKind::array) return numbered("", types.key_bytes, "-byte array");
  return numbered(types.is_signed ? "i" : "u", 8U * types.key_bytes, "");
}
TypeText value_words(const MapTypes& types) {
  if (types.value_kind == ValueKind::bytes) return std::string_view("byte-string");
  return numbered("", types.value_bytes, "-byte");
}

}  // namespace

PoolImpl::~PoolImpl() { (void)end({}); }

Status PoolImpl::wrap(Status status) const {
  if (status.ok()) return status;
  if (status == StatusCode::poisoned && platform_.poisoned()) return platform_.failure();
  return with_path(path_.c_str(), status);
}

Status PoolImpl::usable() const {
  if (!open_) return Status::format(StatusCode::invalid_argument, "%s: is closed", path_.c_str());
  if (owner_pid_ != getpid()) {
    return Status::format(StatusCode::invalid_argument,
                          "%s: belongs to the parent process; open it anew after fork, once the "
                          "parent has closed it",
                          path_.c_str());
  }
  if (Status s = in_callback(); !s.ok()) return s;
  return lost() ? platform_.failure() : Status();
}

// Such a call would wait for itself.
Status PoolImpl::in_callback() const {
  if (!core_.gate().held() && !core_.epochs().in_guard()) return {};
  return Status::format(
      StatusCode::invalid_argument,
      "%s: a callback of a read, a scan or a read_batch must not call the pool; do "
      "so after it",
      path_.c_str());
}

bool PoolImpl::lost() const {
  return platform_.lost() || (platform_.poisoned() && !storage_.backs(core_.header().file_bytes));
}

// Marks what its maps have left, and stops serving those that turn out to be damaged.
void PoolImpl::finish_marking() {
  (void)core_.sweep().finish();
  for (Slot& slot : slots()) {
    if (slot.instance == nullptr) continue;
    const Status& s = slot.instance->mark_failure();
    if (s.ok()) continue;
    slot.error = s;
    if (allow_damage_) {
      damage_.add(s.message());
    } else {
      slot.instance.reset();
    }
  }
}

Status PoolImpl::complete() {
  for (Slot& slot : slots()) {
    if (slot.instance == nullptr) continue;
    if (Status s = slot.instance->complete(); !s.ok()) return s;
  }
  return {};
}

EngineInstance* PoolImpl::map_at(std::uint32_t slot, std::uint64_t root) {
  const bool there = slot < core_.root_slots() && slots_[slot].root.root == root;
  return there ? slots_[slot].instance.get() : nullptr;
}

Status PoolImpl::accept(const OpenReport& report) {
  // A reader finds damaged maps now; check() reports them.
  if (read_only_) finish_marking();
  if (report.batch_damaged) damage_.add("a batch was committed, and may be done in part");
  if (!report.trusted && !allow_damage_) {
    if (Status s = accept_untrusted(); !s.ok()) return s;
  }
  return platform_.lost() ? platform_.failure() : Status();
}

void PoolImpl::serve() {
  if (in_memory() && report_.at_once) core_.background().add(populate_);
  for (Slot& slot : slots()) {
    if (slot.instance != nullptr) slot.instance->start();
  }
}

Step PoolImpl::Populate::run_some() {
  constexpr std::uint64_t kStepBytes = std::uint64_t{4} << 20;
  Heap<RealPlatform>& heap = pool_.core_.heap();
  const std::uint64_t most = std::max<std::uint64_t>(kStepBytes / heap.extent_bytes(), 1);
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  if (!heap.table_read()) return heap.read_some() ? Step::more : Step::rest;
  if (!heap.next_assigned(cursor_, most, offset, bytes)) return Step::rest;
  pool_.storage_.populate(offset, bytes);
  return Step::more;
}

// Every map is opened with the pool: a block is allocated if the maps can reach it.
Status PoolImpl::recover(const OpenReport& report, bool& whole) {
  if (report.directory_damaged) damage_.add("the root directory is damaged: a map may be missing");
  if (in_memory() && !report.at_once) {
    core_.heap().for_each_assigned([this](const std::byte* p, std::uint64_t n) {
      storage_.populate(static_cast<std::uint64_t>(p - storage_.base()), n);
    });
  }
  slots_.reset(new (std::nothrow) Slot[core_.root_slots()]);
  if (slots_ == nullptr) return StatusCode::out_of_memory;
  for (std::uint32_t i = 0; i < core_.root_slots(); ++i) {
    Slot& slot = slots_[i];
    auto used = core_.read_root(i, slot.root);
    if (!used && !allow_damage_) return std::move(used.error());
    if (!used) whole = false;  // check() names the line
    if (!used || !*used) continue;
    slot.used = true;
    auto recovered = open_slot(slot, report.was_clean);
    if (!recovered) {
      slot.error = std::move(recovered.error());
      whole = false;  // nothing in the pool may be freed
    } else if (*recovered == Recovered::marking) {
      core_.sweep().add(*slot.instance, slot.root.name);
    }
    // Damage stops an owner, whose stores could hide it. A reader can still read the other maps.
    const StatusCode code = slot.error.code();
    if (code == StatusCode::out_of_memory || (code == StatusCode::corruption && !read_only_))
      return slot.error;
  }
  return {};
}

Expected<Recovered> PoolImpl::open_slot(Slot& slot, bool clean) {
  const auto engine = static_cast<Engine>(slot.root.engine);
  const EngineRow* row = find_engine(engine);
  if (row == nullptr || row->version != slot.root.engine_version) {
    return fail(StatusCode::unsupported_format,
                "map %s is of engine %u version %u, which this build does not have", slot.root.name,
                slot.root.engine, slot.root.engine_version);
  }
  const MapKinds kinds = kinds_of(slot.root);
  const auto named = [&](StatusCode code, std::string_view what) {
    return Status::format(code, "map %s: %.*s", slot.root.name, length(what), what.data());
  };
  Findings damage;
  EngineContext<RealPlatform> engine_context = context();
  engine_context.map = slot.root.name;
  if (allow_damage_) engine_context.damage = &damage;
  auto instance =
      row->open(engine_context, row->arrays ? kinds : kinds.without_arrays(), slot.root.root);
  if (!instance) return fail(named(instance.error().code(), instance.error().message()));
  auto recovered = (*instance)->recover(clean);
  for (const auto& what : damage.violations) {
    damage_.add(named(StatusCode::corruption, what).message());
  }
  if (!recovered) return fail(named(recovered.error().code(), recovered.error().message()));
  slot.instance = std::move(*instance);
  if (!damage.ok()) return fail(named(StatusCode::corruption, "is damaged; see the check"));
  return recovered;
}

// PoolOptions::accept_untrusted: served only if a full check finds nothing.
Status PoolImpl::accept_untrusted() {
  const std::uint64_t begin = RealPlatform::now_ns();
  if (Status s = verify_content(); !s.ok()) return s;
  if (Status s = core_.accept(identity_); !s.ok()) return s;
  log_.say(LogLevel::warning,
           "was not trusted (%s), and is accepted: a full check of %.1f ms "
           "found nothing",
           report_.distrust, milliseconds(RealPlatform::now_ns() - begin));
  return {};
}

Status PoolImpl::verify_content() {
  Findings findings;
  if (Status s = find_violations({.deep = true}, findings); !s.ok()) return s;
  if (findings.ok()) return {};
  const std::string_view first = findings.first();
  return Status::format(StatusCode::corruption, "the check found %lu violations, first: %.*s",
                        findings.violation_count, length(first), first.data());
}

PoolImpl::Slot* PoolImpl::find(std::string_view name) const noexcept {
  for (Slot& slot : slots()) {
    if (slot.used && name == slot.root.name) return &slot;
  }
  return nullptr;
}

// Makes a map: blocks, root line, instance. If it fails after the line was written, the line is
// removed. The next open frees the blocks that create() made, and check() reports them as leaked:
// only an instance could name them, and DRAM was too short for one.
Expected<PoolImpl::Slot*> PoolImpl::make_map(std::string_view name, Engine engine,
                                             const MapOptions& options, const MapTypes& spec) {
  const EngineRow* row = find_engine(engine);
  if (row == nullptr) {
    return fail(StatusCode::unsupported, "engine %s is not in this build",
                EngineText(engine_name(engine)).c_str());
  }
  // Checked first: later, there would be blocks that nothing names.
  if (auto slot = core_.free_root(name); !slot) return fail(std::move(slot.error()));
  MapKinds kinds{spec.key_kind, spec.value_kind, spec.key_bytes, spec.value_bytes};
  if (!row->arrays) kinds = kinds.without_arrays();
  auto root = row->create(context(), kinds, options);
  if (!root && root.error() == StatusCode::pool_full) {
    core_.epochs().drain_all();
    core_.heap().reclaim();
    root = row->create(context(), kinds, options);
  }
  if (!root) return fail(std::move(root.error()));
  layout::Root line{};
  std::memcpy(line.name, name.data(), name.size());
  line.engine = static_cast<std::uint16_t>(engine);
  line.engine_version = row->version;
  line.key_kind = static_cast<std::uint8_t>(spec.key_kind);
  line.value_kind = static_cast<std::uint8_t>(spec.value_kind);
  line.is_signed = spec.is_signed ? 1 : 0;
  line.key_bytes = spec.key_bytes;
  line.value_bytes = spec.value_bytes;
  line.root = *root;
  if (Status s = core_.add_root(line); !s.ok()) return fail(std::move(s));
  auto number = core_.find_root(name);
  if (!number) return fail(std::move(number.error()));
  if (*number == core_.root_slots()) {
    return fail(StatusCode::corruption, "the root directory has lost the line just written");
  }
  Slot* slot = &slots_[*number];
  auto used = core_.read_root(*number, slot->root);
  Status s = used ? Status() : std::move(used.error());
  // A new map is recovered like any other. Its blocks are allocated: they need no marks.
  if (s.ok()) {
    if (auto recovered = open_slot(*slot, false); !recovered) s = std::move(recovered.error());
  }
  if (!s.ok()) {
    (void)core_.drop_root(*number);
    return fail(std::move(s));
  }
  slot->used = true;
  slot->error = {};
  slot->instance->start();
  return slot;
}

// Whether the options allow this map, or, if `slot` is null, a new one.
Status PoolImpl::may_open(const Slot* slot, std::string_view name,
                          const MapOptions& options) const {
  if (Status s = known(options.mode); !s.ok()) return wrap(std::move(s));
  if (options.mode == OpenMode::read_only && !read_only_) {
    return Status::format(StatusCode::invalid_argument,
                          "%s: map %.*s cannot be read-only in a pool that is not; open the pool "
                          "with OpenMode::read_only",
                          path_.c_str(), length(name), name.data());
  }
  if (slot == nullptr) {
    const bool wanted = options.mode == OpenMode::existing || options.mode == OpenMode::read_only;
    if (!wanted && !read_only_) return {};
    return Status::format(wanted ? StatusCode::not_found : StatusCode::read_only,
                          "%s: has no map %.*s%s", path_.c_str(), length(name), name.data(),
                          in_use_ ? " in its last durable cut; the process that has the pool may "
                                    "have made it since, so open the pool again"
                                  : "");
  }
  if (options.mode == OpenMode::create_new) {
    return Status::format(StatusCode::exists, "%s: map %s exists; choose another name, or drop it",
                          path_.c_str(), slot->root.name);
  }
  const auto engine = static_cast<Engine>(slot->root.engine);
  if (!slot->error.ok()) return wrap(slot->error);
  if (options.engine.value_or(engine) == engine) return {};
  return Status::format(StatusCode::invalid_argument,
                        "%s: map '%s' is of engine %s, not %s; state no engine, or use another map",
                        path_.c_str(), slot->root.name, EngineText(engine_name(engine)).c_str(),
                        EngineText(engine_name(*options.engine)).c_str());
}

Expected<EngineInstance*> PoolImpl::open_map(std::string_view name, const MapOptions& options,
                                             const MapTypes& spec, View view) {
  if (Status s = usable(); !s.ok()) return fail(std::move(s));
  if (name.empty() || name.size() > kMaxMapNameBytes || name.find('\0') != std::string_view::npos) {
    return fail(StatusCode::invalid_argument, "%s: a map's name has 1 to %lu bytes and no NUL",
                path_.c_str(), kMaxMapNameBytes);
  }
  LatchGuard maintenance(maintenance_);
  LatchGuard guard(latch_);
  LatchGuard targets(targets_);
  Slot* slot = find(name);
  if (Status s = may_open(slot, name, options); !s.ok()) return fail(std::move(s));
  const Engine engine = slot != nullptr ? static_cast<Engine>(slot->root.engine)
                                        : options.engine.value_or(natural_engine(view));
  // Checked before a map is made that could not be used.
  if (Status s = offers(engine, view); !s.ok()) return fail(wrap(std::move(s)));
  if (slot == nullptr) {
    if (Status refused = core_.gate().refusal(); !refused.ok()) return fail(std::move(refused));
    auto made = make_map(name, engine, options, spec);
    if (!made) return fail(wrap(std::move(made.error())));
    // Its start may have failed to write back.
    if (platform_.poisoned()) return fail(platform_.failure());
    slot = *made;
  }
  const layout::Root& root = slot->root;
  if (root.key_kind != static_cast<std::uint8_t>(spec.key_kind) ||
      root.value_kind != static_cast<std::uint8_t>(spec.value_kind) ||
      (root.is_signed != 0) != spec.is_signed || root.key_bytes != spec.key_bytes ||
      root.value_bytes != spec.value_bytes) {
    const MapTypes own{static_cast<KeyKind>(root.key_kind), static_cast<ValueKind>(root.value_kind),
                       root.is_signed != 0, root.key_bytes, root.value_bytes};
    return fail(StatusCode::invalid_argument,
                "%s: map '%s' was created with %s keys and %s values, not %s keys and %s values; "
                "open it with those, or use another map",
                path_.c_str(), root.name, key_words(own).c_str(), value_words(own).c_str(),
                key_words(spec).c_str(), value_words(spec).c_str());
  }
  return slot->instance.get();
}

// A damaged map may name a block twice, or a block of another map. It gives nothing back: the next
// open frees the blocks that no map reaches.
bool PoolImpl::names_its_own(EngineInstance& map) {
  if (!map.mark_failure().ok() || !core_.heap().begin_audit().ok()) return false;
  const bool own = map.audit().ok();
  (void)core_.heap().end_audit();
  return own;
}

Status PoolImpl::drop(std::string_view name) {
  if (Status s = usable(); !s.ok()) return s;
  if (read_only_) return wrap(StatusCode::read_only);
  if (Status s = core_.gate().refusal(); !s.ok()) return s;
  LatchGuard compaction(compaction_);
  LatchGuard maintenance(maintenance_);
  LatchGuard guard(latch_);
  LatchGuard targets(targets_);
  Slot* slot = find(name);
  if (slot == nullptr) {
    return Status::format(StatusCode::not_found, "%s: has no map %.*s", path_.c_str(), length(name),
                          name.data());
  }
  std::unique_ptr<Dropped> dropped(new (std::nothrow) Dropped);
  if (dropped == nullptr) return wrap(StatusCode::out_of_memory);
  // Only after a whole walk it is known whether the map is damaged.
  if (!core_.sweep().finish()) {
    const BackgroundHold<RealPlatform> hold(core_.background());
    return wrap(core_.sweep().failure());
  }
  if (Status s = core_.drop_root(static_cast<std::uint32_t>(slot - slots_.get())); !s.ok()) {
    return wrap(std::move(s));
  }
  slot->used = false;
  slot->error = {};
  if (slot->instance != nullptr) {
    const BackgroundHold<RealPlatform> hold(core_.background());
    if (names_its_own(*slot->instance)) slot->instance->release_blocks();
    tombstone::place(slot->instance->index(), tombstone::End::dropped, path_.c_str());
    dropped->instance = std::move(slot->instance);
    dropped->next = std::move(dropped_);
    dropped_ = std::move(dropped);
  }
  // Freeing the blocks may have failed to write back.
  return platform_.poisoned() ? platform_.failure() : Status();
}

Status PoolImpl::sync() {
  if (Status s = usable(); !s.ok()) return s;
  if (read_only_) return {};
  if (buffered_) {
    if (const Status& found = core_.sweep().failure(); !found.ok()) return wrap(Status(found));
    return wrap(buffered_->stream().sync());
  }
  LatchGuard guard(maintenance_);
  const std::uint64_t begin = RealPlatform::now_ns();
  if (Status s = core_.sync(); !s.ok()) return wrap(std::move(s));
  log_.say(LogLevel::info, "synced in %.1f ms", milliseconds(RealPlatform::now_ns() - begin));
  return {};
}

Expected<std::uint64_t> PoolImpl::compact() {
  if (Status s = usable(); !s.ok()) return fail(std::move(s));
  if (read_only_) return fail(wrap(StatusCode::read_only));
  LatchGuard one(compaction_);
  const std::uint64_t begin = RealPlatform::now_ns();
  const std::uint64_t base_before = buffered_ ? base_.disk_bytes() : 0;
  Expected<std::uint64_t> bytes = 0;
  {
    LatchGuard guard(maintenance_);
    if (Status s = shrink_maps(); !s.ok()) return fail(wrap(std::move(s)));
    core_.epochs().drain_all();
  }
  if (Status s = move_blocks(); !s.ok()) return fail(wrap(std::move(s)));
  // What was moved is free when operations have left their guards.
  core_.epochs().drain_for_room();
  {
    LatchGuard guard(maintenance_);
    core_.epochs().drain_all();
    bytes = punch_free();
  }
  // Batches need not wait for that.
  if (bytes && buffered_) bytes = punch_base(base_before);
  if (!bytes) return fail(wrap(std::move(bytes.error())));
  if (platform_.poisoned()) return fail(platform_.failure());
  log_.say(LogLevel::info, "compacted in %.1f ms, %lu bytes given back",
           milliseconds(RealPlatform::now_ns() - begin), *bytes);
  return bytes;
}

Status PoolImpl::shrink_maps() {
  for (Slot& slot : slots()) {
    if (slot.instance == nullptr) continue;
    // Passes over a map without room to shrink: others may have room, and free extents go anyway.
    if (auto done = slot.instance->compact(); !done && done.error() != StatusCode::pool_full)
      return std::move(done.error());
  }
  return {};
}

// Batches, syncs and the making of maps go on between the steps. No map is dropped meanwhile,
// because drop() takes the latch of compact().
Status PoolImpl::move_blocks() {
  constexpr unsigned kLeft = 32;  // pauses in which those that wait for the latch can take it
  for (std::size_t i = 0; i < slots().size(); ++i) {
    for (bool more = true; more;) {
      {
        LatchGuard guard(maintenance_);
        EngineInstance* const map = slots()[i].instance.get();
        auto done = map != nullptr ? map->compact_some() : Expected<bool>(false);
        if (!done) return std::move(done.error());
        more = *done;
      }
      for (unsigned spins = 0; more && spins < kLeft; ++spins) RealPlatform::pause(spins);
    }
  }
  return {};
}

// After punch_free(). `before`: the space of the base until then. That of the live image does not
// count, because it goes at the close.
Expected<std::uint64_t> PoolImpl::punch_base(std::uint64_t before) {
  if (Status s = buffered_->punch_base(); !s.ok()) return fail(std::move(s));
  const std::uint64_t after = base_.disk_bytes();
  return before > after ? before - after : 0;
}

// Returns the bytes by which the file takes less space. The heap does not know which free extents
// an earlier process has punched, and punches those again.
Expected<std::uint64_t> PoolImpl::punch_free() {
  const BackgroundHold<RealPlatform> hold(core_.background());  // which could grow the file
  const std::uint64_t first = storage_.disk_bytes();
  core_.give_back_ahead();
  const std::uint64_t before = storage_.disk_bytes();
  auto punched = core_.heap().punch_free();
  if (!punched) return punched;
  const std::uint64_t after = storage_.disk_bytes();
  return first - std::min(first, before) + std::min(*punched, before > after ? before - after : 0);
}

// No map is made or dropped meanwhile.
Status PoolImpl::find_targets(ItemsCommit<RealPlatform>& commit) const {
  // After a crash the next open needs every map, to know which blocks are free.
  for (const Slot& slot : slots()) {
    if (!slot.used || slot.error.ok()) continue;
    return Status::format(StatusCode::unsupported,
                          "map %s of this pool cannot be read, so a batch could not be finished "
                          "after a crash; drop the map, or use a build that has its engine",
                          slot.root.name);
  }
  return commit.find_targets([this](const Index& index) {
    for (std::uint32_t i = 0; i < slots().size(); ++i) {
      const Slot& slot = slots_[i];
      if (slot.instance != nullptr && &slot.instance->index() == &index) {
        return BatchTarget{slot.instance.get(), i, slot.root.root};
      }
    }
    return BatchTarget{};
  });
}

Status PoolImpl::commit(const BatchItems& batch) {
  if (Status s = usable(); !s.ok()) return s;
  if (read_only_) return wrap(StatusCode::read_only);
  if (Status s = core_.gate().refusal(); !s.ok()) return s;
  if (buffered_) buffered_->pace();
  ItemsCommit<RealPlatform> commit(core_, batch);
  Status s = commit.sort();
  if (s.ok()) {
    LatchGuard guard(targets_);
    s = find_targets(commit);
  }
  if (s.ok()) {
    auto done = commit.do_beside();
    s = done ? Status() : std::move(done.error());
    if (done && !*done) {
      LatchGuard maintenance(maintenance_);
      s = core_.gate().refusal();
      if (s.ok()) s = find_targets(commit);
      if (s.ok()) s = commit.do_alone();
    }
  }
  return platform_.poisoned() ? platform_.failure() : wrap(std::move(s));
}

Status PoolImpl::read_batch(FunctionRef<void()> reads) {
  if (Status s = usable(); !s.ok()) return s;
  LatchGuard guard(maintenance_);
  const GateHold<RealPlatform> hold(core_.epochs());
  reads();
  return {};
}

Expected<bool> PoolImpl::run_background() {
  if (Status s = usable(); !s.ok()) return fail(std::move(s));
  if (buffered_ && buffered_->run_due()) return true;
  return core_.background().run_some();
}

Expected<std::uint64_t> PoolImpl::epoch() const {
  if (Status s = usable(); !s.ok()) return fail(std::move(s));
  if (durability_ == Durability::power) return 0;  // everything is durable
  if (buffered_) return buffered_->stream().next();
  return fail(wrap(Status::format(StatusCode::unsupported,
                                  "durability %s makes nothing durable by itself; use `buffered`",
                                  EngineText(durability_name(durability_)).c_str())));
}

Status PoolImpl::wait_durable(std::uint64_t epoch) {
  if (auto next = this->epoch(); !next) return std::move(next.error());
  return buffered_ ? wrap(buffered_->stream().wait(epoch)) : Status();
}

Status PoolImpl::resume_log() {
  if (Status s = usable(); !s.ok()) return s;
  return buffered_ ? wrap(buffered_->stream().resume()) : Status();
}

Status PoolImpl::fold_log() {
  if (Status s = usable(); !s.ok()) return s;
  return buffered_ ? wrap(buffered_->fold()) : Status();
}

// A pool whose file was moved goes on, and its owner may look for it where it was.
void PoolImpl::tell_place() const {
  PathText now;
  const FileStorage& file = base_.is_open() ? base_ : storage_;
  if (read_only_ || file.has_name(now)) return;
  log_.say(LogLevel::warning, "its file was moved or replaced while it was open; it is %s now",
           *now.c_str() != '\0' ? now.c_str() : "elsewhere");
}

Status PoolImpl::close(const CloseOptions& options) {
  if (open_ && owner_pid_ == getpid()) {
    if (Status s = in_callback(); !s.ok()) return s;
  }
  return end(options);
}

Status PoolImpl::end(const CloseOptions& options) {
  if (!open_ || owner_pid_ != getpid()) {
    // A child of fork must leave its parent's pool alone, down to the destructors.
    if (open_) {
      for (Slot& slot : slots()) (void)slot.instance.release();
      for (Dropped* d = dropped_.get(); d != nullptr; d = d->next.get())
        (void)d->instance.release();
      core_.abandon();
      platform_.leave_mapping();
      storage_.abandon();
      base_.abandon();
      if (buffered_) buffered_->abandon();
      if (view_) view_->abandon();
      open_ = false;
    }
    return closed_;
  }
  open_ = false;
  core_.background().stop();
  core_.epochs().drain_all();
  Status s;
  if (!read_only_) s = core_.sweep().failure();
  // A file that lost a part of itself is left as it is, and so is one found damaged after its open.
  // No new checksum may hide the damage, and no header may vouch for the content.
  const bool leaves = !options.finish_recovery && !report_.was_clean && !core_.sweep().over();
  const bool writes = !read_only_ && !lost() && s.ok() && !leaves;
  for (Slot& slot : slots()) {
    if (!writes || slot.instance == nullptr) continue;
    if (Status c = slot.instance->close(); !c.ok()) s = std::move(c);
  }
  for (Slot& slot : slots()) {
    if (slot.instance != nullptr) {
      tombstone::place(slot.instance->index(), tombstone::End::closed, path_.c_str());
    }
  }
  slots_.reset();
  while (dropped_ != nullptr) dropped_ = std::move(dropped_->next);
  if (s.ok() && writes) s = core_.close(options.sync || buffered_.has_value());
  if (buffered_) {
    const bool whole = s.ok() && writes && !platform_.poisoned();
    if (whole) {
      s = buffered_->close();
    } else {
      Status left = buffered_->leave(!platform_.poisoned());
      if (s.ok()) s = std::move(left);
    }
  }
  tell_place();
  platform_.leave_mapping();
  if (buffered_) buffered_->live().close();
  view_.reset();
  storage_.close();
  base_.close();
  real_files_.let_go();
  interleaved_.end();
  closed_ = platform_.poisoned() ? platform_.failure() : wrap(std::move(s));
  return closed_;
}

}  // namespace perdure::detail
