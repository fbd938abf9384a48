// Recovery: recovers a map after a crash or a close, closes it, and checks it. Responsible for the
// repair of phast.I1 and phast.I2, and for the checksums of a cleanly closed pool. check() verifies
// phast.I1, phast.I2, phast.D1 to phast.D4 and ordered.N1. No mutation is in flight during check(),
// the audit and the statistics.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "index/engine_report.h"
#include "index/phast/move.h"
#include "index/root.h"
#include "util/containers.h"

namespace perdure::phast {

template <class T>
class Recovery : public Move<T> {
  using Base = Move<T>;

 protected:
  using Base::check_record, Base::context_, Base::count_, Base::counts_, Base::enter,
      Base::for_each_leaf, Base::inner_, Base::leaf_of, Base::leaf_offset, Base::omit_removed,
      Base::pass_over, Base::persist, Base::place_of, Base::probe_of, Base::record_at,
      Base::record_values_, Base::records, Base::root_, Base::root_offset_, Base::sort_slots,
      Base::table_, Base::value_of, Base::word_records_;
  using typename Base::Codec, typename Base::Desc, typename Base::Entry, typename Base::Inner,
      typename Base::Leaf, typename Base::P;

 public:
  using Base::Base, Base::kBytes, Base::kEntries;

  [[gnu::noinline]] Expected<Recovered> recover(bool clean) override {
    if (Status s = read_root(); !s.ok()) return fail(std::move(s));
    closed_ = clean;
    Status zero;
    if (clean && !matches<P>(root_->close_crc == zero_crc(), "phast.zero.crc"_site)) {
      zero = Status::format(StatusCode::corruption, "the entry of key 0 is damaged");
    } else if (!kBytes && record_values_ && context_.platform.load(root_->zero_present) != 0) {
      const std::uint64_t record = context_.platform.load(root_->zero_value);
      zero = check_record(record, false);
      if (zero.ok()) zero = context_.heap.mark(record, "phast.recover.mark_zero"_site);
    }
    if (!zero.ok()) zero = pass_over(std::move(zero));
    if (!zero.ok()) return fail(std::move(zero));
    typename P::Latch latch;
    Status first_error;
    const std::uint64_t leaf = context_.platform.load(master()[0]);
    apart_ = context_.heap.is_block(leaf) && !context_.heap.is_plain(leaf);
    // The checksum of word values is over their records.
    const ReadsStructure reads(context_.heap, apart_ && !(clean && word_records_));
    const auto visit = [&](std::uint32_t partition) {
      Status s = recover_partition(partition, clean);
      if (s.ok()) return;
      LatchGuard guard(latch);
      if (first_error.ok()) first_error = std::move(s);
    };
    in_parallel(visit, [] {});
    if (!first_error.ok()) return fail(std::move(first_error));
    const bool has_zero = !kBytes && context_.platform.load(root_->zero_present) != 0;
    count_.start(shown_.load(std::memory_order_relaxed) + (has_zero ? 1 : 0));
    return Recovered::done;
  }

  [[gnu::noinline]] Status close() override {
    P& platform = context_.platform;
    typename P::template Atomic<bool> durable{true};
    const auto visit = [&](std::uint32_t partition) {
      for_each_leaf(partition, [&](std::uint32_t number) { close_leaf(table_[number]); });
    };
    in_parallel(visit, [&] {  // each thread fences its own write-backs
      if (!platform.fence("phast.close.leaf"_site)) durable.store(false, std::memory_order_relaxed);
    });
    platform.store(root_->close_crc, zero_crc());
    platform.flush(root_, sizeof(*root_), "phast.close.root"_site);
    return durable.load(std::memory_order_relaxed) ? Status() : StatusCode::poisoned;
  }

  [[gnu::noinline]] void check(const CheckOptions& options, Findings& report) override {
    EpochGuard<P> guard(context_.epochs);
    const ordered::Partitioning& partitioning = inner_.partitioning();
    ++report.objects;
    if (!root_intact(*root_, partitioning.count()))
      add_violation(report, kKind, root_offset_, "damaged root block");
    if (!kBytes && root_->zero_present != 0) {
      ++report.entries;
      if (options.deep && record_values_ && !check_record(root_->zero_value, true).ok()) {
        add_violation(report, kKind, root_offset_, "key 0 names a damaged record");
      } else if (report.whole_entries != nullptr && zero_as_closed()) {
        detail::Entry entry;
        if (value_of(root_->zero_value, entry.value)) (*report.whole_entries)(entry);
      }
    }
    for (std::uint32_t p = 0; p < partitioning.count(); ++p) {
      const Desc* left = nullptr;
      for_each_leaf(p, [&](std::uint32_t n) {
        check_place(n, left, p, report);
        check_leaf(n, report);
        if (options.deep) check_entries(n, report);
        if (report.whole_entries != nullptr) deliver_entries(table_[n], *report.whole_entries);
        tell_progress(options, report, n, 64);
        left = &table_[n];
      });
      if (left == nullptr || left->bound.load(std::memory_order_acquire) != partitioning.bound(p)) {
        add_violation(report, "phast.I1", kKind, 0,
                      "a partition's chain does not end at its bound");
      }
    }
  }

