#include "mpi/carrier.h"

#include <algorithm>
#include <array>
#include <new>

namespace perdure::mpi::detail {

bool Carrier::add(LocalPool& source, Role target) noexcept {
  Source added{.pool = &source,
               .target = target,
               .to = core_.server(target, source.number()),
               .version = versions_.first};
  added.part.reset(new (std::nothrow) Part);
  added.request.reset(new (std::nothrow) Request);
  return added.part != nullptr && added.request != nullptr && sources_.push_back(std::move(added));
}

Status Carrier::run(Status mine) noexcept {
  std::sort(sources_.begin(), sources_.end(),
            [](const Source& a, const Source& b) { return a.to < b.to; });
  if (Status s = reserve(); mine.ok()) mine = std::move(s);
  // Without these no rank can take part in a round.
  if (Status s = comm_.agree(std::move(mine)); !s.ok()) return s;
  mine = {};
  for (bool more = true; more;) {
    if (mine.ok()) mine = pack();
    Status told = comm_.all_to_all(out_sizes_.data(), sizeof(Size), in_sizes_.data());
    if (!told.ok()) return told;
    if (mine.ok()) mine = receive();
    if (Status s = comm_.agree(std::move(mine)); !s.ok()) return s;
    Status moved = comm_.with_all([this](std::uint64_t to, std::uint64_t from) {
      return comm_.exchange(out_.data() + out_begins_[to], out_sizes_[to].bytes,
                            static_cast<int>(to), in_.data() + in_begins_[from],
                            in_sizes_[from].bytes, static_cast<int>(from));
    });
    if (!moved.ok()) return moved;
    mine = apply();
    more = std::any_of(in_sizes_.data(), in_sizes_.data() + ranks(),
                       [](const Size& size) { return size.more != 0; });
  }
  return core_.agree(std::move(mine));
}

Status Carrier::reserve() noexcept {
  bool room = true;
  for (Grown<Size>* sizes : {&out_sizes_, &in_sizes_}) {
    room = room && sizes->reserve(ranks());
    if (room) sizes->resize(ranks());
  }
  for (Grown<std::uint64_t>* begins : {&out_begins_, &in_begins_}) {
    room = room && begins->reserve(ranks());
    if (room) begins->resize(ranks());
  }
  return room ? Status() : StatusCode::out_of_memory;
}

// A piece of each source, one after the other.
Status Carrier::pack() noexcept {
  out_.resize(0);
  Status failed;
  std::size_t next = 0;
  for (std::uint64_t to = 0; to < ranks(); ++to) {
    out_begins_[to] = out_.size();
    for (; next < sources_.size() && static_cast<std::uint64_t>(sources_[next].to) == to; ++next) {
      if (failed.ok()) failed = pack(sources_[next]);
    }
    out_sizes_[to].bytes = out_.size() - out_begins_[to];
  }
  const bool more = std::any_of(sources_.begin(), sources_.end(),
                                [](const Source& source) { return !source.done; });
  for (std::uint64_t to = 0; to < ranks(); ++to) out_sizes_[to].more = more ? 1 : 0;
  return failed;
}

// At least one section, and small versions together.
Status Carrier::pack(Source& source) noexcept {
  const std::uint64_t begin = out_.size();
  while (!source.done && out_.size() - begin < kPieceBytes) {
    if (!source.begun && !this->begin(source)) return StatusCode::out_of_memory;
    Part& part = *source.part;
    part.fill();
    if (!part.status().ok()) return Status(part.status());
    const Section section{.role = static_cast<std::uint64_t>(source.target),
                          .number = source.pool->number(),
                          .version = source.version,
                          .closes = part.last() ? 1U : 0U,
                          .bytes = part.piece().size()};
    const auto* header = reinterpret_cast<const char*>(&section);
    if (!out_.append(header, sizeof(section)) ||
        !out_.append(part.piece().data(), part.piece().size())) {
      return StatusCode::out_of_memory;
    }
    part.taken();
    if (!part.last()) continue;
    source.begun = false;
    source.done = source.version == versions_.last;
    ++source.version;
  }
  return {};
}

bool Carrier::begin(Source& source) noexcept {
  *source.request = {.from = source.version - 1,
                     .to = source.version,
                     .differs = !all_ || source.version != versions_.first,
                     .has_before = false};
  source.begun = source.part->begin(*source.pool, *source.request, core_.has_bytes());
  return source.begun;
}

// Makes room for what comes. What a rank has for itself is applied where it was packed.
Status Carrier::receive() noexcept {
  std::uint64_t end = 0;
  for (std::uint64_t from = 0; from < ranks(); ++from) {
    in_begins_[from] = end;
    if (from != rank()) end += in_sizes_[from].bytes;
  }
  return in_.reserve(end) ? Status() : StatusCode::out_of_memory;
}

Status Carrier::apply() noexcept {
  for (std::uint64_t from = 0; from < ranks(); ++from) {
    const char* bytes =
        from == rank() ? out_.data() + out_begins_[from] : in_.data() + in_begins_[from];
    if (Status s = apply(bytes, in_sizes_[from].bytes); !s.ok()) return s;
  }
  return {};
}

Status Carrier::apply(const char* from, std::uint64_t count) noexcept {
  for (std::uint64_t done = 0; done < count;) {
    Section section;
    std::memcpy(&section, from + done, sizeof(section));
    done += sizeof(section);
    if (Status s = apply(section, from + done); !s.ok()) return s;
    done += section.bytes;
  }
  return {};
}

Status Carrier::apply(const Section& section, const char* entries) noexcept {
  constexpr std::size_t kBatch = 64;
  LocalPool& target = core_.own(static_cast<Role>(section.role), section.number);
  Unpacker unpacker(entries, section.bytes, core_.has_bytes());
  const bool scanned = all_ && section.version == versions_.first;
  std::array<UntypedMutation, kBatch> batch;
  while (!unpacker.at_end()) {
    std::size_t size = 0;
    for (; size < kBatch && !unpacker.at_end(); ++size) {
      const UntypedKey key = unpacker.key();
      const std::optional<UntypedValue> value =
          scanned ? std::optional(unpacker.value()) : unpacker.optional_value();
      batch[size] = {.kind = value ? MutationKind::put : MutationKind::erase,
                     .key = key,
                     .value = value.value_or(UntypedValue())};
    }
    Status s = target.data().write_many({batch.data(), size}, [](std::size_t, const Found&) {});
    if (!s.ok()) return s;
  }
  return section.closes != 0 ? target.close_version(section.version) : Status();
}

}  // namespace perdure::mpi::detail
