// Recovery: what an open reads and repairs, the checksums that a close writes, and the checks:
// enumeration of the map's blocks, verification of invariants, statistics. No mutation is in flight
// meanwhile. Responsible for what pskiplist.I1, pskiplist.I7 and pskiplist.I8 say after a crash.
// Verifies pskiplist.I1, pskiplist.I2, pskiplist.I8, pskiplist.N3, pskiplist.D4, pskiplist.H1 and
// pskiplist.H4.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>

#include "index/engine_report.h"
#include "index/pskiplist/trim.h"
#include "index/root.h"
#include "util/containers.h"
#include "util/crc32c.h"
#include "util/merge_sort.h"
#include "util/radix_sort.h"

namespace perdure::pskiplist {

template <class T>
class Recovery : public Trim<T> {
 protected:
  using Base = Trim<T>;
  using Base::Base;
  using Base::capacity_of, Base::chain_, Base::check_record, Base::clock, Base::clock_;
  using Base::context_, Base::directory_, Base::entry_at, Base::follow, Base::for_each_entry;
  using Base::for_each_leaf, Base::for_each_segment, Base::horizon_, Base::is_segment, Base::key_of;
  using Base::latest, Base::limit_, Base::load, Base::names_record, Base::nodes_, Base::offset_of;
  using Base::outlives, Base::pass_over, Base::place_end, Base::record_values_, Base::records_;
  using Base::reserve_, Base::root_, Base::root_offset_, Base::segment_at, Base::set_rollback;
  using Base::slot_at, Base::value_of, Base::void_, Base::void_entries;
  using typename Base::Chain, typename Base::Codec, typename Base::Listing, typename Base::Node;
  using typename Base::P;

  // Names every block that the map can reach. A block comes after the blocks that it names.
  [[gnu::noinline]] Status enumerate(Status (Heap<P>::*mark)(std::uint64_t)) {
    Status s;
    const auto reach = [&](std::uint64_t offset) {
      if (s.ok()) s = (context_.heap.*mark)(offset);
    };
    // Damage under an open pool is reported, and not followed.
    const auto bad_link = [](std::uint64_t offset) {
      return Status::format(StatusCode::corruption, "nothing can lie at offset %lu", offset);
    };
    std::uint64_t left = chain_.blocks();
    for (std::uint64_t block = load(root_->chain); block != 0 && s.ok(); --left) {
      if (left == 0 || block % kLine != 0 || !context_.heap.contains(block, Chain::kBlockBytes)) {
        return bad_link(block);
      }
      for (std::uint32_t i = 0; i < Chain::kSlots; ++i) {
        const Slot& slot = slot_at(Chain::slot_in(block, i));
        if (load(slot.first.stamp) == 0) continue;
        if (Codec::kBytes) reach(load(slot.key));
        for_each_entry(slot,
                       [&](std::uint64_t entry, std::uint64_t stamp) {
                         if (names_record(stamp)) reach(load(entry_at(entry).value));
                         return s.ok();
                       },
                       {.wary = true});
        std::uint32_t steps = 1U << 20;
        for (std::uint64_t segment = load(slot.more); segment != 0 && s.ok();) {
          if (steps-- == 0 || !is_segment(segment)) return bad_link(segment);
          const std::uint64_t next = load(segment_at(segment).next);
          reach(segment);
          segment = next;
        }
      }
      const std::uint64_t next = load(context_.heap.template at<layout::Block>(block)->next);
      reach(block);
      block = next;
    }
    reserve_.for_each(reach);
    reach(root_offset_);
    return s;
  }

 private:
  // --- what an open reads and repairs ---

  // The result of one thread.
  struct Loader {
    Array<Listed> keys;
    std::uint64_t max_version = 0;
    std::uint32_t node = 0;  // the first of `row` nodes that are left for the keys of a block
    std::uint32_t row = 0;
    Status status;
  };

