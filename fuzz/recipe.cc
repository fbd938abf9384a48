#include "fuzz/recipe.h"

#include <algorithm>
#include <cstring>

#include "format/layout.h"
#include "testing/checksums/checksums.h"

namespace perdure::fuzz {

Recipe Recipe::parse(Input input) {
  Reader reader(input);
  Recipe recipe;
  recipe.base = reader.byte();
  recipe.flags = reader.byte();
  if (recipe.base != kRaw) {
    const std::size_t count = reader.byte() % (kMaxPatches + 1);
    for (std::size_t i = 0; i < count && !reader.empty(); ++i) {
      Patch patch;
      patch.kind = static_cast<PatchKind>(reader.byte() % static_cast<unsigned>(PatchKind::count));
      patch.region = reader.byte();
      patch.index = static_cast<std::uint16_t>(reader.number(2));
      patch.operand = reader.number(8);
      recipe.patches.push_back(patch);
    }
  }
  recipe.rest.assign(reader.rest().begin(), reader.rest().end());
  return recipe;
}

std::vector<std::uint8_t> Recipe::encode() const {
  std::vector<std::uint8_t> out = {base, flags};
  const auto put = [&](std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
      out.push_back(static_cast<std::uint8_t>(value >> 8 * i));
  };
  if (base != kRaw) {
    put(patches.size(), 1);
    for (const Patch& patch : patches) {
      put(static_cast<std::uint8_t>(patch.kind), 1);
      put(patch.region, 1);
      put(patch.index, 2);
      put(patch.operand, 8);
    }
  }
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

namespace {

constexpr std::uint64_t kNotable[] = {0,
                                      1,
                                      2,
                                      7,
                                      8,
                                      63,
                                      64,
                                      255,
                                      4096,
                                      65535,
                                      65536,
                                      1ULL << 31,
                                      1ULL << 32,
                                      1ULL << 40,
                                      1ULL << 56,
                                      1ULL << 63,
                                      (1ULL << 63) - 1,
                                      ~0ULL,
                                      ~0ULL - 7,
                                      0xFFFFFFFFULL,
                                      0x0101010101010101ULL};

class Image {
 public:
  Image(std::string& bytes, const std::vector<std::string>& bases) : bytes_(bytes), bases_(bases) {
    for (std::size_t at = 0; at + 8 <= bytes_.size(); at += 8) {
      if (load(at) == 0) continue;
      if (at >= data_begin()) data_.push_back(at);
      used_.push_back(at);
    }
  }

  void apply(const Patch& patch) {
    if (patch.kind == PatchKind::size) {
      bytes_.resize(patch.operand % kMaxFile);
      return;
    }
    const auto region = static_cast<Region>(patch.region % static_cast<unsigned>(Region::count));
    const std::size_t at = place(patch, region);
    change(patch, at);
    if (region == Region::headers) change(patch, at + layout::kHeaderBytes);
  }

 private:
  std::uint64_t load(std::size_t at) const {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes_.data() + at, 8);
    return word;
  }
  // Reads a word of the base's own header, which says where the parts of the pool are.
  std::size_t header_word(std::size_t offset) const {
    return offset + 8 <= bytes_.size() ? load(offset) : 0;
  }
  std::size_t data_begin() const { return header_word(offsetof(layout::Header, data_offset)); }

  std::size_t place(const Patch& patch, Region region) const {
    const std::size_t i = patch.index;
    constexpr std::size_t kHeaderWords = sizeof(layout::Header) / 8;
    switch (region) {
      case Region::headers:
        return i % kHeaderWords * 8;
      case Region::one_header:
        return i % kHeaderWords * 8 + i / kHeaderWords % 2 * layout::kHeaderBytes;
      case Region::roots:
        return layout::kDirectoryOffset + i % (8 * sizeof(layout::Root) / 8) * 8;
      case Region::table:
        return header_word(offsetof(layout::Header, table_offset)) + i % 64 * 8;
      case Region::data:
        if (!data_.empty()) return data_[i % data_.size()];
        [[fallthrough]];
      default:
        return i * std::size_t{64} + patch.region / 32 * 8;
    }
  }

  void change(const Patch& patch, std::size_t at) {
    if (at + 8 > bytes_.size()) return;
    std::uint64_t word = load(at);
    const std::size_t line = at / 64 * 64;
    switch (patch.kind) {
      case PatchKind::flip:
        word ^= 1ULL << patch.operand % 64;
        break;
      case PatchKind::set:
        word = patch.operand;
        break;
      case PatchKind::add:
        word += patch.operand;
        break;
      case PatchKind::notable:
        word = kNotable[patch.operand % std::size(kNotable)];
        break;
      case PatchKind::reference: {
        if (used_.empty()) return;
        const std::size_t other = used_[patch.operand % used_.size()];
        if (other + 8 <= bytes_.size()) word = load(other);
        break;
      }
      case PatchKind::zero_line:
        copy_line(line, std::string(64, '\0'), 0);
        return;
      case PatchKind::swap_line:
        copy_line(line, bases_[patch.operand % bases_.size()], line);
        return;
      case PatchKind::copy_line:
        copy_line(line, std::string(bytes_), patch.operand % (bytes_.size() / 64 + 1) * 64);
        return;
      default:
        return;
    }
    std::memcpy(bytes_.data() + at, &word, 8);
  }
  void copy_line(std::size_t to, const std::string& source, std::size_t from) {
    if (to + 64 <= bytes_.size() && from + 64 <= source.size())
      bytes_.replace(to, 64, source, from, 64);
  }

  std::string& bytes_;
  const std::vector<std::string>& bases_;
  std::vector<std::size_t> data_;  // offsets of nonzero words from data_begin() on
  std::vector<std::size_t> used_;
};

}  // namespace

std::string expand(const Recipe& recipe, const std::vector<std::string>& bases) {
  std::string bytes;
  if (recipe.base == Recipe::kRaw) {
    bytes.assign(recipe.rest.begin(), recipe.rest.end());
  } else {
    bytes = bases[recipe.base % bases.size()];
    if (!recipe.patches.empty()) {
      Image image(bytes, bases);
      for (const Patch& patch : recipe.patches) image.apply(patch);
    }
  }
  bytes.resize(std::min(bytes.size(), kMaxFile));
  if ((recipe.flags & Recipe::kFixEngine) != 0) testing::fix_engines(bytes);
  if ((recipe.flags & Recipe::kFixPool) != 0) testing::fix_pool(bytes);
  return bytes;
}

}  // namespace perdure::fuzz
