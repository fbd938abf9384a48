#include "testing/disk/sim_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "testing/sim/sim_platform.h"
#include "util/crc32c.h"
#include "util/hash.h"

namespace perdure::disk {

namespace {

Status no_such(std::string_view path) {
  return Status::format(StatusCode::not_found, "%s: no such file", std::string(path).c_str());
}
Status is_there(std::string_view path) {
  return Status::format(StatusCode::exists, "%s: the name exists", std::string(path).c_str());
}

}  // namespace

// --- names ---------------------------------------------------------------------------------------

int SimFileSystem::node_at(std::string_view path) {
  if (const auto held = held_.find(path); held != held_.end()) return held->second;
  return named(path);
}

// By its name, also if it is a folder that is held.
int SimFileSystem::named(std::string_view path) {
  if (path == "." || path == "/" || path.empty()) return 0;
  const Place place = place_of(path);
  if (place.folder == nullptr) return -1;
  const auto found = place.folder->names.find(place.name);
  return found == place.folder->names.end() ? -1 : found->second;
}

SimFileSystem::Place SimFileSystem::place_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return {.folder = &nodes_[0], .name = std::string(path)};
  const int folder = node_at(path.substr(0, slash));
  if (folder < 0 || !nodes_[folder].is_folder || nodes_[folder].is_gone) {
    return {.folder = nullptr, .name = {}};
  }
  return {.folder = &nodes_[folder], .name = std::string(path.substr(slash + 1))};
}

Status SimFileSystem::begin_change() {
  killed_ = killed_ || (killing_ != 0 && --killing_ == 0);
  if (killed_) return {StatusCode::io};
  ++changes_;
  if (observer_.call) observer_.call();
  if (failing_ != 0 && --failing_ == 0) return {StatusCode::io};
  return {};
}

void SimFileSystem::apply(std::map<std::string, int>& names, const Rename& rename) {
  if (!rename.from.empty()) names.erase(rename.from);
  if (!rename.to.empty()) names[rename.to] = rename.node;
}

Status SimFileSystem::change(Node& folder, Rename rename) {
  apply(folder.names, rename);
  folder.renames.push_back(std::move(rename));
  return {};
}

Expected<FileSystem::File> SimFileSystem::open(std::string_view path, Open how) noexcept {
  const int found = node_at(path);
  if (how != Open::fresh) {
    if (found < 0) return fail(no_such(path));
    if (nodes_[found].is_folder) return fail(StatusCode::io, "is a folder");
    return found;
  }
  if (found >= 0) return fail(is_there(path));
  if (Status begun = begin_change(); !begun.ok()) return fail(std::move(begun));
  const int node = static_cast<int>(nodes_.size());
  nodes_.emplace_back();
  const Place place = place_of(path);
  if (place.folder == nullptr) return fail(no_such(path));
  (void)change(*place.folder, {.from = {}, .to = place.name, .node = node});
  return node;
}

Status SimFileSystem::hold(std::string_view path, bool) noexcept {
  const int folder = named(path);
  if (folder < 0 || !nodes_[folder].is_folder) return no_such(path);
  held_[std::string(path)] = folder;
  return {};
}

Expected<FileSystem::Facts> SimFileSystem::facts(File file) noexcept {
  std::uint64_t names = 0;
  for (const Node& folder : nodes_) {
    names += static_cast<std::uint64_t>(
        std::ranges::count_if(folder.names, [&](const auto& name) { return name.second == file; }));
  }
  return Facts{.device = 0, .inode = static_cast<std::uint64_t>(file) + 1, .names = names};
}

Status SimFileSystem::rename(std::string_view from, std::string_view to) noexcept {
  const int node = named(from);
  if (node < 0) return no_such(from);
  const Place source = place_of(from);
  const Place target = place_of(to);
  if (target.folder != source.folder) return {StatusCode::unsupported};  // no caller needs it
  if (Status begun = begin_change(); !begun.ok()) return begun;
  return change(*source.folder, {.from = source.name, .to = target.name, .node = node});
}

