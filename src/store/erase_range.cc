#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "perdure/cursor.h"
#include "perdure/options.h"
#include "perdure/scan.h"

namespace perdure::detail {

namespace {

constexpr std::size_t kMost = 64;                     // keys of a group
constexpr std::size_t kBytes = std::size_t{1} << 16;  // of their copies
static_assert(kBytes >= kMaxKeyBytes);

// Copies of the first keys of a range.
struct Group {
  std::unique_ptr<char[]> bytes{new (std::nothrow) char[kBytes]};
  std::size_t used = 0;
  std::size_t count = 0;
  std::array<Mutation, kMost> mutations;

  // Returns false if there is no room.
  bool add(const Key& key) {
    if (count == kMost || kBytes - used < key.bytes.size()) return false;
    key.bytes.copy(&bytes[used], key.bytes.size());
    mutations[count++] = {
        .kind = MutationKind::erase,
        .key = {.word = key.word, .bytes = {&bytes[used], key.bytes.size()}},
    };
    used += key.bytes.size();
    return true;
  }
};

}  // namespace

Expected<std::uint64_t> erase_entries(OrderedIndex& index, bool words, ScanRange range) {
  Group group;
  KeyCopy position;
  if (group.bytes == nullptr) return fail(StatusCode::out_of_memory);
  std::uint64_t erased = 0;
  for (bool more = range.limit != 0; more;) {
    group.used = 0;
    group.count = 0;
    more = false;
    auto done = index.scan(range, [&](std::span<const Entry> entries) {
      for (const Entry& entry : entries) {
        if (group.count == range.limit) return false;
        if (!group.add(entry.key)) {
          more = true;
          return false;
        }
      }
      return true;
    });
    if (!done) return fail(std::move(done.error()));
    if (group.count == 0) break;
    Status failure;
    index.write_many({group.mutations.data(), group.count}, [&](std::size_t, Expected<bool> one) {
      if (one) {
        erased += *one ? 1 : 0;
      } else if (failure.ok()) {
        failure = std::move(one.error());
      }
    });
    if (!failure.ok()) return fail(std::move(failure));
    // Goes on behind the last key, which is not the greatest one, because the scan had more. To
    // look at the erased part again would take longer each time.
    const Key& last = group.mutations[group.count - 1].key;
    if (!position.assign(last, words, !range.reverse)) return fail(StatusCode::out_of_memory);
    (range.reverse ? range.to : range.from) = position.key();
    range.limit -= group.count;
  }
  return erased;
}

}  // namespace perdure::detail
