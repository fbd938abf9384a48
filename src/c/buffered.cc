// Pools of durability `buffered`, and backups.
#include "perdure/c.h"

#include <string_view>

#include "c/calls.h"
#include "perdure/backup.h"

namespace perdure::c {
namespace {

perdure_status to_options(const char* function, const perdure_buffered_options* options,
                          BufferedOptions& out) noexcept {
  perdure_buffered_options in = PERDURE_BUFFERED_OPTIONS_INIT;
  if (auto s = take(function, "buffered", options, in); s != PERDURE_OK) return s;
  constexpr std::uint32_t kFlags = PERDURE_BUFFERED_REPORT_LAG | PERDURE_BUFFERED_SERVE_WITHOUT_LOG;
  if ((in.flags & ~kFlags) != 0) return unknown_flags(function, in.flags);
  if (in.interval_ms != 0) out.interval_ms = in.interval_ms;
  if ((in.flags & PERDURE_BUFFERED_REPORT_LAG) != 0) out.on_lag = OnLag::report;
  if ((in.flags & PERDURE_BUFFERED_SERVE_WITHOUT_LOG) != 0) {
    out.on_log_failure = OnLogFailure::serve;
  }
  out.log_bytes = in.log_bytes;
  out.keep_log_bytes = in.keep_log_bytes;
  if (in.memory_directory != nullptr) out.memory_directory = in.memory_directory;
  return PERDURE_OK;
}

// The caller's function of progress. An exception of it ends here, and the call goes on.
template <class Options>
struct Progress {
  const Options& options;
  Caller caller = {};

  template <class With>
  void pass_to(With& with) noexcept {
    if (options.progress == nullptr) return;
    with.progress_context = this;
    with.progress = [](void* context, std::uint64_t done, std::uint64_t total) {
      auto& self = *static_cast<Progress*>(context);
      (void)self.caller.call([&] {
        self.options.progress(self.options.context, done, total);
        return true;
      });
    };
  }
};

void to_c(const BackupInfo& in, perdure_backup_info& out) noexcept {
  out.first_epoch = in.first.epoch;
  out.first_unix_ns = in.first.unix_ns;
  out.last_epoch = in.last.epoch;
  out.last_unix_ns = in.last.unix_ns;
  out.base_bytes = in.base_bytes;
  out.log_bytes = in.log_bytes;
  out.made_unix_ns = in.made_unix_ns;
  out.ends_unix_ns = in.ends_unix_ns;
  out.copied_bytes = in.copied_bytes;
  out.closed = in.closed ? 1 : 0;
  out.extended = in.extended ? 1 : 0;
  copy(in.uuid, out.uuid);
}

// Makes a backup by make(options) after the arguments were verified.
template <class Make>
perdure_status make_backup(const char* function, const perdure_backup_options* options,
                           perdure_backup_info* info, Make&& make) {
  perdure_backup_options in = PERDURE_BACKUP_OPTIONS_INIT;
  if (auto s = take(function, "options", options, in); s != PERDURE_OK) return s;
  Progress<perdure_backup_options> progress{in};
  BackupOptions with;
  progress.pass_to(with);
  const Expected<BackupInfo> made = make(with);
  if (!made) return failed(made.error());
  if (info != nullptr) to_c(*made, *info);
  return progress.caller.threw() ? progress.caller.error(function) : PERDURE_OK;
}
perdure_status clear_if_there(const char* function, perdure_backup_info* info) noexcept {
  return info != nullptr ? clear(function, "info", info) : PERDURE_OK;
}

}  // namespace
}  // namespace perdure::c

using namespace perdure::c;  // NOLINT(google-build-using-namespace): it defines a part of c.h

// ---- pools --------------------------------------------------------------------------------------

perdure_status perdure_pool_open_buffered(const char* path, const perdure_pool_options* options,
                                          const perdure_buffered_options* buffered,
                                          perdure_pool** pool) {
  perdure::BufferedOptions with;
  if (pool != nullptr) *pool = nullptr;
  if (auto s = to_options(__func__, buffered, with); s != PERDURE_OK) return s;
  return open_pool(__func__, path, options, with, pool);
}

perdure_status perdure_pool_epoch(perdure_pool* pool, uint64_t* epoch) {
  if (auto s = not_null(__func__, "epoch", epoch); s != PERDURE_OK) return s;
  *epoch = 0;
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  const auto next = pool->state->pool->epoch();
  if (!next) return failed(next.error());
  *epoch = *next;
  return PERDURE_OK;
}