// A File is a node here, not an open one. The two kinds of locks exclude one another, so `none`
// ends the one that there is.
bool SimFileSystem::lock(File file, Lock how) noexcept {
  Node& node = nodes_[file];
  if (how == Lock::exclusive) {
    if (node.shared != 0 || node.claimed) return false;
    node.claimed = true;
  } else if (how == Lock::shared) {
    if (node.claimed) return false;
    ++node.shared;
  } else if (node.claimed) {
    node.claimed = false;
  } else if (node.shared != 0) {
    --node.shared;
  }
  return true;
}

Status SimFileSystem::remove(std::string_view path) noexcept {
  const int node = named(path);
  if (node < 0 || nodes_[node].is_folder) return no_such(path);
  if (Status begun = begin_change(); !begun.ok()) return begun;
  const Place place = place_of(path);
  return change(*place.folder, {.from = place.name, .to = {}, .node = node});
}

Status SimFileSystem::make_folder(std::string_view path) noexcept {
  if (named(path) >= 0) return is_there(path);
  if (Status begun = begin_change(); !begun.ok()) return begun;
  const int node = static_cast<int>(nodes_.size());
  nodes_.emplace_back().is_folder = true;
  const Place place = place_of(path);
  if (place.folder == nullptr) return no_such(path);
  return change(*place.folder, {.from = {}, .to = place.name, .node = node});
}

Status SimFileSystem::remove_folder(std::string_view path) noexcept {
  const int node = named(path);
  if (node < 0 || !nodes_[node].is_folder) return no_such(path);
  const auto held = held_.find(path);
  if (held != held_.end() && held->second != node) return {};
  if (!nodes_[node].names.empty()) return is_there(path);
  if (Status begun = begin_change(); !begun.ok()) return begun;
  const Place place = place_of(path);
  nodes_[node].is_gone = true;
  return change(*place.folder, {.from = place.name, .to = {}, .node = node});
}

Status SimFileSystem::sync_folder(std::string_view path, AnySite site) noexcept {
  if (!does(site)) return {};
  const int node = node_at(path);
  if (node < 0 || !nodes_[node].is_folder) return no_such(path);
  if (Status begun = begin_change(); !begun.ok()) return begun;
  nodes_[node].durable_names = nodes_[node].names;
  nodes_[node].renames.clear();
  return {};
}

Status SimFileSystem::list(std::string_view path,
                           FunctionRef<void(std::string_view)> visit) noexcept {
  const int node = node_at(path);
  if (node < 0 || !nodes_[node].is_folder) return no_such(path);
  for (const auto& [name, number] : nodes_[node].names) visit(name);
  return {};
}

bool SimFileSystem::does(AnySite site) noexcept { return testing::step_runs(site); }

void SimFileSystem::violated(const Assertion& assertion) noexcept {
  testing::SimPlatform::violated(assertion);
}

// --- content -------------------------------------------------------------------------------------

Expected<std::size_t> SimFileSystem::read(File file, void* buffer, std::size_t n,
                                          std::uint64_t offset) noexcept {
  const Node& node = nodes_[file];
  if (offset >= node.size) return std::size_t{0};
  n = std::min<std::uint64_t>(n, node.size - offset);
  for (std::size_t done = 0; done < n;) {
    const std::uint64_t at = offset + done;
    const std::size_t piece = std::min<std::uint64_t>(n - done, kSector - at % kSector);
    const auto found = node.now.find(at / kSector);
    std::byte* const to = static_cast<std::byte*>(buffer) + done;
    if (found == node.now.end()) {
      std::memset(to, 0, piece);
    } else {
      std::memcpy(to, found->second.data() + at % kSector, piece);
    }
    done += piece;
  }
  return n;
}

