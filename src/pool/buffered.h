// Buffered: what a pool with durability `buffered` has beside its file (the base): the live image,
// which is mapped and changed, and the log of its cuts. docs/design/buffered.md draws it.
//
// OPERATIONS
//   begin    of a base that is the pool: base durable, live image made, mark "open".
//   go_on    of a base that was left open. In the same boot, with the live image: nothing is lost.
//            Else the base with the epochs of its log becomes a new live image.
//   attach   from here on every store is tracked.
//   close    the last cut, the base becomes the pool again, mark "closed", the rest is removed.
//   undo     of begin(), before a cut: the base has the content and the mode that it had.
// DURABILITY  begin() and close() change no content of the base before the log can restore it
//   (epoch_log.h). A live image has its name before a mark names it, and no store comes before that
//   mark is durable.
// Thread safety: open and close are of one thread; see CutStream for the rest.
#pragma once

#include <optional>
#include <string_view>

#include "backup/backup_writer.h"
#include "cut/cut_stream.h"
#include "cut/epoch_log.h"
#include "cut/fold_thread.h"
#include "cut/folding.h"
#include "cut/hole_list.h"
#include "cut/live_image.h"
#include "format/layout.h"
#include "heap/heap.h"
#include "index/engine.h"
#include "perdure/options.h"
#include "platform/boot_evidence.h"
#include "platform/file_system.h"
#include "reclaim/epoch.h"
#include "util/log.h"
#include "util/path.h"

