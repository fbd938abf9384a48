// scan_at and diff. Rank 0 merges the entries of all ranks. Of each it holds one piece at a time,
// so it needs no memory for the whole range.
//
// PIECES  A part is what one rank has in the range, in order. A rank packs a piece of it while rank
//   0 still works on the one before. It does not stay in its map meanwhile: the next piece begins
//   behind the last key.
// MESSAGES  Rank 0 broadcasts the request (spread.h). Then it asks a rank when it needs its next
//   piece:
//     rank 0 to r   Ask: send what you have if it is at most `room` bytes; or it is over
//     r to rank 0   Reply: bytes, whether it is the last piece or there was an error; the bytes
//   If a piece is larger, because it has a large entry, rank 0 reserves memory and asks again.
// ORDER   By hash: a heap of the parts. By range: one part after the other, so a rank is asked only
//   once the parts before have ended.
// MEMORY  All ranks reserve a piece, rank 0 one of each rank (by range: one), and agree, before any
//   rank asks.
// ERRORS  A rank tells its error in its reply. Rank 0 then ends the scan on all, and they agree.
//   An error in a piece that rank 0 did not need is none.
#include <algorithm>

#include "mpi/buffer.h"
#include "mpi/core.h"
#include "mpi/packing.h"
#include "mpi/spread.h"
#include "perdure/cursor.h"
#include "util/containers.h"

namespace perdure::mpi::detail {

namespace {

struct Request {
  Version from = 0;  // of a diff
  Version to = 0;    // of a diff, or of a scan
  bool differs = false;
  UntypedScanOptions options;
};
struct Entry {
  UntypedKey key;
  std::optional<UntypedValue> before;  // of a diff
  std::optional<UntypedValue> after;   // of a diff, or of a scan
};
using VisitEntry = FunctionRef<bool(const Entry&)>;

struct Ask {
  bool over = false;
  std::uint64_t room = 0;
  std::uint64_t visited = 0;  // when it is over
};
struct Reply {
  std::uint64_t bytes = 0;
  bool last = false;
  bool failed = false;
};

// What this rank has in the range.
class Part {
 public:
  Part(Core& core, const Request& request) noexcept
      : core_(core), request_(request), left_(request.options.limit) {}

  bool reserve() noexcept { return piece_.reserve(kPieceRoom); }
  Grown<char>& piece() noexcept { return piece_; }
  bool last() const noexcept { return last_; }
  const Status& status() const noexcept { return status_; }

  // Packs the next piece; none after the last, and none after an error.
  void fill() noexcept {
    piece_.resize(0);
    if (last_ || !status_.ok()) return;
    last_ = true;
    UntypedScanOptions options = request_.options;
    options.limit = left_;
    if (begun_) (options.reverse ? options.to : options.from) = behind_.key();
    Expected<std::uint64_t> done =
        request_.differs
            ? core_.pool().data().diff(
                  core_.pool().local(request_.from), core_.pool().local(request_.to), options,
                  [this](const UntypedKey& key, const auto& before, const auto& after) {
                    return append(key, before, after);
                  })
            : core_.pool().data().scan_at(core_.pool().local(request_.to), options,
                                          [this](const UntypedKey& key, const UntypedValue& value) {
                                            return append(key, value);
                                          });
    if (!done) status_ = std::move(done.error());
  }

 private:
  template <class... Values>
  bool append(const UntypedKey& key, const Values&... values) noexcept {
    const bool bytes = core_.has_bytes();
    char* room = piece_.extend(Packer::size(key, bytes) + (Packer::size(values, bytes) + ...));
    if (room == nullptr) return no_memory();
    Packer packer(room, bytes);
    packer.put(key);
    (packer.put(values), ...);
    --left_;
    if (piece_.size() < kPieceBytes) return true;
    // No key lies behind the greatest word.
    const bool reverse = request_.options.reverse;
    const bool more = left_ != 0 && (bytes || reverse || ~key.word != 0);
    if (more && !behind_.assign(key, !bytes, !reverse)) return no_memory();
    begun_ = true;
    last_ = !more;
    return false;
  }
  bool no_memory() noexcept {
    status_ = StatusCode::out_of_memory;
    return false;
  }

  Core& core_;
  const Request& request_;
  std::uint64_t left_;  // of the limit
  Grown<char> piece_;
  perdure::detail::KeyCopy behind_;  // the bound of the next piece, once one is full
  bool begun_ = false;
  bool last_ = false;
  Status status_;
};

// A part as rank 0 sees it: its piece, and the first entry that was not visited.
struct Source {
  Grown<char> piece;
  Unpacker rest;
  bool last = false;
  Entry entry;
};

class Scan {
 public:
  Scan(Core& core, const Request& request) noexcept
      : core_(core), comm_(core.comm()), request_(request), part_(core, request) {}