void SimFileSystem::put(Node& node, const void* bytes, std::size_t n, std::uint64_t offset) {
  if (node.copy != nullptr &&
      ::pwrite(*node.copy, bytes, n, static_cast<off_t>(offset)) != static_cast<ssize_t>(n)) {
    std::abort();
  }
  for (std::size_t done = 0; done < n;) {
    const std::uint64_t at = offset + done;
    const std::size_t piece = std::min<std::uint64_t>(n - done, kSector - at % kSector);
    const auto* from = static_cast<const std::byte*>(bytes) + done;
    const bool zero = std::all_of(from, from + piece, [](std::byte b) { return b == std::byte{}; });
    done += piece;
    if (at + piece > node.size) {
      node.size = at + piece;
      node.resizes.push_back(node.size);
    }
    // Whether zeros on zeros are written makes no difference.
    if (zero && !node.now.contains(at / kSector)) continue;
    Sector& sector = node.now[at / kSector];  // zero if it is new
    std::memcpy(sector.data() + at % kSector, from, piece);
    node.writes.push_back({.sector = at / kSector, .after = sector, .dropped = false});
  }
}

Status SimFileSystem::write(File file, const void* bytes, std::size_t n,
                            std::uint64_t offset) noexcept {
  Status begun = begin_change();
  put(nodes_[file], bytes, begun.ok() ? n : killed_ ? 0 : n / 2, offset);
  return begun;
}

Status SimFileSystem::allocate(File file, std::uint64_t offset, std::uint64_t length) noexcept {
  if (Status begun = begin_change(); !begun.ok()) return begun;
  Node& node = nodes_[file];
  if (offset + length > node.size) {
    node.size = offset + length;
    node.resizes.push_back(node.size);
    if (node.copy != nullptr && ::ftruncate(*node.copy, static_cast<off_t>(node.size)) != 0)
      std::abort();
  }
  return {};
}

Status SimFileSystem::punch(File file, std::uint64_t offset, std::uint64_t length) noexcept {
  if (Status begun = begin_change(); !begun.ok()) return begun;
  Node& node = nodes_[file];
  const std::uint64_t end = std::min(offset + length, node.size);
  static constexpr Sector kZeros{};
  while (offset < end) {
    const std::uint64_t n = std::min(end - offset, kSector - offset % kSector);
    if (node.now.contains(offset / kSector)) put(node, kZeros.data(), n, offset);
    offset += n;
  }
  return {};
}

void SimFileSystem::drop_pending(Node& node) const {
  for (SectorWrite& write : node.writes) write.dropped = true;
  if (!forgets_) return;
  for (const SectorWrite& write : node.writes) {
    const auto durable = node.durable.find(write.sector);
    node.now[write.sector] = durable != node.durable.end() ? durable->second : Sector{};
  }
}

Status SimFileSystem::sync(File file, AnySite site) noexcept {
  if (!does(site)) return {};
  if (Status begun = begin_change(); !begun.ok()) {
    if (!killed_) drop_pending(nodes_[file]);
    return begun;
  }
  Node& node = nodes_[file];
  // A sector that was written after the failure is written whole, as it is in the page cache.
  std::map<std::uint64_t, Sector> written;
  for (const SectorWrite& write : node.writes) {
    if (!write.dropped) written[write.sector] = write.after;
  }
  std::erase_if(node.writes,
                [&](const SectorWrite& write) { return written.contains(write.sector); });
  for (const auto& [sector, content] : written) node.durable[sector] = content;
  node.durable_size = node.size;
  node.resizes.clear();
  return {};
}

Expected<std::uint64_t> SimFileSystem::size(File file) noexcept { return nodes_[file].size; }

Expected<int> SimFileSystem::descriptor(File file) noexcept {
  std::vector<std::byte> content(nodes_[file].size);
  const auto n = read(file, content.data(), content.size(), 0);
  const int copy = n ? ::memfd_create("base", MFD_CLOEXEC) : -1;
  const auto size = static_cast<ssize_t>(content.size());
  if (copy >= 0 && ::write(copy, content.data(), content.size()) == size) {
    nodes_[file].copy = {new int(copy), [](const int* fd) {
                           ::close(*fd);
                           delete fd;
                         }};
    return copy;
  }
  if (copy >= 0) ::close(copy);
  return fail(StatusCode::io, "a copy of the file cannot be made");
}

