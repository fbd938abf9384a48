// MapEngine: the common base of all engines. An engine derives from it and names itself (CRTP). It
// must have enumerate(mark), and for mutations
//   write<Mode>(key, value, expected = nullptr)  an update only of a key that has this value
//   remove(key, expected)        an erase; null: whatever the value is
// and for reads, which it calls with the guard:
//   find(key, visit)             a read
//   find_at_once(key, value)     its common case, in few instructions; an engine may lack it.
//                                Failed: find() decides
//   Group, fetch(keys, group)    up to kGroup lookups of a read_many: finds the keys and prefetches
//                                what find_fetched() reads, in steps of one cache miss each, so
//                                that the misses of a group overlap
//   find_fetched(group, i, visit)  the read of keys[i]
// An engine that writes several mutations with one fence also has Pending (a mutation in progress)
// and, called in this order for up to kGroup mutations:
//   begin_group(n)         does what mutations do outside the guard. Returns false if this map's
//                          mutations share no fence.
//   joins(mutation)        whether the mutation may share a fence
//   prepare(mutation, group, i, pending)  with no latch held: makes the record, or what else must
//                          be durable before the store, if the mutation seems to need one. Returns
//                          whether there is something to fence.
//   settle_records()       that fence
//   latch(mutation, group, i, pending, result)  acquires the latch of keys[i] and decides what to
//                          do. It waits for no other thread, because latches of earlier mutations
//                          are held, and returns false if it would have to, or if the single call
//                          must do it. Result: set, unless something fails later.
//   store(pending)         the stores
//   write_back(pending)    their write-backs. Returns false if there is nothing to fence
//   settle()               the fence
//   finish(pending, durable, result)  shows the effect, and releases the latch
//   clean_up(pending)      what needs other latches
//   discard(pending)       frees what was made for nothing, also of mutations that were not latched
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "index/engine.h"
#include "index/engine_report.h"
#include "index/entry_count.h"
#include "perdure/index.h"
#include "perdure/options.h"

namespace perdure {

template <class T, class Root, class Engine, std::derived_from<detail::Index> Interface>
class MapEngine : public Interface, public EngineInstance {
 protected:
  using P = typename T::Platform;
  using Codec = typename T::Codec;
  using Keys = std::span<const detail::Key>;
  using Visit = FunctionRef<void(const detail::Value&)>;
  using Mutations = std::span<const detail::Mutation>;
  using Done = FunctionRef<void(std::size_t, Expected<bool>)>;
  using typename Interface::Got;
  static constexpr std::size_t kGroup = 16;  // lookups of a read_many in flight

 public:
  // `root`: the offset of the root block.
  MapEngine(const EngineContext<P>& context, std::uint64_t root) noexcept
      : context_(context), root_offset_(root), root_(context.heap.template at<Root>(root)) {}

  // --- EngineInstance ---
  detail::Index& index() noexcept final { return *this; }
  detail::OrderedIndex* ordered() noexcept final {
    if constexpr (std::derived_from<Interface, detail::OrderedIndex>) {
      return this;
    } else {
      return nullptr;
    }
  }
  Status audit() final { return engine().enumerate(&Heap<P>::audit_mark); }
  void release_blocks() override { (void)engine().enumerate(&Heap<P>::take_back); }