namespace perdure {

class Buffered final : public Cuts,
                       private CutWatch,
                       private FoldWatch,
                       private Brake,
                       private GrowthWatch {
 public:
  struct Opening {
    const BufferedOptions& options;
    const layout::Identity& identity;  // of the base
    const FileStorage& base;
    bool accept_loss = false;  // of what the last durable cut does not have
    bool ignores_image = false;
  };

  // `image` gets the live image, which is in a real folder in any case. All must stay valid.
  Buffered(FileSystem& files, RealFileSystem& real_files, FileStorage& image,
           const Log& log) noexcept
      : files_(files), real_files_(real_files), log_(log), live_(image, real_files) {}
  Buffered(const Buffered&) = delete;
  Buffered& operator=(const Buffered&) = delete;
  ~Buffered();

  static Status verify(const BufferedOptions& options) noexcept;

  // Reads the marks of the base, whose path is absolute and has no links, and which the caller goes
  // on to have open. First of all. From here on every name is looked up in the folders that there
  // are now. Errors: busy (another file has the name), corruption, io and others of files.
  Status look(std::string_view path, const BufferedOptions& options, int descriptor) noexcept;
  const layout::BaseMark& mark() const noexcept { return epochs_log_->marks().mark(); }
  // Whether the base needs go_on(), not begin().
  bool left_open() const noexcept { return mark().state == layout::BaseState::open; }
  // Reads the first bytes of the base. Errors: io.
  Expected<std::size_t> read(void* to, std::size_t n) noexcept {
    return files_.read(base_, to, n, 0);
  }
  Expected<std::uint64_t> size() noexcept { return files_.size(base_); }

  // `header` is the one of the base that counts, and `copy` its number.
  // `trusted`: the content needs no check. Errors: those of files; pool_full; exists (another log).
  Status begin(const Opening& opening, layout::Header header, int copy, bool trusted) noexcept;
  // Whether begin() has failed before anything needed it.
  bool is_unused() const noexcept { return !published_; }
  // Errors: live_missing; untrusted (the log lacks something, or the base is a copy); corruption;
  // exists (another log); and those of files.
  Status go_on(const Opening& opening) noexcept;

  // Recovery has found damage. If an image that a process has left is used, it is taken for the
  // cause, because the check compares only what is not dirty. Returns what the open must return.
  Status blame_image(Status why) const noexcept;
  // A check has passed, or none was needed: from now on the log vouches for the content.
  Status set_verified() noexcept;
  // Waits while mutations shall wait. The caller is in no guard.
  void pace() noexcept {
    while (gate_->braked() && !stream_->lets()) wait();
  }

  Status attach(RealPlatform& platform, Heap<RealPlatform>& heap, EpochDomain<RealPlatform>& epochs,
                const BufferedOptions& options) noexcept;
  // Starts the threads. Without them, mutations do their work.
  void start(bool threads) noexcept;
  // Without threads: a cut or a step of a fold, if one is due. Returns whether there was one.
  bool run_due() noexcept { return stream_->run_due() || fold_thread_->run_due(); }
  Status fold() noexcept { return fold_thread_->fold(); }
  // Folds, and punches in the base what the heap has punched before the call. Then the live image
  // gives back what the base has, too, and the log what it does not need.
  Status punch_base() noexcept;
  // What a backup needs. A cut that began at `unix_ns` or later is durable.
  BackupSource source(std::uint64_t unix_ns) noexcept {
    const auto last = [this] { return epochs_log_->durable(); };
    return {.base = path_.c_str(),
            .log = folder_.c_str(),
            .least = stream_->with_log(last),
            .ends_unix_ns = unix_ns};
  }
  FoldFigures folds() const noexcept { return fold_thread_->figures(); }
  // Whether a process that was killed has left the live image: it may have what no cut has.
  bool inherited() const noexcept { return inherited_; }
  // --- Cuts ---
  Status make_durable() noexcept override;

  CutStream<RealPlatform>& stream() noexcept { return *stream_; }
  const CutStream<RealPlatform>& stream() const noexcept { return *stream_; }
  LiveImage& live() noexcept { return live_; }
  const LiveImage& live() const noexcept { return live_; }
  // From attach() on. Any thread: the mark, which says it, changes meanwhile.
  const char* live_path() const noexcept { return live_path_.c_str(); }

  // No thread stores any more. Errors: those of the log; then everything stays as a kill would
  // leave it.
  Status close() noexcept;
  void undo() noexcept;
  // Everything stays as a kill would leave it, but for a last cut, if `cuts`. Errors: those of it.
  Status leave(bool cuts) noexcept;
  void abandon() noexcept;  // in a child of fork

 private:
  // --- CutWatch ---
  void on_writing(std::uint64_t epoch) noexcept override { live_.set_begun(epoch); }
  void on_durable(EpochId id, std::uint64_t unix_ns) noexcept override {
    live_.set_durable(id, unix_ns);
  }
  void brake(bool on) noexcept override { gate_->put_brake(on); }
  void on_held_up(std::uint32_t slot) noexcept override;
  void on_rest(bool rests) noexcept override { live_.set_rests(rests); }
  Status on_tend() noexcept override {
    live_.set_clocks();
    return verify_copy();
  }
  void wants_fold() noexcept override { fold_thread_->wake(); }
  bool make_space() noexcept override { return fold_thread_->make_space(); }
  bool begin_log_anew() noexcept override;
  // --- FoldWatch ---
  Status on_folding(std::uint64_t epoch) noexcept override {
    live_.set_folding(epoch);
    return verify_copy();
  }
  void on_folded(std::uint64_t epoch) noexcept override { live_.set_folded(epoch); }
  void before_fold() noexcept override { holes_.close(); }
  void after_fold() noexcept override;
  Expected<bool> copy_page(std::uint64_t page, std::byte* to) noexcept override;
  Status verify_copy() noexcept override;
  // --- GrowthWatch ---
  Status before_growth(std::uint64_t bytes) noexcept override;
  Status before_reuse(std::uint64_t offset, std::uint64_t length) noexcept override;
  void before_punch(std::uint64_t offset, std::uint64_t length) noexcept override;
  // --- Brake ---
  bool lets(bool batch) noexcept override { return stream_->lets(batch); }
  void wait() noexcept override;
  Status refusal() noexcept override;

  Status punch_base(std::uint64_t offset, std::uint64_t length) noexcept;
  Status shrink() noexcept;
  Status shrink_image() noexcept;
  Status name_paths(std::string_view path) noexcept;
  Status hold_folders() noexcept;
  Status image_path(const layout::BaseMark& mark, PathText& path) noexcept;
  std::uint64_t mount_of(const layout::BaseMark& mark) noexcept;
  layout::LivePlace place(const Opening& opening, std::uint64_t max_bytes) noexcept;
  Status write_headers(layout::Header header, int copy) noexcept;
  Status clear_old(const layout::BaseMark& next, const Opening& opening) noexcept;
  Status make_way(std::string_view path, const Opening& opening) noexcept;
  Status make_live(const layout::BaseMark& mark, const Opening& opening, std::uint64_t bytes,
                   std::uint64_t begun) noexcept;
  Status replay_into_live(LogReader& reader, std::uint64_t& lines) noexcept;
  Status open_image(std::string_view path, const FileStorage& like) noexcept;
  Status inherit(std::string_view path, const Opening& opening) noexcept;
  Status lacks_log(const Status& why, bool gone) const noexcept;
  Status inherit_without_log(LogReader& reader, const Status& why, const Opening& opening) noexcept;
  Status restore(const Opening& opening, bool gives_up) noexcept;
  Status give_up_image() noexcept;
  Status go_on_with_image(const Opening& opening, std::string_view path, bool& told) noexcept;
  Boot compare(const layout::LiveHead& head) const noexcept;
  bool is_of_this_boot(const Opening& opening, std::string_view path, const layout::LiveHead& head,
                       const char*& why) noexcept;
  Status missing(std::string_view path, const Status& why) const noexcept;

  FileSystem& files_;
  RealFileSystem& real_files_;
  const Log& log_;
  LiveImage live_;
  PathText path_, folder_, parent_, live_path_;
  FileSystem::File base_ = -1;
  std::optional<EpochLog> epochs_log_;
  std::optional<StoreTracker<RealPlatform>> tracker_;
  std::optional<CutStream<RealPlatform>> stream_;
  std::optional<Folding> folding_;
  std::optional<FoldThread<RealPlatform>> fold_thread_;
  HoleList<RealPlatform> holes_;
  RealPlatform* platform_ = nullptr;
  Gate<RealPlatform>* gate_ = nullptr;
  Heap<RealPlatform>* heap_ = nullptr;
  bool inherited_ = false;
  bool restarted_ = false;  // the machine was, since the last process; the image cannot be newer
  bool published_ = false;  // begin() has given the live image its name
  // For undo(): the header before begin(), unless that has changed nothing in it.
  std::optional<layout::Header> before_;
  int before_copy_ = 0;
};

}  // namespace perdure