  [[gnu::noinline]] void stats(EngineStats& out) override {
    EpochGuard<P> guard(context_.epochs);
    out.engine = Engine::phast;
    out.entries = 0;
    out.leaves = 0;
    out.scan_order_bytes = 0;
    std::uint64_t record_bytes = 0;
    for_each_leaf([&](std::uint32_t number) {
      const Desc& desc = table_[number];
      const std::uint64_t visible = desc.visible();
      ++out.leaves;
      if (desc.order.load(std::memory_order_relaxed) != 0) {
        out.scan_order_bytes += sizeof(ScanOrder<T>);
      }
      out.entries += static_cast<std::uint64_t>(__builtin_popcountll(visible));
      if (!records()) return;
      const Leaf& leaf = leaf_of(desc);
      for (std::uint64_t v = visible; v != 0; v &= v - 1) {
        const std::uint64_t word = context_.platform.load(leaf.entries[__builtin_ctzll(v)].value);
        if (word != 0) record_bytes += context_.heap.block_bytes(word & kOffsetMask);
      }
    });
    if (out.leaves > 0) {
      out.load_factor =
          static_cast<double>(out.entries) / static_cast<double>(out.leaves * kEntries);
    }
    if (!kBytes && context_.platform.load(root_->zero_present) != 0) ++out.entries;
    out.height = 4;  // index cache, inner node, descriptor, leaf
    out.inner_nodes = inner_.node_count();
    out.pm_bytes =
        out.leaves * sizeof(Leaf) + record_bytes + context_.heap.block_bytes(root_offset_);
    out.dram_bytes = table_.dram_bytes() + inner_.dram_bytes() + out.scan_order_bytes;
    out.splits = counts_.splits.load(std::memory_order_relaxed);
    out.merges = counts_.unlinks.load(std::memory_order_relaxed);
  }

 protected:
  // --- check ---

  // Calls mark() for every block that the map can reach.
  [[gnu::noinline]] Status enumerate(Status (Heap<P>::*mark)(std::uint64_t)) {
    Status s;
    const auto reach = [&](std::uint64_t offset) {
      if (s.ok()) s = (context_.heap.*mark)(offset);
    };
    if (!kBytes && record_values_ && context_.platform.load(root_->zero_present) != 0) {
      reach(context_.platform.load(root_->zero_value));
    }
    for_each_leaf([&](std::uint32_t number) {
      const Desc& desc = table_[number];
      const Leaf& leaf = leaf_of(desc);
      const std::uint64_t bound = context_.platform.load(leaf.bound);
      if (kBytes && bound != 0) reach(bound);
      if (records()) {
        for (std::uint64_t v = desc.visible(); v != 0; v &= v - 1) {
          reach(context_.platform.load(leaf.entries[__builtin_ctzll(v)].value) & kOffsetMask);
        }
      }
      reach(leaf_offset(desc));  // after the blocks that it names: take_back() frees its memory
    });
    reach(root_offset_);
    return s;
  }

 private:
  using Numbers = Array<std::uint32_t>;

  static Status damaged_leaf(std::uint64_t offset, const char* what) {
    return damaged_object("the leaf", offset, what);
  }
  // While it lives, the medium reads leaves and separators ahead, and nothing beside them. Leaves
  // of older pools lie among records: there what lies beside a leaf may be the next one.
  class ReadsStructure {
   public:
    ReadsStructure(Heap<P>& heap, bool alone) : heap_(heap), alone_(alone) {
      if (!alone_) return;
      heap_.read_ahead(kStructureKind);
      heap_.read_alone(true);
    }
    ReadsStructure(const ReadsStructure&) = delete;
    ReadsStructure& operator=(const ReadsStructure&) = delete;
    ~ReadsStructure() {
      if (alone_) heap_.read_alone(false);
    }

   private:
    Heap<P>& heap_;
    bool alone_;
  };
  std::uint64_t* master() const { return reinterpret_cast<std::uint64_t*>(root_ + 1); }

  // Calls visit(partition) for every partition, on the threads that the context allows. Each thread
  // calls end() after its last partition.
  template <class Visit, class End>
  void in_parallel(const Visit& visit, const End& end) {
    const std::uint32_t count = inner_.partitioning().count();
    typename P::template Atomic<std::uint32_t> next{0};
    P::parallel(std::min(std::max(context_.threads, 1U), count), [&](std::size_t) {
      for (;;) {
        const std::uint32_t p = next.fetch_add(1, std::memory_order_relaxed);
        if (p >= count) return end();
        visit(p);
      }
    });
  }

