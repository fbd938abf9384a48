#include "perdure/pool.h"

#include <algorithm>
#include <new>
#include <utility>

#include "perdure/version.h"
#include "perdure/write_batch.h"
#include "platform/nap.h"
#include "pool/batch_items.h"
#include "pool/pool_impl.h"

namespace perdure {

std::string_view version() noexcept { return PERDURE_VERSION; }

Counters thread_counters() noexcept { return detail::thread_state.counters; }

Pool::Pool(std::unique_ptr<detail::PoolImpl> impl) noexcept : impl_(std::move(impl)) {}
Pool::Pool(Pool&&) noexcept = default;
Pool& Pool::operator=(Pool&&) noexcept = default;
Pool::~Pool() = default;

// No process tells another that it has closed a pool.
Expected<Pool> Pool::open(std::string_view path, const PoolOptions& options) {
  constexpr std::uint64_t kMillisecond = 1'000'000;
  constexpr std::uint64_t kMostPause = 50 * kMillisecond;
  const std::uint64_t end = RealPlatform::now_ns() + options.open_timeout_ms * kMillisecond;
  bool found_none = options.mode == OpenMode::open_or_create;
  for (std::uint64_t pause = kMillisecond;; pause = std::min(2 * pause, kMostPause)) {
    const std::uint64_t begin = RealPlatform::now_ns();
    auto pool = detail::PoolImpl::open_as(path, options, false);
    // Another process may have created it since this one has found none.
    if (!pool && pool.error() == StatusCode::exists && std::exchange(found_none, false)) continue;
    const std::uint64_t now = RealPlatform::now_ns();
    if (pool || pool.error() != StatusCode::busy || now >= end) return pool;
    // To find the process that the message names can take longer than the rest.
    nap(std::min({std::max(pause, 8 * (now - begin)), end - now, 10 * kMostPause}));
  }
}

// An open is refused if it finds damage in the live image. If it accepts a loss, a second one
// ignores the image.
Expected<Pool> detail::PoolImpl::open_as(std::string_view path, const PoolOptions& options,
                                         bool ignores_image) {
  std::unique_ptr<PoolImpl> impl(new (std::nothrow) PoolImpl);
  if (impl == nullptr) return fail(StatusCode::out_of_memory);
  impl->ignores_image_ = ignores_image;
  Status s = impl->open(path, options);
  if (s.ok()) return Pool(std::move(impl));
  const bool again = s == StatusCode::live_missing && options.accept_untrusted && !ignores_image &&
                     options.mode != OpenMode::read_only;
  if (!again) return fail(std::move(s));
  impl.reset();
  return open_as(path, options, true);
}

Expected<Pool> detail::PoolImpl::open_in(FileSystem& files, std::string_view path,
                                         const PoolOptions& options) {
  std::unique_ptr<PoolImpl> impl(new (std::nothrow) PoolImpl);
  if (impl == nullptr) return fail(StatusCode::out_of_memory);
  impl->files_ = &files;
  if (Status s = impl->open(path, options); !s.ok()) return fail(std::move(s));
  return Pool(std::move(impl));
}

Status Pool::resize(std::string_view path, std::uint64_t max_size) {
  std::unique_ptr<detail::PoolImpl> impl(new (std::nothrow) detail::PoolImpl);
  return impl == nullptr ? Status(StatusCode::out_of_memory) : impl->resize(path, max_size);
}

Expected<detail::Handle<detail::Index>> Pool::open_index(std::string_view name,
                                                         const MapOptions& options,
                                                         const MapTypes& spec) {
  auto instance = impl_->open_map(name, options, spec);
  if (!instance) return fail(std::move(instance.error()));
  return detail::Handle<detail::Index>(&(*instance)->index());
}

Expected<detail::Handle<detail::OrderedIndex>> Pool::open_ordered(std::string_view name,
                                                                  const MapOptions& options,
                                                                  const MapTypes& spec) {
  auto instance = impl_->open_map(name, options, spec, detail::PoolImpl::View::ordered);
  if (!instance) return fail(std::move(instance.error()));
  return detail::Handle<detail::OrderedIndex>((*instance)->ordered());
}

Expected<detail::Handle<detail::VersionedIndex>> Pool::open_versioned(std::string_view name,
                                                                      const MapOptions& options,
                                                                      const MapTypes& spec) {
  auto instance = impl_->open_map(name, options, spec, detail::PoolImpl::View::versioned);
  if (!instance) return fail(std::move(instance.error()));
  return detail::Handle<detail::VersionedIndex>((*instance)->versioned());
}

Expected<UntypedMap> Pool::untyped_map(std::string_view name, const MapOptions& options,
                                       const std::optional<MapTypes>& create) {
  MapOptions as_found = options;
  MapInfo info;
  auto found = impl_->describe_map(name, info);
  if (!found) return fail(std::move(found.error()));
  const bool exists = *found;
  if (!exists && !create) as_found.mode = OpenMode::existing;
  auto instance =
      impl_->open_map(name, as_found, exists || !create ? detail::spec_of(info) : *create);
  if (!instance) return fail(std::move(instance.error()));
  if (!exists) found = impl_->describe_map(name, info);
  if (!found) return fail(std::move(found.error()));
  return UntypedMap(std::move(info), detail::Handle(&(*instance)->index()),
                    detail::Handle((*instance)->ordered()),
                    detail::Handle((*instance)->versioned()));
}

Expected<std::vector<MapInfo>> Pool::list() const { return impl_->list(); }
Status Pool::drop(std::string_view name) { return impl_->drop(name); }
Expected<PoolInfo> Pool::info() const { return impl_->info(); }
Expected<PoolStats> Pool::stats() const { return impl_->stats(); }
Expected<CheckReport> Pool::check(const CheckOptions& options) const {
  return impl_->check(options);
}
Expected<CheckReport> Pool::salvage(
    std::string_view name, FunctionRef<void(const UntypedKey&, const UntypedValue&)> visit) const {
  const auto pass_on = [&](const detail::Entry& entry) { visit(entry.key, entry.value); };
  return impl_->salvage(name, pass_on);
}
Status Pool::sync() { return impl_->sync(); }
Expected<std::uint64_t> Pool::compact() { return impl_->compact(); }
Status Pool::commit(const WriteBatch& batch) {
  if (!batch.failure_.ok()) return Status(batch.failure_);
  const detail::BatchItems none;
  return impl_->commit(batch.items_ != nullptr ? *batch.items_ : none);
}
Status Pool::run_read_batch(FunctionRef<void()> reads) { return impl_->read_batch(reads); }
Expected<std::uint64_t> Pool::epoch() const { return impl_->epoch(); }
Status Pool::wait_durable(std::uint64_t epoch) { return impl_->wait_durable(epoch); }
Status Pool::resume_log() { return impl_->resume_log(); }
Status Pool::fold_log() { return impl_->fold_log(); }
Expected<BackupInfo> Pool::backup(std::string_view folder, const BackupOptions& options) {
  return impl_->backup(folder, options);
}
Expected<bool> Pool::run_background() { return impl_->run_background(); }
Status Pool::close(const CloseOptions& options) {
  return impl_ == nullptr ? Status() : impl_->close(options);
}

}  // namespace perdure
