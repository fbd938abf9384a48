#include "fuzz/checksums.h"

#include <algorithm>
#include <cstring>

#include "heap/extent_table.h"
#include "pool/pool_core.h"

namespace perdure::fuzz {

void fix_phast(std::string& bytes, const layout::Root& root);  // phast_checksums.cc

namespace {

// How an engine's checksums are made right, from its root block on. Without a row its maps are
// fuzzed behind the pool's checksums only.
struct EngineFix {
  Engine engine;
  void (*fix)(std::string& bytes, const layout::Root& root);
};
constexpr EngineFix kFixes[] = {{Engine::phast, fix_phast}};

template <class T>
T load(const std::string& bytes, std::size_t at) {
  T value;
  std::memcpy(static_cast<void*>(&value), bytes.data() + at, sizeof(value));
  return value;
}
template <class T>
void store(std::string& bytes, std::size_t at, const T& value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

// The header in force, as far as its magic and sequence tell; false if there is none.
bool find_header(const std::string& bytes, layout::Header& out) {
  bool found = false;
  for (int i = 0; i < 2; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * layout::kHeaderBytes;
    if (!inside(bytes, at, sizeof(layout::Header))) continue;
    const auto header = load<layout::Header>(bytes, at);
    if (header.magic != layout::kMagic || (found && header.sequence <= out.sequence)) continue;
    out = header;
    found = true;
  }
  return found;
}

std::uint64_t directory_end(const std::string& bytes, const layout::Header& header) {
  const std::uint64_t end =
      layout::kDirectoryOffset + std::uint64_t{header.root_slots} * sizeof(layout::Root);
  return std::min<std::uint64_t>(end, bytes.size() / sizeof(layout::Root) * sizeof(layout::Root));
}

}  // namespace

void fix_pool(std::string& bytes) {
  layout::Header header;
  if (!find_header(bytes, header)) return;
  for (std::uint64_t i = 0, at = header.table_offset;
       i < 4096 && inside(bytes, at, 8) && at < header.data_offset; ++i, at += 8) {
    ExtentWord word;
    const auto raw = load<std::uint64_t>(bytes, at);
    (void)ExtentWord::decode(raw, i, word);
    if (raw != 0) store(bytes, at, word.encode(i));
  }
  const std::uint64_t end = directory_end(bytes, header);
  std::uint32_t directory = 0;
  for (std::uint64_t at = layout::kDirectoryOffset; at + sizeof(layout::Root) <= end;
       at += sizeof(layout::Root)) {
    auto root = load<layout::Root>(bytes, at);
    if (root.root != 0) {
      root.crc = root_crc(root);
      store(bytes, at, root);
    }
    directory = crc32c(directory, &root, sizeof(root));
  }
  for (std::size_t at = 0; at < layout::kDirectoryOffset; at += layout::kHeaderBytes) {
    if (!inside(bytes, at, sizeof(header))) continue;
    auto copy = load<layout::Header>(bytes, at);
    if (copy.magic != layout::kMagic) continue;
    copy.directory_crc = directory;
    copy.crc = header_crc(copy);
    store(bytes, at, copy);
  }
}

void fix_engines(std::string& bytes) {
  layout::Header header;
  if (!find_header(bytes, header)) return;
  const std::uint64_t end = directory_end(bytes, header);
  for (std::uint64_t at = layout::kDirectoryOffset; at + sizeof(layout::Root) <= end;
       at += sizeof(layout::Root)) {
    const auto root = load<layout::Root>(bytes, at);
    if (root.root == 0) continue;
    for (const EngineFix& row : kFixes) {
      if (static_cast<Engine>(root.engine) == row.engine) row.fix(bytes, root);
    }
  }
}

}  // namespace perdure::fuzz