  // Checks the root block before anything in it is believed.
  [[gnu::noinline]] Status read_root() {
    Status s = context_.heap.mark(root_offset_, "pskiplist.recover.mark_root"_site);
    if (!s.ok()) return s;
    const layout::Root& image = *root_;
    if (context_.heap.block_bytes(root_offset_) < sizeof(image)) return bad_root("size");
    if (image.magic != layout::kRootMagic) return bad_root("magic");
    if (!root_intact<P>(image, Base::kRootCrc)) return bad_root("checksum");
    if (image.geometry != Chain::kSlots) return bad_root("geometry");
    if (((image.flags & layout::kBytesKeys) != 0) != Codec::kBytes) return bad_root("key kind");
    record_values_ = (image.flags & layout::kRecordValues) != 0;
    return {};
  }
  // In an unclean pool no checksum covers these words. The clock begins above the limit, the
  // horizon tells trim what may go, and a rollback voids entries. So they are refused unless tag,
  // trim and rollback can have stored them.
  [[gnu::noinline]] Status read_versions() {
    // The limit last: it rises before the words that it bounds, also under a read-only open.
    const std::uint64_t horizon = load(root_->horizon);
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    do {  // `from` means something only together with its `to`
      to = load(root_->rollback_to);
      from = load(root_->rollback_from);
    } while (load(root_->rollback_to) != to);
    const std::uint64_t limit = load(root_->limit);
    const bool sane = limit <= kLastVersion && horizon >= 1 && horizon <= limit + 1 &&
                      (to == 0 || (horizon <= from && from < to && to <= limit));
    limit_.store(sane ? limit : kLastVersion, std::memory_order_relaxed);
    horizon_.store(sane ? horizon : 1, std::memory_order_relaxed);
    if (sane && to != 0) void_ = {from, to};
    if (sane) return {};
    return pass_over(Status::format(
        StatusCode::corruption,
        "the map's root block is damaged (versions: limit %lu, horizon %lu, rollback of %lu to "
        "%lu)",
        limit, horizon, from, to));
  }

  // Block i is loaded by thread i mod T (hazard V13).
  [[gnu::noinline]] Status load_chain(bool clean) {
    const Heap<P>& heap = context_.heap;
    std::uint32_t blocks = 0;
    for (std::uint64_t offset = load(root_->chain); offset != 0;) {
      Status s;
      if (!heap.contains(offset, Chain::kBlockBytes) || offset % kLine != 0 ||
          !heap.is_block(offset) || heap.is_plain(offset) ||
          heap.block_bytes(offset) < Chain::kBlockBytes) {
        s = Status::format(StatusCode::corruption,
                           "no block of the key chain can lie at offset %lu", offset);
      } else {
        s = context_.heap.mark(offset, "pskiplist.recover.mark_block"_site);
      }
      // If damage may be passed over, the chain ends before it.
      if (!s.ok()) {
        if (Status p = pass_over(std::move(s)); !p.ok()) return p;
        break;
      }
      const std::uint32_t number = chain_.append(offset);
      if (number == 0) return StatusCode::out_of_memory;
      blocks = number;
      offset = load(heap.template at<layout::Block>(offset)->next);
    }
    const std::size_t threads = std::max<std::size_t>(std::min(context_.threads, blocks), 1);
    directory_.expect(std::size_t{blocks} * Chain::kSlots);
    std::unique_ptr<Loader[]> loaders(new (std::nothrow) Loader[threads]);
    if (loaders == nullptr) return StatusCode::out_of_memory;
    P::parallel(threads, [&](std::size_t t) {
      Loader& loader = loaders[t];
      if (!loader.keys.reserve((blocks / threads + 1) * Chain::kSlots)) {
        loader.status = StatusCode::out_of_memory;
      }
      for (std::uint32_t n = 1 + static_cast<std::uint32_t>(t); n <= blocks && loader.status.ok();
           n += static_cast<std::uint32_t>(threads)) {
        loader.status = load_block(n, clean, loader);
      }
      if (loader.status.ok()) loader.status = sort_keys(loader.keys);
    });
    const std::uint64_t open = limit_.load(std::memory_order_relaxed) + 1;
    for (std::size_t t = 0; t < threads; ++t) {
      if (!loaders[t].status.ok()) return std::move(loaders[t].status);
      if (loaders[t].max_version <= open) continue;
      Status s = pass_over(Status::format(StatusCode::corruption,
                                          "an entry has version %lu, which was never open",
                                          loaders[t].max_version));
      if (!s.ok()) return s;
    }
    chain_.settle();
    clock_.store(open, std::memory_order_relaxed);  // pskiplist.I8
    // A crash may also have left only `from`.
    const bool begun = load(root_->rollback_to) != 0 || (!clean && load(root_->rollback_from) != 0);
    if (begun && !context_.read_only) {
      if (Status s = set_rollback(0, 0); !s.ok()) return s;
    }
    return build_directory(loaders.get(), threads);
  }