  // --- recovery ---

  // Checks the whole root block before it uses any of its fields.
  [[gnu::noinline]] Status read_root() {
    Status marked = context_.heap.mark(root_offset_, "phast.recover.mark_root"_site);
    if (!marked.ok()) return marked;
    const layout::Root image = *root_;
    if (image.magic != layout::kRootMagic) return bad_root("magic");
    if (image.geometry != kEntries || image.partition_bits > 16 ||
        image.partition_shift > 64 - image.partition_bits) {
      return bad_root("geometry");
    }
    const std::size_t partitions = 1ULL << image.partition_bits;
    if (context_.heap.block_bytes(root_offset_) < sizeof(image) + partitions * 8)
      return bad_root("size");
    if (!root_intact(image, partitions)) return bad_root("checksum");
    if (((image.flags & layout::kBytesKeys) != 0) != kBytes) return bad_root("key kind");
    record_values_ = (image.flags & layout::kRecordValues) != 0;
    word_records_ = (image.flags & layout::kWordRecords) != 0;
    const std::uint64_t max_bytes = context_.heap.max_data_bytes();
    const std::uint64_t max_leaves = max_bytes / sizeof(Leaf) + partitions;
    const std::uint64_t end = context_.heap.data_offset() + max_bytes;
    if (Status s = table_.reserve(end / sizeof(Leaf)); !s.ok()) return s;
    return inner_.reserve({.bits = image.partition_bits, .shift = image.partition_shift},
                          max_leaves);
  }

  // The leaves of a partition, in the order of its chain, while they are recovered.
  struct Chain {
    std::uint32_t partition;
    bool clean;
    Numbers leaves = {};
    std::size_t next = 0;    // the first that is not loaded
    std::size_t loaded = 0;  // those that count; they are the first ones of `leaves`
    std::uint64_t shown = 0;
    bool wrote = false;  // what is not fenced
  };

  // Marks the partition's leaves, gives each a descriptor, and finishes a split that was cut short.
  // A leaf without records is loaded once its right neighbour is known, while the next one arrives.
  // Records are marked after all leaves: an entry that names a leaf must not end the chain.
  [[gnu::noinline]] Status follow_chain(Chain& chain) {
    const P& platform = context_.platform;
    Leaf* previous = nullptr;
    for (std::uint64_t offset = platform.load(master()[chain.partition]);;) {
      // If the chain is a circle, this marks a leaf twice and fails.
      Status marked = context_.heap.mark(offset, "phast.recover.mark_leaf"_site);
      if (!marked.ok()) return marked;
      if (context_.heap.block_bytes(offset) < sizeof(Leaf) || offset % sizeof(Leaf) != 0) {
        return Status::format(StatusCode::corruption, "offset %lu is not a leaf", offset);
      }
      Leaf& leaf = *context_.heap.template at<Leaf>(offset);
      const std::uint64_t next = platform.load(leaf.next);
      if (next != 0 && context_.heap.contains(next, sizeof(Leaf))) prefetch_next(next, chain.clean);
      if (chain.clean && !matches<P>(leaf.crc == leaf_crc(leaf), "phast.leaf.crc"_site)) {
        if (Status s = pass_over(damaged_leaf(offset, "checksum")); !s.ok()) return s;
      }
      const std::uint32_t number = table_.take_found(place_of(offset));
      if (number == kNoLeaf || !chain.leaves.push_back(number)) return StatusCode::out_of_memory;
      // Two neighbours with one bound are a half-done split; finish it before bounds are read. A
      // clean pool has none, and recovery stores nothing to it: there it is damage, which
      // set_bounds() finds.
      if (!chain.clean && previous != nullptr &&
          platform.load(previous->bound) == platform.load(leaf.bound) &&
          P::runs("phast.recover.split"_site)) {
        if (Status s = finish_split(*previous, leaf); !s.ok()) return s;
      }
      if (!records() && previous != nullptr) {
        if (Status s = load_next(chain); !s.ok()) return s;
      }
      if (next == 0) return {};
      previous = &leaf;
      offset = next;
    }
  }
  void prefetch_next(std::uint64_t offset, bool clean) const {
    context_.heap.prefetch_mark(offset);
    table_.prefetch(place_of(offset));
    const auto* bytes = context_.heap.template at<char>(offset);
    const std::size_t read = clean || !records() ? sizeof(Leaf) : kLine;
    for (std::size_t line = 0; line < read; line += kLine) __builtin_prefetch(bytes + line);
  }

