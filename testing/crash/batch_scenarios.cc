#include "testing/crash/batch_scenarios.h"

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/layout.h"
#include "pool/batch_record.h"
#include "testing/crash/workloads.h"
#include "testing/sim/sim_memory.h"

namespace perdure::testing {

namespace {

constexpr std::uint64_t kCapacity = 2 << 20;

// What the medium has for certain: nothing that is on its way.
CrashImage certain(SimMemory& memory) {
  const std::vector<PendingLine> pending = memory.pending();
  return memory.image(pending, std::vector<std::uint32_t>(pending.size(), 0), true, false);
}

class LeftBatch {
 public:
  explicit LeftBatch(const SubjectFactory& factory) : factory_(factory) {}

  // Makes a pool, commits a batch, and keeps what is on the medium when its first change is not.
  std::string leave() {
    memory_.set_mode(SimMode::recording);
    subject_ = factory_();
    if (!subject_->create(memory_).ok() || !(subject_ = factory_())->open(memory_, 1).ok()) {
      return "create";
    }
    // Leaves free space: growth would write both headers once more.
    for (std::uint64_t key = 7; key <= 16; ++key) {
      if (!put(key, std::string(9000, 'x'))) return "put";
      const Op erase{OpKind::erase, integer_key(key), {}};
      apply_to(model_, erase);
      if (!subject_->apply(erase)) return "erase";
    }
    Op batch{.kind = OpKind::batch};
    for (std::uint64_t key = 1; key <= 6; ++key) {
      if (!put(key, "before")) return "put";
      batch.parts.push_back({OpKind::upsert, integer_key(key), "batch"});
    }
    bool committed = false;
    memory_.before_fence = [&](const SiteInfo& site) {
      const bool first = std::exchange(committed, false);
      if (first) left_.load_image(memory_, certain(memory_));
      if (first) left_.settle();
      committed = std::string_view(site.name) == "pool.batch.commit";
    };
    apply_to(model_, batch);
    const auto done = subject_->apply(batch);
    memory_.before_fence = nullptr;
    return done ? "" : "commit";
  }
  bool put(std::uint64_t key, const std::string& value) {
    const Op op{OpKind::upsert, integer_key(key), value};
    apply_to(model_, op);
    return subject_->apply(op).has_value();
  }

  // The open after a crash does the batch, and finds every flipped bit of its word and record.
  std::string flips() {
    if (std::string wrong = leave(); !wrong.empty()) return wrong;
    subject_.reset();
    memory_.set_mode(SimMode::frozen);
    const std::uint64_t word = word_of(left_);
    if (word == 0) return "no batch was left";
    const std::uint64_t record = word & ((1ULL << 48) - 1);
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, left_.base() + record + offsetof(layout::BatchRecord, bytes), 8);
    const CrashImage whole = certain(left_);
    SimMemory crashed(kCapacity);
    crashed.load_image(left_, whole);
    if (std::string wrong = judge(crashed); !wrong.empty()) return wrong;
    // Either header knows that there are batches. The older one may know less of the file's size.
    for (const std::uint64_t copy : {std::uint64_t{0}, layout::kHeaderBytes}) {
      crashed.load_image(left_, whole);
      std::memset(crashed.base() + copy, 0, sizeof(layout::Header));
      if (std::string wrong = judge(crashed, true); !wrong.empty()) return wrong;
    }
    std::string wrong = flip(whole, layout::kBatchLog, sizeof(word));
    if (wrong.empty()) wrong = flip(whole, record, bytes);
    for (const std::uint64_t block : named_blocks(record)) {
      const auto* prefix = reinterpret_cast<const RecordPrefix*>(left_.base() + block);
      const RecordView entry(prefix, prefix->state, prefix->value);
      if (wrong.empty()) wrong = flip(whole, block, entry.size());
    }
    return wrong;
  }

 private:
  // Flips a bit of each of these bytes, for an open that must see it.
  std::string flip(const CrashImage& whole, std::uint64_t offset, std::uint64_t bytes) {
    SimMemory crashed(kCapacity);
    for (std::uint64_t i = 0; i < bytes; ++i) {
      crashed.load_image(left_, whole);
      crashed.base()[offset + i] ^= std::byte(1U << i % 8);
      crashed.settle();
      const bool seen = !factory_()->open(crashed, 2).ok();
      crashed.set_mode(SimMode::frozen);
      if (!seen) return "byte " + std::to_string(offset + i) + ": unseen";
    }
    return "";
  }
  // The blocks that the record on the medium names; none if the engine makes no entries ahead.
  std::vector<std::uint64_t> named_blocks(std::uint64_t record) const {
    const std::byte* at = left_.base() + record;
    const auto take = [&at](auto& to) {
      std::memcpy(&to, at, sizeof(to));
      at += sizeof(to);
    };
    layout::BatchRecord head{};
    take(head);
    at += head.runs * sizeof(layout::BatchRun);
    std::vector<std::uint64_t> blocks;
    for (std::uint32_t i = 0; i < head.maps; ++i) {
      layout::BatchMap map{};
      take(map);
      for (std::uint64_t n = 0; n < map.entries; ++n) {
        layout::BatchEntry entry{};
        take(entry);
        if (entry.kind == batch_record::kNames) blocks.push_back(entry.value);
        at += batch_record::padded(entry.key_bytes) + batch_record::padded(entry.value_bytes);
      }
    }
    return blocks;
  }
  static std::uint64_t word_of(const SimMemory& memory) {
    std::uint64_t word = 0;
    std::memcpy(&word, memory.base() + layout::kBatchLog, sizeof(word));
    return word;
  }
  std::string judge(SimMemory& crashed, bool may_refuse = false) {
    crashed.settle();
    const auto subject = factory_();
    const Status s = subject->open(crashed, 2);
    std::string wrong;
    if (s.ok()) wrong = compare(*subject, model_);
    if (!s.ok() && !may_refuse) wrong = s.message();
    crashed.set_mode(SimMode::frozen);
    return wrong;
  }

  SubjectFactory factory_;
  SimMemory memory_{kCapacity};
  std::unique_ptr<Subject> subject_;
  Model model_;
  SimMemory left_{kCapacity};  // the medium within the batch
};

}  // namespace

std::vector<HeapScenario> batch_scenarios(const SubjectFactory& factory) {
  return {{"flips_of_a_left_batch", [factory] { return LeftBatch(factory).flips(); }}};
}

}  // namespace perdure::testing