  // Byte strings of one word are compared where they lie. In a read-only open of a pool in use they
  // may change, and lost pages read as zeros. Then the result is not in order, and
  // build_directory() finds that. std::sort() could leave the array.
  [[gnu::noinline]] Status sort_keys(Array<Listed>& keys) const {
    radix_sort(std::span<Listed>(keys.begin(), keys.end()),
               [](const Listed& key) { return key.word; });
    if constexpr (!Codec::kBytes) return {};
    const auto order = [this](const Listed& a, const Listed& b) {
      return directory_.comes_before(a, b);
    };
    for (Listed *begin = keys.begin(), *end = begin; begin != keys.end(); begin = end) {
      while (end != keys.end() && end->word == begin->word) ++end;
      const auto count = static_cast<std::size_t>(end - begin);
      if (!merge_sort(begin, count, order)) return StatusCode::out_of_memory;
    }
    return {};
  }

  [[gnu::noinline]] Status load_block(std::uint32_t number, bool clean, Loader& loader) {
    const std::uint64_t offset = chain_.offset_of(number);
    const auto& block = *context_.heap.template at<layout::Block>(offset);
    if (clean && !matches<P>(load(block.crc) == block_crc(offset), "pskiplist.block.crc"_site)) {
      Status s = pass_over(damaged_object("the block of the key chain", offset, "checksum"));
      if (!s.ok()) return s;
      LatchGuard guard(damaged_latch_);
      if (!damaged_blocks_.push_back(number)) return StatusCode::out_of_memory;
    }
    bool wrote = false;
    const std::size_t first = loader.keys.size();
    for (std::uint32_t i = 0; i < Chain::kSlots; ++i) {
      loader.row += load(slot_at(Chain::slot_in(offset, i)).first.stamp) != 0 ? 1 : 0;
    }
    if (loader.row != 0) loader.node = nodes_.take_row(loader.row);
    if (loader.node == 0) loader.row = 0;
    for (std::uint32_t i = 0; i < Chain::kSlots; ++i) {
      Slot& slot = slot_at(Chain::slot_in(offset, i));
      // pskiplist.I7, before anything is read. The heap knows the segments as this key's before
      // anything is stored in them. The segments of a key that goes belong to no key.
      Status s;
      const bool segments = load(slot.more) != 0;
      if (segments) s = check_segments(slot, [](std::uint64_t) { return Status(); });
      if (segments && s.ok() && outlives(slot, void_)) {
        s = check_segments(slot, [&](std::uint64_t segment) {
          return context_.heap.mark(segment, "pskiplist.recover.mark_segment"_site);
        });
      }
      if (s.ok() && void_.to != 0 && P::runs("pskiplist.recover.rollback"_site)) {
        wrote |= void_entries(slot, void_, false);
      }
      if (s.ok()) s = load_slot(number, i, clean, loader);
      if (!s.ok()) s = pass_over(std::move(s));
      if (!s.ok()) return s;
    }
    // A rollback has freed slots, or the owner of a pool that is opened read-only has.
    for (; loader.row != 0; --loader.row) nodes_.give(loader.node++);
    directory_.name({loader.keys.begin() + first, loader.keys.end()});
    return !wrote || context_.platform.fence("pskiplist.recover.void"_site) ? Status()
                                                                            : StatusCode::poisoned;
  }
  // Calls visit(segment) for all segments of the slot. Errors: that of a visit; corruption if one
  // does not lie in the pool, or they do not end.
  template <class F>
  [[gnu::noinline]] Status check_segments(const Slot& slot, F&& visit) const {
    if (load(slot.first.stamp) == 0) return {};
    Steps steps;
    std::uint64_t at = 0;
    Status s = follow(slot.more, steps, at);
    while (s.ok() && at != 0) {
      s = visit(at);
      if (s.ok()) s = follow(segment_at(at).next, steps, at);
    }
    return s;
  }
  [[gnu::noinline]] Status load_slot(std::uint32_t number, std::uint32_t i, bool clean,
                                     Loader& loader) {
    const std::uint64_t offset = Chain::slot_in(chain_.offset_of(number), i);
    const Slot& slot = slot_at(offset);
    if (load(slot.first.stamp) == 0) return {};
    const std::uint32_t mine = loader.row != 0 ? loader.node++ : nodes_.take();
    if (loader.row != 0) --loader.row;
    if (mine == 0) return StatusCode::out_of_memory;
    Node& node = nodes_[mine];
    Listed listed{0, mine};
    Status s = load_key(slot, mine, listed.word);
    if (s.ok()) s = load_history(slot, clean, loader);
    if (!s.ok()) {
      nodes_.give(mine);
      return s;
    }
    nodes_.set_slot(mine, offset);
    node.block = number;
    place_end(node, slot);
    node.set(State::of(Phase::idle, 0));
    chain_.take(number, i);
    return loader.keys.push_back(listed) ? Status() : StatusCode::out_of_memory;
  }
  [[gnu::noinline]] Status load_key(const Slot& slot, std::uint32_t node, std::uint64_t& word) {
    word = load(slot.key);
    nodes_[node].key = word;
    if constexpr (Codec::kBytes) {
      if (Status s = check_record(word, true); !s.ok()) return s;
      Status s = context_.heap.mark(word, "pskiplist.recover.mark_key"_site);
      if (!s.ok()) return s;
      word = ordered::head_word(directory_.key_of(node));
    }
    return {};
  }
  // Checks that versions rise, and that no entry follows the first empty one (pskiplist.I1).
  [[gnu::noinline]] Status load_history(const Slot& slot, bool clean, Loader& loader) {
    const auto bad = [&](const char* what) {
      return Status::format(StatusCode::corruption, "the history of the key at slot value %lu: %s",
                            load(slot.key), what);
    };
    std::uint64_t before = 0;
    if (load(slot.first.stamp) != layout::kDropped) {
      if (Status s = load_entry(offset_of(&slot.first), before, loader); !s.ok()) return s;
    }
    bool ended = false;
    Steps steps;
    std::uint64_t s = 0;
    Status link = follow(slot.more, steps, s);
    for (; link.ok() && s != 0; link = follow(segment_at(s).next, steps, s)) {
      if (clean &&
          !matches<P>(load(segment_at(s).crc) == segment_crc(s), "pskiplist.segment.crc"_site)) {
        return bad("a segment's checksum is wrong");
      }
      const std::uint32_t capacity = capacity_of(s);
      for (std::uint32_t i = 0; i < capacity; ++i) {
        const bool empty = load(entry_at(entry_offset(s, i)).stamp) == 0;
        if (!empty && ended) return bad("an entry behind an empty one");
        ended = ended || empty;
        if (ended) continue;
        if (Status e = load_entry(entry_offset(s, i), before, loader); !e.ok()) return e;
      }
    }
    if (!link.ok()) return link;
    return before != 0 ? Status() : bad("it has no entry");
  }
  [[gnu::noinline]] Status load_entry(std::uint64_t offset, std::uint64_t& before, Loader& loader) {
    const std::uint64_t stamp = load(entry_at(offset).stamp);
    const std::uint64_t version = version_of(stamp);
    if (version <= before || version > layout::kMaxVersion || (stamp & layout::kDropped) != 0) {
      return damaged_object("the entry", offset, "version");
    }
    before = version;
    loader.max_version = std::max(loader.max_version, version);
    if (!names_record(stamp)) return {};
    const std::uint64_t record = load(entry_at(offset).value);
    Status s = check_record(record, false);
    return s.ok() ? context_.heap.mark(record, "pskiplist.recover.mark_record"_site) : s;
  }