  [[gnu::noinline]] Status recover_partition(std::uint32_t partition, bool clean) {
    Chain chain{.partition = partition, .clean = clean};
    Status s = follow_chain(chain);
    // If damage may be passed over, the chain ends before it.
    if (!s.ok()) s = pass_over(std::move(s));
    while (chain.next < chain.leaves.size() && s.ok()) s = load_next(chain);
    shown_.fetch_add(chain.shown, std::memory_order_relaxed);
    if (s.ok() && chain.wrote && !context_.platform.fence("phast.recover.zero"_site)) {
      s = StatusCode::poisoned;
    }
    const auto& leaves = chain.leaves;
    if (s.ok() && chain.loaded > 0) s = inner_.build(partition, leaves.begin(), chain.loaded);
    for (std::size_t i = 0; i < chain.loaded && !s.ok(); ++i) forget_bounds(table_[leaves[i]]);
    return s;
  }
  [[gnu::noinline]] Status load_next(Chain& chain) {
    Numbers& leaves = chain.leaves;
    const std::size_t i = chain.next++;
    if constexpr (kBytes) prefetch_bound(leaves, i + kAhead);
    const std::uint32_t number = leaves[i];
    Desc& desc = table_[number];
    Desc* left = chain.loaded == 0 ? nullptr : &table_[leaves[chain.loaded - 1]];
    // Damage that may be passed over: the chain goes on without the leaf. Its integers cannot be
    // told from damaged ones, and its bound could hide the leaves behind it.
    bool out = !kBytes && context_.damage != nullptr && !as_closed(desc);
    Status s;
    if (!out) {
      const Leaf* right = i + 1 == leaves.size() ? nullptr : &leaf_of(table_[leaves[i + 1]]);
      s = set_bounds(desc, leaf_of(desc), left, chain.partition);
      if (s.ok()) s = load_slots(desc, right, chain.clean, chain.wrote);
      out = !s.ok();
      if (out) s = pass_over(std::move(s));
    }
    if (out) {
      forget_bounds(desc);
      return s;
    }
    chain.shown += static_cast<std::uint64_t>(__builtin_popcountll(desc.visible()));
    if (left != nullptr) left->next.store(number, std::memory_order_relaxed);
    leaves[chain.loaded++] = number;
    return {};
  }
  // For a leaf that is in no chain. The destructor finds the others.
  void forget_bounds(Desc& desc) {
    if constexpr (kBytes) {
      inner_.release(desc.separators.bound.exchange(nullptr, std::memory_order_relaxed));
      inner_.release(desc.separators.low.exchange(nullptr, std::memory_order_relaxed));
    }
  }

  // The new leaf's immutable low is the bound that the old leaf was about to get.
  [[gnu::noinline]] Status finish_split(Leaf& left, Leaf& right) {
    context_.platform.store(left.bound, context_.platform.load(right.low));
    if (!persist(&left, kLine, "phast.recover.split"_site)) return StatusCode::poisoned;
    return {};
  }

  // Sets the range of a recovered leaf, from its left neighbour's bound to its own, and marks the
  // separator.
  [[gnu::noinline]] Status set_bounds(Desc& desc, const Leaf& leaf, const Desc* left,
                                      std::uint32_t partition) {
    const auto bad = [&](const char* what) { return damaged_leaf(leaf_offset(desc), what); };
    const ordered::Partitioning& partitioning = inner_.partitioning();
    const std::uint64_t bound = context_.platform.load(leaf.bound);
    const bool last = context_.platform.load(leaf.next) == 0;
    std::uint64_t word = bound;
    if constexpr (kBytes) {
      if (last != (bound == 0)) return bad("bound");
      word = partitioning.bound(partition);
      if (bound != 0) {
        if (Status s = check_record(bound, true); !s.ok()) return s;
        Status marked = context_.heap.mark(bound, "phast.recover.mark_separator"_site);
        if (!marked.ok()) return marked;
        const auto key = RecordView::read(context_.platform, record_at(bound)).key();
        word = head_word(key);
        Separator<P>* separator = Separator<P>::make(key, bound);
        if (separator == nullptr) return StatusCode::out_of_memory;
        desc.separators.bound.store(separator, std::memory_order_relaxed);
      }
      if (left != nullptr) {
        Separator<P>* low = left->separators.bound.load(std::memory_order_relaxed);
        Inner::share(low);
        desc.separators.low.store(low, std::memory_order_relaxed);
      }
    }
    if (last && word != partitioning.bound(partition)) return bad("last bound");
    const std::uint64_t low = left == nullptr
                                  ? partitioning.low(partition)
                                  : left->bound.load(std::memory_order_relaxed) + (kBytes ? 0 : 1);
    if (word < low || partitioning.of(word) != partition) return bad("order of bounds");
    desc.low.store(low, std::memory_order_relaxed);
    desc.bound.store(word, std::memory_order_relaxed);
    if constexpr (kBytes) {
      const Separator<P>* s = desc.separators.bound.load(std::memory_order_relaxed);
      if (s != nullptr && left != nullptr && desc.below({.word = word, .bytes = s->view()})) {
        return bad("order of bounds");
      }
    }
    return {};
  }

