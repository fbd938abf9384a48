#include "testing/checksums/checksums.h"

#include <algorithm>

#include "format/pool_core.h"
#include "heap/extent_table.h"
#include "heap/size_classes.h"
#include "index/record.h"
#include "util/crc32c.h"

namespace perdure::testing {

// Each engine's fixer corrects the checksums from its root block on: <engine>.cc.
namespace fixers {
#define PERDURE_ENGINE(name) void name(PoolBytes& bytes, std::uint64_t root);
#include "index/engines.def"
}  // namespace fixers

namespace {

struct EngineFix {
  Engine engine;
  void (*fix)(PoolBytes& bytes, std::uint64_t root);
};
constexpr EngineFix kFixes[] = {
#define PERDURE_ENGINE(name) {Engine::name, &fixers::name},
#include "index/engines.def"
};

// Finds the current header by magic and sequence. Returns false if there is none.
bool find_header(const PoolBytes& bytes, layout::Header& out) {
  bool found = false;
  for (int i = 0; i < 2; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * layout::kHeaderBytes;
    if (!bytes.inside(at, sizeof(layout::Header))) continue;
    const auto header = bytes.load<layout::Header>(at);
    if (header.magic != layout::kMagic || (found && header.sequence <= out.sequence)) continue;
    out = header;
    found = true;
  }
  return found;
}

// Where the words of the extents lie, also according to a damaged header.
HeapGeometry places_of(layout::Header header) {
  header.extent_bytes = std::max<std::uint64_t>(header.extent_bytes, 1);
  return geometry_of(header);
}

std::uint64_t directory_end(const PoolBytes& bytes, const layout::Header& header) {
  const std::uint64_t end =
      layout::kDirectoryOffset + std::uint64_t{header.root_slots} * sizeof(layout::Root);
  return std::min<std::uint64_t>(end, bytes.size() / sizeof(layout::Root) * sizeof(layout::Root));
}

}  // namespace

bool PoolBytes::fix_record(std::uint64_t offset) noexcept {
  if (offset == 0 || !inside(offset, sizeof(RecordPrefix))) return false;
  const auto prefix = load<RecordPrefix>(offset);
  const RecordView view(at(offset), prefix.state, prefix.value);
  if (!view.plausible(size() - offset)) return false;
  // A view only compares checksums. This computes the one that the record would be written with.
  const std::uint64_t shape = prefix.state >> 32;
  const std::uint64_t lengths[2] = {shape, view.word_size() != 0 ? 0 : prefix.value};
  std::uint32_t crc = crc32c(0, lengths, sizeof(lengths));
  crc = crc32c(crc, view.key().data(), view.key().size());
  if (view.word_size() == 0) {
    const std::string_view value = view.value().bytes;
    crc = crc32c(crc, value.data(), value.size());
  }
  store(offset, shape << 32 | crc);
  return true;
}

std::uint64_t PoolBytes::block_bytes(std::uint64_t offset) const noexcept {
  layout::Header header;
  if (!find_header(*this, header) || header.extent_bytes == 0) return 0;
  if (offset < header.data_offset) return 0;
  const std::uint64_t extent = (offset - header.data_offset) / header.extent_bytes;
  const std::uint64_t at = places_of(header).word_offset(extent);
  if (!inside(offset, 1) || !inside(at, 8)) return 0;
  ExtentWord word;
  const auto raw = load<std::uint64_t>(at);
  (void)ExtentWord::decode(raw, extent, word, /*verify=*/false);
  if (word.state == ExtentState::run) return word.run * header.extent_bytes;
  const bool slab = word.state == ExtentState::slab && word.size_class < kClassCount;
  return slab ? kClassSizes[word.size_class] : 0;
}

void fix_pool(std::string& file) {
  PoolBytes bytes(file);
  layout::Header header;
  if (!find_header(bytes, header)) return;
  const HeapGeometry geometry = places_of(header);
  for (std::uint64_t i = 0; i < 4096; ++i) {
    const std::uint64_t at = geometry.word_offset(i);
    const bool behind = i < geometry.table_end(0) && at >= header.data_offset;
    if (behind || !bytes.inside(at, 8)) break;
    ExtentWord word;
    const auto raw = bytes.load<std::uint64_t>(at);
    (void)ExtentWord::decode(raw, i, word);
    if (raw != 0) bytes.store(at, word.encode(i));
  }
  const std::uint64_t end = directory_end(bytes, header);
  std::uint32_t directory = 0;
  for (std::uint64_t at = layout::kDirectoryOffset; at + sizeof(layout::Root) <= end;
       at += sizeof(layout::Root)) {
    auto root = bytes.load<layout::Root>(at);
    if (root.root != 0) {
      root.crc = root_crc(root);
      bytes.store(at, root);
    }
    directory = crc32c(directory, &root, sizeof(root));
  }
  for (std::size_t at = 0; at < layout::kDirectoryOffset; at += layout::kHeaderBytes) {
    if (!bytes.inside(at, sizeof(header))) continue;
    auto copy = bytes.load<layout::Header>(at);
    if (copy.magic != layout::kMagic) continue;
    copy.directory_crc = directory;
    copy.crc = header_crc(copy);
    bytes.store(at, copy);
  }
}

void fix_engines(std::string& file) {
  PoolBytes bytes(file);
  layout::Header header;
  if (!find_header(bytes, header)) return;
  const std::uint64_t end = directory_end(bytes, header);
  for (std::uint64_t at = layout::kDirectoryOffset; at + sizeof(layout::Root) <= end;
       at += sizeof(layout::Root)) {
    const auto root = bytes.load<layout::Root>(at);
    if (root.root == 0) continue;
    const auto* row =
        std::ranges::find(kFixes, static_cast<Engine>(root.engine), &EngineFix::engine);
    if (row != std::end(kFixes)) row->fix(bytes, root.root);
  }
}

}  // namespace perdure::testing
