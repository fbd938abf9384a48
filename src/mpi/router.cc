#include "mpi/router.h"

#include <algorithm>
#include <bit>

#include "mpi/core.h"
#include "mpi/packing.h"
#include "platform/nap.h"

namespace perdure::mpi::detail {

namespace {

constexpr std::uint64_t kLongestPiece = 64 << 10;
constexpr std::uint64_t kLongestText = 1023;  // of a Status
constexpr unsigned kPollsAwake = 2000, kPollsOfNap = 4;
constexpr std::uint64_t kShortestNap = 50'000, kLongestNap = 1'000'000;
constexpr std::uint8_t kRead = 4;  // what a request asks for, beside a MutationKind

constexpr int kRequests = 0;  // a tag; the others are those of slots
int request_tag(unsigned slot) noexcept { return static_cast<int>(2 * slot + 1); }
int answer_tag(unsigned slot) noexcept { return static_cast<int>(2 * slot + 2); }

bool has_value(std::uint8_t what) noexcept {
  return what != kRead && what != static_cast<std::uint8_t>(MutationKind::erase);
}

Found apply(UntypedMap& data, const UntypedMutation& mutation) noexcept {
  switch (mutation.kind) {
    case MutationKind::put:
      return data.put(mutation.key, mutation.value);
    case MutationKind::insert:
      return data.insert(mutation.key, mutation.value);
    case MutationKind::update:
      return data.update(mutation.key, mutation.value);
    case MutationKind::erase:
      return data.erase(mutation.key);
  }
  return Status(StatusCode::invalid_argument);
}

}  // namespace

// What a message begins with.
struct Router::Head {
  std::uint64_t bytes = 0;   // of the body
  std::uint32_t slot = 0;    // of a request
  std::uint8_t what = 0;     // of a request: a MutationKind or kRead; of an answer: a StatusCode
  std::uint8_t present = 0;  // of an answer
  std::uint16_t unused = 0;
};

Router::Head Router::head_of(const char* message) noexcept {
  Head head;
  std::memcpy(&head, message, sizeof(head));
  return head;
}

Status Router::send(const char* message, std::uint64_t size, int to, int first_tag,
                    int tag) noexcept {
  const std::uint64_t first = std::min(size, piece_);
  if (Status s = links_.send(message, first, to, first_tag); !s.ok()) return s;
  return links_.send(message + first, size - first, to, tag);
}

Expected<const char*> Router::rest(char* first, Grown<char>& whole, int from, int tag) noexcept {
  const std::uint64_t size = sizeof(Head) + head_of(first).bytes;
  if (size <= piece_) return first + sizeof(Head);
  const bool room = whole.reserve(size);
  if (room) std::memcpy(whole.data(), first, piece_);
  for (std::uint64_t done = piece_; done < size; done += piece_) {
    const std::uint64_t piece = std::min(size - done, piece_);
    char* const to = room ? whole.data() + done : first;
    Status s = links_.await(to, static_cast<int>(piece), from, tag);
    if (!s.ok()) return fail(std::move(s));
  }
  return room ? whole.data() + sizeof(Head) : nullptr;
}

// --- the rank that calls ---

Found Router::write(const UntypedMutation& mutation) noexcept {
  return call(mutation, static_cast<std::uint8_t>(mutation.kind), [](const UntypedValue&) {});
}

Found Router::read(const UntypedKey& key, FunctionRef<void(const UntypedValue&)> visit) noexcept {
  return call({.key = key}, kRead, visit);
}

Found Router::call(const UntypedMutation& mutation, std::uint8_t what,
                   FunctionRef<void(const UntypedValue&)> visit) noexcept {
  if (Status s = core_->usable(); !s.ok()) return s;
  const bool bytes = core_->has_bytes();
  const std::uint64_t body = Packer::size(mutation.key, bytes) +
                             (has_value(what) ? Packer::size(mutation.value, bytes) : 0);
  Grown<char> message;  // the request, then the first piece of the answer
  if (!message.reserve(std::max(sizeof(Head) + body, piece_))) return {StatusCode::out_of_memory};
  message.resize(sizeof(Head) + body);
  const unsigned slot = take_slot();
  const Head head{.bytes = body, .slot = slot, .what = what};
  std::memcpy(message.data(), &head, sizeof(head));
  Packer packer(message.data() + sizeof(head), bytes);
  packer.put(mutation.key);
  if (has_value(what)) packer.put(mutation.value);
  Found found = exchange(message, core_->owner(mutation.key), slot, visit);
  give_back(slot);
  return found;
}

Found Router::exchange(Grown<char>& message, int owner, unsigned slot,
                       FunctionRef<void(const UntypedValue&)> visit) noexcept {
  const int tag = answer_tag(slot);
  Status met = send(message.data(), message.size(), owner, kRequests, request_tag(slot));
  if (met.ok()) met = links_.await(message.data(), static_cast<int>(piece_), owner, tag);
  if (!met.ok()) return met;
  const Head head = head_of(message.data());
  Grown<char> whole;
  auto body = rest(message.data(), whole, owner, tag);
  if (!body) return std::move(body.error());
  const auto code = static_cast<StatusCode>(head.what);
  if (code != StatusCode::ok) {
    const int size = *body != nullptr ? static_cast<int>(head.bytes) : 0;
    return Status::format(code, "rank %d of %d: %.*s", owner, core_->comm().size(), size, *body);
  }
  if (*body == nullptr) return {StatusCode::out_of_memory};
  if (head.bytes != 0) visit(Unpacker(*body, head.bytes, core_->has_bytes()).value());
  return Found(head.present != 0);
}

unsigned Router::take_slot() noexcept {
  for (unsigned spins = 0;; ++spins) {
    std::uint64_t free = free_slots_.load();
    if (free == 0) {
      spins < kPollsAwake ? RealPlatform::pause(spins) : nap();
      continue;
    }
    if (free_slots_.compare_exchange_weak(free, free & (free - 1))) {
      return static_cast<unsigned>(std::countr_zero(free));
    }
  }
}

// --- the rank that owns the key ---

void Router::serve() noexcept {
  unsigned polls = 0;
  std::uint64_t idle_since = 0;
  while (!stopping_) {
    auto from = links_.poll(first_.data(), static_cast<int>(piece_), kRequests);
    if (!from) return;
    if (*from >= 0) {
      if (!answer(*from).ok()) return;
      polls = 0;
    } else if (++polls < kPollsAwake || polls % kPollsOfNap != 0) {
      RealPlatform::pause(polls);
    } else {
      const std::uint64_t now = RealPlatform::now_ns();
      if (polls == kPollsAwake) idle_since = now;
      nap(std::clamp((now - idle_since) / 16, kShortestNap, kLongestNap - 1));
    }
  }
}

// Returns the error of MPI.
Status Router::answer(int from) noexcept {
  const Head asked = head_of(first_.data());
  Grown<char> whole, value;
  auto body = rest(first_.data(), whole, from, request_tag(asked.slot));
  if (!body) return std::move(body.error());
  const Found found =
      *body != nullptr ? perform(asked, *body, value) : Found(StatusCode::out_of_memory);
  // Without memory there is an answer, too.
  char short_message[sizeof(Head) + kLongestText];
  char* message = short_message;
  std::uint64_t size = sizeof(Head);
  if (!found.ok()) {
    size += found.status().message().copy(message + size, kLongestText);
  } else if (value.size() != 0) {
    message = value.data();
    size = value.size();
  }
  const Head head{.bytes = size - sizeof(Head),
                  .what = static_cast<std::uint8_t>(found.status().code()),
                  .present = found.present()};
  std::memcpy(message, &head, sizeof(head));
  const int tag = answer_tag(asked.slot);
  return send(message, size, from, tag, tag);
}

// A value that is read goes behind room for a Head.
Found Router::perform(const Head& head, const char* body, Grown<char>& value) noexcept {
  const bool bytes = core_->has_bytes();
  Unpacker from(body, head.bytes, bytes);
  UntypedMutation mutation{.key = from.key()};
  auto data = own_data(*core_, mutation.key);
  if (!data) return std::move(data.error());
  if (head.what != kRead) {
    mutation.kind = static_cast<MutationKind>(head.what);
    if (has_value(head.what)) mutation.value = from.value();
    return apply(**data, mutation);
  }
  bool room = true;
  Found found = (*data)->read(mutation.key, [&](const UntypedValue& read) {
    char* const to = value.extend(sizeof(Head) + Packer::size(read, bytes));
    room = to != nullptr;
    if (room) Packer(to + sizeof(Head), bytes).put(read);
  });
  return room ? std::move(found) : Found(StatusCode::out_of_memory);
}

// --- begin and end ---

Status Router::start(Core& core, MPI_Comm comm, std::uint64_t max_message) noexcept {
  piece_ = std::min(max_message, kLongestPiece);
  Status mine = links_.duplicate(comm, piece_);
  if (mine.ok() && !first_.reserve(piece_)) mine = StatusCode::out_of_memory;
  core_ = &core;
  // No other rank asks a rank without pools, and there may be no other rank.
  const bool serves = !core.own_pools().empty() && core.comm().size() > 1;
  if (mine.ok() && serves && !thread_.start(service_)) {
    mine =
        Status::format(StatusCode::out_of_memory, "the system refuses a thread for routed calls");
  }
  Status agreed = core.comm().agree(std::move(mine));
  if (!agreed.ok()) end();
  return agreed;
}

Status Router::meet() noexcept { return started() ? core_->comm().agree({}) : Status(); }

void Router::stop() noexcept {
  if (!started()) return;
  // Other ranks may still call for long, and this one's service thread needs a core.
  (void)core_->comm().agree_after_work({}, true);
  end();
}

void Router::end() noexcept {
  stopping_ = true;
  thread_.join();
  links_.release();
  core_ = nullptr;
}

// --- what the header calls ---

namespace {

// Null if the call is none for another rank.
Router* router_to(Core& core, const UntypedKey& key) noexcept {
  if (!core.router().started()) [[likely]]
    return nullptr;
  return core.owner(key) != core.comm().rank() ? &core.router() : nullptr;
}

}  // namespace

Found write_one(Core& core, const UntypedMutation& mutation) {
  if (Router* router = router_to(core, mutation.key)) return router->write(mutation);
  auto data = own_data(core, mutation.key);
  if (!data) return std::move(data.error());
  return apply(**data, mutation);
}

Found read_one(Core& core, const UntypedKey& key, FunctionRef<void(const UntypedValue&)> visit) {
  if (Router* router = router_to(core, key)) return router->read(key, visit);
  return read_own(core, key, visit);
}

Found read_own(Core& core, const UntypedKey& key, FunctionRef<void(const UntypedValue&)> visit) {
  auto data = own_data(core, key);
  if (!data) return std::move(data.error());
  return (*data)->read(key, visit);
}

}  // namespace perdure::mpi::detail