  // The separator that set_bounds() will read, so that the misses overlap.
  static constexpr std::size_t kAhead = 8;  // leaves
  void prefetch_bound(const Numbers& leaves, std::size_t i) const {
    if (i >= leaves.size()) return;
    const std::uint64_t bound = context_.platform.load(leaf_of(table_[leaves[i]]).bound);
    if (bound == 0) return;
    const auto* bytes = reinterpret_cast<const char*>(record_at(bound));
    __builtin_prefetch(bytes);
    __builtin_prefetch(bytes + kLine);
  }

  // phast.I6: returns the slots whose entries the right neighbour has, too. No record is read.
  [[gnu::noinline]] std::uint64_t moved_slots(const Leaf& leaf, const Leaf& right) const {
    const P& platform = context_.platform;
    // A leaf that was not split into these two, or not last, has none.
    if (platform.load(right.low) != platform.load(leaf.bound)) return 0;
    const auto hash = [](std::uint64_t word) { return word >> 4 & 0xFF; };
    std::uint64_t words[kEntries];
    bool named[256] = {};
    for (std::uint32_t slot = 0; slot < kEntries; ++slot) {
      words[slot] = platform.load(right.entries[slot].value);
      named[hash(words[slot])] = true;
    }
    std::uint64_t moved = 0;
    for (std::uint32_t slot = 0; slot < kEntries; ++slot) {
      const std::uint64_t word = platform.load(leaf.entries[slot].value);
      if (word == 0 || !named[hash(word)]) continue;
      const auto* const there = std::find(words, words + kEntries, word);
      if (there == words + kEntries) continue;
      const Entry& copy = right.entries[there - words];
      if (platform.load(copy.key) == platform.load(leaf.entries[slot].key)) moved |= 1ULL << slot;
    }
    return moved;
  }

  Status mark_record(std::uint64_t offset) {
    return context_.heap.mark(offset, "phast.recover.mark_record"_site);
  }
  // Returns false, "no entry", if the damage may be passed over: only check() allows that.
  [[gnu::noinline]] Expected<bool> skip(Status why) {
    if (Status s = pass_over(std::move(why)); !s.ok()) return fail(std::move(s));
    return false;
  }

  // Returns whether an entry of a byte string counts: whether it is in the leaf's range. An entry
  // that was moved is zeroed, so it never names a record that is freed and used again. Sets `wrote`
  // if the caller must fence.
  [[gnu::noinline]] Expected<bool> admit_bytes(Desc& desc, Entry& entry, bool clean, bool moved,
                                               Probe& probe, bool& wrote) {
    P& platform = context_.platform;
    const std::uint64_t word = platform.load(entry.value);
    probe.fingerprint = static_cast<std::uint8_t>(word >> 56);
    // No writer makes a fingerprint of 0.
    if (probe.fingerprint == 0) return skip(Records<P>::damaged(word & kOffsetMask));
    const std::uint64_t low = desc.low.load(std::memory_order_relaxed);
    const std::uint64_t bound = desc.bound.load(std::memory_order_relaxed);
    bool outside = moved || probe.word < low || probe.word > bound;
    // An older build did not keep phast.I6. Where words cannot decide, the record does.
    if (!outside && !clean && !apart_ && (probe.word == low || probe.word == bound)) {
      if (Status s = check_record(word, true); !s.ok()) return skip(std::move(s));
      probe.bytes = RecordView::read(platform, record_at(word)).key();
      outside = desc.below(probe) || desc.above(probe);
    }
    if (outside) {
      if (clean) return skip(damaged_leaf(leaf_offset(desc), "an entry outside its range"));
      if (!P::runs("phast.recover.zero"_site)) return false;
      platform.store(entry.value, 0);
      platform.flush(&entry, sizeof(entry), "phast.recover.zero"_site);
      wrote = true;
      return false;
    }
    Status s = check_record(word, false);
    if (clean && word_records_ && s.ok()) __builtin_prefetch(record_at(word));  // for values_crc()
    if (s.ok()) s = mark_record(word & kOffsetMask);
    if (!s.ok()) return skip(std::move(s));
    return true;
  }