perdure_status perdure_pool_wait_durable(perdure_pool* pool, uint64_t epoch) {
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  return done(pool->state->pool->wait_durable(epoch));
}
perdure_status perdure_pool_resume_log(perdure_pool* pool) {
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  return done(pool->state->pool->resume_log());
}
perdure_status perdure_pool_fold_log(perdure_pool* pool) {
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  return done(pool->state->pool->fold_log());
}

perdure_status perdure_pool_get_buffered_stats(perdure_pool* pool, perdure_buffered_stats* stats) {
  if (auto s = clear(__func__, "stats", stats); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  const auto got = pool->state->pool->stats();
  if (!got) return failed(got.error());
  stats->lag_ns = got->lag_ns;
  stats->cuts = got->cuts;
  stats->log_bytes = got->log_bytes;
  stats->log_written_bytes = got->log_written_bytes;
  stats->log_bound_bytes = got->log_bound_bytes;
  stats->folds = got->folds;
  stats->fold_written_bytes = got->fold_written_bytes;
  stats->live_bytes = got->live_bytes;
  stats->longest_stop_ns = got->longest_stop_ns;
  stats->log_failed_unix_ns = got->log_failed_unix_ns;
  stats->stopped_thread = got->stopped_thread;
  return PERDURE_OK;
}

perdure_status perdure_pool_inspect_buffered(const char* path, perdure_buffered_info* info) {
  if (auto s = clear(__func__, "info", info); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "path", path); s != PERDURE_OK) return s;
  const auto got = perdure::Pool::inspect(path);
  if (!got) return failed(got.error());
  info->durable_unix_ns = got->durable_unix_ns;
  copy(got->live_image, info->live_image);
  info->aside_images = got->aside_images.size();
  if (got->aside_images.empty()) return PERDURE_OK;
  info->newest_aside_unix_ns = got->aside_images.front().durable_unix_ns;
  copy(got->aside_images.front().path, info->newest_aside);
  return PERDURE_OK;
}

perdure_status perdure_destroy(const char* path) {
  if (auto s = not_null(__func__, "path", path); s != PERDURE_OK) return s;
  return done(perdure::destroy(path));
}

// ---- backups ------------------------------------------------------------------------------------

perdure_status perdure_pool_backup(perdure_pool* pool, const char* folder,
                                   const perdure_backup_options* options,
                                   perdure_backup_info* info) {
  if (auto s = clear_if_there(__func__, info); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "pool", pool); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "folder", folder); s != PERDURE_OK) return s;
  return make_backup(__func__, options, info, [&](const perdure::BackupOptions& with) {
    return pool->state->pool->backup(folder, with);
  });
}

perdure_status perdure_back_up(const char* path, const char* folder,
                               const perdure_backup_options* options, perdure_backup_info* info) {
  if (auto s = clear_if_there(__func__, info); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "path", path); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "folder", folder); s != PERDURE_OK) return s;
  return make_backup(__func__, options, info, [&](const perdure::BackupOptions& with) {
    return perdure::back_up(path, folder, with);
  });
}

perdure_status perdure_inspect_backup(const char* folder, perdure_backup_info* info) {
  if (auto s = clear(__func__, "info", info); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "folder", folder); s != PERDURE_OK) return s;
  const auto got = perdure::inspect_backup(folder);
  if (!got) return failed(got.error());
  to_c(*got, *info);
  return PERDURE_OK;
}

perdure_status perdure_restore(const char* folder, const char* path,
                               const perdure_restore_options* options, uint64_t* epoch) {
  if (epoch != nullptr) *epoch = 0;
  if (auto s = not_null(__func__, "folder", folder); s != PERDURE_OK) return s;
  if (auto s = not_null(__func__, "path", path); s != PERDURE_OK) return s;
  perdure_restore_options in = PERDURE_RESTORE_OPTIONS_INIT;
  if (auto s = take(__func__, "options", options, in); s != PERDURE_OK) return s;
  if ((in.flags & ~(PERDURE_RESTORE_EPOCH | PERDURE_RESTORE_TIME)) != 0 || in.reserved != 0) {
    return unknown_flags(__func__, in.flags);
  }
  Progress<perdure_restore_options> progress{in};
  perdure::RestoreOptions with;
  progress.pass_to(with);
  if ((in.flags & PERDURE_RESTORE_EPOCH) != 0) with.epoch = in.epoch;
  if ((in.flags & PERDURE_RESTORE_TIME) != 0) with.unix_ns = in.unix_ns;
  const auto restored = perdure::restore(folder, path, with);
  if (!restored) return failed(restored.error());
  if (epoch != nullptr) *epoch = restored->epoch;
  return progress.caller.threw() ? progress.caller.error(__func__) : PERDURE_OK;
}