  [[gnu::noinline]] Status build_directory(const Loader* loaders, std::size_t threads) {
    const std::unique_ptr<Run[]> runs(new (std::nothrow) Run[threads]);
    if (runs == nullptr) return StatusCode::out_of_memory;
    for (std::size_t t = 0; t < threads; ++t) {
      runs[t] = {loaders[t].keys.begin(), loaders[t].keys.size()};
    }
    return directory_.build({runs.get(), threads}, threads, [this] {
      return pass_over(Status::format(StatusCode::corruption, "two slots hold one key"));
    });
  }

  // --- checksums ---

  // Whether the block of the key's slot is as the close has left it. True if the pool was not
  // closed: then there is no checksum.
  bool as_closed(const Node& node) const {
    return !std::binary_search(damaged_blocks_.begin(), damaged_blocks_.end(), node.block);
  }
  [[gnu::noinline]] std::uint64_t close_crc() const {
    constexpr std::size_t kBegin = offsetof(layout::Root, chain);
    return crc32c(crc32c(0, &root_offset_, sizeof(root_offset_)),
                  reinterpret_cast<const std::byte*>(root_) + kBegin,
                  offsetof(layout::Root, close_crc) - kBegin);
  }
  // Covers the place of the block: blocks that have changed places are damage. It also covers the
  // states of key records, which contain the checksums of the keys: they belong to the slots that
  // name them.
  [[gnu::noinline]] std::uint64_t block_crc(std::uint64_t offset) const {
    const auto& block = *context_.heap.template at<layout::Block>(offset);
    std::uint32_t crc = crc32c(0, &offset, sizeof(offset));
    crc = crc32c(crc, &block.next, sizeof(block.next));
    crc = crc32c(crc, &block + 1, Chain::kSlots * sizeof(Slot));
    for (std::uint32_t i = 0; Codec::kBytes && i < Chain::kSlots; ++i) {
      const Slot& slot = slot_at(Chain::slot_in(offset, i));
      const std::uint64_t key = load(slot.key);
      if (load(slot.first.stamp) == 0 || !check_record(key, false).ok()) continue;
      const std::uint64_t state = load(records_.at(key)->state);
      crc = crc32c(crc, &state, sizeof(state));
    }
    return crc;
  }
  [[gnu::noinline]] std::uint64_t segment_crc(std::uint64_t offset) const {
    const Segment& segment = segment_at(offset);
    std::uint32_t crc = crc32c(0, &offset, sizeof(offset));
    crc = crc32c(crc, &segment.next, sizeof(segment.next));
    return crc32c(crc, &segment + 1, capacity_of(offset) * sizeof(Entry));
  }
  [[gnu::noinline]] void set_crc(std::uint64_t& word, std::uint64_t crc) {
    if (load(word) == crc) return;
    context_.platform.store(word, crc);
    context_.platform.flush(&word, 8, "pskiplist.close.crc"_site);
  }