  // Makes the integers of a leaf visible. Those outside its range are garbage (phast.I2), and stay.
  [[gnu::noinline]] Status load_words(Desc& desc, const Leaf& leaf)
    requires(!kBytes)
  {
    const P& platform = context_.platform;
    const bool all = !P::runs("phast.recover.range"_site);
    // An empty slot has the word 0.
    const auto low = all ? 1 : std::max<std::uint64_t>(desc.low.load(std::memory_order_relaxed), 1);
    const auto bound = all ? ~std::uint64_t{0} : desc.bound.load(std::memory_order_relaxed);
    if (bound < low) return {};
    for (std::uint32_t slot = 0; slot < kEntries; ++slot) {
      // Without a branch: empty slots, and words that a split has left, come in no order.
      const std::uint64_t word = platform.load(leaf.entries[slot].key);
      const auto mask = static_cast<std::uint8_t>(word - low <= bound - low ? 0xFF : 0);
      desc.set_fingerprint(slot, Codec::fingerprint(word) & mask);
    }
    if (!record_values_) return {};
    for (std::uint64_t v = desc.visible(); v != 0; v &= v - 1) {
      const auto slot = static_cast<std::uint32_t>(__builtin_ctzll(v));
      const std::uint64_t record = platform.load(leaf.entries[slot].value);
      Status s = check_record(record, false);
      if (s.ok()) s = mark_record(record);
      if (s.ok()) continue;
      if (s = pass_over(std::move(s)); !s.ok()) return s;
      desc.set_fingerprint(slot, 0);
    }
    return {};
  }

  [[gnu::noinline]] Status load_bytes(Desc& desc, Leaf& leaf, const Leaf* right, bool clean,
                                      bool& wrote) {
    const P& platform = context_.platform;
    const std::uint64_t moved = !clean && right != nullptr ? moved_slots(leaf, *right) : 0;
    for (std::uint32_t slot = 0; slot < kEntries; ++slot) {
      Entry& entry = leaf.entries[slot];
      if (platform.load(Codec::commit(entry)) == 0) continue;
      Probe probe{.word = platform.load(entry.key)};
      auto counts = admit_bytes(desc, entry, clean, (moved >> slot & 1) != 0, probe, wrote);
      if (!counts) return std::move(counts.error());
      if (*counts) desc.set_fingerprint(slot, probe.fingerprint);
    }
    return {};
  }

  // Makes the entries that count visible. `right`: the neighbour, or null.
  [[gnu::noinline]] Status load_slots(Desc& desc, const Leaf* right, bool clean, bool& wrote) {
    Leaf& leaf = leaf_of(desc);
    if constexpr (kBytes) {
      if (Status s = load_bytes(desc, leaf, right, clean, wrote); !s.ok()) return s;
    } else {
      if (Status s = load_words(desc, leaf); !s.ok()) return s;
    }
    if (clean && word_records_ &&
        !matches<P>(leaf.values_crc == values_crc(leaf, desc.visible()), "phast.values.crc"_site)) {
      Status s = damaged_object("a value of the leaf", leaf_offset(desc), "checksum");
      if (s = pass_over(std::move(s)); !s.ok()) return s;
    }
    desc.version.store(2, std::memory_order_release);
    return {};
  }

  // --- checksums ---

  // Whether the checksum of the root block and of the master array behind it matches.
  bool root_intact(const layout::Root& image, std::size_t partitions) const {
    const std::uint32_t crc = crc32c(fixed_crc_of(image), master(), partitions * 8);
    return matches<P>(image.fixed_crc == crc, "phast.root.crc"_site);
  }
  // Whether key 0, or a leaf, is as the close has left it. True if the pool was not closed: then
  // there is no checksum. No mutation has run since the open.
  bool zero_as_closed() const { return !closed_ || root_->close_crc == zero_crc(); }
  [[gnu::noinline]] bool as_closed(const Desc& desc) const {
    const Leaf& leaf = leaf_of(desc);
    return !closed_ || (leaf.crc == leaf_crc(leaf) &&
                        (!word_records_ || leaf.values_crc == values_crc(leaf, desc.visible())));
  }
  std::uint64_t zero_crc() const { return crc32c(0, &root_->zero_value, 16); }
  static std::uint64_t leaf_crc(const Leaf& leaf) {
    const std::uint32_t head = crc32c(0, &leaf, offsetof(Leaf, crc));
    const auto* rest = reinterpret_cast<const std::byte*>(&leaf) + offsetof(Leaf, values_crc);
    return crc32c(head, rest, sizeof(Leaf) - offsetof(Leaf, values_crc));
  }
  // Of the word values. No record's own checksum covers them, since they are updated in place.
  [[gnu::noinline]] std::uint64_t values_crc(const Leaf& leaf, std::uint64_t visible) const {
    const RecordPrefix* named[64];
    std::size_t count = 0;
    for (std::uint64_t v = visible; v != 0; v &= v - 1) {
      named[count] = record_at(context_.platform.load(leaf.entries[__builtin_ctzll(v)].value));
      __builtin_prefetch(named[count++]);
    }
    std::uint64_t words[64];
    for (std::size_t i = 0; i < count; ++i) words[i] = context_.platform.load(named[i]->value);
    return crc32c(0, words, count * sizeof(std::uint64_t));
  }

