// test: explores
// A cut at every step of workloads of every engine: it is the pool as it is at that step, byte for
// byte, and opens as the pool of a killed process does. After a close, too.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "testing/crash/workloads.h"
#include "testing/cut/shadow.h"
#include "testing/cut/sparse_storage.h"
#include "testing/engines/engine_list.h"
#include "tests/support/support.h"

namespace perdure::testing {
namespace {

using test::must;

constexpr std::uint64_t kCapacity = 2 << 20;
constexpr std::uint64_t kBoot = 7;

class Workload {
 public:
  Workload(std::string name, SubjectFactory factory)
      : name_(std::move(name)), factory_(std::move(factory)) {
    subject_ = factory_();
    must(subject_->create(memory_));
    memory_.settle();
    memory_.set_mode(SimMode::plain);
    must(log_.create());
    must(log_.cover(kCapacity));
    shadow_.load(memory_.base(), memory_.size());
    must(tracker_.make() ? Status() : Status(StatusCode::out_of_memory));
    SimPlatform::tracks_new = &tracker_;
    running_ = this;
    SimPlatform::step_hook = [](StepKind kind, const char*) { running_->step(kind); };
    must(subject_->open(memory_, kBoot));
  }
  ~Workload() {
    SimPlatform::step_hook = nullptr;
    SimPlatform::tracks_new = nullptr;
    memory_.set_mode(SimMode::frozen);
  }
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  void operate(const Op& op) {
    if (op.kind == OpKind::reopen) return reopen();
    // Space that it gives back reads as zero, without a store.
    compacted_ = compacted_ || op.kind == OpKind::compact;
    possible_ = outcomes(model_, op);
    possible_.push_back(model_);
    (void)must(subject_->apply(op));
    apply_to(model_, op);
    possible_ = {model_};
  }
  void reopen() {
    must(subject_->close());
    cut();
    if (!compacted_) {
      const std::uint64_t differs = shadow_.differs(memory_.base(), memory_.size());
      EXPECT_EQ(differs, memory_.size() / kLine) << name_ << ": after a close";
    }
    subject_ = factory_();
    must(subject_->open(memory_, kBoot));
  }
  std::uint64_t cuts() const { return cuts_; }
  std::uint64_t opened() const { return opened_; }

 private:
  // Another thread may cut before this step.
  void step(StepKind) {
    if (::testing::Test::HasFailure()) return;
    cut();
  }
  void cut() {
    const SimPlatform::Unobserved unobserved;
    const ScopedWorld world;
    CutReport report;
    if (cutter_.cut(shadow_, report) != CutStep::done) return;  // within a store
    cutter_.settle();
    ++cuts_;
    if (compacted_) return open_some();
    const std::uint64_t differs = shadow_.differs(memory_.base(), memory_.size());
    ASSERT_EQ(differs, memory_.size() / kLine) << name_ << ": a line that no cut has";
    open_some();
  }
  void open_some() {
    if (cuts_ % 97 == 0) open_cut();
  }
  void open_cut() {
    ++opened_;
    const auto tracks = std::exchange(SimPlatform::tracks_new, nullptr);
    SimMemory image(kCapacity);
    image.set_medium(memory_.medium());
    must(image.allocate(0, memory_.size()));
    std::memcpy(image.base(), shadow_.data(), memory_.size());
    image.settle();
    image.set_mode(SimMode::plain);
    const auto subject = factory_();
    must(subject->open(image, kBoot));
    std::vector<std::string> violations;
    subject->check(violations);
    for (const std::string& violation : violations) ADD_FAILURE() << name_ << ": " << violation;
    std::string wrong = "nothing to compare with";
    for (const Model& model : possible_) {
      wrong = compare(*subject, model);
      if (wrong.empty()) break;
    }
    EXPECT_EQ(wrong, "") << name_;
    image.set_mode(SimMode::frozen);
    SimPlatform::tracks_new = tracks;
  }

  static inline Workload* running_ = nullptr;
  std::string name_;
  SubjectFactory factory_;
  SimMemory memory_{kCapacity};
  SparseStorage storage_{DirtyLog<SimPlatform>::bytes_for(kCapacity)};
  DirtyLog<SimPlatform> log_{storage_, kCapacity};
  // It does not wait: the writer is the same thread.
  StoreTracker<SimPlatform> tracker_{
      memory_.base(), log_, {.writer_ns = 0, .shut_ns = 0, .round_ns = 0, .tries = 1}};
  SimPlatform reader_{memory_};
  Cutter<SimPlatform> cutter_{reader_, tracker_};
  Shadow shadow_{kCapacity};
  std::unique_ptr<Subject> subject_;
  Model model_;
  std::vector<Model> possible_ = {{}};
  bool compacted_ = false;
  std::uint64_t cuts_ = 0;
  std::uint64_t opened_ = 0;
};

Op any_op(Random& random, const OpSource& source, bool compacts) {
  if (random.one_in(12)) return {.kind = OpKind::sync};
  if (random.one_in(8)) return {.kind = OpKind::background};
  if (compacts && random.one_in(16)) return {.kind = OpKind::compact};
  if (random.one_in(16)) return {.kind = OpKind::reopen};
  return source(random);
}

void run(const EngineUnderTest& engine, KeyKind keys, const MapSetup& setup, const OpSource& source,
         int operations, bool compacts = false) {
  const std::string name = engine.name() + (keys == KeyKind::bytes ? " bytes" : " integers");
  Workload workload(name, engine.subjects(keys, setup));
  Random random(1);
  for (int i = 0; i < operations && !::testing::Test::HasFailure(); ++i) {
    workload.operate(any_op(random, source, compacts));
  }
  workload.reopen();
  EXPECT_GT(workload.cuts(), 1000U);
  EXPECT_GT(workload.opened(), 10U);
  std::printf("%s: %llu cuts, %llu opened\n", name.c_str(),
              static_cast<unsigned long long>(workload.cuts()),
              static_cast<unsigned long long>(workload.opened()));
}

class Engines : public ::testing::TestWithParam<const EngineUnderTest*> {};
INSTANTIATE_TEST_SUITE_P(All, Engines,
                         ::testing::ValuesIn(engines_under_test().begin(),
                                             engines_under_test().end()),
                         [](const auto& engine) { return engine.param->name(); });

TEST_P(Engines, EveryStepCanBeCut) {
  run(*GetParam(), KeyKind::integer, {.mode = Durability::process}, integer_op, 150);
  run(*GetParam(), KeyKind::bytes, {.values = ValueKind::bytes, .mode = Durability::process},
      bytes_op, 100);
}
TEST_P(Engines, CutsAfterACompactCanBeOpened) {
  run(*GetParam(), KeyKind::bytes, {.values = ValueKind::bytes, .mode = Durability::process},
      bytes_op, 100, true);
}

}  // namespace
}  // namespace perdure::testing
