// PoolImpl: a pool as a process has it: file, medium, format and open maps.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "cut/live_chunks.h"
#include "index/engine_table.h"
#include "perdure/pool.h"
#include "platform/file_storage.h"
#include "platform/memory_nodes.h"
#include "platform/real_platform.h"
#include "pool/batch_items.h"
#include "pool/buffered.h"
#include "pool/opening.h"
#include "util/containers.h"
#include "util/path.h"

namespace perdure::detail {

class PoolImpl final : private PoolMaps {
 public:
  // The implementation of an open pool, for tests.
  static PoolImpl& of(Pool& pool) noexcept { return *pool.impl_; }

  PoolImpl() noexcept : core_(platform_, storage_) {}
  static Expected<Pool> open_as(std::string_view path, const PoolOptions& options,
                                bool ignores_image);
  // For tests: a `buffered` pool whose base and log are in a simulated file system.
  static Expected<Pool> open_in(FileSystem& files, std::string_view path,
                                const PoolOptions& options);
  PoolImpl(const PoolImpl&) = delete;
  PoolImpl& operator=(const PoolImpl&) = delete;
  ~PoolImpl() override;

  Status open(std::string_view path, const PoolOptions& options);
  // Pool::resize(). Instead of open(), and the only call.
  Status resize(std::string_view path, std::uint64_t max_size);
  // Whether the pool is open, in the process that opened it, and not lost.
  Status usable() const;
  // How a map is opened. Decides the engine of a new map whose options name none.
  enum class View : std::uint8_t { plain, ordered, versioned };
  // The instance lives as long as the pool is open, and offers what the view needs.
  Expected<EngineInstance*> open_map(std::string_view name, const MapOptions& options,
                                     const MapTypes& spec, View view = View::plain);
  // False: there is no such map. Errors: out_of_memory.
  Expected<bool> describe_map(std::string_view name, MapInfo& out) const;
  Status drop(std::string_view name);
  Expected<std::vector<MapInfo>> list() const;
  Expected<PoolInfo> info() const;
  Expected<PoolStats> stats();
  Expected<CheckReport> check(const CheckOptions& options);
  Expected<CheckReport> salvage(std::string_view name, FunctionRef<void(const Entry&)> visit);
  Status sync();
  Expected<std::uint64_t> compact();
  Status commit(const BatchItems& batch);
  Status read_batch(FunctionRef<void()> reads);
  Expected<bool> run_background();
  Expected<std::uint64_t> epoch() const;
  Status wait_durable(std::uint64_t epoch);
  Status resume_log();
  Status fold_log();
  Expected<BackupInfo> backup(std::string_view folder, const BackupOptions& options);
  // Whether the open had no reason to check the content.
  bool opened_trusted() const noexcept { return report_.distrust == nullptr; }
  // A deep check. Passes over a copy of the header that this open has repaired. Errors: corruption.
  Status verify_content();
  Status close(const CloseOptions& options);
  Background<RealPlatform>& background() noexcept { return core_.background(); }
  // For tests of cuts: what a StoreTracker needs. The pool must have no background threads, and no
  // other thread may use it yet.
  std::span<std::byte> memory() noexcept { return {storage_.base(), storage_.size()}; }
  RealPlatform& platform() noexcept { return platform_; }

 private:
  // One used line of the root directory. A map that could not be recovered keeps its reason here.
  struct Slot {
    layout::Root root{};
    std::unique_ptr<EngineInstance> instance;
    Status error;
    bool used = false;
  };

  // Maps the pages of a pool that restarted at once, if they are RAM, before an access faults.
  class Populate final : public BackgroundWork<RealPlatform> {
   public:
    explicit Populate(PoolImpl& pool) : pool_(pool) {}
    Step run_some() override;

   private:
    PoolImpl& pool_;
    std::uint64_t cursor_ = 0;  // extent
  };

  // A dropped map's instance. It stays until close: limbo may hold objects that only it can finish.
  struct Dropped {
    std::unique_ptr<EngineInstance> instance;
    std::unique_ptr<Dropped> next;
  };

  Status set_path(std::string_view path);
  // Maps at least `capacity` bytes of an existing file.
  Status open_file(const PoolOptions& options, std::uint64_t capacity = 0);
  Status open_existing(const PoolOptions& options, std::uint64_t capacity);
  Status open_reading(const PoolOptions& options);
  Status create_file(const PoolOptions& options);
  Status read_start(std::byte* pages, std::uint64_t& n, std::uint64_t& size);
  // --- durability `buffered` ---
  Durability without_dax(const PoolOptions& options) const noexcept;
  Status may_buffer(const PoolOptions& options) const;
  Status look_at_base(const PoolOptions& options);
  Status begin_buffered(const PoolOptions& options, const layout::Header& header, int copy);
  Status open_left(const PoolOptions& options, const layout::BaseMark& mark);
  Status read_left(const layout::BaseMark& mark);
  Status choose_durability(const PoolOptions& options, Durability last);
  // --- PoolMaps ---
  Status recover(const OpenReport& report, bool& whole) override;
  Status complete() override;
  EngineInstance* map_at(std::uint32_t slot, std::uint64_t root) override;
  Status accept(const OpenReport& report) override;
  void serve() override;