  void close_leaf(const Desc& desc) {
    P& platform = context_.platform;
    Leaf& leaf = leaf_of(desc);
    if (word_records_) {
      const std::uint64_t values = values_crc(leaf, desc.visible());
      // crc covers values_crc: if this changes, crc changes, and the line is written back.
      if (leaf.values_crc != values) platform.store(leaf.values_crc, values);
    }
    const std::uint64_t crc = leaf_crc(leaf);
    if (leaf.crc == crc) return;
    platform.store(leaf.crc, crc);
    platform.flush(&leaf, kLine, "phast.close.leaf"_site);
  }

  // --- check ---

  static constexpr const char* kKind = "phast block";

  // Returns a function that adds a violation of the leaf.
  static auto reporter(Findings& report, const Desc& desc) {
    return [&](const char* id, const char* what) {
      add_violation(report, id, kKind, leaf_offset(desc), what);
    };
  }

  // Whether the leaf's range begins where its left neighbour's ends, is not empty, and is the one
  // to which the inner levels lead.
  [[gnu::noinline]] void check_place(std::uint32_t number, const Desc* left,
                                     std::uint32_t partition, Findings& report) {
    const Desc& desc = table_[number];
    const auto bad = reporter(report, desc);
    const std::uint64_t low = desc.low.load(std::memory_order_acquire);
    const std::uint64_t expected =
        left == nullptr ? inner_.partitioning().low(partition)
                        : left->bound.load(std::memory_order_acquire) + (kBytes ? 0 : 1);
    if (low != expected) bad("phast.I1", "does not meet its neighbour");
    Probe bound{.word = desc.bound.load(std::memory_order_acquire)};
    if (bound.word < low) bad("phast.I1", "has its bound below its low");
    if constexpr (kBytes) {
      const Separator<P>* s = desc.separators.bound.load(std::memory_order_acquire);
      if (s != nullptr) bound.bytes = s->view();
      if (s == nullptr) bound.last = true;
      if (left != nullptr) {
        const Separator<P>* l = left->separators.bound.load(std::memory_order_acquire);
        if (desc.separators.low.load(std::memory_order_acquire) != l)
          bad("phast.I1", "has a foreign low");
        if (s != nullptr && l != nullptr && bound.word == low && s->view() <= l->view()) {
          bad("phast.I1", "has its bound below its low");
        }
      }
    }
    if (enter(bound, {inner_.locate(bound)}).number != number)
      bad("ordered.N1", "is not found by its bound");
  }

  // Compares a leaf with its descriptor. Reads no key.
  [[gnu::noinline]] void check_leaf(std::uint32_t number, Findings& report) {
    const P& platform = context_.platform;
    const Desc& desc = table_[number];
    const Leaf& leaf = leaf_of(desc);
    const std::uint64_t visible = desc.visible();
    const auto bad = reporter(report, desc);
    ++report.objects;
    report.entries += static_cast<std::uint64_t>(__builtin_popcountll(visible));
    report.bytes += sizeof(Leaf);
    if ((desc.version.load(std::memory_order_acquire) & 1) != 0)
      bad("phast.D4", "is linked but dead");
    if (desc.search.stripes.load() != 0) bad("phast.D2", "is latched");
    const std::uint32_t next = desc.next.load(std::memory_order_acquire);
    if (platform.load(leaf.next) != (next == kNoLeaf ? 0 : leaf_offset(table_[next]))) {
      bad("phast.I1", "next differs from its descriptor's");
    }
    const std::uint64_t bound = platform.load(leaf.bound);
    if constexpr (kBytes) {
      const Separator<P>* s = desc.separators.bound.load(std::memory_order_acquire);
      if (bound != (s == nullptr ? 0 : s->record))
        bad("phast.I1", "bound differs from its descriptor's");
      if (bound != 0) {
        ++report.objects;
        if (s == nullptr || !check_record(bound, true).ok() ||
            RecordView::read(platform, record_at(bound)).key() != s->view()) {
          bad("", "has a damaged bound");
        }
      }
    } else if (bound != desc.bound.load(std::memory_order_acquire)) {
      bad("phast.I1", "bound differs from its descriptor's");
    }
    for (std::uint32_t slot = 0; slot < kEntries; ++slot) {
      const bool empty = platform.load(Codec::commit(const_cast<Entry&>(leaf.entries[slot]))) == 0;
      const bool shown = (visible >> slot & 1) != 0;
      if (empty && shown) bad("phast.D1", "shows an empty slot");
      if (kBytes && !empty && !shown) bad("phast.I2", "hides an entry");
    }
  }

