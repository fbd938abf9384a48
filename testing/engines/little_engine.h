// LittleEngine: a small unordered map of integers with background work, for tests of the guarantees
// that pool, background and drivers give to engines. A test decides when its work runs, how long it
// takes and whether it ends.
//
// WHAT  One table of slots, each {key + 1, block}; a value lies in its block. A unit of background
//   work changes two words, which a check finds equal unless it runs beside a step. Thread-safe for
//   any number of readers and one writer at a time; its work may run beside all of them.
// LAYOUT  root   plain   magic, turns[2], slots[kSlots]; block  plain  value
// INVARIANTS  little.I1 (after any crash) a slot with a nonzero key word names a block that was
//   durable before it.
//   little.I2 (between steps, and after recovery) the two turns are equal.
// RECOVERY  marks at once or, if LittleRules::instant is set, while it serves. Settles what a
//   result depends on (EngineContext::settle).
//
// The rules are the same for all instances, because tables of engines hold functions, not objects.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <utility>

#include "index/engine.h"
#include "index/engine_report.h"
#include "perdure/index.h"

namespace perdure::testing {

// A number that no engine of any build has.
inline constexpr Engine kLittleEngine{0xFFFF};

struct LittleRules {
  std::atomic<std::uint64_t> turns{0};  // steps that its unit must do after start()
  std::atomic<std::uint32_t> width{1};
  std::function<void()> on_start;     // of an instance
  std::function<void()> in_a_step;    // between the two turns
  std::function<void()> in_an_erase;  // between its store and the fence
  std::atomic<bool> at_once{false};
  std::atomic<std::uint64_t> mark_steps{0};
  std::atomic<int> starts{0};
  std::atomic<std::uint64_t> steps{0};
  std::atomic<std::uint64_t> compacted{0};
};
inline LittleRules& little_rules() {
  static LittleRules rules;
  return rules;
}
inline void reset_little_rules() {
  LittleRules& rules = little_rules();
  rules.turns = 0;
  rules.width = 1;
  rules.on_start = nullptr;
  rules.in_a_step = nullptr;
  rules.in_an_erase = nullptr;
  rules.at_once = false;
  rules.mark_steps = 0;
  rules.starts = 0;
  rules.steps = 0;
  rules.compacted = 0;
}

template <Platform P>
class LittleEngine final : public detail::Index, public EngineInstance {
 public:
  static constexpr std::uint32_t kSlots = 120;
  static constexpr std::uint64_t kMagic = 0x4C4954544C45;
  static constexpr std::size_t kBlock = 64;
  static constexpr std::uint32_t kMarks = 2;  // slots per step of a sweep

  static Expected<std::uint64_t> create(const EngineContext<P>& context) {
    auto offset = context.heap.allocate(sizeof(Root), BlockKind::plain);
    if (!offset) return offset;
    Root* root = context.heap.template at<Root>(*offset);
    context.platform.zero(root, sizeof(Root));
    context.platform.store(root->magic, kMagic);
    context.platform.flush(root, sizeof(Root), "little.create.root"_site);
    if (!context.platform.fence("little.create.root"_site)) return fail(StatusCode::poisoned);
    return offset;
  }
  static Expected<std::unique_ptr<EngineInstance>> open(const EngineContext<P>& context,
                                                        std::uint64_t root) {
    if (!context.heap.contains(root, sizeof(Root)) ||
        context.platform.load(context.heap.template at<Root>(root)->magic) != kMagic) {
      return fail(StatusCode::corruption, "little: bad root");
    }
    return std::unique_ptr<EngineInstance>(new (std::nothrow) LittleEngine(context, root));
  }
  ~LittleEngine() override {
    context_.background.remove(turner_);
    context_.epochs.drain_all();
  }