  // --- checks ---

  [[gnu::noinline]] void check_key(std::uint32_t number, std::uint64_t word, bool deep,
                                   std::uint64_t& hinted, Findings& report) {
    Node& node = nodes_[number];
    // `id`: the invariant that does not hold, if it is one.
    const auto bad = [&](const char* what, const char* id = nullptr) {
      char line[160];
      std::snprintf(line, sizeof(line), "pskiplist key %lx: %s%s%s%s", word, what,
                    id != nullptr ? " (" : "", id != nullptr ? id : "", id != nullptr ? ")" : "");
      report.add(line);
    };
    if (node.load().phase() != Phase::idle) return bad("is being written");
    const Slot& slot = slot_at(node.slot.load(std::memory_order_relaxed));
    End last;
    for_each_entry(slot,
                   [&](std::uint64_t offset, std::uint64_t stamp) {
                     const std::uint64_t version = version_of(stamp);
                     if (version <= last.version()) {
                       bad("has versions that do not rise", "pskiplist.I1");
                     }
                     if (version > clock())
                       bad("has a version that was never open", "pskiplist.I8");
                     last = {offset, 0, stamp, last.entries + 1};
                     if (!names_record(stamp)) return true;
                     const std::uint64_t record = load(entry_at(offset).value);
                     ++report.objects;
                     report.bytes += context_.heap.block_bytes(record);
                     if (deep && !check_record(record, true).ok()) bad("names a damaged record");
                     return true;
                   },
                   {.wary = true});
    const End end = node.end();
    if (last.entries == 0 || last.entries != end.entries) {
      bad("has another number of entries than in DRAM", "pskiplist.N3");
    }
    if (last.entry != end.entry) bad("ends elsewhere than in DRAM", "pskiplist.N3");
    if (last.stamp != end.stamp) bad("ends otherwise than in DRAM", "pskiplist.N3");
    if (last.present()) {
      ++report.entries;
      if (load(entry_at(last.entry).value) != end.value) {
        bad("has another value than in DRAM", "pskiplist.N3");
      }
    }
    if (!deep) return;
    if (Codec::kBytes && !check_record(node.key, true).ok()) return bad("has a damaged name");
    const Probe probe = Codec::probe(key_of(word, number));
    const Hint hint = directory_.find_hinted(probe);
    if (directory_.find_listed(probe) != number) bad("is not found", "pskiplist.I2");
    if (hint.node != 0 && hint.node != number) bad("is found elsewhere by a hint", "pskiplist.H1");
    if (hint.absent) bad("is absent by the hints", "pskiplist.H4");
    hinted += hint.node == number ? 1 : 0;
    if (report.whole_entries != nullptr && last.present())
      deliver_entry(number, word, last, report);
  }
  // Passes on the key's latest value. A record has a checksum of its own, but does not say which
  // key it belongs to: the slot does.
  [[gnu::noinline]] void deliver_entry(std::uint32_t number, std::uint64_t word, const End& last,
                                       Findings& report) {
    const Node& node = nodes_[number];
    const std::uint64_t value = load(entry_at(last.entry).value);
    if (!as_closed(node)) return;
    if (record_values_) {  // not the record of a key
      if (!check_record(value, true).ok()) return;
      const auto record = RecordView::read(context_.platform, records_.at(value));
      if (!record.key().empty()) return;
    }
    detail::Entry entry{.key = key_of(word, number), .value = {}};
    if (value_of(value, entry.value)) (*report.whole_entries)(entry);
  }