  // Returns how many entries rank 0 has visited, on all ranks.
  Expected<std::uint64_t> run(VisitEntry visit) noexcept {
    if (Status s = comm_.agree(reserve()); !s.ok()) return fail(std::move(s));
    part_.fill();
    Status mine;
    if (comm_.rank() == 0) {
      mine = merge(visit);
      if (Status s = end(); mine.ok()) mine = std::move(s);
    } else {
      mine = serve();
    }
    if (Status s = comm_.agree(std::move(mine)); !s.ok()) return fail(std::move(s));
    return visited_;
  }

 private:
  // --- a rank that is not rank 0 ---

  Status serve() noexcept {
    for (bool told = false;;) {
      Ask ask;
      if (Status s = comm_.await(&ask, sizeof(ask), 0); !s.ok()) return s;
      visited_ = ask.visited;
      if (ask.over) return told ? part_.status() : Status();
      told = !part_.status().ok();
      const Reply reply{part_.piece().size(), part_.last(), told};
      if (Status s = comm_.send(&reply, sizeof(reply), 0); !s.ok()) return s;
      if (told || reply.bytes > ask.room) continue;
      if (Status s = comm_.send(part_.piece().data(), reply.bytes, 0); !s.ok()) return s;
      part_.fill();
    }
  }

  // --- rank 0 ---

  Status reserve() noexcept {
    bool room = part_.reserve();
    if (comm_.rank() == 0) {
      const auto ranks = static_cast<std::uint32_t>(comm_.size());
      for (std::uint32_t r = 0; r < ranks && room; ++r) {
        room = sources_.push_back({}) &&
               ((core_.by_range() && r != 0) || sources_[r].piece.reserve(kPieceRoom));
      }
      room = room && heap_.reserve(ranks);
    }
    return room ? Status() : StatusCode::out_of_memory;
  }

  Status merge(VisitEntry visit) noexcept {
    const auto ranks = static_cast<std::uint32_t>(sources_.size());
    if (request_.options.limit == 0) return {};
    if (!core_.by_range()) return merge(0, ranks, visit);
    Grown<char> piece = std::move(sources_[0].piece);
    for (std::uint32_t i = 0; i < ranks && !over_; ++i) {
      const std::uint32_t r = request_.options.reverse ? ranks - 1 - i : i;
      sources_[r].piece = std::move(piece);
      if (Status s = merge(r, r + 1, visit); !s.ok()) return s;
      piece = std::move(sources_[r].piece);
    }
    return {};
  }
  // Merges the parts of the ranks [first, end).
  Status merge(std::uint32_t first, std::uint32_t end, VisitEntry visit) noexcept {
    const auto behind = [this](std::uint32_t a, std::uint32_t b) { return is_behind(a, b); };
    heap_.resize(0);
    for (std::uint32_t r = first; r < end && !over_; ++r) {
      if (Status s = advance(r); !s.ok()) return s;
    }
    while (heap_.size() != 0 && !over_) {
      std::pop_heap(heap_.data(), heap_.data() + heap_.size(), behind);
      const std::uint32_t r = heap_[heap_.size() - 1];
      heap_.resize(heap_.size() - 1);
      ++visited_;
      over_ = !visit(sources_[r].entry) || visited_ == request_.options.limit;
      if (over_) break;
      if (Status s = advance(r); !s.ok()) return s;
    }
    return {};
  }
  bool is_behind(std::uint32_t a, std::uint32_t b) const noexcept {
    const UntypedKey& x = sources_[request_.options.reverse ? b : a].entry.key;
    const UntypedKey& y = sources_[request_.options.reverse ? a : b].entry.key;
    return core_.has_bytes() ? x.bytes > y.bytes : x.word > y.word;
  }
  // Unpacks the next entry of the part, and puts the part into the heap. A part that has ended
  // leaves it.
  Status advance(std::uint32_t r) noexcept {
    Source& source = sources_[r];
    while (source.rest.at_end()) {
      if (source.last) return {};
      if (Status s = fetch(r); !s.ok()) return s;
    }
    Entry& entry = source.entry;
    entry.key = source.rest.key();
    if (request_.differs) entry.before = source.rest.optional_value();
    entry.after = request_.differs ? source.rest.optional_value() : source.rest.value();
    heap_.resize(heap_.size() + 1);
    heap_[heap_.size() - 1] = r;
    std::push_heap(heap_.data(), heap_.data() + heap_.size(),
                   [this](std::uint32_t a, std::uint32_t b) { return is_behind(a, b); });
    return {};
  }

