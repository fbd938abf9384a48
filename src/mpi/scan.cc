// scan_at and diff. The root merges the entries of all pools. Of each it holds one piece at a time,
// so it needs no memory for the whole range.
//
// PIECES  The rank of a part (part.h) packs a piece of it while the root still works on the one
//   before.
// MESSAGES  The root broadcasts the request (spread.h). Then it asks the rank of a part when it
//   needs the next piece:
//     root to rank  Ask: send the piece of a part if it is at most `room` bytes; or it is over
//     rank to root  Reply: bytes, whether it is the last piece or there was an error; the bytes
//   If a piece is larger, because it has a large entry, the root reserves memory and asks again.
// ORDER   By hash: a heap of the parts. By range: one part after the other, so a rank is asked only
//   once the parts before have ended. Then it packs only its first part before it is asked.
// MEMORY  All ranks reserve a piece of each of their parts, the root one of each part (by range:
//   one), and agree, before any rank asks.
// ERRORS  A rank tells its error in its reply. The root then ends the scan on all, and they agree.
//   An error in a piece that the root did not need is none.
#include <algorithm>

#include "mpi/buffer.h"
#include "mpi/core.h"
#include "mpi/part.h"
#include "mpi/spread.h"
#include "util/containers.h"

namespace perdure::mpi::detail {

namespace {

struct Entry {
  UntypedKey key;
  std::optional<UntypedValue> before;  // of a diff
  std::optional<UntypedValue> after;   // of a diff, or of a scan
};
using VisitEntry = FunctionRef<bool(const Entry&)>;

struct Ask {
  bool over = false;
  std::uint32_t part = 0;
  std::uint64_t room = 0;
  std::uint64_t visited = 0;  // when it is over
};
struct Reply {
  std::uint64_t bytes = 0;
  bool last = false;
  bool failed = false;
};

// A part as the root sees it: its piece, and the first entry that was not visited.
struct Source {
  Grown<char> piece;
  Unpacker rest;
  bool last = false;
  Entry entry;
};

class Scan {
 public:
  Scan(Core& core, int root, const Request& request) noexcept
      : core_(core), comm_(core.comm()), root_(root), request_(request) {}

  // Returns how many entries the root has visited, on all ranks.
  Expected<std::uint64_t> run(VisitEntry visit) noexcept {
    if (Status s = comm_.agree(reserve()); !s.ok()) return fail(std::move(s));
    fill_first();
    Status mine;
    if (comm_.rank() == root_) {
      mine = merge(visit);
      if (Status s = end(); mine.ok()) mine = std::move(s);
    } else {
      mine = serve();
    }
    if (Status s = comm_.agree(std::move(mine)); !s.ok()) return fail(std::move(s));
    return visited_;
  }

 private:
  Status reserve() noexcept {
    const std::span<LocalPool> own = core_.own_pools();
    parts_.reset(new (std::nothrow) Part[own.size()]);
    bool room = parts_ != nullptr;
    for (std::size_t i = 0; i < own.size() && room; ++i) {
      room = parts_[i].begin(own[i], request_, core_.has_bytes());
    }
    if (comm_.rank() == root_) {
      for (std::uint64_t p = 0; p < core_.pools() && room; ++p) {
        room = sources_.push_back({}) &&
               ((core_.by_range() && p != 0) || sources_[p].piece.reserve(kPieceRoom));
      }
      room = room && heap_.reserve(core_.pools());
    }
    return room ? Status() : StatusCode::out_of_memory;
  }
  // Packs the pieces that the root asks for first.
  void fill_first() noexcept {
    const std::size_t own = core_.own_pools().size();
    if (core_.by_range() && own != 0) {
      parts_[request_.options.reverse ? own - 1 : 0].fill();
    } else {
      for (std::size_t i = 0; i < own; ++i) parts_[i].fill();
    }
  }

  // --- a rank that is not the root ---

  Status serve() noexcept {
    for (const Part* told = nullptr;;) {
      Ask ask;
      if (Status s = comm_.await(&ask, sizeof(ask), root_); !s.ok()) return s;
      visited_ = ask.visited;
      if (ask.over) return told != nullptr ? told->status() : Status();
      Part& part = parts_[core_.place(ask.part)];
      part.fill();
      if (!part.status().ok()) told = &part;
      const Reply reply{part.piece().size(), part.last(), told != nullptr};
      if (Status s = comm_.send(&reply, sizeof(reply), root_); !s.ok()) return s;
      if (told != nullptr || reply.bytes > ask.room) continue;
      if (Status s = comm_.send(part.piece().data(), reply.bytes, root_); !s.ok()) return s;
      part.taken();
      part.fill();
    }
  }

  // --- the root ---

