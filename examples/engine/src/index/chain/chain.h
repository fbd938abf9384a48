// Chain: a hash map of linked lists in persistent memory, as an example of a complete engine.
//
// WHAT  A table of buckets, made once; each is the first link of a list of nodes. A node holds an
//   entry and never changes, except for its link: an update replaces the node. WHEN NOT: the table
//   does not grow, and every open reads the whole map.
// LAYOUT  root (64 bytes, BlockKind::plain)   magic, seed, table, shape, checksum, sum of a close
//   table  a link for each bucket
//   node   link to the next node; a record (index/record.h) with the key's and the value's bytes
//   A link is 0, or the offset of a node with a checksum of offset and place in its upper 16 bits.
// INVARIANTS
//   chain.I1  (after any crash) a link is 0 or names a whole node: the node is durable before any
//       link names it.
//   chain.I2  (after any crash) a key has at most one node, in the list of its bucket.
//   chain.I3  (DRAM) while no thread holds the latch of a bucket, its list's links are durable.
// OPERATIONS  Each mutation linearizes, and is durable, by one link. A lookup linearizes while it
//   holds the latch of the bucket.
//   insert  2 write-backs and 2 fences: the node, then the link of the bucket (persist point)
//   update  the same: the new node names the next one; the link to the old node then names the new
//   erase   1 write-back and 1 fence: the link to the node then names the next one
// ORDERING  chain.node.write is fenced before chain.link.write or chain.link.replace; each of these
//   and chain.link.erase is fenced before the latch is released.
// RECOVERY  walks all lists, verifies every link and record, and marks the nodes. Repairs nothing.
//   A lost line of the table looks like empty lists, so a close writes a sum of all links and
//   nodes, which the next open compares.
// RECLAMATION  A node that no link names any more is retired. Callbacks run without a latch, under
//   the guard of the epoch domain, which keeps the node. A walk may go on from an unlinked node,
//   because its link still leads to the rest of the list.
// PROGRESS  blocking: a latch for each group of buckets, held during a fence.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include "index/closed_sum.h"
#include "index/engine_report.h"
#include "index/map_engine.h"
#include "index/record.h"
#include "index/root.h"
#include "index/traits.h"
#include "util/hash.h"

namespace perdure::chain {

// On media; format version 1.
namespace layout {

inline constexpr std::uint64_t kMagic = 0x4E49'4148'4300'0001;
inline constexpr std::uint64_t kBytesKeys = 1 << 8;    // in `shape`
inline constexpr std::uint64_t kBytesValues = 1 << 9;  // in `shape`
inline constexpr std::uint64_t kMaxLogBuckets = 24;

struct Root {
  std::uint64_t magic;
  std::uint64_t seed;
  std::uint64_t table;      // offset
  std::uint64_t shape;      // bits 0..7: log2 of the buckets; the kinds
  std::uint32_t fixed_crc;  // CRC32C of all above; written once
  std::uint32_t reserved;
  // The sum (index/closed_sum.h) of the places and targets of all links, and of the states of all
  // nodes. Counts in a cleanly closed pool only.
  std::uint64_t sum;
  std::uint64_t reserved2[2];

  std::uint64_t buckets() const { return std::uint64_t{1} << (shape & 0xFF); }
};
static_assert(sizeof(Root) == 64);

struct Node {
  std::uint64_t next;
  RecordPrefix record;
};
static_assert(sizeof(Node) == 24);

inline constexpr int kOffsetBits = 48;

// The word for a link to `target` at offset `place`.
inline std::uint64_t link_word(std::uint64_t place, std::uint64_t target) {
  if (target == 0) return 0;
  const std::uint64_t words[2] = {place, target};
  return target | std::uint64_t{crc32c(0, words, sizeof(words))} << kOffsetBits;
}
inline std::uint64_t target_of(std::uint64_t word) {
  return word & ((std::uint64_t{1} << kOffsetBits) - 1);
}

}  // namespace layout

// A key or a value as bytes.
class Bytes {
 public:
  Bytes(std::uint64_t word, std::size_t size) : word_(word), bytes_(text(), size) {}
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  std::string_view view() const { return bytes_; }

 private:
  const char* text() const { return reinterpret_cast<const char*>(&word_); }