  typename P::Latch damaged_latch_;
  Array<std::uint32_t> damaged_blocks_;  // numbers, of those that were passed over

 public:
  Expected<Recovered> recover(bool clean) override {
    const std::uint64_t most = context_.heap.max_data_bytes();
    Status s = read_root();
    if (s.ok()) s = nodes_.reserve(most / sizeof(Slot));
    if (s.ok()) {
      s = directory_.reserve(most / sizeof(Slot) / 4 + (2ULL << T::Geometry::kPartitionBits));
    }
    if (s.ok()) s = chain_.reserve(root_, most / Chain::kBlockBytes);
    if (!s.ok()) return fail(std::move(s));
    if (clean && !matches<P>(load(root_->close_crc) == close_crc(), Base::kRootCrc)) {
      s = pass_over(bad_root("checksum of what changes"));
      if (!s.ok()) return fail(std::move(s));
    }
    if (s = read_versions(); s.ok()) s = load_chain(clean);
    if (!s.ok()) return fail(std::move(s));
    std::sort(damaged_blocks_.begin(), damaged_blocks_.end());
    return Recovered::done;
  }
  Status close() override {
    P& platform = context_.platform;
    // The exact clock: the next process continues without a gap. If the medium refused the
    // end of a rollback, the next process ends it: then not less than `to`.
    platform.store(root_->limit, std::max(clock() - 1, load(root_->rollback_to)));
    platform.flush(&root_->limit, 8, "pskiplist.close.crc"_site);
    // Follows only links that are in DRAM, or checked: others may have been damaged since.
    for (std::uint32_t number = 1; number <= chain_.numbers(); ++number) {
      const std::uint64_t offset = chain_.offset_of(number);
      if (offset == 0) continue;
      for (std::uint32_t i = 0; i < Chain::kSlots; ++i) {
        const Slot& slot = slot_at(Chain::slot_in(offset, i));
        if (load(slot.first.stamp) == 0) continue;
        for_each_segment(slot,
                         [&](std::uint64_t s) {
                           set_crc(segment_at(s).crc, segment_crc(s));
                           return true;
                         },
                         {.wary = true});
      }
      set_crc(context_.heap.template at<layout::Block>(offset)->crc, block_crc(offset));
    }
    set_crc(root_->close_crc, close_crc());
    return {};
  }