  // --- Index ---
  Expected<bool> insert(const detail::Key& key, const detail::Value& value) final {
    return engine().template write<Mode::insert>(key, value);
  }
  Expected<bool> put(const detail::Key& key, const detail::Value& value) final {
    return engine().template write<Mode::put>(key, value);
  }
  Expected<bool> update(const detail::Key& key, const detail::Value& value) final {
    return engine().template write<Mode::update>(key, value);
  }
  Expected<bool> update_if(const detail::Key& key, const detail::Value& expected,
                           const detail::Value& value) final {
    return engine().template write<Mode::update>(key, value, &expected);
  }
  Expected<bool> erase(const detail::Key& key) final { return engine().remove(key, nullptr); }
  Expected<bool> erase_if(const detail::Key& key, const detail::Value& expected) final {
    return engine().remove(key, &expected);
  }
  Expected<std::uint64_t> size() final {
    if (count_.known()) return count_.sum();
    // In a callback it cannot wait for the mutations under way, and beside a read_batch() of
    // another thread it would wait for that: it counts, and keeps nothing.
    Gate<P>& gate = context_.epochs.gate();
    const bool waits = !gate.held() && !context_.read_only;
    if (context_.epochs.in_guard() || (waits && !gate.only_braked())) return counted();
    std::optional<GateHold<P>> hold;
    if (waits) hold.emplace(context_.epochs);
    if (!count_.known()) {
      auto entries = counted();
      if (!entries) return entries;
      count_.start(*entries);
    }
    return count_.sum();
  }
  void write_many(Mutations mutations, Done done) final {
    for (std::size_t begin = 0; begin < mutations.size();) {
      const Mutations some = mutations.subspan(begin, std::min(kGroup, mutations.size() - begin));
      begin += write_some(some, [&, begin](std::size_t i, Expected<bool> result) {
        done(begin + i, std::move(result));
      });
    }
  }
  Expected<bool> read(const detail::Key& key, Visit visit) final {
    EpochGuard<P> guard(context_.epochs);
    if (guard.ok()) [[likely]] {
      detail::Value value;
      const Got got = at_once(key, value);
      if (got == Got::present && !context_.platform.poisoned()) [[likely]]
        return deliver(value, visit);
      if (got == Got::absent) return absent();
    }
    return find_slowly(guard, key, visit);
  }
  Got get_word(std::uint64_t key, std::uint64_t& value) final {
    if constexpr (Codec::kBytes) return Got::failed;  // its keys are no integers
    EpochGuard<P> guard(context_.epochs);
    if (!guard.ok()) [[unlikely]]
      return Got::failed;
    detail::Value found;
    const Got got = at_once({.word = key}, found);
    value = found.word;
    if (got != Got::failed) [[likely]]
      return context_.platform.poisoned() ? Got::failed : got;
    return find_word(key, value);
  }
  Expected<std::uint64_t> read_many(
      Keys keys, FunctionRef<void(std::size_t, const detail::Value&)> visit) final {
    EpochGuard<P> guard(context_.epochs);
    if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
    std::uint64_t present = 0;
    typename Engine::Group group;
    for (std::size_t begin = 0; begin < keys.size(); begin += kGroup) {
      const Keys some = keys.subspan(begin, std::min(kGroup, keys.size() - begin));
      if (Status s = engine().fetch(some, group); !s.ok()) return fail(std::move(s));
      for (std::size_t i = 0; i < some.size(); ++i) {
        const auto visit_one = [&](const detail::Value& value) { visit(begin + i, value); };
        auto found = engine().find_fetched(group, i, visit_one);
        if (!found) return fail(std::move(found.error()));
        present += *found ? 1 : 0;
      }
    }
    return present;
  }

 protected:
  enum class Mode : std::uint8_t { insert, put, update };
  static constexpr bool adds(Mode mode) { return mode == Mode::insert || mode == Mode::put; }

  // Waiting in a guard might never end: the holder of the gate may wait for what the guard
  // protects.
  [[gnu::cold]] Status not_passed() const noexcept {
    if (Status refused = context_.epochs.gate().refusal(); !refused.ok()) return refused;
    if (!context_.epochs.nested() && !context_.epochs.gate().held()) {
      return Status::format(StatusCode::io, "mutations were refused until now; try again");
    }
    return Status::format(
        StatusCode::invalid_argument,
        "a callback of a read, a scan or a read_batch must not change a map; do so "
        "after it");
  }