  std::uint64_t word_ = 0;
  std::string_view bytes_;
};

// Keys are bytes for the base class, also those of integers.
struct ByteKeys {
  static constexpr bool kBytes = true;
};

// LogBuckets: log2 of the buckets of a map whose capacity is unknown.
template <Platform P, std::uint32_t LogBuckets = 10>
class Chain final : public MapEngine<Traits<P, ByteKeys, void>, layout::Root, Chain<P, LogBuckets>,
                                     detail::Index> {
  using Base =
      MapEngine<Traits<P, ByteKeys, void>, layout::Root, Chain<P, LogBuckets>, detail::Index>;
  friend Base;
  using Root = layout::Root;
  using Node = layout::Node;
  using typename Base::Keys, typename Base::Mode, typename Base::Visit;

 public:
  static Expected<std::uint64_t> create(const EngineContext<P>& context, const MapKinds& kinds,
                                        std::uint64_t capacity = 0) {
    P& platform = context.platform;
    const std::uint64_t log =
        std::clamp<std::uint64_t>(std::bit_width(capacity), LogBuckets, layout::kMaxLogBuckets);
    const std::size_t bytes = sizeof(std::uint64_t) << log;
    auto table = context.heap.allocate(bytes, BlockKind::plain);
    if (!table) return table;
    auto offset = context.heap.allocate(sizeof(Root), BlockKind::plain);
    if (!offset) {
      context.heap.free(*table);
      return offset;
    }
    void* links = context.heap.template at<void>(*table);
    platform.zero(links, bytes);
    platform.flush(links, bytes, "chain.create.table"_site);
    Root image{};
    image.magic = layout::kMagic;
    image.seed = P::random();
    image.table = *table;
    image.shape = log;
    if (kinds.key == KeyKind::bytes) image.shape |= layout::kBytesKeys;
    if (kinds.value == ValueKind::bytes) image.shape |= layout::kBytesValues;
    image.fixed_crc = fixed_crc_of(image);
    auto* root = context.heap.template at<Root>(*offset);
    platform.copy(root, &image, sizeof(image));
    platform.flush(root, sizeof(Root), "chain.create.root"_site);
    if (!platform.fence("chain.create.root"_site)) return fail(StatusCode::poisoned);
    return offset;
  }
  static Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<P>& context,
                                                        std::uint64_t root) {
    return make_instance<Chain>(context, root, sizeof(Root));
  }
  Chain(const EngineContext<P>& context, std::uint64_t root) : Base(context, root) {}
  ~Chain() override { context_.epochs.drain_all(); }

  // --- EngineInstance ---
  Expected<Recovered> recover(bool clean) override {
    if (Status s = read_root(); !s.ok()) return fail(std::move(s));
    if (Status s = enumerate(&Heap<P>::mark); !s.ok()) return fail(std::move(s));
    if (clean) {
      auto now = sum();
      const std::uint64_t closed = context_.platform.load(root_->sum);
      if (!now || !matches<P>(*now == closed, "chain.sum"_site)) {
        if (Status s = Base::pass_over(differs_from_close("links")); !s.ok()) {
          return fail(std::move(s));
        }
      }
    }
    return Recovered::done;
  }
  Status close() override {
    auto now = sum();
    if (!now) return std::move(now.error());
    context_.platform.store(root_->sum, *now);
    context_.platform.flush(&root_->sum, sizeof(root_->sum), "chain.close.sum"_site);
    return {};
  }

  Status plan_batch(const BatchPlan& plan) override {
    for (const detail::Mutation& put : plan.mutations) {
      if (put.kind == MutationKind::erase) continue;
      const std::size_t bytes = node_bytes(of(put.key).view(), of(put.value).view());
      if (!plan.needs.add(bytes, BlockKind::plain)) return StatusCode::out_of_memory;
    }
    return {};
  }

