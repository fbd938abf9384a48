#include "perdure/write_batch.h"

#include <algorithm>
#include <span>
#include <utility>

#include "perdure/options.h"
#include "pool/batch_items.h"

namespace perdure {

namespace {

using Visit = FunctionRef<bool(std::span<const detail::Entry>)>;

// The mutations of a batch in a range of one map, in the order of a scan.
class OwnMutations {
 public:
  OwnMutations(const detail::ScanRange& range, bool words) : range_(range), words_(words) {}

  // Returns false if memory is short.
  [[nodiscard]] bool add(const detail::BatchItems& items, const detail::Index& index) {
    for (const BatchMutation& one : items.mutations()) {
      if (items.maps()[one.target].get() != &index) continue;
      const detail::Key& key = one.mutation.key;
      if ((range_.from && less(key, *range_.from)) || (range_.to && !less(key, *range_.to))) {
        continue;
      }
      if (!own_.push_back(&one.mutation)) return false;
    }
    std::sort(own_.begin(), own_.end(), [&](const detail::Mutation* a, const detail::Mutation* b) {
      return comes_before(a->key, b->key);
    });
    return true;
  }
  std::uint64_t size() const { return own_.size(); }
  // Delivers an entry of the map, as the batch leaves it, and what comes before it. False: the
  // visitor has ended the scan.
  bool deliver(const detail::Entry& entry, Visit visit) {
    while (next_ < own_.size() && comes_before(own_[next_]->key, entry.key)) {
      if (!deliver_next(visit)) return false;
    }
    if (next_ < own_.size() && !comes_before(entry.key, own_[next_]->key)) {
      return deliver_next(visit);
    }
    return visit({&entry, 1});
  }
  void deliver_rest(Visit visit) {
    while (next_ < own_.size() && deliver_next(visit)) {
    }
  }

 private:
  bool less(const detail::Key& a, const detail::Key& b) const {
    return words_ ? a.word < b.word : a.bytes < b.bytes;
  }
  bool comes_before(const detail::Key& a, const detail::Key& b) const {
    return range_.reverse ? less(b, a) : less(a, b);
  }
  bool deliver_next(Visit visit) {
    const detail::Mutation& own = *own_[next_++];
    if (own.kind == MutationKind::erase) return true;
    const detail::Entry entry{own.key, own.value};
    return visit({&entry, 1});
  }

  const detail::ScanRange& range_;
  const bool words_;  // the keys are integers
  Array<const detail::Mutation*> own_;
  std::size_t next_ = 0;
};

// Without the bits that are ignored.
UntypedValue significant(const UntypedValue& value) {
  if (value.word_size == 0) return {.bytes = value.bytes};
  return {.word = value.word & ~std::uint64_t{0} >> (64 - 8 * value.word_size),
          .word_size = value.word_size};
}

}  // namespace

void detail::BatchItemsDelete::operator()(BatchItems* items) const noexcept { delete items; }

std::size_t WriteBatch::size() const noexcept { return items_ == nullptr ? 0 : items_->size(); }

void WriteBatch::fail_with(Status status) noexcept {
  if (failure_.ok()) failure_ = std::move(status);
}

void WriteBatch::add(Kind kind, detail::Index& index, const detail::Key& key,
                     const detail::Value& value) noexcept {
  if (key.bytes.size() > kMaxKeyBytes || value.bytes.size() > kMaxValueBytes) {
    return fail_with(Status::format(StatusCode::invalid_argument,
                                    "a key of %zu bytes, or a value of %zu; at most %lu and %lu "
                                    "are allowed",
                                    key.bytes.size(), value.bytes.size(), kMaxKeyBytes,
                                    kMaxValueBytes));
  }
  if (items_ == nullptr) items_.reset(new (std::nothrow) detail::BatchItems);
  const auto as = static_cast<detail::BatchItems::Kind>(kind);
  if (items_ == nullptr || !items_->add({&index, as, key, value})) {
    fail_with(StatusCode::out_of_memory);
  }
}

// Without the half of the key that is ignored.
UntypedKey WriteBatch::exact(const UntypedMap& map, const UntypedKey& key) noexcept {
  const bool word = map.types_.types.key_kind == KeyKind::integer;
  return word ? UntypedKey{.word = key.word} : UntypedKey{.bytes = key.bytes};
}

void WriteBatch::add(Kind kind, UntypedMap& map, const UntypedKey& key,
                     const UntypedValue* value) noexcept {
  if (Status s = map.takes(key, value); !s.ok()) return fail_with(std::move(s));
  add(kind, *map.index_, exact(map, key), value != nullptr ? significant(*value) : UntypedValue());
}

Expected<bool> WriteBatch::read(detail::Index& index, const detail::Key& key,
                                FunctionRef<void(const detail::Value&)> visit) const {
  if (!failure_.ok()) return fail(Status(failure_));
  const detail::Mutation* own = items_ == nullptr ? nullptr : items_->find(index, key);
  if (own == nullptr) return index.read(key, visit);
  // It says whether the map can be read.
  if (auto found = index.read(key, [](const detail::Value&) {}); !found) return found;
  if (own->kind == MutationKind::erase) return false;
  const detail::Value value = own->value;  // the visitor may put more
  visit(value);
  return true;
}

Found WriteBatch::read(UntypedMap& map, const UntypedKey& key,
                       FunctionRef<void(const UntypedValue&)> visit) const {
  if (Status s = map.takes(key, nullptr); !s.ok()) return s;
  return detail::present_if(read(*map.index_, exact(map, key), visit));
}

Expected<void> WriteBatch::scan(detail::OrderedIndex& index, bool words,
                                const detail::ScanRange& range,
                                FunctionRef<bool(std::span<const detail::Entry>)> visit) const {
  if (!failure_.ok()) return fail(Status(failure_));
  OwnMutations own(range, words);
  if (items_ != nullptr && !own.add(*items_, index)) return fail(StatusCode::out_of_memory);
  if (own.size() == 0) return index.scan(range, visit);
  detail::ScanRange wider = range;  // the batch may erase so many
  wider.limit += std::min(own.size(), ~range.limit);
  bool goes_on = true;
  auto done = index.scan(wider, [&](std::span<const detail::Entry> entries) {
    for (const detail::Entry& entry : entries) {
      goes_on = own.deliver(entry, visit);
      if (!goes_on) break;
    }
    return goes_on;
  });
  if (done && goes_on) own.deliver_rest(visit);
  return done;
}

}  // namespace perdure
