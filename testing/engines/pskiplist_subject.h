// The multi-version store as the crash explorer sees it: as any ordered map; and with its versions.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "index/pskiplist/pskiplist.h"
#include "testing/crash/map_subject.h"
#include "testing/schedule/version_model.h"

namespace perdure::pskiplist {

struct Peek {
  struct Plant;  // what breaks invariants: tests/pskiplist/assert_test.cc
  // The phase of a key that is there; no step of a schedule.
  template <class Codec, class G>
  static Phase phase(PSkipList<testing::SimPlatform, Codec, G>& map, const detail::Key& key) {
    const testing::SimPlatform::Unobserved unobserved;  // outlives the guard
    const EpochGuard<testing::SimPlatform> guard(map.context_.epochs);
    return map.nodes_[map.directory_.find(Codec::probe(key))].load().phase();
  }
  // Whether the slot of a key that is there is where it is likely to be.
  template <class Codec, class G>
  static bool is_likely(PSkipList<testing::SimPlatform, Codec, G>& map, const detail::Key& key) {
    const EpochGuard<testing::SimPlatform> guard(map.context_.epochs);
    const std::uint32_t node = map.directory_.find(Codec::probe(key));
    return map.nodes_.likely_slot(node) == map.nodes_[node].slot.load();
  }
};

}  // namespace perdure::pskiplist

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

// Two maps: the first is the one whose versions are looked at, the second has their names, each
// written after its tag has returned, as an application would. What a name stands for must be the
// same in every image in which it is there.
template <class Codec>
class VersionedSubject : public PskiplistSubject<Codec, pskiplist::TinyGeometry> {
 public:
  using Base = PskiplistSubject<Codec, pskiplist::TinyGeometry>;

  explicit VersionedSubject(MapSetup setup) : Base((setup.maps = 2, setup)) {}

  Expected<bool> apply(const Op& op) override {
    if (op.kind != OpKind::tag && op.kind != OpKind::trim && op.kind != OpKind::rollback) {
      return Base::apply(op);
    }
    this->pool().epochs().drain_all();
    return call(op);
  }
  Expected<bool> call(const Op& op) override {
    auto& map = this->versioned();
    if (op.kind == OpKind::tag) {
      auto version = map.tag();
      if (!version) return fail(std::move(version.error()));
      const std::string number(reinterpret_cast<const char*>(&*version), sizeof(*version));
      auto named = Base::call({OpKind::upsert, name_key(op.key), number});
      if (!named) return named;
      return true;
    }
    if (op.kind != OpKind::trim && op.kind != OpKind::rollback) return Base::call(op);
    auto version = version_of(op.key);
    if (!version || *version == 0) return version ? Expected<bool>(false) : fail(version.error());
    if (op.kind == OpKind::trim) {
      auto trimmed = map.trim(*version);
      if (!trimmed) return fail(std::move(trimmed.error()));
      return true;
    }
    if (Status s = map.rollback(*version); !s.ok()) return fail(std::move(s));
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
    return this->versioned().read_at(
        this->key_of(key.substr(1)), *version,
        [&](const perdure::detail::Value& found) { value = Base::text_of(found); });
  }
  // The present state, that of every name in order, the names.
  Status contents(Contents& out) override {
    const auto add = [&out](const std::string& before) {
      return [&out, before](std::span<const perdure::detail::Entry> entries) {
        for (const auto& entry : entries) {
          out.emplace_back(before + Base::text_of(entry.key), Base::text_of(entry.value));
        }
        return true;
      };
    };
    auto done = this->index().scan({}, add(std::string(1, kPresent)));
    if (!done) return std::move(done.error());
    auto names = names_by_byte();
    if (!names) return std::move(names.error());
    for (const auto& [name, version] : *names) {
      done = this->versioned().scan_at(version, {}, add(version_key(name, {})));
      if (!done) return std::move(done.error());
    }
    for (const auto& [name, version] : *names) {
      out.emplace_back(kNamed + name, earlier(*names, version));
    }
    return {};
  }

 private:
  using Names = std::vector<std::pair<std::string, std::uint64_t>>;
  static std::string name_key(const std::string& name) {
    return '\1' + integer_key(static_cast<unsigned char>(name[0]));
  }
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
    std::string number;
    auto found = Base::lookup(name_key(name), number);
    if (!found) return fail(std::move(found.error()));
    std::memcpy(&version, number.data(), std::min(number.size(), sizeof(version)));
    return version >= this->versioned().versions().first ? version : 0;
  }
};

template <class Codec = pskiplist::IntegerCodec>
SubjectFactory versioned_subjects(const MapSetup& setup) {
  return [setup] { return std::make_unique<VersionedSubject<Codec>>(setup); };
}

// The same for the scheduler: versions are called by their numbers, which are those of the tags as
// long as nothing crashes (testing/schedule/version_model.h).
template <class Codec>
class NumberedSubject : public PskiplistSubject<Codec, pskiplist::TinyGeometry> {
 public:
  using Base = PskiplistSubject<Codec, pskiplist::TinyGeometry>;
  using Base::Base;

