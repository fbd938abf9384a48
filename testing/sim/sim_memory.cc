#include "testing/sim/sim_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace perdure::testing {

namespace {

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "sim: %s\n", what);
  std::abort();
}

void* map_zeroed(std::size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) die("cannot map memory");
  return p;
}

__extension__ using Wide = unsigned __int128;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const Wide product = static_cast<Wide>(a ^ 0x9E3779B97F4A7C15ULL) * (b ^ 0xD6E8FEB86659FD93ULL);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

std::uint64_t line_hash(std::uint64_t line, const LineBytes& bytes) {
  std::uint64_t hash = mix(line, 0x1234567);
  for (int i = 0; i < 8; i += 2) hash = mix(hash + bytes.words[i], bytes.words[i + 1] ^ hash);
  return hash;
}

SimMemory::SimMemory(std::uint64_t capacity)
    : capacity_((capacity + kPage - 1) / kPage * kPage),
      disk_limit_(capacity_),
      visible_(static_cast<std::byte*>(map_zeroed(capacity_))),
      durable_(static_cast<std::byte*>(map_zeroed(capacity_))),
      slot_of_line_(static_cast<std::uint32_t*>(map_zeroed(capacity_ / kLine * 4))),
      pending_in_page_(capacity_ / kPage),
      marks_(1),
      delayed_(1),
      backed_(capacity_ / kPage),
      dirty_(capacity_ / kPage),
      changed_(capacity_ / kPage) {}

SimMemory::~SimMemory() {
  munmap(visible_, capacity_);
  munmap(durable_, capacity_);
  munmap(slot_of_line_, capacity_ / kLine * 4);
}

std::uint64_t SimMemory::offset_of(const void* p, std::size_t n) const {
  const auto* byte = static_cast<const std::byte*>(p);
  // A flush of an object on the stack or heap is hazard G3; a store there is worse.
  if (byte < visible_ || byte + n > visible_ + size_) die("access outside the file");
  return static_cast<std::uint64_t>(byte - visible_);
}

void SimMemory::set_dirty(std::size_t page) {
  dirty_[page] = true;
  dirty_pages_.push_back(static_cast<std::uint32_t>(page));
}

void SimMemory::hole(std::size_t page) {
  ++hole_stores_;
  backed_[page] = true;
}

void SimMemory::touch_range(std::uint64_t offset, std::uint64_t n) {
  for (std::uint64_t page = offset / kPage; page * kPage < offset + n; ++page) {
    if (!dirty_[page]) set_dirty(page);
    if (!backed_[page]) hole(page);
  }
}

void SimMemory::store_slow(std::uint64_t* word, std::uint64_t value) {
  if (mode_ == SimMode::frozen) return;
  if (reinterpret_cast<std::uintptr_t>(word) % 8 != 0) die("misaligned persistent word");
  const std::uint64_t offset = offset_of(word, 8);
  touch(word);
  // Storing the present value adds no state: every prefix with it equals one without it.
  if (*word == value) return;
  record(offset, value, 0);
  *word = value;
  if (after_store) after_store();
}

void SimMemory::copy(void* dst, const void* src, std::size_t n) {
  if (n == 0 || mode_ == SimMode::frozen) return;
  const std::uint64_t offset = offset_of(dst, n);
  touch_range(offset, n);
  if (mode_ == SimMode::plain) {
    std::memmove(dst, src, n);
    return;
  }
  // The tail word keeps the bytes beyond the copy.
  std::vector<std::uint64_t> words((n + 7) / 8);
  if (n % 8 != 0) std::memcpy(&words.back(), visible_ + offset + n / 8 * 8, 8);
  std::memcpy(words.data(), src, n);
  bulk(offset, words.data(), words.size());
}

void SimMemory::zero(void* dst, std::size_t n) {
  if (n == 0 || mode_ == SimMode::frozen) return;
  const std::uint64_t offset = offset_of(dst, n);
  touch_range(offset, n);
  if (mode_ == SimMode::plain) {
    std::memset(dst, 0, n);
    return;
  }
  std::vector<std::uint64_t> words((n + 7) / 8);
  if (n % 8 != 0) {
    std::memcpy(&words.back(), visible_ + offset + n / 8 * 8, 8);
    std::memset(&words.back(), 0, n % 8);
  }
  bulk(offset, words.data(), words.size());
}