  // --- EngineInstance ---
  detail::Index& index() noexcept override { return *this; }
  Expected<Recovered> recover(bool) override {
    if (Status s = context_.heap.mark(offset_); !s.ok()) return fail(std::move(s));
    P& platform = context_.platform;
    if (!context_.settle(offset_, sizeof(Root))) return fail(StatusCode::poisoned);
    const std::uint64_t turn = platform.load(root_->turns[0]);
    if (platform.load(root_->turns[1]) != turn) {
      platform.store(root_->turns[1], turn);
      platform.flush(&root_->turns[1], 8, "little.recover.turn"_site);
      if (!platform.fence("little.recover.turn"_site)) return fail(StatusCode::poisoned);
    }
    if (little_rules().at_once) return Recovered::marking;
    for (Slot& slot : root_->slots) {
      if (platform.load(slot.key) == 0) continue;
      Status s = context_.heap.mark(platform.load(slot.block));
      if (!s.ok()) return fail(std::move(s));
    }
    return Recovered::done;
  }
  // `budget` is in thousands. A few slots per step make a sweep of a small table take many steps.
  Expected<bool> mark_some(std::uint64_t) noexcept override {
    const EpochGuard<P> guard(context_.epochs);
    for (std::uint32_t n = 0; n < kMarks && marked_ < kSlots; ++n, ++marked_) {
      Slot& slot = root_->slots[marked_];
      if (context_.platform.load(slot.key) == 0) continue;
      Status s = context_.heap.mark_serving(context_.platform.load(slot.block));
      if (!s.ok()) return fail(std::move(s));
    }
    ++little_rules().mark_steps;
    return marked_ < kSlots;
  }
  void start() noexcept override {
    LittleRules& rules = little_rules();
    ++rules.starts;
    if (rules.on_start) rules.on_start();
    if (rules.turns != 0) context_.background.add(turner_, rules.width);
  }
  Expected<bool> compact() override {
    ++little_rules().compacted;
    return false;
  }
  Status audit() override {
    if (Status s = context_.heap.audit_mark(offset_); !s.ok()) return s;
    for (Slot& slot : root_->slots) {
      if (context_.platform.load(slot.key) == 0) continue;
      if (Status s = context_.heap.audit_mark(context_.platform.load(slot.block)); !s.ok()) {
        return s;
      }
    }
    return {};
  }
  void release_blocks() override {
    context_.background.remove(turner_);
    for (Slot& slot : root_->slots) {
      if (context_.platform.load(slot.key) == 0) continue;
      (void)context_.heap.take_back(context_.platform.load(slot.block));
    }
    (void)context_.heap.take_back(offset_);
  }
  Status close() override { return {}; }

  // --- Index ---
  Expected<bool> insert(const detail::Key& key, const detail::Value& value) override {
    return write(key, value, true, false);
  }
  Expected<bool> put(const detail::Key& key, const detail::Value& value) override {
    return write(key, value, true, true);
  }
  Expected<bool> update(const detail::Key& key, const detail::Value& value) override {
    return write(key, value, false, true);
  }
  // Its users have one writer at a time.
  Expected<bool> update_if(const detail::Key& key, const detail::Value& expected,
                           const detail::Value& value) override {
    auto same = has(key, expected);
    return same && *same ? update(key, value) : same;
  }
  Expected<bool> erase_if(const detail::Key& key, const detail::Value& expected) override {
    auto same = has(key, expected);
    return same && *same ? erase(key) : same;
  }
  Expected<bool> erase(const detail::Key& key) override {
    const EpochGuard<P> guard(context_.epochs);
    if (context_.read_only) return fail(StatusCode::read_only);
    Slot* slot = find(key.word);
    if (!settled(slot)) return fail(StatusCode::poisoned);
    if (slot == nullptr) return false;
    const std::uint64_t block = context_.platform.load(slot->block);
    context_.heap.mark_copied(block);
    context_.platform.store(slot->key, 0);
    if (const auto hook = std::exchange(little_rules().in_an_erase, nullptr)) hook();
    context_.platform.flush(&slot->key, 8, "little.erase.key"_site);
    if (!context_.platform.fence("little.erase.key"_site)) return fail(StatusCode::poisoned);
    context_.heap.retire(block);
    return true;
  }
  Expected<bool> read(const detail::Key& key,
                      FunctionRef<void(const detail::Value&)> visit) override {
    const EpochGuard<P> guard(context_.epochs);
    Slot* slot = find(key.word);
    if (!settled(slot)) return fail(StatusCode::poisoned);
    if (slot == nullptr) return false;
    visit(value_of(*slot));
    return true;
  }
  Expected<std::uint64_t> read_many(
      std::span<const detail::Key> keys,
      FunctionRef<void(std::size_t, const detail::Value&)> visit) override {
    std::uint64_t present = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      auto found = read(keys[i], [&](const detail::Value& value) { visit(i, value); });
      if (!found) return fail(std::move(found.error()));
      present += *found ? 1 : 0;
    }
    return present;
  }
  Expected<void> for_each(FunctionRef<bool(std::span<const detail::Entry>)> visit) override {
    const EpochGuard<P> guard(context_.epochs);
    for (Slot& slot : root_->slots) {
      const std::uint64_t key = context_.platform.load(slot.key);
      if (!settled(&slot)) return fail(StatusCode::poisoned);
      if (key == 0) continue;
      const detail::Entry entry{.key = {.word = key - 1}, .value = value_of(slot)};
      if (!visit({&entry, 1})) break;
    }
    return {};
  }
  Expected<std::uint64_t> size() override {
    EngineStats figures;
    stats(figures);
    return figures.entries;
  }
  void stats(EngineStats& out) override {
    for (Slot& slot : root_->slots) out.entries += context_.platform.load(slot.key) != 0 ? 1 : 0;
  }
  void check(const CheckOptions&, Findings& report) override {
    ++report.objects;
    // Long enough to meet a step.
    for (int i = 0; i < 300; ++i) {
      if (context_.platform.load(root_->turns[0]) != context_.platform.load(root_->turns[1])) {
        return add_violation(report, "little.I2", "little root", offset_,
                             "the check runs beside a step");
      }
      P::pause(static_cast<unsigned>(i));
    }
    for (Slot& slot : root_->slots) {
      const std::uint64_t key = context_.platform.load(slot.key);
      if (key == 0) continue;
      ++report.entries;
      if (!context_.heap.is_block(context_.platform.load(slot.block))) {
        add_violation(report, "little.I1", "little root", offset_, "a slot names no block");
      }
    }
  }