  // Every operation begins with one of these, under its guard.
  [[gnu::always_inline]] Status begin_read(auto& guard) const noexcept {
    if (!guard.ok()) return StatusCode::out_of_memory;
    if (context_.platform.poisoned()) return context_.platform.failure();
    return {};
  }
  // Waits at the gate, unpinned, if it is closed. So the operation has loaded nothing before.
  // Returns busy, in an engine that kGoesBeside, if the pending batch changes the map, too: then
  // the mutation must go beside it.
  [[gnu::always_inline]] Status begin_mutation(MutationGuard<P>& guard,
                                               bool needs_space) const noexcept {
    if (guard.ok() && !guard.finds_gate_open()) [[unlikely]] {
      if (Status s = pass_slowly(guard); !s.ok()) return s;
    }
    return begin_change(guard, needs_space);
  }
  [[gnu::cold, gnu::noinline]] Status pass_slowly(MutationGuard<P>& guard) const noexcept {
    if (!guard.pass_gate()) return not_passed();
    if constexpr (requires { Engine::kGoesBeside; }) {
      const Gate<P>& gate = context_.epochs.gate();
      const bool own = gate.does_batch() || gate.beside();
      const PendingBatch* batch = own ? nullptr : gate.pending();
      if (batch != nullptr && batch->names(root_offset_)) return StatusCode::busy;
    }
    return {};
  }
  // For changes of the structure, which change no entry.
  [[gnu::always_inline]] Status begin_change(auto& guard, bool needs_space) const noexcept {
    if (Status s = begin_read(guard); !s.ok()) return s;
    // What a reader of a killed pool keeps in its own memory gets the batch that was left.
    if (context_.read_only && !context_.epochs.gate().does_batch()) return StatusCode::read_only;
    if (needs_space && guard.limbo_full()) {
      return Status::format(
          StatusCode::pool_full,
          "freed memory cannot be reused: a reader has not left its guard (a thread "
          "is stopped inside a read or scan callback)");
    }
    return {};
  }

  // What a mutation tries when the pool is full, outside any guard, before it fails. In this order:
  // reclaim what this and other threads have freed; return empty extents, which blocks of another
  // size may then use (the only extent of a size may be among them); take larger blocks.
  class Room {
   public:
    explicit Room(MapEngine& map) noexcept : context_(map.context_) {}
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    ~Room() {
      if (last()) [[unlikely]]
        context_.heap.take_larger(false);
    }
    // Returns false if nothing is left to try.
    bool find() noexcept {
      switch (++tried_) {
        case 1:
          context_.epochs.drain_for_room();
          return true;
        case 2:
          context_.heap.reclaim();
          return true;
        case 3:
          context_.heap.take_larger(true);
          return true;
        default:
          return false;
      }
    }
    bool last() const noexcept { return tried_ >= 3; }

   private:
    EngineContext<P>& context_;
    int tried_ = 0;
  };
  // Repeats attempt(), which takes its own guard, while the pool is full and room is found. Calls
  // modest() before the last attempt.
  template <class Attempt, class Modest>
  [[gnu::always_inline]] auto with_room(Attempt&& attempt, Modest&& modest) {
    for (Room room(*this);;) {
      auto done = attempt();
      if (done || done.error() != StatusCode::pool_full || !room.find()) [[likely]]
        return done;
      if (room.last()) modest();
    }
  }
  template <class Attempt>
  [[gnu::always_inline]] auto with_room(Attempt&& attempt) {
    return with_room(std::forward<Attempt>(attempt), [] {});
  }

  // Before a mutation: verifies the sizes, and that the map takes such keys and values.
  [[gnu::always_inline]] static Status validate(const detail::Key& key) noexcept {
    if (Codec::kBytes && key.bytes.size() > kMaxKeyBytes) {
      return too_long("key", key.bytes.size(), kMaxKeyBytes);
    }
    return {};
  }
  [[gnu::always_inline]] static Status validate(const detail::Key& key, const detail::Value& value,
                                                bool takes_words, bool takes_bytes) noexcept {
    if (Status s = validate(key); !s.ok()) return s;
    const bool is_bytes = value.word_size == 0;
    if (is_bytes && value.bytes.size() > kMaxValueBytes) {
      return too_long("value", value.bytes.size(), kMaxValueBytes);
    }
    if (!(is_bytes ? takes_bytes : takes_words)) return StatusCode::invalid_argument;
    return {};
  }

