#include "perdure/write_batch.h"

#include <utility>

#include "perdure/options.h"
#include "pool/batch_items.h"

namespace perdure {

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

void WriteBatch::add(Kind kind, UntypedMap& map, const UntypedKey& key,
                     const UntypedValue* value) noexcept {
  if (Status s = map.takes(key, value); !s.ok()) return fail_with(std::move(s));
  add(kind, *map.index_, key, value != nullptr ? *value : UntypedValue());
}

}  // namespace perdure