 private:
  struct Slot {
    std::uint64_t block;
    std::uint64_t key;  // + 1; the commit word, the last store into its line
  };
  struct Root {
    std::uint64_t magic;
    std::uint64_t turns[2];
    std::uint64_t pad[5];
    Slot slots[kSlots];
  };
  struct Turner final : BackgroundWork<P> {
    explicit Turner(LittleEngine* e) : engine(e) {}
    Step run_some() noexcept override { return engine->turn(); }
    LittleEngine* engine;
  };

  LittleEngine(const EngineContext<P>& context, std::uint64_t root)
      : context_(context), offset_(root), root_(context.heap.template at<Root>(root)) {}

  Slot* find(std::uint64_t key) {
    for (Slot& slot : root_->slots) {
      if (context_.platform.load(slot.key) == key + 1) return &slot;
    }
    return nullptr;
  }
  // Makes durable what a result depends on: the table and, if a slot was found, its block.
  bool settled(Slot* slot) {
    if (!context_.settle(offset_, sizeof(Root))) return false;
    return slot == nullptr || context_.settle(context_.platform.load(slot->block), kBlock);
  }
  detail::Value value_of(Slot& slot) {
    auto* block = context_.heap.template at<std::uint64_t>(context_.platform.load(slot.block));
    return {.word = context_.platform.load(*block), .word_size = 8};
  }
  Expected<bool> has(const detail::Key& key, const detail::Value& expected) {
    bool same = false;
    auto found =
        read(key, [&](const detail::Value& value) { same = detail::same_value(value, expected); });
    if (!found) return found;
    return same;
  }
  Expected<bool> write(const detail::Key& key, const detail::Value& value, bool inserts,
                       bool replaces) {
    context_.background.help();
    const EpochGuard<P> guard(context_.epochs);
    P& platform = context_.platform;
    if (platform.poisoned()) return fail(platform.failure());
    if (context_.read_only) return fail(StatusCode::read_only);
    Slot* slot = find(key.word);
    if (!settled(slot)) return fail(StatusCode::poisoned);
    if (slot != nullptr ? !replaces : !inserts) return false;
    if (slot != nullptr) {
      auto* block = context_.heap.template at<std::uint64_t>(platform.load(slot->block));
      platform.store(*block, value.word);
      platform.flush(block, 8, "little.update.value"_site);
      if (!platform.fence("little.update.value"_site)) return fail(StatusCode::poisoned);
      return !inserts;
    }
    for (Slot& each : root_->slots) {
      if (platform.load(each.key) == 0) slot = &each;
    }
    if (slot == nullptr) return fail(StatusCode::pool_full);
    auto block = context_.heap.allocate(kBlock, BlockKind::plain);
    if (!block) return fail(std::move(block.error()));
    auto* word = context_.heap.template at<std::uint64_t>(*block);
    platform.store(*word, value.word);
    platform.flush(word, 8, "little.insert.value"_site);
    if (!platform.fence("little.insert.value"_site)) return fail(StatusCode::poisoned);
    platform.store(slot->block, *block);
    platform.store(slot->key, key.word + 1);
    platform.flush(slot, sizeof(*slot), "little.insert.slot"_site);
    if (!platform.fence("little.insert.slot"_site)) return fail(StatusCode::poisoned);
    return true;
  }
  // One step of its unit.
  Step turn() noexcept {
    LittleRules& rules = little_rules();
    P& platform = context_.platform;
    if (rules.turns == 0) return Step::rest;
    const std::uint64_t next = platform.load(root_->turns[0]) + 1;
    platform.store(root_->turns[0], next);
    if (rules.in_a_step) rules.in_a_step();
    platform.store(root_->turns[1], next);
    platform.flush(&root_->turns, sizeof(root_->turns), "little.turn.turns"_site);
    (void)platform.fence("little.turn.turns"_site);
    ++rules.steps;
    return --rules.turns != 0 ? Step::more : Step::rest;
  }

  EngineContext<P> context_;
  std::uint64_t offset_;
  Root* root_;
  std::uint32_t marked_ = 0;
  Turner turner_{this};
};

}  // namespace perdure::testing
