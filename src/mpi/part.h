// Part: what one pool has in a range of keys, in a version or between two, in pieces of a message.
//
// PIECES  The entries are packed in order: a key, then its value, or its values before and after,
//   which may be absent. A part does not stay in its map between two pieces: the next one begins
//   behind the last key.
#pragma once

#include "mpi/buffer.h"
#include "mpi/local_pool.h"
#include "mpi/packing.h"
#include "perdure/cursor.h"

namespace perdure::mpi::detail {

struct Request {
  Version from = 0;  // of a diff
  Version to = 0;    // of a diff, or of a scan
  bool differs = false;
  bool has_before = true;  // a diff has the values before, too
  UntypedScanOptions options;
};

class Part {
 public:
  // The pool and the request must outlive the part. A part may begin again. Returns false if memory
  // is short.
  bool begin(LocalPool& pool, const Request& request, bool bytes) noexcept {
    pool_ = &pool;
    request_ = &request;
    bytes_ = bytes;
    left_ = request.options.limit;
    filled_ = begun_ = last_ = false;
    return piece_.reserve(kPieceRoom);
  }

  Grown<char>& piece() noexcept { return piece_; }
  bool last() const noexcept { return last_; }
  const Status& status() const noexcept { return status_; }

  // Packs the next piece, unless it is packed; none after the last, and none after an error.
  void fill() noexcept {
    if (filled_) return;
    filled_ = true;
    piece_.resize(0);
    if (last_ || !status_.ok()) return;
    last_ = true;
    UntypedScanOptions options = request_->options;
    options.limit = left_;
    if (begun_) (options.reverse ? options.to : options.from) = behind_.key();
    UntypedMap& data = pool_->data();
    const Version to = pool_->local(request_->to);
    Expected<std::uint64_t> done =
        request_->differs
            ? data.diff(pool_->local(request_->from), to, options,
                        [this](const UntypedKey& key, const auto& before, const auto& after) {
                          return request_->has_before ? append(key, before, after)
                                                      : append(key, after);
                        })
            : data.scan_at(to, options, [this](const UntypedKey& key, const UntypedValue& value) {
                return append(key, value);
              });
    if (!done) status_ = std::move(done.error());
  }
  // The piece is in use, and the next fill() packs another one.
  void taken() noexcept { filled_ = false; }

 private:
  template <class... Values>
  bool append(const UntypedKey& key, const Values&... values) noexcept {
    char* room = piece_.extend(Packer::size(key, bytes_) + (Packer::size(values, bytes_) + ...));
    if (room == nullptr) return no_memory();
    Packer packer(room, bytes_);
    packer.put(key);
    (packer.put(values), ...);
    --left_;
    if (piece_.size() < kPieceBytes) return true;
    // No key lies behind the greatest word.
    const bool reverse = request_->options.reverse;
    const bool more = left_ != 0 && (bytes_ || reverse || ~key.word != 0);
    if (more && !behind_.assign(key, !bytes_, !reverse)) return no_memory();
    begun_ = true;
    last_ = !more;
    return false;
  }
  bool no_memory() noexcept {
    status_ = StatusCode::out_of_memory;
    return false;
  }

  LocalPool* pool_ = nullptr;
  const Request* request_ = nullptr;
  bool bytes_ = false;
  std::uint64_t left_ = 0;  // of the limit
  Grown<char> piece_;
  bool filled_ = false;
  perdure::detail::KeyCopy behind_;  // the bound of the next piece, once one is full
  bool begun_ = false;
  bool last_ = false;
  Status status_;
};

}  // namespace perdure::mpi::detail
