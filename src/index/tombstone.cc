#include "index/tombstone.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "index/findings.h"
#include "platform/assert.h"
#include "platform/forks.h"
#include "platform/real_platform.h"

namespace perdure {

namespace tombstone {
namespace {

using detail::Key;
using detail::Value;
using Entries = FunctionRef<bool(std::span<const detail::Entry>)>;

// Of the pool of an engine that has ended; null if it is not known.
const char* path_of(const void* engine) noexcept;

template <End E>
class Tombstone final : public detail::VersionedIndex {
 public:
  Expected<bool> insert(const Key&, const Value&) override { return why(); }
  Expected<bool> put(const Key&, const Value&) override { return why(); }
  Expected<bool> update(const Key&, const Value&) override { return why(); }
  Expected<bool> erase(const Key&) override { return why(); }
  Expected<bool> update_if(const Key&, const Value&, const Value&) override { return why(); }
  Expected<bool> erase_if(const Key&, const Value&) override { return why(); }
  Expected<bool> read(const Key&, FunctionRef<void(const Value&)>) override { return why(); }
  Got get_word(std::uint64_t, std::uint64_t&) override { return Got::failed; }
  Expected<std::uint64_t> read_many(std::span<const Key>,
                                    FunctionRef<void(std::size_t, const Value&)>) override {
    return why();
  }
  Expected<std::uint64_t> size() override { return why(); }
  void stats(EngineStats& out) override { out.partial = true; }
  Status usable() const noexcept override { return why().error(); }
  void check(const CheckOptions&, Findings& report) override {
    report.add(why().error().message());
  }
  Expected<void> scan(const detail::ScanRange&, Entries) override { return why(); }
  Expected<std::uint64_t> tag() override { return why(); }
  VersionRange versions() override { return {.first = 1, .last = 0}; }
  Expected<bool> read_at(const Key&, std::uint64_t, FunctionRef<void(const Value&)>) override {
    return why();
  }
  Expected<void> scan_at(std::uint64_t, const detail::ScanRange&, Entries) override {
    return why();
  }
  Expected<void> history(const Key&, FunctionRef<bool(const detail::VersionedValue&)>) override {
    return why();
  }
  Expected<void> diff(std::uint64_t, std::uint64_t, const detail::ScanRange&,
                      FunctionRef<bool(const detail::Difference&)>) override {
    return why();
  }
  Expected<std::uint64_t> trim(std::uint64_t) override { return why(); }
  Status rollback(std::uint64_t) override { return why().error(); }
  Status pin(detail::VersionPin&, std::uint64_t) override { return why().error(); }
  void unpin(detail::VersionPin&) noexcept override {}

 private:
  [[gnu::cold]] std::unexpected<Status> why() const noexcept {
    constexpr const char* kWhy[] = {
        "the pool of the map is closed; open both again",
        "the map was dropped; open it again, or another one",
        ("the pool of the map belongs to the parent process; open it anew after fork, once the "
         "parent has closed it")};
    const char* const path = path_of(this);
    return fail(StatusCode::invalid_argument, "%s%s%s", path != nullptr ? path : "",
                path != nullptr ? ": " : "", kWhy[static_cast<unsigned>(E)]);
  }
};

struct alignas(kLine) Header {
  RealPlatform::Atomic<std::uint32_t> holders{1};  // the engine, and its handles
  End end = End::closed;
  bool ended = false;  // the destructor of the engine overwrites a tombstone for a moment
  bool simulated = false;
  std::size_t alignment = 0;
  // A copy: the pool may be gone before the handles. Null where place() was not called, as in a
  // child of fork(), which must not allocate there.
  char* path = nullptr;
  Header* next = nullptr;
  Header* prev = nullptr;

  void* engine() noexcept { return this + 1; }
  static Header& of(const void* engine) noexcept {
    return const_cast<Header*>(static_cast<const Header*>(engine))[-1];
  }
};

static_assert(sizeof(Header) == kLine);

const char* path_of(const void* engine) noexcept { return Header::of(engine).path; }

constinit RealPlatform::Latch latch;
constinit Header* first = nullptr;

// The Index that was there has ended, or is used no more.
template <End E>
void construct(void* engine) noexcept {
  static_assert(sizeof(Tombstone<E>) == sizeof(void*), "it overwrites nothing but the pointer");
  new (engine) Tombstone<E>;
}
void mark(Header& header) noexcept {
  switch (header.end) {
    case End::closed:
      return construct<End::closed>(header.engine());
    case End::dropped:
      return construct<End::dropped>(header.engine());
    case End::forked:
      return construct<End::forked>(header.engine());
  }
}

void before_fork() { latch.lock(); }
void after_fork() { latch.unlock(); }
void in_child() {
  for (Header* header = first; header != nullptr; header = header->next) {
    if (header->simulated) continue;
    header->end = End::forked;
    header->ended = true;
    mark(*header);
  }
  latch.unlock();
}

// At load: handlers that the program registers later run first at a fork, so this one waits for
// none of their locks with the latch held.
bool forks_are_seen() noexcept {
  static const bool seen = at_forks(before_fork, after_fork, in_child);
  return seen;
}
[[maybe_unused]] const bool kAtLoad = forks_are_seen();

std::size_t front_of(std::size_t alignment) noexcept { return std::max(sizeof(Header), alignment); }

void give_up(Header& header) noexcept {
  if (header.holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::size_t alignment = header.alignment;
  void* memory = static_cast<std::byte*>(header.engine()) - front_of(alignment);
  std::free(header.path);
  header.~Header();
  ::operator delete(memory, std::align_val_t(alignment));
}

}  // namespace

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  if (!forks_are_seen()) return nullptr;
  alignment = std::max(alignment, alignof(Header));
  const std::size_t front = front_of(alignment);
  auto* memory = static_cast<std::byte*>(
      ::operator new(front + bytes, std::align_val_t(alignment), std::nothrow));
  if (memory == nullptr) return nullptr;
  auto* header = new (memory + front - sizeof(Header)) Header;
  header->alignment = alignment;
  const LatchGuard guard(latch);
  header->next = first;
  if (first != nullptr) first->prev = header;
  first = header;
  return header->engine();
}

void release(void* engine) noexcept {
  Header& header = Header::of(engine);
  {
    const LatchGuard guard(latch);
    (header.prev != nullptr ? header.prev->next : first) = header.next;
    if (header.next != nullptr) header.next->prev = header.prev;
    mark(header);
  }
  give_up(header);
}

void share_with_children(detail::Index& engine) noexcept { Header::of(&engine).simulated = true; }

void place(detail::Index& engine, End end, const char* path) noexcept {
  char* copy = ::strdup(path);
  {
    const LatchGuard guard(latch);
    Header& header = Header::of(&engine);
    std::swap(header.path, copy);
    header.end = end;
    header.ended = true;
    mark(header);
  }
  std::free(copy);
}

}  // namespace tombstone

void detail::hold(const Index& index) noexcept {
  tombstone::Header::of(&index).holders.fetch_add(1, std::memory_order_relaxed);
}
void detail::let_go(const Index& index) noexcept {
  tombstone::give_up(tombstone::Header::of(&index));
}
void detail::unpin(VersionedIndex& index, VersionPin& pin) noexcept {
  const LatchGuard guard(tombstone::latch);
  if (!tombstone::Header::of(&index).ended) index.unpin(pin);
}

}  // namespace perdure