// --- power failure -------------------------------------------------------------------------------

// Visits (node, sector or kNames or kSize, number of states), always in the same order.
namespace {
constexpr std::uint64_t kNames = ~std::uint64_t{0};
constexpr std::uint64_t kSize = kNames - 1;
}  // namespace

std::vector<bool> SimFileSystem::reachable() const {
  std::vector<bool> found(nodes_.size(), false);
  found[0] = true;
  for (const Node& folder : nodes_) {
    for (const auto& [name, node] : folder.durable_names) found[node] = true;
    for (const Rename& rename : folder.renames) found[rename.node] = true;
  }
  return found;
}

template <class Visit>
void SimFileSystem::visit_undecided(Visit visit) const {
  const std::vector<bool> found = reachable();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!found[i]) continue;
    // The first changes, any number of them; then all but one, which is not the last.
    const std::size_t changes = node.renames.size();
    if (changes != 0) visit(i, kNames, changes + 1 + (changes > 1 ? changes - 1 : 0));
    if (!node.resizes.empty()) visit(i, kSize, node.resizes.size() + 1);
    std::map<std::uint64_t, std::size_t> states;
    for (const SectorWrite& write : node.writes) ++states[write.sector];
    for (const auto& [sector, count] : states) visit(i, sector, count + 1);
  }
}

std::vector<std::uint32_t> SimFileSystem::undecided() const {
  std::vector<std::uint32_t> counts;
  visit_undecided([&](std::size_t, std::uint64_t, std::size_t states) {
    counts.push_back(static_cast<std::uint32_t>(states));
  });
  return counts;
}

SimFileSystem SimFileSystem::after_power_failure(std::span<const std::uint32_t> states) const {
  SimFileSystem left;
  left.nodes_.resize(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = left.nodes_[i];
    node.is_folder = nodes_[i].is_folder;
    node.now = nodes_[i].durable;
    node.size = nodes_[i].durable_size;
    node.names = nodes_[i].durable_names;
  }
  std::size_t next = 0;
  visit_undecided([&](std::size_t i, std::uint64_t what, std::size_t) {
    const Node& from = nodes_[i];
    Node& to = left.nodes_[i];
    const std::uint32_t state = states[next++];
    if (what == kNames) {
      const std::size_t changes = from.renames.size();
      for (std::size_t k = 0; k < std::min<std::size_t>(state, changes); ++k) {
        if (state <= changes || k != state - changes - 1) apply(to.names, from.renames[k]);
      }
    } else if (what == kSize) {
      if (state != 0) to.size = from.resizes[state - 1];
    } else if (state != 0) {
      std::uint32_t seen = 0;
      for (const SectorWrite& write : from.writes) {
        if (write.sector == what && ++seen == state) to.now[what] = write.after;
      }
    }
  });
  for (Node& node : left.nodes_) {
    // What lies behind the end of a file is not in it, and reads as zero if the file grows.
    std::erase_if(node.now, [&](const auto& at) { return at.first * kSector >= node.size; });
    if (const auto last = node.now.find(node.size / kSector); last != node.now.end())
      std::fill(last->second.begin() + node.size % kSector, last->second.end(), std::byte{});
    node.durable = node.now;
    node.durable_size = node.size;
    node.durable_names = node.names;
  }
  return left;
}

std::uint64_t SimFileSystem::fingerprint() const {
  std::uint64_t sum = 0;
  const std::vector<bool> found = reachable();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!found[i]) continue;
    sum = mix(sum ^ mix(i ^ node.size));
    for (const auto& [sector, content] : node.now)
      sum = mix(sum ^ sector ^ std::uint64_t{crc32c(0, content.data(), kSector)} << 32);
    for (const auto& [name, number] : node.names)
      sum = mix(sum ^ static_cast<std::uint64_t>(number) ^
                std::uint64_t{crc32c(0, name.data(), name.size())} << 32);
  }
  return sum;
}

}  // namespace perdure::disk