void SimMemory::bulk(std::uint64_t offset, const std::uint64_t* source, std::size_t n) {
  if (offset % 8 != 0) die("misaligned copy");
  for (std::size_t i = 0; i < n;) {
    const std::uint64_t at = offset + i * 8;
    const bool whole = at % kLine == 0 && n - i >= 8;
    const std::size_t count = whole ? 8 : std::min<std::size_t>(n - i, (kLine - at % kLine) / 8);
    const std::uint32_t group = whole || tear_partial_copies_ ? next_group_++ : 0;
    for (std::size_t k = 0; k < count; ++k) {
      auto* word = reinterpret_cast<std::uint64_t*>(visible_ + at + k * 8);
      if (*word == source[i + k]) continue;
      record(at + k * 8, source[i + k], group);
      *word = source[i + k];
    }
    i += count;
  }
}

SimMemory::Line& SimMemory::line_of(std::uint32_t number) {
  std::uint32_t& slot = slot_of_line_[number];
  if (slot == 0) {
    if (free_slots_.empty()) {
      lines_.emplace_back();
      slot = static_cast<std::uint32_t>(lines_.size());
    } else {
      slot = free_slots_.back() + 1;
      free_slots_.pop_back();
    }
    Line& line = lines_[slot - 1];
    line.line = number;
    line.position = static_cast<std::uint32_t>(active_.size());
    // Entry numbers never repeat for a line. An old mark can therefore not cover a new entry.
    line.first = entry_count_;
    line.entries.clear();
    line.owed_by = nullptr;
    active_.push_back(slot - 1);
    ++pending_in_page_[number / (kPage / kLine)];
  }
  return lines_[slot - 1];
}

void SimMemory::drop_line(std::uint32_t number) {
  const std::uint32_t slot = slot_of_line_[number] - 1;
  slot_of_line_[number] = 0;
  const std::uint32_t position = lines_[slot].position;
  active_[position] = active_.back();
  lines_[active_[position]].position = position;
  active_.pop_back();
  free_slots_.push_back(slot);
  --pending_in_page_[number / (kPage / kLine)];
}

void SimMemory::record(std::uint64_t offset, std::uint64_t value, std::uint32_t group) {
  Line& line = line_of(static_cast<std::uint32_t>(offset / kLine));
  line.entries.push_back(
      {next_order_++, value, group, static_cast<std::uint32_t>(offset % kLine / 8)});
  entry_count_ = std::max(entry_count_, line.first + line.entries.size());
  ++changes_;
}

