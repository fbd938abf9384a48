// extract_snapshot. Every rank scans its pools and merges them. These parts are merged into the
// root. Ranks are counted from the root here, so that it is rank 0.
//
// RECURSIVE DOUBLING  In round d = 1, 2, 4, .. rank r with r mod 2d = d sends all it has to r - d
//   and is done. Rank r with r mod 2d = 0 receives from r + d, if that rank exists, and merges. So
//   any number of ranks works, and rank r ends with the parts of the ranks [r, r + lowest bit of
//   r).
// MEMORY  All ranks learn all sizes and reserve all memory that they will need before any rank
//   sends. A rank reserves twice the items it ends with, since a merge goes from one buffer into
//   the other, and once the bytes. Byte strings do not move: a merge moves items of 24 bytes that
//   say where they lie.
#include <array>
#include <bit>
#include <cstring>

#include "mpi/buffer.h"
#include "mpi/core.h"
#include "mpi/merge.h"

namespace perdure::mpi::detail {

namespace {

class Clock {
 public:
  std::uint64_t lap() noexcept {
    const std::uint64_t before = last_;
    last_ = RealPlatform::now_ns();
    return last_ - before;
  }

 private:
  std::uint64_t last_ = RealPlatform::now_ns();
};

struct WordsBefore {
  bool operator()(const WordItem& a, const WordItem& b) const noexcept { return a.key < b.key; }
};
struct BytesBefore {
  const char* bytes;
  bool operator()(const BytesItem& a, const BytesItem& b) const noexcept {
    if (a.head != b.head) return a.head < b.head;
    return key(a) < key(b);
  }
  std::string_view key(const BytesItem& item) const noexcept {
    return {bytes + item.begin, item.key_bytes};
  }
};

std::uint64_t head_of(std::string_view key) noexcept {
  unsigned char head[8] = {};
  std::memcpy(head, key.data(), std::min<std::size_t>(key.size(), 8));
  std::uint64_t word = 0;
  std::memcpy(&word, head, sizeof(word));
  return std::byteswap(word);
}

template <class Item>
class Extraction {
  static constexpr bool kBytes = std::same_as<Item, BytesItem>;
  struct Size {
    std::uint64_t items, bytes;
  };

 public:
  Extraction(Core& core, int root) noexcept
      : core_(core), comm_(core.comm()), root_(static_cast<std::uint64_t>(root)) {}

  Status run(Version version, Merge merge, SnapshotData& out) noexcept {
    Status mine = scan(version);
    if (mine.ok() && !sizes_.reserve(ranks())) mine = StatusCode::out_of_memory;
    out.times.extract_ns = clock_.lap();
    if (Status s = comm_.agree(std::move(mine)); !s.ok()) return s;
    const Size own{items_.size(), bytes_.size()};
    if (Status s = comm_.all_gather(&own, sizeof(own), sizes_.data()); !s.ok()) return s;
    std::rotate(sizes_.data(), sizes_.data() + root_, sizes_.data() + ranks());
    if (Status s = comm_.agree(reserve(merge)); !s.ok()) return s;
    times_ = out.times;
    (void)clock_.lap();
    merge_own();
    times_.merge_ns += clock_.lap();
    if (merge == Merge::naive) {
      if (Status s = comm_.agree(gather()); !s.ok()) return s;
    } else if (Status s = comm_.agree_after_work(doubling(), rank() != 0); !s.ok()) {
      return s;
    }
    out.total = sum(0, ranks()).items;
    out.times = times_;
    if (rank() == 0) hand_over(out);
    return {};
  }

 private:
  std::uint64_t ranks() const noexcept { return static_cast<std::uint64_t>(comm_.size()); }
  std::uint64_t rank() const noexcept {
    return from_root(static_cast<std::uint64_t>(comm_.rank()));
  }
  std::uint64_t from_root(std::uint64_t in_comm) const noexcept {
    return (in_comm + ranks() - root_) % ranks();
  }
  int in_comm(std::uint64_t rank) const noexcept {
    return static_cast<int>((rank + root_) % ranks());
  }