  // The result if a key was not found. An error if pages were lost meanwhile, because they read as
  // zeros.
  Expected<bool> absent() const noexcept {
    if (context_.platform.poisoned()) [[unlikely]]
      return fail(context_.platform.failure());
    return false;
  }
  // The result if a key was found. Calls visit(value); an error as of absent(), because the bytes
  // of the value may lie in such pages.
  [[gnu::always_inline]] Expected<bool> deliver(const detail::Value& value, Visit visit) const {
    visit(value);
    if (context_.platform.poisoned()) [[unlikely]]
      return fail(context_.platform.failure());
    return true;
  }

  // The error of an operation, with the pool's file and the map in front. Recovery and checks need
  // none: who calls them names both.
  [[gnu::cold, gnu::noinline]] Status of_this_map(Status why) const noexcept {
    const char* const path = context_.log->path();
    if (*path == '\0') return why;
    const std::string_view text = why.message();
    return Status::format(why.code(), "%s: map %s: %.*s", path, context_.map,
                          static_cast<int>(text.size()), text.data());
  }

  // For recover(). Returns ok if the damage may be skipped; it is then added to the context's
  // findings.
  Status pass_over(Status damage) noexcept {
    if (damage != StatusCode::corruption || context_.damage == nullptr) return damage;
    LatchGuard guard(damage_latch_);
    context_.damage->add(damage.message());
    return {};
  }

  std::uint64_t offset_of(const void* p) const noexcept {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(p) -
                                      context_.heap.template at<std::byte>(0));
  }
  // Writes the bytes back and fences. Returns false if the pool is poisoned.
  template <FixedString Name>
  [[gnu::always_inline]] bool persist(const void* p, std::size_t n,
                                      Site<Name> site) const noexcept {
    context_.platform.flush(p, n, site);
    return context_.platform.fence(site);
  }

  // The results of a mutation that adds an entry, and of one that removes it; in its guard.
  [[gnu::always_inline]] bool came() noexcept {
    tally_.add(std::int64_t{1});
    return true;
  }
  [[gnu::always_inline]] bool went() noexcept {
    tally_.add(std::int64_t{-1});
    return true;
  }

  EngineContext<P> context_;
  const std::uint64_t root_offset_;
  Root* const root_;
  Tally<P> tally_;
  EntryCount<P> count_{tally_};

 private:
  [[gnu::noinline]] Expected<std::uint64_t> counted() {
    EngineStats stats;
    engine().stats(stats);
    if (context_.platform.poisoned()) return fail(context_.platform.failure());
    if (!stats.partial) return stats.entries;
    return fail(of_this_map(
        Status::format(StatusCode::corruption,
                       "not all entries can be counted: the map is damaged, or memory is short; "
                       "run `perdure check`")));
  }
  Engine& engine() noexcept { return static_cast<Engine&>(*this); }

  // The common case of find(), in few instructions, if the engine has such a one. Failed: the
  // caller looks again.
  [[gnu::always_inline]] Got at_once(const detail::Key& key, detail::Value& value) {
    if constexpr (requires { engine().find_at_once(key, value); }) {
      return engine().find_at_once(key, value);
    } else {
      return Got::failed;
    }
  }
  [[gnu::noinline]] Expected<bool> find_slowly(const EpochGuard<P>& guard, const detail::Key& key,
                                               Visit visit) {
    if (Status s = begin_read(guard); !s.ok()) return fail(std::move(s));
    return engine().find(key, visit);
  }
  // The callback is known here, so the lookup is compiled with it.
  Got find_word(std::uint64_t key, std::uint64_t& value) {
    const auto visit = [&](const detail::Value& visited) { value = visited.word; };
    auto found = engine().find({.word = key}, visit);
    if (!found) return Got::failed;
    return *found ? Got::present : Got::absent;
  }