  Status merge(VisitEntry visit) noexcept {
    const auto parts = static_cast<std::uint32_t>(sources_.size());
    if (request_.options.limit == 0) return {};
    if (!core_.by_range()) return merge(0, parts, visit);
    Grown<char> piece = std::move(sources_[0].piece);
    for (std::uint32_t i = 0; i < parts && !over_; ++i) {
      const std::uint32_t p = request_.options.reverse ? parts - 1 - i : i;
      sources_[p].piece = std::move(piece);
      if (Status s = merge(p, p + 1, visit); !s.ok()) return s;
      piece = std::move(sources_[p].piece);
    }
    return {};
  }
  // Merges the parts [first, end).
  Status merge(std::uint32_t first, std::uint32_t end, VisitEntry visit) noexcept {
    const auto behind = [this](std::uint32_t a, std::uint32_t b) { return is_behind(a, b); };
    heap_.resize(0);
    for (std::uint32_t p = first; p < end && !over_; ++p) {
      if (Status s = advance(p); !s.ok()) return s;
    }
    while (heap_.size() != 0 && !over_) {
      std::pop_heap(heap_.data(), heap_.data() + heap_.size(), behind);
      const std::uint32_t p = heap_[heap_.size() - 1];
      heap_.resize(heap_.size() - 1);
      ++visited_;
      over_ = !visit(sources_[p].entry) || visited_ == request_.options.limit;
      if (over_) break;
      if (Status s = advance(p); !s.ok()) return s;
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
  Status advance(std::uint32_t p) noexcept {
    Source& source = sources_[p];
    while (source.rest.at_end()) {
      if (source.last) return {};
      if (Status s = fetch(p); !s.ok()) return s;
    }
    Entry& entry = source.entry;
    entry.key = source.rest.key();
    if (request_.differs) entry.before = source.rest.optional_value();
    entry.after = request_.differs ? source.rest.optional_value() : source.rest.value();
    heap_.resize(heap_.size() + 1);
    heap_[heap_.size() - 1] = p;
    std::push_heap(heap_.data(), heap_.data() + heap_.size(),
                   [this](std::uint32_t a, std::uint32_t b) { return is_behind(a, b); });
    return {};
  }

  Status fetch(std::uint32_t p) noexcept {
    Source& source = sources_[p];
    const int from = core_.server(p);
    if (from == comm_.rank()) {
      Part& part = parts_[core_.place(p)];
      part.fill();
      if (!part.status().ok()) return part.status();
      std::swap(source.piece, part.piece());
      source.last = part.last();
      part.taken();
    } else if (Status s = fetch(p, from, source); !s.ok()) {
      return s;
    }
    source.rest = Unpacker(source.piece.data(), source.piece.size(), core_.has_bytes());
    return {};
  }
  Status fetch(std::uint32_t part, int from, Source& source) noexcept {
    Reply reply;
    for (std::uint64_t room = kPieceRoom;; room = reply.bytes) {
      if (!source.piece.reserve(room)) return StatusCode::out_of_memory;
      const Ask ask{.part = part, .room = room};
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
    for (int r = 0; r < comm_.size(); ++r) {
      if (r == root_) continue;
      if (Status s = comm_.send(&over, sizeof(over), r); !s.ok()) return s;
    }
    return {};
  }

  Core& core_;
  Comm& comm_;
  int root_;
  const Request& request_;
  std::unique_ptr<Part[]> parts_;  // of this rank
  Array<Source> sources_;          // of all parts
  Grown<std::uint32_t> heap_;      // the parts whose next entry is known
  std::uint64_t visited_ = 0;
  bool over_ = false;
};

// All ranks get the request of the root.
class Requested {
 public:
  Status spread(Core& core, int root, const Request& mine) noexcept {
    const UntypedScanOptions& options = mine.options;
    const bool bytes = core.has_bytes();
    const UntypedKey prefix{.bytes = options.prefix};
    const UntypedKey from = options.from.value_or(UntypedKey());
    const UntypedKey to = options.to.value_or(UntypedKey());
    std::uint64_t limit = options.limit;
    if (core.comm().rank() == root) {
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
    if (Status s = bytes_.run(core.comm(), root, limit, {}); !s.ok()) return s;
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

Expected<std::uint64_t> visit_all(Core& core, int root, const Request& mine,
                                  VisitEntry visit) noexcept {
  if (Status s = core.usable(root); !s.ok()) return fail(std::move(s));
  Requested requested;
  if (Status s = requested.spread(core, root, mine); !s.ok()) return fail(std::move(s));
  return Scan(core, root, requested.request()).run(visit);
}

}  // namespace

Expected<std::uint64_t> scan_at(Core& core, int root, Version version,
                                const UntypedScanOptions& options, VisitUntyped visit) {
  return visit_all(core, root, {.to = version, .options = options},
                   [&](const Entry& entry) { return visit(entry.key, *entry.after); });
}
Expected<std::uint64_t> diff(Core& core, int root, Version from, Version to,
                             const UntypedScanOptions& options, VisitUntypedDifference visit) {
  return visit_all(core, root, {.from = from, .to = to, .differs = true, .options = options},
                   [&](const Entry& entry) { return visit(entry.key, entry.before, entry.after); });
}

}  // namespace perdure::mpi::detail