  Status fetch(std::uint32_t r) noexcept {
    Source& source = sources_[r];
    if (r == 0) {
      if (begun_) part_.fill();
      begun_ = true;
      if (!part_.status().ok()) return part_.status();
      std::swap(source.piece, part_.piece());
      source.last = part_.last();
    } else if (Status s = fetch(static_cast<int>(r), source); !s.ok()) {
      return s;
    }
    source.rest = Unpacker(source.piece.data(), source.piece.size(), core_.has_bytes());
    return {};
  }
  Status fetch(int from, Source& source) noexcept {
    Reply reply;
    for (std::uint64_t room = kPieceRoom;; room = reply.bytes) {
      if (!source.piece.reserve(room)) return StatusCode::out_of_memory;
      const Ask ask{.room = room};
      if (Status s = comm_.send(&ask, sizeof(ask), from); !s.ok()) return s;
      if (Status s = comm_.receive(&reply, sizeof(reply), from); !s.ok()) return s;
      if (reply.failed) {  // the rank says why when all agree
        over_ = source.last = true;
        source.piece.resize(0);
        return {};
      }
      if (reply.bytes <= room) break;
    }
    source.piece.resize(reply.bytes);
    source.last = reply.last;
    return comm_.receive(source.piece.data(), reply.bytes, from);
  }

  Status end() noexcept {
    const Ask over{.over = true, .visited = visited_};
    for (int r = 1; r < comm_.size(); ++r) {
      if (Status s = comm_.send(&over, sizeof(over), r); !s.ok()) return s;
    }
    return {};
  }

  Core& core_;
  Comm& comm_;
  const Request& request_;
  Part part_;
  Array<Source> sources_;      // by rank
  Grown<std::uint32_t> heap_;  // the parts whose next entry is known
  std::uint64_t visited_ = 0;
  bool begun_ = false;  // the first piece of rank 0 is in use
  bool over_ = false;
};

// All ranks get the request of rank 0.
class Requested {
 public:
  Status spread(Core& core, const Request& mine) noexcept {
    const UntypedScanOptions& options = mine.options;
    const bool bytes = core.has_bytes();
    const UntypedKey prefix{.bytes = options.prefix};
    const UntypedKey from = options.from.value_or(UntypedKey());
    const UntypedKey to = options.to.value_or(UntypedKey());
    std::uint64_t limit = options.limit;
    if (core.comm().rank() == 0) {
      char* room = bytes_.extend(2 * sizeof(Version) + 3 + Packer::size(from, bytes) +
                                 Packer::size(to, bytes) + Packer::size(prefix, bytes));
      if (room != nullptr) {
        Packer packer(room, bytes);
        packer.word(mine.from);
        packer.word(mine.to);
        for (const bool flag : {options.from.has_value(), options.to.has_value(), options.reverse})
          packer.byte(flag ? 1 : 0);
        for (const UntypedKey& key : {from, to, prefix}) packer.put(key);
      }
    }
    if (Status s = bytes_.run(core.comm(), 0, limit, {}); !s.ok()) return s;
    Unpacker unpacker(bytes_.data(), bytes_.size(), bytes);
    request_.differs = mine.differs;
    request_.from = unpacker.word();
    request_.to = unpacker.word();
    const bool has_from = unpacker.byte() != 0, has_to = unpacker.byte() != 0;
    request_.options = {.limit = limit, .reverse = unpacker.byte() != 0};
    if (const UntypedKey key = unpacker.key(); has_from) request_.options.from = key;
    if (const UntypedKey key = unpacker.key(); has_to) request_.options.to = key;
    request_.options.prefix = unpacker.key().bytes;
    if (Status s = core.readable(request_.to); !s.ok()) return s;
    return request_.differs ? core.readable(request_.from) : Status();
  }
  const Request& request() const noexcept { return request_; }

 private:
  Spread bytes_;
  Request request_;
};

Expected<std::uint64_t> visit_all(Core& core, const Request& mine, VisitEntry visit) noexcept {
  if (Status s = core.usable(); !s.ok()) return fail(std::move(s));
  Requested requested;
  if (Status s = requested.spread(core, mine); !s.ok()) return fail(std::move(s));
  return Scan(core, requested.request()).run(visit);
}

}  // namespace

Expected<std::uint64_t> scan_at(Core& core, Version version, const UntypedScanOptions& options,
                                VisitUntyped visit) {
  return visit_all(core, {.to = version, .options = options},
                   [&](const Entry& entry) { return visit(entry.key, *entry.after); });
}
Expected<std::uint64_t> diff(Core& core, Version from, Version to,
                             const UntypedScanOptions& options, VisitUntypedDifference visit) {
  return visit_all(core, {.from = from, .to = to, .differs = true, .options = options},
                   [&](const Entry& entry) { return visit(entry.key, entry.before, entry.after); });
}

}  // namespace perdure::mpi::detail
