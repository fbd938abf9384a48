// RedoList: the skiplists that the paper compares AS and ASCS with: RLS, with redo logging, and
// NBNFS, which writes nothing back (section IV.A). A list lives for one run and has no recovery.
//
// WHAT  An operation is a set of words and their new values: the words of the new node, and the
//   links to it. Of RLS the paper says only that a log is written first and the words in place
//   afterwards. Two variants exist for this reason.
//   Log::words    each word has a log entry of its own, written back and fenced; then a commit
//                 mark; then each word is written, written back and fenced in place; then the mark
//                 is removed. 2F 2S for a word, and 2F 2S.
//   Log::record   the least that a log costs: all entries and a checksum are one record, whose
//                 lines are written back once, with one fence; so are the words in place.
//   Log::none     NBNFS.
// LAYOUT  A node is {height, key, value, links} in a block of whole lines, as the nodes of as and
//   ascs are if they have more than 32 bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "evaluation/skiplists/list.h"
#include "heap/heap.h"
#include "index/skiplist/codec.h"
#include "platform/platform.h"
#include "util/crc32c.h"

namespace perdure::paper {

enum class Log : std::uint8_t { words, record, none };

template <Platform P, Log kLog>
class RedoList final : public List {
 public:
  // Call it before any other operation. Errors: pool_full.
  Status open() noexcept {
    auto log = heap_.allocate(sizeof(LogRecord), BlockKind::plain);
    auto head = allocate(kMaxHeight);
    if (!log) return std::move(log.error());
    if (!head) return std::move(head.error());
    log_ = heap_.template at<LogRecord>(*log);
    head_ = heap_.template at<Node>(*head);
    platform_.zero(log_, sizeof(*log_));
    platform_.zero(head_, node_bytes(kMaxHeight));
    return {};
  }
  RedoList(P& platform, Heap<P>& heap) noexcept : platform_(platform), heap_(heap) {}

  Expected<bool> insert(const ListKey& key, std::uint64_t value) override {
    Node* before[kMaxHeight];
    if (search(key, before) != nullptr) return false;
    const std::uint32_t height = height_of(key);
    auto block = allocate(height);
    if (!block) return fail(std::move(block.error()));
    auto* node = heap_.template at<Node>(*block);
    changes_.clear();
    change(node->height, height);
    change(node->key[0], key[0]);
    change(node->key[1], key[1]);
    change(node->value, value);
    for (std::uint32_t i = 0; i < height; ++i) change(node->next[i], before[i]->next[i]);
    for (std::uint32_t i = 0; i < height; ++i) change(before[i]->next[i], *block);
    apply();
    return true;
  }
  Expected<bool> erase(const ListKey& key) override {
    Node* before[kMaxHeight];
    Node* node = search(key, before);
    if (node == nullptr) return false;
    const std::uint64_t place = before[0]->next[0];
    changes_.clear();
    for (auto i = static_cast<std::uint32_t>(node->height); i-- > 0;) {
      change(before[i]->next[i], node->next[i]);
    }
    apply();
    heap_.free(place);
    return true;
  }
  Expected<bool> find(const ListKey& key, std::uint64_t& value) override {
    Node* before[kMaxHeight];
    const Node* node = search(key, before);
    if (node != nullptr) value = node->value;
    return node != nullptr;
  }
  // Checks that keys ascend in every level, and that a level has exactly the nodes that are tall
  // enough.
  void check(Findings& report) override {
    for (std::uint32_t level = 0; level < kMaxHeight; ++level) {
      const Node* below = at(head_->next[0]);
      const Node* last = nullptr;
      for (const Node* node = at(head_->next[level]); node != nullptr;
           node = at(node->next[level])) {
        if (last != nullptr && !(last->key < node->key)) report.add("keys do not ascend");
        while (below != nullptr && below != node && below->height <= level) {
          below = at(below->next[0]);
        }
        if (below != node) return report.add("a node is not in all its levels");
        below = at(below->next[0]);
        last = node;
        if (level == 0) ++report.entries;
      }
    }
  }