void SimMemory::flush(const void* p, std::size_t n, std::uint32_t thread, SiteInfo& site) {
  const auto begin = static_cast<const std::byte*>(p) - visible_;
  LineRange lines{static_cast<std::uint64_t>(begin) / kLine, 0};
  lines.end = (static_cast<std::uint64_t>(begin) + n + kLine - 1) / kLine;
  const LineRange all = lines;
  lines = mutated_flush(site, lines);
  if (mode_ != SimMode::recording || n == 0) return;
  (void)offset_of(p, n);
  if (medium_ == SimMedium::page && lines.first < lines.end) {
    constexpr std::uint64_t kLines = kPage / kLine;
    lines = {lines.first / kLines * kLines, (lines.end + kLines - 1) / kLines * kLines};
  }
  if (marks_.size() <= thread) {
    marks_.resize(thread + 1);
    delayed_.resize(thread + 1);
  }
  if (medium_ == SimMedium::line) lose_order(lines, site);
  if (lines.end < all.end) owe({lines.end, all.end}, site);
  if (site.mutant == Mutant::delay_flush || site.mutant == Mutant::publish_first) {
    delayed_[thread].push_back({lines, &site});
    owe(lines, site);
    site.dropped_count.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  mark(lines, thread, site);
}

void SimMemory::mark(LineRange lines, std::uint32_t thread, const SiteInfo& site) {
  const std::uint64_t before = changes_;
  constexpr std::uint64_t kLinesPerPage = kPage / kLine;
  for (std::uint64_t i = lines.first; i < lines.end;) {
    if (pending_in_page_[i / kLinesPerPage] == 0) {
      i = (i / kLinesPerPage + 1) * kLinesPerPage;
      continue;
    }
    if (slot_of_line_[i] != 0) {
      const Line& line = lines_[slot_of_line_[i] - 1];
      marks_[thread].push_back({line.line, line.first + line.entries.size()});
      ++changes_;
    }
    ++i;
  }
  if (changes_ != before) awaited_sites_.push_back(&site);
}

// Counts lines whose pending stores have an order. With the mutant, removes the order.
void SimMemory::lose_order(LineRange lines, SiteInfo& site) {
  constexpr std::size_t kMost = 8;  // stores whose every subset is tried; more are tried each alone
  bool ordered = false;
  for (std::uint64_t i = lines.first; i < lines.end; ++i) {
    if (pending_in_page_[i / (kPage / kLine)] == 0 || slot_of_line_[i] == 0) continue;
    std::vector<Entry>& entries = lines_[slot_of_line_[i] - 1].entries;
    std::size_t first = entries.size();
    while (first > 0 && entries.size() - first < kMost && entries[first - 1].group == 0) --first;
    if (entries.size() - first < 2) continue;
    ordered = true;
    if (site.mutant != Mutant::any_order) continue;
    for (std::size_t k = first; k < entries.size(); ++k) entries[k].group = next_group_;
    ++next_group_;
    ++changes_;
    site.dropped_count.fetch_add(1, std::memory_order_relaxed);
  }
  if (ordered) site.ordered_count.fetch_add(1, std::memory_order_relaxed);
}

// After a fence: starts the write-backs that delay_flush and publish_first have delayed.
void SimMemory::start_delayed(std::uint32_t thread, const SiteInfo& fence) {
  if (thread >= delayed_.size() || delayed_[thread].empty()) return;
  std::vector<Delayed> kept;
  for (const Delayed& delayed : delayed_[thread]) {
    if (delayed.site->mutant != Mutant::publish_first) {
      mark(delayed.lines, thread, *delayed.site);
    } else if (delayed.site == &fence) {
      kept.push_back(delayed);
    } else {
      for (std::uint64_t i = delayed.lines.first; i < delayed.lines.end; ++i) {
        promote(static_cast<std::uint32_t>(i), ~0ULL, fence.name);
      }
    }
  }
  delayed_[thread] = std::move(kept);
  ++changes_;
}

void SimMemory::fence(std::uint32_t thread, SiteInfo& site) {
  site.fence_count.fetch_add(1, std::memory_order_relaxed);
  if (mode_ != SimMode::recording) return;
  if (before_fence) before_fence(site);
  if (site.mutant == Mutant::drop_fence) {
    if (thread < marks_.size()) {
      for (const Mark& mark : marks_[thread]) owe({mark.line, mark.line + 1ULL}, site);
    }
    site.dropped_count.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (thread >= marks_.size()) return;
  if (!marks_[thread].empty()) {
    for (const Mark& mark : marks_[thread]) promote(mark.line, mark.until, site.name);
    marks_[thread].clear();
    if (std::ranges::all_of(marks_, &std::vector<Mark>::empty)) awaited_sites_.clear();
    ++changes_;
  }
  start_delayed(thread, site);
}

void SimMemory::end_thread(std::uint32_t thread) {
  if (thread >= marks_.size()) return;
  marks_[thread].clear();
  delayed_[thread].clear();
  ++changes_;
}

// Notes that the mutant of `site` should have made the pending lines of the range durable.
void SimMemory::owe(LineRange lines, SiteInfo& site) {
  for (std::uint64_t i = lines.first; i < lines.end; ++i) {
    if (slot_of_line_[i] != 0) lines_[slot_of_line_[i] - 1].owed_by = &site;
  }
}

void SimMemory::promote(std::uint32_t number, std::uint64_t until, const char* by) {
  if (slot_of_line_[number] == 0) return;
  Line& line = lines_[slot_of_line_[number] - 1];
  if (until <= line.first) return;
  if (line.owed_by != nullptr) {
    line.owed_by->settled_by.insert(by);
    line.owed_by = nullptr;
  }
  const std::size_t count =
      std::min<std::size_t>(static_cast<std::size_t>(until - line.first), line.entries.size());
  durable_hash_ ^= line_hash(number, durable_line(number));
  for (std::size_t i = 0; i < count; ++i) {
    set_durable(std::uint64_t{number} * kLine + line.entries[i].word * 8, line.entries[i].value);
  }
  durable_hash_ ^= line_hash(number, durable_line(number));
  line.first += count;
  line.entries.erase(line.entries.begin(),
                     line.entries.begin() + static_cast<std::ptrdiff_t>(count));
  if (line.entries.empty()) drop_line(number);
}

void SimMemory::set_durable(std::uint64_t offset, std::uint64_t value) {
  std::memcpy(durable_ + offset, &value, 8);
  set_changed(offset / kPage);
}

void SimMemory::set_changed(std::size_t page) {
  if (changed_[page]) return;
  changed_[page] = true;
  changed_pages_.push_back(static_cast<std::uint32_t>(page));
}

void SimMemory::sync(std::uint64_t offset, std::uint64_t n, const char* site) {
  if (mode_ != SimMode::recording) return;
  if (medium_ == SimMedium::line) guarantee_metadata();
  // Whole pages go to the medium.
  const std::uint64_t first = offset / kPage * (kPage / kLine);
  const std::uint64_t end = (offset + n + kPage - 1) / kPage * (kPage / kLine);
  std::vector<std::uint32_t> lines;
  for (const std::uint32_t slot : active_) {
    if (lines_[slot].line >= first && lines_[slot].line < end) lines.push_back(lines_[slot].line);
  }
  for (const std::uint32_t line : lines) promote(line, ~0ULL, site);
  ++changes_;
}

void SimMemory::guarantee_metadata() {
  apply_punches();
  durable_size_ = size_;
}

void SimMemory::sync_file(std::uint64_t offset, std::uint64_t n, const char* site) {
  if (mode_ != SimMode::recording) return;
  guarantee_metadata();
  sync(offset, n, site);
}

void SimMemory::link() {
  if (mode_ == SimMode::frozen) return;
  named_ = true;
  if (mode_ == SimMode::plain) durable_named_ = true;
  ++changes_;
  if (mode_ == SimMode::recording && after_store) after_store();
}

void SimMemory::sync_directory() {
  if (mode_ == SimMode::frozen) return;
  durable_named_ = named_;
  ++changes_;
}

Status SimMemory::allocate(std::uint64_t offset, std::uint64_t length) {
  if (mode_ == SimMode::frozen) return {};
  if (offset + length > disk_limit_) return StatusCode::pool_full;
  // The file system orders its own metadata: allocated space was punched before.
  if (mode_ == SimMode::recording) apply_punches();
  for (std::uint64_t page = offset / kPage; page * kPage < offset + length; ++page) {
    backed_[page] = true;
  }
  if (offset + length <= size_) return {};
  const std::uint64_t added = offset + length - size_;
  // This object may have held a longer file before.
  for (std::uint64_t page = size_ / kPage; page * kPage < size_ + added; ++page) {
    if (!dirty_[page]) set_dirty(page);
  }
  std::memset(visible_ + size_, 0, added);
  if (mode_ == SimMode::recording) {
    std::memset(durable_ + size_, 0, added);
    for (std::uint64_t page = size_ / kPage; page * kPage < size_ + added; ++page) {
      set_changed(page);
    }
  }
  size_ = offset + length;
  ++changes_;
  if (mode_ == SimMode::recording && after_store) after_store();
  return {};
}

Status SimMemory::punch(std::uint64_t offset, std::uint64_t length) {
  if (mode_ == SimMode::frozen) return {};
  for (std::uint64_t page = offset / kPage; page * kPage < offset + length; ++page) {
    if (!dirty_[page]) set_dirty(page);
    backed_[page] = false;
  }
  std::memset(visible_ + offset, 0, length);
  if (mode_ == SimMode::plain) return {};
  std::vector<std::uint32_t> lines;
  for (const std::uint32_t slot : active_) {
    const std::uint64_t at = std::uint64_t{lines_[slot].line} * kLine;
    if (at >= offset && at < offset + length) lines.push_back(lines_[slot].line);
  }
  for (const std::uint32_t line : lines) drop_line(line);
  for (std::uint64_t at = offset; at < offset + length; at += kLine) {
    const bool known = std::ranges::any_of(punches_, [&](const Punch& punch) {
      return at >= punch.offset && at < punch.offset + punch.length;
    });
    const auto line = static_cast<std::uint32_t>(at / kLine);
    if (!known) punched_hash_ ^= line_hash(line, durable_line(line)) ^ line_hash(line, LineBytes{});
  }
  punches_.push_back({offset, length});
  ++changes_;
  if (after_store) after_store();
  return {};
}

void SimMemory::apply_punches() {
  for (const Punch& punch : punches_) {
    for (std::uint64_t at = punch.offset; at < punch.offset + punch.length; at += kLine) {
      const auto line = static_cast<std::uint32_t>(at / kLine);
      const LineBytes old = durable_line(line);
      if (std::ranges::all_of(old.words, [](std::uint64_t word) { return word == 0; })) continue;
      durable_hash_ ^= line_hash(line, old) ^ line_hash(line, LineBytes{});
      for (std::uint64_t i = 0; i < 8; ++i) set_durable(at + i * 8, 0);
    }
  }
  punches_.clear();
  punched_hash_ = 0;
}

LineBytes SimMemory::durable_line(std::uint32_t line) const {
  LineBytes bytes;
  std::memcpy(&bytes, durable_ + std::uint64_t{line} * kLine, sizeof(bytes));
  return bytes;
}

namespace {

// The end of the bulk group that starts at entries[i]; i + 1 for a single store.
template <class Entries>
std::uint32_t group_end(const Entries& entries, std::uint32_t i) {
  std::uint32_t end = i + 1;
  while (entries[i].group != 0 && end < entries.size() && entries[end].group == entries[i].group) {
    ++end;
  }
  return end;
}

}  // namespace

std::uint64_t SimMemory::states_of(const Line& line) {
  std::uint64_t states = 1;
  for (std::uint32_t i = 0; i < line.entries.size();) {
    const std::uint32_t end = group_end(line.entries, i);
    states += (std::uint64_t{1} << (end - i)) - 1;
    i = end;
  }
  return states;
}

// The prefixes of groups. Inside a bulk group of a few words every subset; inside a larger one its
// prefixes, each word alone and all words but one, unless all subsets are asked for.
std::vector<LineChoice> SimMemory::choices_of(const Line& line, bool every_subset) const {
  std::vector<LineChoice> choices{{0, 0}};
  const auto& entries = line.entries;
  for (std::uint32_t i = 0; i < entries.size();) {
    const std::uint32_t end = group_end(entries, i);
    const std::uint32_t count = end - i;
    const std::uint32_t all = (1U << count) - 1;
    if (count > 1 && (count <= 3 || every_subset)) {
      for (std::uint32_t mask = 1; mask < all; ++mask) choices.push_back({i, mask});
    } else if (count > 3) {
      for (std::uint32_t k = 2; k + 1 < count; ++k) choices.push_back({i, (1U << k) - 1});
      for (std::uint32_t k = 0; k < count; ++k) choices.push_back({i, 1U << k});
      for (std::uint32_t k = 0; k < count; ++k) choices.push_back({i, all & ~(1U << k)});
    }
    choices.push_back({end, 0});
    i = end;
  }
  return choices;
}

LineBytes SimMemory::content(const Line& line, const LineChoice& choice) const {
  LineBytes bytes = durable_line(line.line);
  for (std::uint32_t i = 0; i < choice.prefix; ++i) {
    bytes.words[line.entries[i].word] = line.entries[i].value;
  }
  for (std::uint32_t mask = choice.torn; mask != 0; mask &= mask - 1) {
    const Entry& entry =
        line.entries[choice.prefix + static_cast<std::uint32_t>(std::countr_zero(mask))];
    bytes.words[entry.word] = entry.value;
  }
  return bytes;
}

// The states of each sector with pending stores: the first one, and the state after each store in
// program order (a bulk line counts as one store).
std::vector<PendingLine> SimMemory::pending_sectors() const {
  std::map<std::uint32_t, PendingLine> sectors;
  for (const std::uint32_t slot : active_) {
    const Line& line = lines_[slot];
    PendingLine& sector = sectors[line.line / kSectorLines];
    sector.line = line.line / kSectorLines * kSectorLines;
    sector.recent |= line.entries.back().order >= recent_from_;
    for (std::uint32_t i = 0; i < line.entries.size(); i = group_end(line.entries, i)) {
      sector.order.push_back(line.entries[group_end(line.entries, i) - 1].order);
    }
  }
  std::vector<PendingLine> result;
  for (auto& [number, sector] : sectors) {
    sector.order.push_back(0);
    std::ranges::sort(sector.order);
    sector.choices.resize(sector.order.size());
    sector.states = sector.order.size();
    result.push_back(std::move(sector));
  }
  return result;
}

// The choice that has the line's entries up to a number.
LineChoice SimMemory::until(const Line& line, std::uint64_t order) const {
  const auto end = std::ranges::upper_bound(line.entries, order, {}, &Entry::order);
  return {static_cast<std::uint32_t>(end - line.entries.begin()), 0};
}

bool SimMemory::guaranteed(const void* p, std::size_t n) const {
  const std::uint64_t offset = offset_of(p, n);
  const std::uint64_t first = offset / 8, end = (offset + n + 7) / 8;
  for (std::uint64_t word = first; word < end;) {
    const std::uint64_t line = word / 8, next = std::min(end, (line + 1) * 8);
    if (slot_of_line_[line] != 0) {
      for (const Entry& entry : lines_[slot_of_line_[line] - 1].entries) {
        const std::uint64_t at = line * 8 + entry.word;
        if (at >= word && at < next) return false;
      }
    }
    word = next;
  }
  return true;
}

std::vector<PendingLine> SimMemory::pending(bool every_subset) const {
  if (medium_ == SimMedium::page) return pending_sectors();
  std::vector<PendingLine> result;
  result.reserve(active_.size());
  for (const std::uint32_t slot : active_) {
    const Line& line = lines_[slot];
    PendingLine& out = result.emplace_back();
    out.line = line.line;
    out.recent = line.entries.back().order >= recent_from_;
    out.states = states_of(line);
    out.choices = choices_of(line, every_subset);
    for (const LineChoice& choice : out.choices) {
      const std::uint32_t used =
          choice.torn == 0
              ? choice.prefix
              : choice.prefix + static_cast<std::uint32_t>(std::bit_width(choice.torn));
      out.order.push_back(used == 0 ? 0 : line.entries[used - 1].order);
    }
  }
  std::ranges::sort(result, {}, &PendingLine::line);
  return result;
}

CrashImage SimMemory::image(const std::vector<PendingLine>& pending,
                            const std::vector<std::uint32_t>& choice, bool new_size, bool punched,
                            bool new_name) const {
  CrashImage image;
  image.size = new_size ? size_ : durable_size_;
  image.punched = punched && !punches_.empty();
  image.named = new_name ? named_ : durable_named_;
  image.content = durable_hash_;
  if (image.punched) image.content ^= punched_hash_;
  const auto take = [&](const Line& line, const LineChoice& state) {
    if (state.prefix == 0 && state.torn == 0) return;
    image.lines.push_back(line.line);
    image.bytes.push_back(content(line, state));
    image.content ^=
        line_hash(line.line, durable_line(line.line)) ^ line_hash(line.line, image.bytes.back());
  };
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const std::uint32_t first = pending[i].line;
    if (choice[i] == 0 || std::uint64_t{first} * kLine >= image.size) continue;
    if (medium_ == SimMedium::line) {
      take(lines_[slot_of_line_[first] - 1], pending[i].choices[choice[i]]);
      continue;
    }
    for (std::uint32_t line = first; line < first + kSectorLines; ++line) {
      if (slot_of_line_[line] == 0) continue;
      const Line& entries = lines_[slot_of_line_[line] - 1];
      take(entries, until(entries, pending[i].order[choice[i]]));
    }
  }
  image.hash = image.content ^ mix(image.size, image.named ? 0 : 77);
  return image;
}

std::uint64_t SimMemory::content_hash() const {
  std::uint64_t hash = 0;
  constexpr LineBytes kZero{};
  for (std::uint64_t at = 0; at < durable_size_; at += kLine) {
    const auto line = static_cast<std::uint32_t>(at / kLine);
    const LineBytes bytes = durable_line(line);
    if (std::memcmp(&bytes, &kZero, kLine) == 0) continue;
    hash ^= line_hash(line, bytes) ^ line_hash(line, kZero);
  }
  return hash;
}

void SimMemory::load_image(SimMemory& source, const CrashImage& image) {
  forget_pending();
  if (loaded_from_ == &source && loaded_version_ == source.version_) {
    const auto copy_page = [&](std::uint32_t page) {
      std::memcpy(visible_ + page * kPage, source.durable_ + page * kPage, kPage);
    };
    for (const std::uint32_t page : source.changed_pages_) copy_page(page);
    for (const std::uint32_t page : dirty_pages_) copy_page(page);
  } else {
    const std::uint64_t extent = std::max({size_, source.size_, source.durable_size_});
    std::memcpy(visible_, source.durable_, std::min(extent, capacity_));
  }
  for (const std::uint32_t page : dirty_pages_) dirty_[page] = false;
  dirty_pages_.clear();
  for (const std::uint32_t page : source.changed_pages_) source.changed_[page] = false;
  source.changed_pages_.clear();
  loaded_from_ = &source;
  loaded_version_ = ++source.version_;

  size_ = durable_size_ = image.size;
  medium_ = source.medium_;
  named_ = durable_named_ = image.named;
  disk_limit_ = source.disk_limit_;
  backed_ = source.backed_;
  hole_stores_ = 0;
  for (const Punch& punch : source.punches_) {
    for (std::uint64_t at = punch.offset; at < punch.offset + punch.length; at += kPage) {
      if (!dirty_[at / kPage]) set_dirty(at / kPage);
      backed_[at / kPage] = !image.punched;
    }
    if (image.punched) std::memset(visible_ + punch.offset, 0, punch.length);
  }
  for (std::size_t i = 0; i < image.lines.size(); ++i) {
    std::byte* line = visible_ + std::uint64_t{image.lines[i]} * kLine;
    touch(line);
    std::memcpy(line, &image.bytes[i], kLine);
  }
  durable_hash_ = image.content;
  mode_ = SimMode::plain;
}

void SimMemory::settle() {
  forget_pending();
  const std::uint64_t extent = std::max(size_, durable_size_);
  std::memcpy(durable_, visible_, extent);
  durable_size_ = size_;
  durable_named_ = named_;
  durable_hash_ = content_hash();
  loaded_from_ = nullptr;
  ++version_;  // mirrors of this object must copy it as a whole
  for (const std::uint32_t page : changed_pages_) changed_[page] = false;
  changed_pages_.clear();
}

void SimMemory::load_killed(const SimMemory& source) {
  forget_pending();
  const std::uint64_t extent = std::max({size_, durable_size_, source.size_, source.durable_size_});
  std::memcpy(visible_, source.visible_, extent);
  std::memcpy(durable_, source.durable_, extent);
  size_ = source.size_;
  durable_size_ = source.durable_size_;
  medium_ = source.medium_;
  named_ = source.named_;
  durable_named_ = source.durable_named_;
  disk_limit_ = source.disk_limit_;
  punches_ = source.punches_;
  punched_hash_ = source.punched_hash_;
  backed_ = source.backed_;
  hole_stores_ = 0;
  for (const std::uint32_t slot : source.active_) {
    const Line& from = source.lines_[slot];
    for (const Entry& entry : from.entries) {
      Line& line = line_of(from.line);
      line.entries.push_back(entry);
      entry_count_ = std::max(entry_count_, line.first + line.entries.size());
    }
  }
  next_order_ = source.next_order_;
  next_group_ = source.next_group_;
  recent_from_ = 0;
  durable_hash_ = source.durable_hash_;
  loaded_from_ = nullptr;
  ++version_;
  for (const std::uint32_t page : changed_pages_) changed_[page] = false;
  changed_pages_.clear();
  mode_ = SimMode::recording;
}

void SimMemory::forget_pending() {
  for (const std::uint32_t slot : active_) {
    const std::uint32_t line = lines_[slot].line;
    slot_of_line_[line] = 0;
    --pending_in_page_[line / (kPage / kLine)];
    free_slots_.push_back(slot);
  }
  active_.clear();
  for (auto& marks : marks_) marks.clear();
  for (auto& delayed : delayed_) delayed.clear();
  awaited_sites_.clear();
  punches_.clear();
  punched_hash_ = 0;
}

std::uint64_t SimMemory::unexplained_lines() const {
  std::uint64_t count = 0;
  for (std::uint64_t at = 0; at < size_; at += kLine) {
    const auto number = static_cast<std::uint32_t>(at / kLine);
    LineBytes expected = durable_line(number);
    if (slot_of_line_[number] != 0) {
      const Line& line = lines_[slot_of_line_[number] - 1];
      expected = content(line, {static_cast<std::uint32_t>(line.entries.size()), 0});
    } else if (std::ranges::any_of(punches_, [&](const Punch& punch) {
                 return at >= punch.offset && at < punch.offset + punch.length;
               })) {
      expected = LineBytes{};
    }
    count += std::memcmp(&expected, visible_ + at, kLine) != 0 ? 1 : 0;
  }
  return count;
}

}  // namespace perdure::testing