  // The pools of this rank, one behind the other.
  Status scan(Version version) noexcept {
    bool room = true;
    for (LocalPool& pool : core_.own_pools()) {
      const std::uint64_t begin = items_.size();
      auto done = pool.data().scan_at(pool.local(version), {},
                                      [&](const UntypedKey& key, const UntypedValue& value) {
                                        room = append(key, value);
                                        return room;
                                      });
      if (!done) return std::move(done.error());
      if (!room || !begins_.append(&begin, 1)) return StatusCode::out_of_memory;
    }
    return {};
  }
  bool append(const UntypedKey& k, const UntypedValue& v) noexcept {
    Item item;
    if constexpr (kBytes) {
      const std::string_view key = k.bytes, value = v.bytes;
      item = {head_of(key), bytes_.size(), static_cast<std::uint32_t>(key.size()),
              static_cast<std::uint32_t>(value.size())};
      if (!bytes_.append(key.data(), key.size()) || !bytes_.append(value.data(), value.size())) {
        return false;
      }
    } else {
      item = {k.word, v.word};
    }
    return items_.append(&item, 1);
  }

  // The sizes of the parts of the ranks [first, end).
  Size sum(std::uint64_t first, std::uint64_t end) noexcept {
    Size all{0, 0};
    for (std::uint64_t r = first; r < std::min(end, ranks()); ++r) {
      all.items += sizes_[r].items;
      all.bytes += sizes_[r].bytes;
    }
    return all;
  }

  Status reserve(Merge merge) noexcept {
    const std::uint64_t lowest = rank() == 0 ? ranks() : rank() & -rank();
    const Size end = merge == Merge::naive ? (rank() == 0 ? sum(0, ranks()) : Size{0, 0})
                                           : sum(rank(), rank() + lowest);
    const bool merges = end.items > items_.size() || merge == Merge::naive || begins_.size() > 1;
    const bool room = items_.reserve(end.items) && bytes_.reserve(end.bytes) &&
                      (!merges || spare_.reserve(std::max(end.items, items_.size()))) &&
                      parts_.reserve(ranks()) &&
                      cursors_.reserve(std::max(ranks(), begins_.size()));
    return room ? Status() : StatusCode::out_of_memory;
  }

  auto before() const noexcept {
    if constexpr (kBytes) {
      return BytesBefore{bytes_.data()};
    } else {
      return WordsBefore{};
    }
  }
  // Received items refer to their sender's bytes, which now lie after others.
  void rebase(std::uint64_t first, std::uint64_t end, std::uint64_t bytes) noexcept {
    if constexpr (kBytes) {
      for (std::uint64_t i = first; i < end; ++i) items_[i].begin += bytes;
    }
  }

  // Merges what scan() has found, unless it is in order, as by range.
  void merge_own() noexcept {
    std::size_t runs = 0;
    bool in_order = true;
    for (std::uint64_t i = 0; i < begins_.size(); ++i) {
      const Item* begin = items_.data() + begins_[i];
      const Item* end = items_.data() + (i + 1 < begins_.size() ? begins_[i + 1] : items_.size());
      if (begin == end) continue;
      in_order = in_order && (runs == 0 || before()(begin[-1], *begin));
      cursors_[runs++] = {begin, end};
    }
    if (in_order) return;
    merge_many(std::span<RunCursor<Item>>(cursors_.data(), runs), spare_.data(), before());
    spare_.resize(items_.size());
    std::swap(items_, spare_);
  }

