// The multi-version store as the crash explorer sees it: as any ordered map; and with its versions.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "index/pskiplist/pskiplist.h"
#include "testing/map_subject.h"

namespace perdure::testing {

template <class Codec, class Geometry>
struct PskiplistTraits {
  using Map = pskiplist::PSkipList<SimPlatform, Codec, Geometry>;
  static constexpr Engine kEngine = Engine::pskiplist;
  static constexpr bool kBytes = Codec::kBytes;

  static Expected<std::uint64_t> create(const EngineContext<SimPlatform>& context,
                                        const MapKinds& kinds, const MapSetup&) {
    return Map::create(context, kinds);
  }
};

template <class Codec, class Geometry = pskiplist::TinyGeometry>
using PskiplistSubject = MapSubject<PskiplistTraits<Codec, Geometry>>;

template <class Codec, class Geometry = pskiplist::TinyGeometry>
SubjectFactory pskiplist_subjects(const MapSetup& setup) {
  return [setup] { return std::make_unique<PskiplistSubject<Codec, Geometry>>(setup); };
}

// Two maps of integer keys: the first is the one whose versions are looked at, the second has their
// names, each written after its tag has returned, as an application would. What a name stands for
// must be the same in every image in which it is there.
class VersionedSubject : public PskiplistSubject<pskiplist::IntegerCodec, pskiplist::TinyGeometry> {
 public:
  using Base = PskiplistSubject<pskiplist::IntegerCodec, pskiplist::TinyGeometry>;

  explicit VersionedSubject(MapSetup setup) : Base((setup.maps = 2, setup)) {}

  Expected<bool> apply(const Op& op) override {
    if (op.kind != OpKind::tag && op.kind != OpKind::trim && op.kind != OpKind::rollback) {
      return Base::apply(op);
    }
    pool().epochs().drain();
    return call(op);
  }
  Expected<bool> call(const Op& op) override {
    if (op.kind == OpKind::tag) {
      auto version = versioned().tag();
      if (!version) return fail(std::move(version.error()));
      auto named = index(1).upsert({.word = static_cast<unsigned char>(op.key[0])},
                                   {.word = *version, .word_size = 8});
      if (!named) return named;
      return true;
    }
    if (op.kind != OpKind::trim && op.kind != OpKind::rollback) return Base::call(op);
    auto version = version_of(op.key);
    if (!version || *version == 0) return version ? Expected<bool>(false) : fail(version.error());
    if (op.kind == OpKind::trim) {
      auto trimmed = versioned().trim(*version);
      if (!trimmed) return fail(std::move(trimmed.error()));
      return true;
    }
    if (Status s = versioned().rollback(*version); !s.ok()) return fail(std::move(s));
    return true;
  }
  Expected<bool> lookup(const std::string& key, std::string& value) override {
    if (key[0] == kPresent) return Base::lookup(key, value);
    auto version = version_of(key.substr(1, 1));
    if (!version) return fail(std::move(version.error()));
    if (*version == 0) return false;
    if (key[0] == kNamed) {
      auto names = names_by_byte();
      if (!names) return fail(std::move(names.error()));
      value = earlier(*names, *version);
      return true;
    }
    return versioned().read_at(
        key_of(key.substr(1)), *version,
        [&](const perdure::detail::Value& found) { value = text_of(found); });
  }
  // The present state, that of every name in order, the names.
  Status contents(Contents& out) override {
    const auto add = [&out](const std::string& before) {
      return [&out, before](std::span<const perdure::detail::Entry> entries) {
        for (const auto& entry : entries) {
          out.emplace_back(before + text_of(entry.key), text_of(entry.value));
        }
        return true;
      };
    };
    auto done = index().scan({}, add(std::string(1, kPresent)));
    if (!done) return std::move(done.error());
    auto names = names_by_byte();
    if (!names) return std::move(names.error());
    for (const auto& [name, version] : *names) {
      done = versioned().scan_at(version, {}, add(version_key(name, {})));
      if (!done) return std::move(done.error());
    }
    for (const auto& [name, version] : *names) {
      out.emplace_back(kNamed + name, earlier(*names, version));
    }
    return {};
  }

 private:
  using Names = std::vector<std::pair<std::string, std::uint64_t>>;
  Expected<Names> names_by_byte() {
    Names names;
    for (int name = '0'; name < '8'; ++name) {
      const std::string byte(1, static_cast<char>(name));
      auto version = version_of(byte);
      if (!version) return fail(std::move(version.error()));
      if (*version != 0) names.emplace_back(byte, *version);
    }
    return names;
  }
  static std::string earlier(const Names& names, std::uint64_t version) {
    char count = 0;
    for (const auto& [name, its] : names) count = static_cast<char>(count + (its < version));
    return std::string(1, count);
  }
  // 0: there is no such name, or its version was trimmed.
  Expected<std::uint64_t> version_of(const std::string& name) {
    std::uint64_t version = 0;
    auto found = index(1).read({.word = static_cast<unsigned char>(name[0])},
                               [&](const perdure::detail::Value& value) { version = value.word; });
    if (!found) return fail(std::move(found.error()));
    return version >= versioned().versions().first ? version : 0;
  }
};

inline SubjectFactory versioned_subjects(const MapSetup& setup) {
  return [setup] { return std::make_unique<VersionedSubject>(setup); };
}

// Mutations of few keys, so that they have histories, and every kind of work with versions.
inline Op versioned_op(Random& random) {
  static constexpr OpKind kKinds[] = {OpKind::upsert, OpKind::upsert, OpKind::upsert,
                                      OpKind::insert, OpKind::update, OpKind::erase,
                                      OpKind::erase,  OpKind::tag,    OpKind::tag,
                                      OpKind::tag,    OpKind::trim,   OpKind::rollback};
  Op op{kKinds[random.below(12)], {}, {}};
  if (op.kind == OpKind::rollback && !random.one_in(3)) op.kind = OpKind::tag;
  if (op.kind >= OpKind::tag) {
    op.key = std::string(1, static_cast<char>('0' + random.below(6)));
    return op;
  }
  op.key = kPresent + integer_key(random.below(7));
  op.value = std::string(8, static_cast<char>('a' + random.below(26)));
  return op;
}

}  // namespace perdure::testing