  // Prefetches what the mutations will read.
  template <class Group>
  Status fetch_for(Mutations mutations, Group& group) {
    detail::Key keys[kGroup];
    for (std::size_t i = 0; i < mutations.size(); ++i) keys[i] = mutations[i].key;
    return engine().fetch(Keys(keys, mutations.size()), group);
  }
  // Does up to kGroup mutations. Returns how many.
  std::size_t write_some(Mutations mutations, Done done) {
    std::size_t together = 0;
    if constexpr (requires { typename Engine::Pending; }) {
      const bool grouped = mutations.size() > 1 || context_.epochs.gate().does_batch();
      if (grouped && engine().begin_group(mutations.size())) {
        together = write_together(mutations, done);
      }
      if (together == 0) done(0, this->write_one(mutations[0]));
      return std::max<std::size_t>(together, 1);
    } else {
      if (mutations.size() > 1) {
        const EpochGuard<P> guard(context_.epochs);
        typename Engine::Group group;
        if (guard.ok()) (void)fetch_for(mutations, group);
      }
      for (std::size_t i = 0; i < mutations.size(); ++i) done(i, this->write_one(mutations[i]));
      return mutations.size();
    }
  }
  // The first mutations, up to one that would have to wait or that must be done alone.
  std::size_t write_together(Mutations mutations, Done done) {
    Expected<bool> results[kGroup];
    std::size_t n = 0;
    while (n < mutations.size() && engine().joins(mutations[n])) ++n;
    mutations = mutations.first(std::exchange(n, 0));
    if (mutations.empty()) return 0;
    {
      MutationGuard<P> guard(context_.epochs);
      if (!begin_mutation(guard, true).ok()) return 0;  // the single call says why
      typename Engine::Group group;
      typename Engine::Pending pending[kGroup];
      if (!fetch_for(mutations, group).ok()) return 0;
      bool made = false;
      for (std::size_t i = 0; i < mutations.size(); ++i) {
        made |= engine().prepare(mutations[i], group, i, pending[i]);
      }
      if (!made || engine().settle_records()) n = write_parts(mutations, group, pending, results);
      for (std::size_t i = 0; i < mutations.size(); ++i) engine().discard(pending[i]);
    }
    for (std::size_t i = 0; i < n; ++i) done(i, std::move(results[i]));
    return n;
  }
  // A mutation whose latch one of its predecessors holds begins a part of its own.
  template <class Group, class Pending>
  [[gnu::always_inline]] std::size_t write_parts(Mutations mutations, const Group& group,
                                                 Pending* pending, Expected<bool>* results) {
    for (std::size_t first = 0, n = 0;; first = n) {
      while (n < mutations.size() &&
             engine().latch(mutations[n], group, n, pending[n], results[n])) {
        ++n;
      }
      if (n == first) return n;
      bool wrote = false;
      for (std::size_t i = first; i < n; ++i) engine().store(pending[i]);
      for (std::size_t i = first; i < n; ++i) wrote |= engine().write_back(pending[i]);
      const bool durable = !wrote || engine().settle();
      for (std::size_t i = first; i < n; ++i) {
        engine().finish(pending[i], durable, results[i]);
      }
      for (std::size_t i = first; i < n; ++i) engine().clean_up(pending[i]);
    }
  }
  [[gnu::cold]] static Status too_long(const char* what, std::size_t bytes,
                                       std::uint64_t most) noexcept {
    return Status::format(StatusCode::invalid_argument, "%s of %zu bytes; at most %lu are allowed",
                          what, bytes, most);
  }

  typename P::Latch damage_latch_;  // guards *context_.damage
};

}  // namespace perdure