 private:
  static constexpr std::uint32_t kMaxHeight = 24;
  struct Node {
    std::uint64_t height;
    ListKey key;
    std::uint64_t value;
    std::uint64_t next[1];  // one per level; 0: none
  };
  struct Change {
    std::uint64_t* word;
    std::uint64_t value;
  };
  struct alignas(kLine) LogRecord {
    std::uint64_t count;  // changes to repeat; 0: none
    std::uint64_t crc;    // of the record
    Change changes[4 + 2 * kMaxHeight];
  };

  Node* at(std::uint64_t place) const noexcept {
    return place == 0 ? nullptr : heap_.template at<Node>(place);
  }
  static std::size_t node_bytes(std::uint32_t height) noexcept {
    return offsetof(Node, next) + 8 * std::size_t{height};
  }
  Expected<std::uint64_t> allocate(std::uint32_t height) noexcept {
    return heap_.allocate((node_bytes(height) + kLine - 1) / kLine * kLine, BlockKind::plain);
  }
  // As in as and ascs: one node of a level in two is also in the next one.
  static std::uint32_t height_of(const ListKey& key) noexcept {
    const std::uint64_t hash = perdure::mix(key[0] ^ perdure::mix(key[1] + 1));
    return std::min<std::uint32_t>(
        static_cast<std::uint32_t>(__builtin_ctzll(hash | 1ULL << 63)) + 1, kMaxHeight);
  }
  Node* search(const ListKey& key, Node** before) const noexcept {
    Node* node = head_;
    for (std::uint32_t level = kMaxHeight; level-- > 0;) {
      for (Node* next = at(node->next[level]); next != nullptr && next->key < key;
           next = at(node->next[level])) {
        node = next;
        __builtin_prefetch(at(node->next[level]));
      }
      before[level] = node;
    }
    Node* next = at(node->next[0]);
    return next != nullptr && next->key == key ? next : nullptr;
  }

  void change(std::uint64_t& word, std::uint64_t value) { changes_.push_back({&word, value}); }
  void persist(const void* p, std::size_t n) noexcept {
    platform_.flush(p, n, "bench.redo"_site);
    (void)platform_.fence("bench.redo"_site);  // memory without a file is never poisoned
  }
  void mark(std::uint64_t count) noexcept {
    platform_.store(log_->count, count);
    persist(&log_->count, sizeof(log_->count));
  }
  void apply() noexcept {
    if constexpr (kLog == Log::words) {
      for (std::size_t i = 0; i < changes_.size(); ++i) {
        platform_.copy(&log_->changes[i], &changes_[i], sizeof(Change));
        persist(&log_->changes[i], sizeof(Change));
      }
      mark(changes_.size());
      for (const Change& c : changes_) {
        platform_.store(*c.word, c.value);
        persist(c.word, sizeof(*c.word));
      }
      mark(0);
    } else if constexpr (kLog == Log::record) {
      const std::size_t bytes = changes_.size() * sizeof(Change);
      platform_.copy(log_->changes, changes_.data(), bytes);
      platform_.store(log_->crc, crc32c(0, changes_.data(), bytes));
      platform_.store(log_->count, changes_.size());
      persist(log_, offsetof(LogRecord, changes) + bytes);
      for (const Change& c : changes_) platform_.store(*c.word, c.value);
      std::uintptr_t last = 0;  // words of a node are adjacent
      for (const Change& c : changes_) {
        const auto line = reinterpret_cast<std::uintptr_t>(c.word) / kLine;
        if (line != last) platform_.flush(c.word, sizeof(*c.word), "bench.redo"_site);
        last = line;
      }
      (void)platform_.fence("bench.redo"_site);
      mark(0);
    } else {
      for (const Change& c : changes_) platform_.store(*c.word, c.value);
    }
  }

  P& platform_;
  Heap<P>& heap_;
  LogRecord* log_ = nullptr;
  Node* head_ = nullptr;
  std::vector<Change> changes_;
};

}  // namespace perdure::paper
