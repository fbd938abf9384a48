#include "perdure/untyped_map.h"

#include "perdure/options.h"
#include "perdure/scan.h"
#include "util/containers.h"

namespace perdure {

namespace {

using EngineText = Text<15>;  // an engine's name, NUL-terminated

std::uint64_t largest(unsigned bytes) {
  return bytes >= 8 ? ~std::uint64_t{0} : (1ULL << (8 * bytes)) - 1;
}

// True if the integer type of the map's keys can hold the word.
bool fits(const detail::NamedTypes& info, std::uint64_t word) {
  if (!info.types.is_signed) return word <= largest(info.types.key_bytes);
  const std::uint64_t half = (largest(info.types.key_bytes) >> 1) + 1;
  return word - ((1ULL << 63) - half) <= 2 * half - 1;
}

Status accepts(const detail::NamedTypes& info, const UntypedKey& key) {
  if (info.types.key_kind == KeyKind::integer && !fits(info, key.word)) {
    const std::uint64_t most = largest(info.types.key_bytes);
    return info.types.is_signed
               ? Status::format(StatusCode::invalid_argument,
                                "a key of map '%s' is a number from %ld to %ld; this one is not",
                                info.name, -static_cast<std::int64_t>(most >> 1) - 1,
                                static_cast<std::int64_t>(most >> 1))
               : Status::format(StatusCode::invalid_argument,
                                "a key of map '%s' is a number from 0 to %lu; this one is not",
                                info.name, most);
  }
  if (info.types.key_kind == KeyKind::array && key.bytes.size() != info.types.key_bytes) {
    return Status::format(StatusCode::invalid_argument,
                          "a key of map '%s' has %u bytes; this one has %zu", info.name,
                          info.types.key_bytes, key.bytes.size());
  }
  return {};
}

Status accepts(const detail::NamedTypes& info, const UntypedKey& key, const UntypedValue& value) {
  if (Status s = accepts(info, key); !s.ok()) return s;
  const bool right = info.types.value_kind == ValueKind::word
                         ? value.word_size == info.types.value_bytes
                         : value.word_size == 0 && (info.types.value_kind == ValueKind::bytes ||
                                                    value.bytes.size() == info.types.value_bytes);
  if (right) return {};
  const char* kind = info.types.value_kind == ValueKind::word ? "a word" : "an array";
  return info.types.value_kind == ValueKind::bytes
             ? Status::format(StatusCode::invalid_argument,
                              "a value of map '%s' is a byte string; this one is a word", info.name)
             : Status::format(StatusCode::invalid_argument,
                              "a value of map '%s' is %s of %u bytes; this one is not", info.name,
                              kind, info.types.value_bytes);
}

Expected<detail::ScanRange> range_of(const detail::NamedTypes& info,
                                     const UntypedScanOptions& options, detail::PrefixEnd& end) {
  if (info.types.key_kind == KeyKind::integer) {
    if (!options.prefix.empty()) {
      return fail(StatusCode::invalid_argument,
                  "the keys of map '%s' are integers, which have no prefix; use from and to",
                  info.name);
    }
    return detail::ScanRange{
        .from = options.from, .to = options.to, .reverse = options.reverse, .limit = options.limit};
  }
  ScanOptions<std::string_view> bytes{
      .prefix = options.prefix, .limit = options.limit, .reverse = options.reverse};
  if (options.from) bytes.from = options.from->bytes;
  if (options.to) bytes.to = options.to->bytes;
  return scan_range(bytes, end);
}

// Calls `visit` for the entries that scan(range, visit_batch) delivers. Returns how many entries
// were visited.
template <class Scan>
Expected<std::uint64_t> deliver(const detail::NamedTypes& info, const UntypedScanOptions& options,
                                VisitUntyped visit, Scan&& scan) {
  std::uint64_t visited = 0;  // with a limit of 0, only the arguments are verified
  detail::PrefixEnd end;
  auto range = range_of(info, options, end);
  if (!range) return fail(std::move(range.error()));
  Expected<void> done = scan(*range, [&](std::span<const detail::Entry> entries) {
    if (visited == options.limit) return false;
    for (const detail::Entry& entry : entries) {
      ++visited;
      if (!visit(entry.key, entry.value) || visited == options.limit) return false;
    }
    return true;
  });
  if (!done) return fail(std::move(done.error()));
  return visited;
}

template <class Source>
UntypedIterator iterator_of(const detail::NamedTypes& info, Source source,
                            const UntypedScanOptions& options) {
  detail::PrefixEnd end;
  auto range = range_of(info, options, end);
  if (!range) return UntypedIterator(detail::Cursor(std::move(range.error())));
  return UntypedIterator(
      detail::Cursor(std::move(source), info.types.key_kind == KeyKind::integer, *range));
}

UntypedIterator iterator_at(const detail::NamedTypes& info,
                            detail::Handle<detail::VersionedIndex> index, Version version,
                            const UntypedScanOptions& options) {
  auto held = detail::HeldVersion::of(std::move(index), version);
  if (!held) return UntypedIterator(detail::Cursor(std::move(held.error())));
  return iterator_of(info, std::move(*held), options);
}

Found read_version(const detail::NamedTypes& info, detail::VersionedIndex& index,
                   const UntypedKey& key, Version version,
                   FunctionRef<void(const UntypedValue&)> visit) {
  if (Status s = accepts(info, key); !s.ok()) return s;
  return detail::present_if(index.read_at(key, version, visit));
}

Expected<std::uint64_t> scan_version(const detail::NamedTypes& info, detail::VersionedIndex& index,
                                     Version version, const UntypedScanOptions& options,
                                     VisitUntyped visit) {
  return deliver(info, options, visit,
                 [&](const auto& range, auto each) { return index.scan_at(version, range, each); });
}

Expected<std::uint64_t> history_until(const detail::NamedTypes& info, detail::VersionedIndex& index,
                                      const UntypedKey& key, Version last,
                                      VisitUntypedVersion visit) {
  if (Status s = accepts(info, key); !s.ok()) return fail(std::move(s));
  std::uint64_t visited = 0;
  auto done = index.history(key, [&](const detail::VersionedValue& entry) {
    if (entry.version > last) return false;
    ++visited;
    return visit(entry.version, entry.value);
  });
  if (!done) return fail(std::move(done.error()));
  return visited;
}

Expected<std::uint64_t> diff_of(const detail::NamedTypes& info, detail::VersionedIndex& index,
                                Version from, Version to, const UntypedScanOptions& options,
                                VisitUntypedDifference visit) {
  std::uint64_t visited = 0;  // with a limit of 0, only the arguments are verified
  detail::PrefixEnd end;
  auto range = range_of(info, options, end);
  if (!range) return fail(std::move(range.error()));
  auto done = index.diff(from, to, *range, [&](const detail::Difference& difference) {
    if (visited == options.limit) return false;
    ++visited;
    return visit(difference.key, difference.before, difference.after) && visited != options.limit;
  });
  if (!done) return fail(std::move(done.error()));
  return visited;
}

}  // namespace

// ---- UntypedSnapshot ----------------------------------------------------------------------------

Found UntypedSnapshot::read(const UntypedKey& key,
                            FunctionRef<void(const UntypedValue&)> visit) const {
  return read_version(types_, *held_.index(), key, version(), visit);
}
Found UntypedSnapshot::contains(const UntypedKey& key) const {
  return read(key, [](const UntypedValue&) {});
}
Expected<std::uint64_t> UntypedSnapshot::scan(const UntypedScanOptions& options,
                                              VisitUntyped visit) const {
  return scan_version(types_, *held_.index(), version(), options, visit);
}
UntypedIterator UntypedSnapshot::scan(const UntypedScanOptions& options) const {
  return iterator_at(types_, held_.index(), version(), options);
}
Expected<std::uint64_t> UntypedSnapshot::diff(Version after, const UntypedScanOptions& options,
                                              VisitUntypedDifference visit) const {
  return diff_of(types_, *held_.index(), version(), after, options, visit);
}
Expected<std::uint64_t> UntypedSnapshot::history(const UntypedKey& key,
                                                 VisitUntypedVersion visit) const {
  return history_until(types_, *held_.index(), key, version(), visit);
}

// ---- UntypedMap ---------------------------------------------------------------------------------

Status UntypedMap::takes(const UntypedKey& key, const UntypedValue* value) const {
  return value != nullptr ? accepts(types_, key, *value) : accepts(types_, key);
}

Found UntypedMap::put(const UntypedKey& key, const UntypedValue& value) {
  if (Status s = accepts(types_, key, value); !s.ok()) return s;
  return detail::absent_if(index_->put(key, value));
}
Found UntypedMap::insert(const UntypedKey& key, const UntypedValue& value) {
  if (Status s = accepts(types_, key, value); !s.ok()) return s;
  return detail::absent_if(index_->insert(key, value));
}
Found UntypedMap::update(const UntypedKey& key, const UntypedValue& value) {
  if (Status s = accepts(types_, key, value); !s.ok()) return s;
  return detail::present_if(index_->update(key, value));
}
Found UntypedMap::erase(const UntypedKey& key) {
  if (Status s = accepts(types_, key); !s.ok()) return s;
  return detail::present_if(index_->erase(key));
}
Found UntypedMap::contains(const UntypedKey& key) {
  return read(key, [](const UntypedValue&) {});
}
Found UntypedMap::read(const UntypedKey& key, FunctionRef<void(const UntypedValue&)> visit) {
  if (Status s = accepts(types_, key); !s.ok()) return s;
  return detail::present_if(index_->read(key, visit));
}

Exchanged UntypedMap::compare_exchange(const UntypedKey& key,
                                       const std::optional<UntypedValue>& expected,
                                       const std::optional<UntypedValue>& desired) {
  if (Status s = accepts(types_, key); !s.ok()) return s;
  std::optional<UntypedValue> wanted = expected;
  // A read may have delivered it.
  if (wanted && types_.types.value_kind == ValueKind::word &&
      wanted->word_size > types_.types.value_bytes &&
      wanted->word <= largest(types_.types.value_bytes)) {
    wanted->word_size = types_.types.value_bytes;
  }
  for (const auto& value : {wanted, desired}) {
    if (!value) continue;
    if (Status s = accepts(types_, key, *value); !s.ok()) return s;
  }
  return detail::exchange(*index_, key, wanted ? &*wanted : nullptr, desired ? &*desired : nullptr);
}

Status UntypedMap::write_many(std::span<const UntypedMutation> mutations,
                              FunctionRef<void(std::size_t, const Found&)> done) {
  const auto wrong = [this](const UntypedMutation& m) {
    return m.kind == MutationKind::erase ? accepts(types_, m.key) : accepts(types_, m.key, m.value);
  };
  Status first;
  const auto tell = [&](std::size_t i, const Found& found) {
    if (!found.ok() && first.ok()) first = found.status();
    done(i, found);
  };
  for (std::size_t begin = 0; begin < mutations.size();) {
    std::size_t end = begin;
    Status refused;
    while (end < mutations.size() && (refused = wrong(mutations[end])).ok()) ++end;
    index_->write_many(
        mutations.subspan(begin, end - begin), [&](std::size_t i, Expected<bool> result) {
          tell(begin + i, detail::found_of(mutations[begin + i].kind, std::move(result)));
        });
    if (!refused.ok()) tell(end++, std::move(refused));
    begin = end;
  }
  return first;
}

Expected<std::uint64_t> UntypedMap::read_many(
    std::span<const UntypedKey> keys, FunctionRef<void(std::size_t, const UntypedValue&)> visit) {
  for (const UntypedKey& key : keys) {
    if (Status s = accepts(types_, key); !s.ok()) return fail(std::move(s));
  }
  return index_->read_many(keys, visit);
}

Expected<std::uint64_t> UntypedMap::for_each(VisitUntyped visit) {
  std::uint64_t visited = 0;
  auto done = index_->for_each([&](std::span<const detail::Entry> entries) {
    for (const detail::Entry& entry : entries) {
      ++visited;
      if (!visit(entry.key, entry.value)) return false;
    }
    return true;
  });
  if (!done) return fail(std::move(done.error()));
  return visited;
}

Expected<std::uint64_t> UntypedMap::size() { return index_->size(); }
MapStats UntypedMap::stats() { return detail::stats_of(*index_); }

Status UntypedMap::keeps_order() const {
  if (ordered_) return {};
  if (Status s = usable(); !s.ok()) return s;
  return Status::format(StatusCode::unsupported,
                        "map '%s' is of engine %s, which keeps no order; for_each() visits all its "
                        "entries",
                        info_.name.c_str(), EngineText(engine_name(info_.engine)).c_str());
}

Expected<std::uint64_t> UntypedMap::scan(const UntypedScanOptions& options, VisitUntyped visit) {
  if (Status s = keeps_order(); !s.ok()) return fail(std::move(s));
  return deliver(types_, options, visit,
                 [&](const auto& range, auto each) { return ordered_->scan(range, each); });
}
Expected<std::uint64_t> UntypedMap::erase_range(const UntypedScanOptions& options) {
  if (Status s = keeps_order(); !s.ok()) return fail(std::move(s));
  detail::PrefixEnd end;
  auto range = range_of(types_, options, end);
  if (!range) return fail(std::move(range.error()));
  return detail::erase_entries(*ordered_, types_.types.key_kind == KeyKind::integer, *range);
}
UntypedIterator UntypedMap::scan(const UntypedScanOptions& options) {
  if (Status s = keeps_order(); !s.ok()) return UntypedIterator(detail::Cursor(std::move(s)));
  return iterator_of(types_, ordered_, options);
}

// ---- versions -----------------------------------------------------------------------------------

Status UntypedMap::keeps_versions() const {
  if (versioned_) return {};
  if (Status s = usable(); !s.ok()) return s;
  return Status::format(StatusCode::unsupported,
                        "map '%s' is of engine %s, which keeps no versions; one of engine %s does",
                        info_.name.c_str(), EngineText(engine_name(info_.engine)).c_str(),
                        EngineText(engine_name(Engine::pskiplist)).c_str());
}

Expected<Version> UntypedMap::tag() {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  return versioned_->tag();
}
Expected<VersionRange> UntypedMap::versions() {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  if (Status s = usable(); !s.ok()) return fail(std::move(s));
  return versioned_->versions();
}

Expected<UntypedSnapshot> UntypedMap::snapshot(Version version) {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  auto held = detail::HeldVersion::of(versioned_, version);
  if (!held) return fail(std::move(held.error()));
  return UntypedSnapshot(types_, std::move(*held));
}
Expected<UntypedSnapshot> UntypedMap::snapshot() {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  auto held = detail::HeldVersion::of_last(versioned_);
  if (!held) return fail(std::move(held.error()));
  return UntypedSnapshot(types_, std::move(*held));
}

Found UntypedMap::read(const UntypedKey& key, Version version,
                       FunctionRef<void(const UntypedValue&)> visit) {
  if (Status s = keeps_versions(); !s.ok()) return s;
  return read_version(types_, *versioned_, key, version, visit);
}
Expected<std::uint64_t> UntypedMap::scan_at(Version version, const UntypedScanOptions& options,
                                            VisitUntyped visit) {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  return scan_version(types_, *versioned_, version, options, visit);
}
UntypedIterator UntypedMap::scan_at(Version version, const UntypedScanOptions& options) {
  if (Status s = keeps_versions(); !s.ok()) return UntypedIterator(detail::Cursor(std::move(s)));
  return iterator_at(types_, versioned_, version, options);
}
Expected<std::uint64_t> UntypedMap::history(const UntypedKey& key, VisitUntypedVersion visit) {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  return history_until(types_, *versioned_, key, ~Version{0}, visit);
}
Expected<std::uint64_t> UntypedMap::diff(Version from, Version to,
                                         const UntypedScanOptions& options,
                                         VisitUntypedDifference visit) {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  return diff_of(types_, *versioned_, from, to, options, visit);
}
Expected<Version> UntypedMap::trim(Version version) {
  if (Status s = keeps_versions(); !s.ok()) return fail(std::move(s));
  return versioned_->trim(version);
}
Status UntypedMap::rollback(Version version) {
  if (Status s = keeps_versions(); !s.ok()) return s;
  return versioned_->rollback(version);
}

}  // namespace perdure