  Status doubling() noexcept {
    for (std::uint64_t d = 1; d < ranks(); d *= 2) {
      if ((rank() & d) != 0) {
        Status s = send_to(in_comm(rank() - d));
        times_.transfer_ns += clock_.lap();
        return s;
      }
      if (rank() + d >= ranks()) continue;
      const std::uint64_t middle = items_.size();
      if (Status s = receive_from(rank() + d, sum(rank() + d, rank() + 2 * d)); !s.ok()) return s;
      times_.transfer_ns += clock_.lap();
      join(middle, 2 * d);
      times_.merge_ns += clock_.lap();
    }
    return {};
  }
  Status send_to(int to) noexcept {
    if (Status s = comm_.send(items_.data(), items_.size() * sizeof(Item), to); !s.ok()) return s;
    return comm_.send(bytes_.data(), bytes_.size(), to);
  }
  Status receive_from(std::uint64_t from, Size size) noexcept {
    const std::uint64_t items = items_.size(), bytes = bytes_.size();
    const int sender = in_comm(from);
    items_.resize(items + size.items);
    bytes_.resize(bytes + size.bytes);
    if (Status s = comm_.receive(items_.data() + items, size.items * sizeof(Item), sender);
        !s.ok()) {
      return s;
    }
    if (Status s = comm_.receive(bytes_.data() + bytes, size.bytes, sender); !s.ok()) return s;
    rebase(items, items_.size(), bytes);
    return {};
  }
  // Merges the items before `middle` with those after it. If all of the first lie before all of the
  // second, there is nothing to do.
  void join(std::uint64_t middle, std::uint64_t ranks) noexcept {
    const std::uint64_t end = items_.size();
    if (middle == 0 || middle == end || before()(items_[middle - 1], items_[middle])) return;
    merge_two(std::span<const Item>(items_.data(), middle),
              std::span<const Item>(items_.data() + middle, end - middle), spare_.data(),
              core_.merge_threads(ranks), before());
    spare_.resize(end);
    std::swap(items_, spare_);
  }

  Status gather() noexcept {
    const int root = in_comm(0);
    for (std::uint64_t r = 0; r < ranks(); ++r) {
      parts_[r] = sizes_[from_root(r)].items * sizeof(Item);
    }
    const std::span<const std::uint64_t> parts(parts_.data(), ranks());
    // Gathers into spare_; the result goes into items_.
    if (Status s = comm_.gather(items_.data(), spare_.data(), parts, root); !s.ok()) return s;
    if constexpr (kBytes) {
      for (std::uint64_t r = 0; r < ranks(); ++r) parts_[r] = sizes_[from_root(r)].bytes;
      Grown<char> all;
      const bool room = rank() != 0 || all.reserve(sum(0, ranks()).bytes);
      if (Status s = comm_.agree(room ? Status() : StatusCode::out_of_memory); !s.ok()) return s;
      if (Status s = comm_.gather(bytes_.data(), all.data(), parts, root); !s.ok()) return s;
      std::swap(bytes_, all);
    }
    times_.transfer_ns += clock_.lap();
    if (rank() != 0) return {};
    std::uint64_t items = 0, bytes = 0;
    std::size_t runs = 0;
    for (std::uint64_t r = 0; r < ranks(); ++r) {
      const Size size = sizes_[from_root(r)];
      if constexpr (kBytes) {
        for (std::uint64_t i = 0; i < size.items; ++i) spare_[items + i].begin += bytes;
      }
      const Item* begin = spare_.data() + items;
      if (size.items != 0) cursors_[runs++] = {begin, begin + size.items};
      items += size.items;
      bytes += size.bytes;
    }
    merge_many(std::span<RunCursor<Item>>(cursors_.data(), runs), items_.data(), before());
    items_.resize(items);
    bytes_.resize(bytes);
    times_.merge_ns += clock_.lap();
    return {};
  }

  void hand_over(SnapshotData& out) noexcept {
    out.size = items_.size();
    if constexpr (kBytes) {
      out.items = items_.take();
      out.bytes = bytes_.take();
    } else {
      out.words = items_.take();
    }
  }

  Core& core_;
  Comm& comm_;
  std::uint64_t root_;
  Clock clock_;
  SnapshotTimes times_;
  Grown<Item> items_, spare_;
  Grown<char> bytes_;
  Grown<std::uint64_t> begins_;  // of the pools in items_
  Grown<Size> sizes_;
  Grown<std::uint64_t> parts_;
  Grown<RunCursor<Item>> cursors_;
};

}  // namespace

Status extract(Core& core, int root, Version version, Merge merge, SnapshotData& out) {
  if (Status s = core.usable(root); !s.ok()) return s;
  if (Status s = core.readable(version); !s.ok()) return s;
  return core.has_bytes() ? Extraction<BytesItem>(core, root).run(version, merge, out)
                          : Extraction<WordItem>(core, root).run(version, merge, out);
}

}  // namespace perdure::mpi::detail