  // --- checks ---

  void check(const CheckOptions& options, Findings& report) override {
    EpochGuard<P> guard(context_.epochs);
    report.objects += 1 + chain_.blocks();
    report.bytes += sizeof(layout::Root) + chain_.blocks() * Chain::kBlockBytes;
    if (!root_intact<P>(*root_, Base::kRootCrc)) {
      report.add("pskiplist: damaged root block");
    }
    const auto bad = [&](const char* id, const char* what) {
      add_violation(report, id, "pskiplist root", root_offset_, what);
    };
    if (load(root_->limit) + 1 < clock()) {
      bad("pskiplist.I8", "the limit of versions is below the clock");
    }
    std::uint64_t keys = 0;
    std::uint64_t hinted = 0;
    Listed before{0, 0};
    auto done = for_each_leaf({}, [&](const Listing& listing) {
      for (std::uint32_t i = 0; i < listing.count; ++i) {
        const Listed key{Codec::probe(this->key_of(listing.words[i], listing.nodes[i])).word,
                         listing.nodes[i]};
        if (keys++ != 0 && !directory_.comes_before(before, key))
          report.add("pskiplist: keys out of order");
        before = key;
        check_key(key.node, key.word, options.deep, hinted, report);
        tell_progress(options, report, keys, 4096);
      }
      return true;
    });
    if (!done) report.add(done.error().message());
    if (keys != chain_.used_slots()) bad("pskiplist.I2", "keys and slots differ in number");
    if (options.deep && report.ok() && hinted != directory_.hints()) {  // else not all were counted
      bad("pskiplist.D4", "hints name nodes that no leaf lists");
    }
  }

  void stats(EngineStats& out) override {
    EpochGuard<P> guard(context_.epochs);
    const Heap<P>& heap = context_.heap;
    out.engine = Engine::pskiplist;
    out.entries = 0;
    out.pm_bytes = heap.block_bytes(root_offset_) + chain_.blocks() * Chain::kBlockBytes;
    const auto add = [&](std::uint64_t block) {
      out.pm_bytes += heap.block_bytes(block);
      return true;
    };
    reserve_.for_each(add);
    auto done = for_each_leaf({}, [&](const Listing& listing) {
      for (std::uint32_t i = 0; i < listing.count; ++i) {
        Node& node = nodes_[listing.nodes[i]];
        out.entries += latest(node).present() ? 1 : 0;
        const std::uint64_t offset = node.slot.load(std::memory_order_acquire);
        if (offset == 0) continue;
        if (Codec::kBytes) add(node.key);
        for_each_segment(slot_at(offset), add, {.wary = true});
        if (!record_values_) continue;
        for_each_entry(slot_at(offset),
                       [&](std::uint64_t entry, std::uint64_t stamp) {
                         return is_removed(stamp) || add(load(entry_at(entry).value));
                       },
                       {.wary = true});
      }
      return true;
    });
    if (!done) out.partial = true;
    const std::uint64_t slots = chain_.blocks() * Chain::kSlots;
    out.load_factor =
        slots != 0 ? static_cast<double>(out.entries) / static_cast<double>(slots) : 0;
    out.height = 3;
    out.leaves = directory_.leaves();
    out.inner_nodes = directory_.inner_nodes();
    out.dram_bytes = nodes_.dram_bytes() + directory_.dram_bytes() + chain_.dram_bytes();
  }
};

}  // namespace perdure::pskiplist
