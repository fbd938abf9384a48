// The checksums of a PhaST map: records, leaves, root block.
#include <bit>
#include <cstddef>
#include <cstring>

#include "fuzz/checksums.h"
#include "index/phast/codec.h"
#include "index/phast/layout.h"
#include "index/record.h"
#include "util/crc32c.h"

namespace perdure::fuzz {

namespace {

using Leaf = phast::layout::Leaf<phast::DefaultGeometry>;
using phast::layout::Root;

class Fixer {
 public:
  Fixer(std::string& bytes, std::uint64_t root) : bytes_(bytes), root_(root) {}

  void run() {
    if (!inside(bytes_, root_, sizeof(Root))) return;
    auto root = load<Root>(root_);
    if (root.partition_bits > 16) return;
    const std::uint64_t master_bytes = (1ULL << root.partition_bits) * 8;
    const std::uint64_t master = root_ + sizeof(Root);
    if (!inside(bytes_, master, master_bytes)) return;
    bytes_keys_ = (root.flags & phast::layout::kBytesKeys) != 0;
    records_ = bytes_keys_ || (root.flags & phast::layout::kRecordValues) != 0;
    word_records_ = (root.flags & phast::layout::kWordRecords) != 0;
    budget_ = bytes_.size() / sizeof(Leaf) + 1;  // a chain may run in a circle
    for (std::uint64_t p = 0; p < master_bytes; p += 8) fix_chain(load<std::uint64_t>(master + p));
    if (records_ && !bytes_keys_ && root.zero_present != 0) fix_record(root.zero_value);
    root.fixed_crc =
        crc32c(crc32c(0, &root, offsetof(Root, fixed_crc)), bytes_.data() + master, master_bytes);
    root.close_crc = crc32c(0, &root.zero_value, 16);
    store(root_, root);
  }

 private:
  template <class T>
  T load(std::uint64_t at) const {
    T value;
    std::memcpy(static_cast<void*>(&value), bytes_.data() + at, sizeof(value));
    return value;
  }
  template <class T>
  void store(std::uint64_t at, const T& value) {
    std::memcpy(bytes_.data() + at, &value, sizeof(value));
  }

  void fix_chain(std::uint64_t at) {
    for (; at != 0 && inside(bytes_, at, sizeof(Leaf)) && budget_ > 0; --budget_) {
      auto leaf = load<Leaf>(at);
      if (bytes_keys_) fix_record(leaf.bound);
      std::uint32_t values = 0;
      for (phast::layout::Entry& entry : leaf.entries) {
        if (records_ && (bytes_keys_ ? entry.value : entry.key) != 0) fix_entry(entry, values);
      }
      if (word_records_) leaf.values_crc = values;
      leaf.crc = crc32c(crc32c(0, &leaf, offsetof(Leaf, crc)), &leaf.values_crc,
                        sizeof(Leaf) - offsetof(Leaf, values_crc));
      store(at, leaf);
      at = leaf.next;
    }
  }

  void fix_entry(const phast::layout::Entry& entry, std::uint32_t& values) {
    const std::uint64_t record = entry.value & phast::kOffsetMask;
    fix_record(record);
    if (!inside(bytes_, record, sizeof(RecordPrefix))) return;
    const std::uint64_t word = load<RecordPrefix>(record).value;
    // A chain of checksums from 0 on equals the checksum of the words in a row.
    values = crc32c(values, &word, sizeof(word));
  }

  void fix_record(std::uint64_t at) {
    if (at == 0 || !inside(bytes_, at, sizeof(RecordPrefix))) return;
    const auto prefix = load<RecordPrefix>(at);
    const RecordView view(bytes_.data() + at, prefix.state, prefix.value);
    if (!view.plausible(bytes_.size() - at)) return;
    // intact() compares; the checksum that it wants is found by asking what the record would be
    // written with.
    const std::uint64_t shape = prefix.state >> 32;
    const std::uint64_t lengths[2] = {shape, view.word_size() != 0 ? 0 : prefix.value};
    std::uint32_t crc = crc32c(0, lengths, sizeof(lengths));
    crc = crc32c(crc, view.key().data(), view.key().size());
    if (view.word_size() == 0) {
      const std::string_view value = view.value().bytes;
      crc = crc32c(crc, value.data(), value.size());
    }
    store(at, shape << 32 | crc);
  }

  std::string& bytes_;
  std::uint64_t root_;
  bool bytes_keys_ = false;
  bool records_ = false;
  bool word_records_ = false;
  std::uint64_t budget_ = 0;
};

}  // namespace

void fix_phast(std::string& bytes, const layout::Root& root) { Fixer(bytes, root.root).run(); }

}  // namespace perdure::fuzz