  // Every entry of a leaf: record, range, fingerprint, uniqueness, and that a lookup gets there. A
  // key in two leaves would be outside the range of one of them.
  [[gnu::noinline]] void check_entries(std::uint32_t number, Findings& report) {
    const P& platform = context_.platform;
    const Desc& desc = table_[number];
    const Leaf& leaf = leaf_of(desc);
    const std::uint64_t visible = desc.visible();
    const auto bad = reporter(report, desc);
    bool readable = true;
    for (std::uint32_t slot = 0; slot < kEntries; ++slot) {
      const Entry& entry = leaf.entries[slot];
      const bool shown = (visible >> slot & 1) != 0;
      if (platform.load(Codec::commit(const_cast<Entry&>(entry))) == 0) continue;
      const std::uint64_t word = platform.load(entry.value);
      if (records() && shown) {
        ++report.objects;
        report.bytes += context_.heap.block_bytes(word & kOffsetMask);
      }
      if (records() && (shown || kBytes) && !check_record(word, true).ok()) {
        bad("", "names a damaged record");
        readable = false;
        continue;
      }
      const Probe probe = probe_of(entry);
      const bool inside = !desc.below(probe) && !desc.above(probe);
      if (shown && !inside) bad("phast.I2", "shows a key outside its range");
      if (!shown && (inside || desc.below(probe))) bad("phast.I2", "hides an entry");
      if (!shown) continue;
      if ((desc.matches(probe.fingerprint) >> slot & 1) == 0)
        bad("phast.D1", "has a wrong fingerprint");
      if constexpr (kBytes) {
        if (Codec::fingerprint(probe.bytes) != probe.fingerprint)
          bad("phast.D1", "has a wrong hash");
        if (head_word(probe.bytes) != probe.word) bad("", "has a wrong head");
      }
      if (inside && enter(probe, {inner_.locate(probe)}).number != number)
        bad("ordered.N1", "hides from lookups");
    }
    if (readable) check_order(number, report);
  }

  // Passes on the entries that a checksum covers. A record of byte strings has one of its own. All
  // else is covered by the leaf's, if the pool was closed.
  [[gnu::noinline]] void deliver_entries(const Desc& desc,
                                         const FunctionRef<void(const detail::Entry&)>& visit) {
    const bool own = kBytes && !word_records_;
    if (!own && !as_closed(desc)) return;
    const Leaf& leaf = leaf_of(desc);
    for (std::uint64_t v = desc.visible(); v != 0; v &= v - 1) {
      const Entry& entry = leaf.entries[__builtin_ctzll(v)];
      const std::uint64_t word = context_.platform.load(entry.value);
      if (records() && !check_record(word, true).ok()) continue;
      const Probe probe = probe_of(entry);
      if constexpr (kBytes) {  // a damaged slot may name a record that was freed
        const bool named = Codec::fingerprint(probe.bytes) == probe.fingerprint &&
                           head_word(probe.bytes) == probe.word;
        if (!named || desc.below(probe) || desc.above(probe)) continue;
      }
      detail::Entry out{.key = {.word = probe.word, .bytes = probe.bytes}, .value = {}};
      if (value_of(word, out.value)) visit(out);
    }
  }

  // Whether the keys of a leaf are distinct, and the cached scan order, if it is valid, is theirs.
  [[gnu::noinline]] void check_order(std::uint32_t number, Findings& report) {
    const Desc& desc = table_[number];
    const Leaf& leaf = leaf_of(desc);
    const auto bad = reporter(report, desc);
    std::uint8_t order[64];
    const std::uint32_t count = sort_slots(leaf, desc.visible(), order);
    for (std::uint32_t i = 1; i < count; ++i) {
      const Probe a = probe_of(leaf.entries[order[i - 1]]);
      const Probe b = probe_of(leaf.entries[order[i]]);
      if (a.word == b.word && a.bytes == b.bytes) bad("phast.I2", "holds a key twice");
    }
    std::uint8_t kept[64] = {};
    std::uint64_t removed = 0;
    const std::uint64_t version = desc.version.load(std::memory_order_acquire);
    const std::uint32_t listed = table_.order_of(number, version, kept, removed);
    if (omit_removed(desc.visible(), removed, kept, listed) != count) return;
    if (std::memcmp(kept, order, count) != 0) bad("phast.D3", "has a wrong scan order");
  }

  bool closed_ = false;  // the pool was closed before this open
  bool apart_ = false;   // leaves lie apart from records: this build has made the map
  typename P::template Atomic<std::uint64_t> shown_{0};  // entries, during recover()
};

}  // namespace perdure::phast
