// LockedMap and ESkipList: the paper's baselines that do not survive a restart.
#include <atomic>
#include <map>
#include <mutex>
#include <random>

#include "evaluation/versions/history.h"
#include "evaluation/versions/store.h"

namespace perdure::paper::versions {

namespace {

class LockedMap final : public Store {
 public:
  std::uint64_t insert(std::uint64_t key, std::uint64_t value) override {
    const std::lock_guard lock(mutex_);
    return map_[key].append(clock_, value, false);
  }
  std::uint64_t remove(std::uint64_t key) override {
    const std::lock_guard lock(mutex_);
    return map_[key].append(clock_, 0, true);
  }
  bool find(std::uint64_t key, std::uint64_t version, std::uint64_t& value) override {
    const std::lock_guard lock(mutex_);
    const auto it = map_.find(key);
    return it != map_.end() && it->second.find(version, value);
  }
  std::uint64_t history(std::uint64_t key,
                        FunctionRef<void(std::uint64_t, std::uint64_t, bool)> visit) override {
    const std::lock_guard lock(mutex_);
    const auto it = map_.find(key);
    return it != map_.end() ? it->second.visit(visit) : 0;
  }
  std::uint64_t snapshot(std::uint64_t version,
                         FunctionRef<void(std::uint64_t, std::uint64_t)> visit) override {
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    for (const auto& [key, history] : map_) {
      std::uint64_t value = 0;
      if (!history.find(version, value)) continue;
      visit(key, value);
      ++count;
    }
    return count;
  }
  bool reopen(unsigned) override { return false; }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, History> map_;
  std::atomic<std::uint64_t> clock_{1};
};

// Insert-only, because keys never leave it. A link changes by one compare-and-swap of a plain
// pointer.
class SkipList final : public Store {
 public:
  SkipList() : head_(new Node(0, kLevels)) {}
  ~SkipList() override {
    for (Node* node = head_; node != nullptr;) {
      Node* next = node->next[0].load(std::memory_order_relaxed);
      delete node;
      node = next;
    }
  }

  std::uint64_t insert(std::uint64_t key, std::uint64_t value) override {
    return node_of(key).history.append(clock_, value, false);
  }
  std::uint64_t remove(std::uint64_t key) override {
    return node_of(key).history.append(clock_, 0, true);
  }
  bool find(std::uint64_t key, std::uint64_t version, std::uint64_t& value) override {
    const Node* node = search(key);
    return node != nullptr && node->history.find(version, value);
  }
  std::uint64_t history(std::uint64_t key,
                        FunctionRef<void(std::uint64_t, std::uint64_t, bool)> visit) override {
    const Node* node = search(key);
    return node != nullptr ? node->history.visit(visit) : 0;
  }
  std::uint64_t snapshot(std::uint64_t version,
                         FunctionRef<void(std::uint64_t, std::uint64_t)> visit) override {
    std::uint64_t count = 0;
    for (const Node* node = head_->next[0].load(std::memory_order_acquire); node != nullptr;
         node = node->next[0].load(std::memory_order_acquire)) {
      std::uint64_t value = 0;
      if (!node->history.find(version, value)) continue;
      visit(node->key, value);
      ++count;
    }
    return count;
  }
  bool reopen(unsigned) override { return false; }

 private:
  static constexpr unsigned kLevels = 24;
  struct Node {
    Node(std::uint64_t k, unsigned height) : key(k), next(new std::atomic<Node*>[height]) {
      for (unsigned i = 0; i < height; ++i) next[i].store(nullptr, std::memory_order_relaxed);
    }
    std::uint64_t key;
    History history;
    std::unique_ptr<std::atomic<Node*>[]> next;
  };

  // Returns the node with the key, or null. `before` and `after` receive, for each level, the last
  // node before the key and the next one.
  Node* find_place(std::uint64_t key, Node** before, Node** after) const {
    Node* node = head_;
    for (unsigned level = kLevels; level-- > 0;) {
      Node* next = node->next[level].load(std::memory_order_acquire);
      while (next != nullptr && next->key < key) {
        node = next;
        next = node->next[level].load(std::memory_order_acquire);
      }
      before[level] = node;
      after[level] = next;
    }
    return after[0] != nullptr && after[0]->key == key ? after[0] : nullptr;
  }
  const Node* search(std::uint64_t key) const {
    const Node* node = head_;
    for (unsigned level = kLevels; level-- > 0;) {
      for (const Node* next = node->next[level].load(std::memory_order_acquire);
           next != nullptr && next->key <= key;
           next = node->next[level].load(std::memory_order_acquire)) {
        if (next->key == key) return next;
        node = next;
      }
    }
    return nullptr;
  }
  Node& node_of(std::uint64_t key) {
    Node* before[kLevels];
    Node* after[kLevels];
    if (Node* found = find_place(key, before, after)) return *found;
    thread_local std::minstd_rand random(std::random_device{}());
    const auto bits = static_cast<std::uint32_t>(random()) | 1U << (kLevels - 1);
    const auto height = static_cast<unsigned>(std::countr_zero(bits)) + 1;
    auto fresh = std::make_unique<Node>(key, height);
    for (;;) {
      fresh->next[0].store(after[0], std::memory_order_relaxed);
      if (before[0]->next[0].compare_exchange_strong(after[0], fresh.get())) break;
      if (Node* found = find_place(key, before, after)) return *found;
    }
    Node& node = *fresh.release();
    for (unsigned level = 1; level < height;) {
      node.next[level].store(after[level], std::memory_order_relaxed);
      if (before[level]->next[level].compare_exchange_strong(after[level], &node)) {
        ++level;
      } else {
        find_place(key, before, after);
      }
    }
    return node;
  }

  Node* head_;
  std::atomic<std::uint64_t> clock_{1};
};

}  // namespace

std::unique_ptr<Store> make_locked_map(const std::string&) { return std::make_unique<LockedMap>(); }
std::unique_ptr<Store> make_skip_list(const std::string&) { return std::make_unique<SkipList>(); }

}  // namespace perdure::paper::versions