  // --- Index ---
  Expected<bool> remove(const detail::Key& key, const detail::Value* expected) {
    if (Status s = Base::validate(key); !s.ok()) return fail(std::move(s));
    MutationGuard<P> guard(context_.epochs);
    if (Status s = Base::begin_mutation(guard, false); !s.ok()) return fail(std::move(s));
    const Bytes bytes = of(key);
    const std::uint64_t bucket = bucket_of(bytes.view());
    LatchGuard latch(latch_of(bucket));
    auto found = find(bucket, bytes.view());
    if (!found) return fail(std::move(found.error()));
    if (found->node == 0) return Base::absent();
    if (expected != nullptr && !detail::same_value(value_of(found->node), *expected)) return false;
    auto next = target(node_at(found->node)->next);
    if (!next) return fail(std::move(next.error()));
    if (!set_link(*found->link, *next, "chain.link.erase"_site)) return fail(StatusCode::poisoned);
    context_.heap.retire(found->node, "chain.erase.free"_site);
    return Base::went();
  }
  Expected<void> for_each(FunctionRef<bool(std::span<const detail::Entry>)> visit) override {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = Base::begin_read(guard); !s.ok()) return fail(std::move(s));
    std::array<detail::Entry, kBatch> batch;
    for (std::uint64_t bucket = 0; bucket < fixed_.buckets(); ++bucket) {
      const std::uint64_t* link = &links()[bucket];
      while (link != nullptr) {
        auto count = take(bucket, link, batch);
        if (!count) return fail(std::move(count.error()));
        if (context_.platform.poisoned()) return fail(context_.platform.failure());
        if (*count != 0 && !visit({batch.data(), *count})) return {};
      }
    }
    return {};
  }
  void stats(EngineStats& out) override {
    out.entries = 0;
    out.pm_bytes =
        context_.heap.block_bytes(root_offset_) + context_.heap.block_bytes(fixed_.table);
    const auto done = for_each([&](std::span<const detail::Entry> entries) {
      out.entries += entries.size();
      return true;
    });
    out.partial =
        !done || !out.levels.push_back({.slots = fixed_.buckets(), .entries = out.entries});
    out.height = 1;
    out.load_factor = static_cast<double>(out.entries) / static_cast<double>(fixed_.buckets());
    out.dram_bytes = sizeof(*this);
  }
  void check(const CheckOptions& options, Findings& report) override {
    EpochGuard<P> guard(context_.epochs);
    ++report.objects;
    if (!guard.ok()) return add_violation(report, "chain root", root_offset_, "out of memory");
    if (!root_intact<P>(*root_, "chain.root.crc"_site)) {
      add_violation(report, "chain.I1", "chain root", root_offset_, "is damaged (checksum)");
    }
    const std::uint64_t most = context_.heap.stats().allocated_bytes / sizeof(Node);
    for (std::uint64_t bucket = 0; bucket < fixed_.buckets(); ++bucket) {
      std::uint64_t longest = most;
      const std::uint64_t* link = &links()[bucket];
      while (link != nullptr && longest-- > 0) link = check_node(link, options, report);
      if (link != nullptr) {
        add_violation(report, "chain.I2", "chain bucket", offset_of(&links()[bucket]),
                      "has a cycle");
      }
      tell_progress(options, report, bucket, 1024);
    }
  }

 private:
  using Base::context_, Base::offset_of, Base::persist, Base::root_, Base::root_offset_;
  static constexpr std::size_t kLatches = 64;
  static constexpr std::size_t kBatch = 32;

  struct Place {
    std::uint64_t* link = nullptr;  // names the node
    std::uint64_t node = 0;         // 0: the key is absent
  };

  // --- what MapEngine calls ---
  Expected<bool> find(const detail::Key& key, Visit visit) {
    const Bytes bytes = of(key);
    const std::uint64_t bucket = bucket_of(bytes.view());
    Expected<Place> place = [&] {
      LatchGuard latch(latch_of(bucket));
      return find(bucket, bytes.view());
    }();
    if (!place) return fail(std::move(place.error()));
    return place->node == 0 ? Base::absent() : Base::deliver(value_of(place->node), visit);
  }
  struct Group {
    Keys keys;
  };
  Status fetch(Keys keys, Group& group) const {
    for (const detail::Key& key : keys) __builtin_prefetch(&links()[bucket_of(of(key).view())]);
    group.keys = keys;
    return {};
  }
  Expected<bool> find_fetched(const Group& group, std::size_t i, Visit visit) {
    return find(group.keys[i], visit);
  }
  template <Mode kMode>
  Expected<bool> write(const detail::Key& key, const detail::Value& value,
                       const detail::Value* expected = nullptr) {
    const bool takes_bytes = (fixed_.shape & layout::kBytesValues) != 0;
    Status s = Base::validate(key, value, !takes_bytes, takes_bytes);
    if (!s.ok()) return fail(std::move(s));
    return Base::with_room([&] { return write_once<kMode>(key, value, expected); });
  }
  template <Mode kMode>
  Expected<bool> write_once(const detail::Key& key, const detail::Value& value,
                            const detail::Value* expected) {
    MutationGuard<P> guard(context_.epochs);
    if (Status s = Base::begin_mutation(guard, true); !s.ok()) return fail(std::move(s));
    const Bytes bytes = of(key);
    const std::uint64_t bucket = bucket_of(bytes.view());
    LatchGuard latch(latch_of(bucket));
    auto found = find(bucket, bytes.view());
    if (!found) return fail(std::move(found.error()));
    const bool there = found->node != 0;
    if (there ? kMode == Mode::insert : !Base::adds(kMode)) return Base::absent();
    if (expected != nullptr && !detail::same_value(value_of(found->node), *expected)) {
      return false;
    }
    auto next = target(there ? node_at(found->node)->next : links()[bucket]);
    if (!next) return fail(std::move(next.error()));
    auto node = make_node(bytes.view(), of(value).view(), *next);
    if (!node) return fail(std::move(node.error()));
    const bool linked = there ? set_link(*found->link, *node, "chain.link.replace"_site)
                              : set_link(links()[bucket], *node, "chain.link.write"_site);
    if (!linked) return fail(StatusCode::poisoned);
    if (there) context_.heap.retire(found->node, "chain.replace.free"_site);
    return !Base::adds(kMode) || (!there && Base::came());
  }
  static std::size_t node_bytes(std::string_view key, std::string_view value) {
    return offsetof(Node, record) + RecordView::bytes_needed(key, {.bytes = value});
  }
  // A durable node that no link names.
  Expected<std::uint64_t> make_node(std::string_view key, std::string_view value,
                                    std::uint64_t next) {
    P& platform = context_.platform;
    const detail::Value stored{.bytes = value};
    const std::size_t bytes = node_bytes(key, value);
    auto block = context_.heap.allocate(bytes, BlockKind::plain);
    if (!block) return block;
    Node* node = node_at(*block);
    platform.store(node->next, layout::link_word(offset_of(&node->next), next));
    RecordView::write(platform, &node->record, key, stored);
    if (!persist(node, bytes, "chain.node.write"_site)) return fail(StatusCode::poisoned);
    return block;
  }
  template <FixedString Name>
  bool set_link(std::uint64_t& link, std::uint64_t node, Site<Name> site) {
    PERDURE_ASSERT(P, "chain.I1",
                   node == 0 || context_.platform.persisted(node_at(node), sizeof(Node)));
    context_.platform.store(link, layout::link_word(offset_of(&link), node));
    return persist(&link, sizeof(link), site);
  }

  // The caller holds the latch of the bucket.
  Expected<Place> find(std::uint64_t bucket, std::string_view key) {
    std::uint64_t* link = &links()[bucket];
    for (;;) {
      auto node = target(*link);
      if (!node) return fail(std::move(node.error()));
      if (*node == 0 || record_of(*node).key() == key) return Place{.link = link, .node = *node};
      link = &node_at(*node)->next;
    }
  }
  // Takes entries from the link on. The link is null afterwards if it was the end of the list.
  Expected<std::size_t> take(std::uint64_t bucket, const std::uint64_t*& link,
                             std::array<detail::Entry, kBatch>& batch) {
    LatchGuard latch(latch_of(bucket));
    for (std::size_t count = 0; count < kBatch; ++count) {
      auto node = target(*link);
      if (!node) return fail(std::move(node.error()));
      if (*node == 0) {
        link = nullptr;
        return count;
      }
      batch[count] = {.key = key_of(*node), .value = value_of(*node)};
      link = &node_at(*node)->next;
    }
    return kBatch;
  }
  // The node that the link names; 0: none. Errors: corruption.
  Expected<std::uint64_t> target(const std::uint64_t& link) const {
    const std::uint64_t word = context_.platform.load(link);
    const std::uint64_t node = layout::target_of(word);
    if (word == 0) return 0;
    const bool sound =
        matches<P>(layout::link_word(offset_of(&link), node) == word, "chain.link.crc"_site);
    if (sound && context_.heap.is_block(node) && context_.heap.is_plain(node) &&
        context_.heap.block_bytes(node) >= sizeof(Node) &&
        record_of(node).plausible(context_.heap.block_bytes(node) - offsetof(Node, record))) {
      return node;
    }
    return fail(damaged_object("the link", offset_of(&link)));
  }

  Status read_root() {
    if (context_.heap.block_bytes(root_offset_) < sizeof(Root)) return bad_root("size");
    const Root image = *root_;
    if (image.magic != layout::kMagic) return bad_root("magic");
    if (!root_intact<P>(image, "chain.root.crc"_site)) return bad_root("checksum");
    if ((image.shape & 0xFF) > layout::kMaxLogBuckets || !context_.heap.is_block(image.table) ||
        context_.heap.block_bytes(image.table) < image.buckets() * sizeof(std::uint64_t)) {
      return bad_root("table");
    }
    fixed_ = image;
    return {};
  }
  Status enumerate(Status (Heap<P>::*mark)(std::uint64_t)) {
    const std::uint64_t table = fixed_.table;
    const std::uint64_t buckets = fixed_.buckets();
    for (std::uint64_t bucket = 0; bucket < buckets; ++bucket) {
      if (Status s = enumerate(bucket, mark); !s.ok()) {
        if (s = Base::pass_over(std::move(s)); !s.ok()) return s;
      }
    }
    if (Status s = (context_.heap.*mark)(table); !s.ok()) return s;
    return (context_.heap.*mark)(root_offset_);
  }
  // The nodes of one list. To mark a node twice is an error, so a cycle ends.
  Status enumerate(std::uint64_t bucket, Status (Heap<P>::*mark)(std::uint64_t)) {
    auto node = target(links()[bucket]);
    while (node && *node != 0) {
      if (!matches<P>(record_of(*node).intact(), "chain.node.crc"_site)) {
        return damaged_object("the node", *node);
      }
      auto next = target(node_at(*node)->next);  // before take_back() frees the node
      if (Status s = (context_.heap.*mark)(*node); !s.ok()) return s;
      node = std::move(next);
    }
    return node ? Status() : std::move(node.error());
  }
  // The sum of what the links that are not 0 name, and of the checksums of the nodes.
  Expected<std::uint64_t> sum() const {
    std::uint64_t sum = 0;
    for (std::uint64_t bucket = 0; bucket < fixed_.buckets(); ++bucket) {
      for (const std::uint64_t* link = &links()[bucket];;) {
        auto node = target(*link);
        if (!node) return node;
        if (*node == 0) break;
        sum += closed_term(offset_of(link), *node);
        const std::uint64_t& state = node_at(*node)->record.state;
        sum += closed_term(offset_of(&state), context_.platform.load(state));
        link = &node_at(*node)->next;
      }
    }
    return sum;
  }
  // Returns the link of the node; null at the end of the list, or if the list is damaged.
  const std::uint64_t* check_node(const std::uint64_t* link, const CheckOptions& options,
                                  Findings& report) {
    auto node = target(*link);
    if (!node) {
      add_violation(report, "chain.I1", "chain link", offset_of(link), "names no whole node");
      return nullptr;
    }
    if (*node == 0) return nullptr;
    const RecordView record = record_of(*node);
    ++report.objects;
    ++report.entries;
    report.bytes += context_.heap.block_bytes(*node);
    if (options.deep && !matches<P>(record.intact(), "chain.node.crc"_site)) {
      add_violation(report, "chain.I1", "chain node", *node, "is damaged (checksum)");
    }
    auto first = find(bucket_of(record.key()), record.key());
    if (!first || first->node != *node) {
      add_violation(report, "chain.I2", "chain node", *node, "is not where its key is found");
    }
    return &node_at(*node)->next;
  }

  std::uint64_t* links() const { return context_.heap.template at<std::uint64_t>(fixed_.table); }
  Node* node_at(std::uint64_t offset) const { return context_.heap.template at<Node>(offset); }
  RecordView record_of(std::uint64_t node) const {
    return RecordView::read(context_.platform, &node_at(node)->record);
  }
  std::uint64_t bucket_of(std::string_view key) const {
    const std::uint64_t hash = mix(fixed_.seed ^ crc32c(0, key.data(), key.size()));
    return hash & (fixed_.buckets() - 1);
  }
  typename P::Latch& latch_of(std::uint64_t bucket) { return latches_[bucket % kLatches]; }

  bool bytes_keys() const { return (fixed_.shape & layout::kBytesKeys) != 0; }
  Bytes of(const detail::Key& key) const {
    return bytes_keys() ? Bytes(key.bytes) : Bytes(key.word, sizeof(key.word));
  }
  static Bytes of(const detail::Value& value) {
    return value.word_size == 0 ? Bytes(value.bytes) : Bytes(value.word, value.word_size);
  }
  detail::Key key_of(std::uint64_t node) const {
    const std::string_view bytes = record_of(node).key();
    if (bytes_keys()) return {.bytes = bytes};
    return {.word = word_of(bytes)};
  }
  detail::Value value_of(std::uint64_t node) const {
    const std::string_view bytes = record_of(node).value().bytes;
    if ((fixed_.shape & layout::kBytesValues) != 0) return {.bytes = bytes};
    // A damaged record may have a value of any length, or none.
    const auto size = static_cast<std::uint32_t>(std::min(bytes.size(), sizeof(std::uint64_t)));
    return {.word = word_of(bytes), .word_size = size};
  }
  static std::uint64_t word_of(std::string_view bytes) {
    std::uint64_t word = 0;
    if (!bytes.empty()) std::memcpy(&word, bytes.data(), std::min(bytes.size(), sizeof(word)));
    return word;
  }

  Root fixed_{};  // as recovery has found it: a bit of the medium may flip later
  typename P::Latch latches_[kLatches];
};

}  // namespace perdure::chain