  Expected<Recovered> open_slot(Slot& slot, bool clean);
  void finish_marking();
  Status accept_untrusted();
  void settle_versions() noexcept;
  void tell_opened() const;
  void tell_place() const;
  bool names_its_own(EngineInstance& map);
  Expected<Slot*> make_map(std::string_view name, Engine engine, const MapOptions& options,
                           const MapTypes& spec);
  Status may_open(const Slot* slot, std::string_view name, const MapOptions& options) const;
  EngineContext<RealPlatform> context() noexcept {
    return {.platform = platform_,
            .heap = core_.heap(),
            .epochs = core_.epochs(),
            .background = core_.background(),
            .threads = threads_,
            .read_only = read_only_,
            .log = &log_,
            .after_kill = core_.after_kill().done() ? nullptr : &core_.after_kill(),
            .cuts = buffered_ ? &*buffered_ : nullptr};
  }
  Status in_callback() const;
  Status end(const CloseOptions& options);
  Status wrap(Status status) const;  // puts the path in front
  bool lost() const;                 // the file no longer has all of the pool
  // All of the pool is in memory; a live image there has only a part of it.
  bool in_memory() const noexcept {
    return storage_.medium().medium == Medium::volatile_ram && !base_.is_open();
  }
  std::span<Slot> slots() const noexcept {
    return {slots_.get(), slots_ != nullptr ? core_.root_slots() : 0};
  }
  Status find_targets(ItemsCommit<RealPlatform>& commit) const;
  Slot* find(std::string_view name) const noexcept;
  Expected<std::uint64_t> punch_free();
  Status shrink_maps();
  Status move_blocks();
  Expected<std::uint64_t> punch_base(std::uint64_t before);
  Status find_violations(const CheckOptions& options, Findings& findings);
  Status count_leaks(Findings& findings);

  PathText path_;
  Log log_;
  RealPlatform platform_;
  FileStorage storage_;  // what is mapped: the file, or the live image of a `buffered` pool
  FileStorage base_;     // the file of a `buffered` pool, with its lock
  RealFileSystem real_files_;
  FileSystem* files_ = &real_files_;
  std::optional<Buffered> buffered_;
  std::optional<LiveChunks> view_;  // of a reader of a `buffered` pool that was left open
  InterleavedDram interleaved_;
  Populate populate_{*this};
  mutable PoolCore<RealPlatform> core_;  // its destruction ends all background work
  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<Dropped> dropped_;
  RealPlatform::Latch compaction_;  // of compact(); before maintenance_
  // One at a time: operations that store outside epoch guards (sync, check, compact, and making and
  // dropping maps). Taken before latch_.
  RealPlatform::Latch maintenance_;
  mutable RealPlatform::Latch latch_;  // slots_; changed with these three latches held
  RealPlatform::Latch targets_;        // for commits, which must not wait for a reader of latch_
  Durability durability_ = Durability::process;
  Durability last_durability_ = Durability::automatic;  // of the open before; of a new pool: none
  layout::Identity identity_{};
  OpenReport report_;
  Findings damage_;        // passed over at open
  int damaged_copy_ = -1;  // of the header, 0 or 1, before this open
  std::uint32_t threads_ = 1;
  std::uint64_t recovery_ns_ = 0;
  std::int64_t owner_pid_ = 0;
  bool read_only_ = false;
  bool created_ = false;  // the file is no pool yet
  bool made_ = false;     // this open has made the pool
  bool open_ = false;
  bool logged_ = false;  // the log of a `buffered` pool vouches for the content
  bool began_ = false;   // this open has begun that log
  bool ignores_image_ = false;
  bool resizes_ = false;  // no map will be opened
  Status closed_;         // what close() has returned
  bool allow_damage_ = false;
  bool in_use_ = false;  // read-only, and an owner had it
};

// An engine's name for a message, NUL-terminated.
using EngineText = Text<15>;
Text<36> uuid_text(const std::uint8_t (&uuid)[16]) noexcept;
MapTypes spec_of(const MapInfo& info) noexcept;
Status known(OpenMode mode);  // invalid_argument: it is none

}  // namespace perdure::detail