  bool versions() const override { return true; }
  pskiplist::Phase phase_of(const std::string& key) {
    return pskiplist::Peek::phase(static_cast<typename Base::Map&>(this->versioned()),
                                  this->key_of(key));
  }
  Expected<bool> call(const Op& op) override {
    if (op.kind > OpKind::find) return Base::call(op);
    return Base::call({op.kind, op.key.substr(1), op.value});
  }
  Expected<bool> ask(const Op& op, std::string& text) override {
    auto& map = this->versioned();
    const auto refused = [&](const Status& s) -> Expected<bool> {
      if (s != StatusCode::invalid_argument) return fail(Status(s));
      text = kRefused;
      return false;
    };
    const auto done = [&](const auto& result) -> Expected<bool> {
      if (!result) return refused(result.error());
      return true;
    };
    switch (op.kind) {
      case OpKind::tag: {
        auto version = map.tag();
        if (!version) return fail(std::move(version.error()));
        text = version_name(*version);
        return true;
      }
      case OpKind::trim:
        return done(map.trim(version_number(op.key[0])));
      case OpKind::scan_at:
        return done(map.scan_at(
            version_number(op.key[0]), {}, [&](std::span<const perdure::detail::Entry> entries) {
              for (const auto& entry : entries) {
                text += version_text(Base::text_of(entry.key), Base::text_of(entry.value));
              }
              return true;
            }));
      case OpKind::diff:
        return done(map.diff(version_number(op.key[0]), version_number(op.key[1]), {},
                             [&](const perdure::detail::Difference& difference) {
                               text += version_text(Base::text_of(difference.key)) + ":" +
                                       version_text(text_of(difference.before)) + ">" +
                                       version_text(text_of(difference.after)) + " ";
                               return true;
                             }));
      case OpKind::history:
        return done(map.history(
            this->key_of(op.key.substr(1)), [&](const perdure::detail::VersionedValue& entry) {
              text +=
                  std::to_string(entry.version) + ":" + version_text(text_of(entry.value)) + " ";
              return true;
            }));
      default: {
        auto found = lookup(op.key, text);
        return found || found.error() != StatusCode::invalid_argument ? std::move(found)
                                                                      : refused(found.error());
      }
    }
  }
  Expected<bool> lookup(const std::string& key, std::string& value) override {
    if (key[0] == kPresent) return Base::lookup(key.substr(1), value);
    if (key[0] == kNamed) {
      value = range();
      return true;
    }
    return this->versioned().read_at(
        this->key_of(key.substr(2)), version_number(key[1]),
        [&](const perdure::detail::Value& found) { value = Base::text_of(found); });
  }
  Status contents(Contents& out) override {
    const auto add = [&out](const std::string& before) {
      return [&out, before](std::span<const perdure::detail::Entry> entries) {
        for (const auto& entry : entries) {
          out.emplace_back(before + Base::text_of(entry.key), Base::text_of(entry.value));
        }
        return true;
      };
    };
    auto done = this->index().scan({}, add(std::string(1, kPresent)));
    if (!done) return std::move(done.error());
    const perdure::detail::VersionRange all = this->versioned().versions();
    for (std::uint64_t version = all.first; version <= all.last; ++version) {
      done = this->versioned().scan_at(version, {}, add(version_key(version_name(version), {})));
      if (!done) return std::move(done.error());
    }
    out.emplace_back(std::string(1, kNamed), range());
    return {};
  }

 private:
  static std::optional<std::string> text_of(const std::optional<perdure::detail::Value>& value) {
    if (!value) return std::nullopt;
    return Base::text_of(*value);
  }
  std::string range() {
    const perdure::detail::VersionRange all = this->versioned().versions();
    return version_name(all.first) + version_name(all.last);
  }
};

template <class Codec>
SubjectFactory numbered_subjects(const MapSetup& setup) {
  return [setup] { return std::make_unique<NumberedSubject<Codec>>(setup); };
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
// The same with values of any length, and with keys of which the first bytes decide nothing.
inline Op versioned_record_op(Random& random) {
  Op op = versioned_op(random);
  if (op.kind < OpKind::tag) op.value.resize(random.below(70), 'v');
  return op;
}
inline Op versioned_bytes_op(Random& random) {
  Op op = versioned_record_op(random);
  if (op.kind < OpKind::tag) op.key.insert(1, "customer:");
  return op;
}
inline Op versioned_bytes_word_op(Random& random) {
  Op op = versioned_op(random);
  if (op.kind < OpKind::tag) op.key.insert(1, "customer:");
  return op;
}

}  // namespace perdure::testing

// pskiplist_subject.cc has the instantiations that tests share.
namespace perdure {

extern template class pskiplist::PSkipListMap<
    Traits<testing::SimPlatform, pskiplist::IntegerCodec, pskiplist::TinyGeometry>>;
extern template class pskiplist::PSkipListMap<
    Traits<testing::SimPlatform, pskiplist::BytesCodec, pskiplist::TinyGeometry>>;
extern template class testing::MapSubject<
    testing::PskiplistTraits<pskiplist::IntegerCodec, pskiplist::TinyGeometry>>;
extern template class testing::MapSubject<
    testing::PskiplistTraits<pskiplist::BytesCodec, pskiplist::TinyGeometry>>;

}  // namespace perdure
