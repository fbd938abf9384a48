#include "load_resume.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <vector>

#include <fmt/format.h>

namespace perdure::cli {

namespace {

constexpr std::uint64_t kHashedBytes = 1 << 20;

// FNV-1a. It only has to distinguish an edited file from the same one.
std::uint64_t prefix_hash(int fd, std::uint64_t bytes) {
  std::uint64_t hash = 0xCBF29CE484222325;
  char buffer[1 << 14];
  for (std::uint64_t done = 0; done < bytes;) {
    const std::size_t wanted = std::min<std::uint64_t>(sizeof(buffer), bytes - done);
    const ssize_t got = ::pread(fd, buffer, wanted, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return ~hash;  // shorter than it was: another file
    for (ssize_t i = 0; i < got; ++i) {
      hash = (hash ^ static_cast<unsigned char>(buffer[i])) * 0x100000001B3;
    }
    done += static_cast<std::uint64_t>(got);
  }
  return hash;
}

struct Record {
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::uint64_t hash = 0;
  Acknowledged at;
};

// Of constant length, so that a replacement never needs a block of another size class.
std::string to_text(const Record& record) {
  return fmt::format("1 {:020} {:020} {:016x} {:020} {:020}", record.size, record.mtime_ns,
                     record.hash, record.at.lines, record.at.offset);
}

std::optional<Record> parse(const std::string& text) {
  Record record;
  const int fields = std::sscanf(
      text.c_str(), "1 %" SCNu64 " %" SCNd64 " %" SCNx64 " %" SCNu64 " %" SCNu64, &record.size,
      &record.mtime_ns, &record.hash, &record.at.lines, &record.at.offset);
  return fields == 5 ? std::optional(record) : std::nullopt;
}

std::string map_suffix(std::string_view map) { return std::string(1, '\0') + std::string(map); }

// Creates the map with the engine of the map that is loaded, so that a pool whose maps restart at
// once still does so.
Expected<TextMap> open_log(Pool& pool, bool create, Engine engine = Engine::phast) {
  constexpr MapTypes kBytes = map_types<Bytes, Bytes>();
  auto map = pool.untyped_map(kLoadMap, {.mode = OpenMode::existing});
  if (!map && create && map.error() == StatusCode::not_found) {
    map = pool.untyped_map(kLoadMap, {.engine = engine, .capacity = 16}, kBytes);
  }
  if (!map) return fail(std::move(map.error()));
  return TextMap(std::move(*map));
}

}  // namespace

Expected<ResumeLog> ResumeLog::open(Pool& pool, const InputFile& input, const MapInfo& map) {
  auto log = open_log(pool, true, map.engine);
  if (!log) return fail(std::move(log.error()));
  return ResumeLog(std::move(*log), input, input.canonical + map_suffix(map.name));
}

Expected<ResumeLog::Found> ResumeLog::find() {
  auto text = map_.get(key_);
  if (!text) return fail(std::move(text.error()));
  if (!*text) return Found{};
  const auto record = parse(**text);
  if (!record) return Found{};
  const std::uint64_t bytes = std::min(record->at.offset, kHashedBytes);
  const bool same = record->size == input_->size && record->mtime_ns == input_->mtime_ns &&
                    record->at.offset <= input_->size &&
                    record->hash == prefix_hash(input_->fd, bytes);
  return Found{same ? Match::same : Match::changed, record->at};
}

Status ResumeLog::save(const Acknowledged& at) {
  const std::uint64_t bytes = std::min(at.offset, kHashedBytes);
  if (bytes != hashed_bytes_ || bytes == 0) {
    hash_ = prefix_hash(input_->fd, bytes);
    hashed_bytes_ = bytes;
  }
  const Record record{input_->size, input_->mtime_ns, hash_, at};
  return map_.put(key_, to_text(record)).status();
}

Status forget_loads(Pool& pool, std::string_view map) {
  auto log = open_log(pool, false);
  if (!log) return log.error() == StatusCode::not_found ? Status() : std::move(log.error());
  std::vector<std::string> keys;
  const std::string suffix = map_suffix(map);
  auto scanned = log->for_each([&](Bytes key, Bytes) {
    if (key.ends_with(suffix)) keys.emplace_back(key);
    return true;
  });
  if (!scanned) return std::move(scanned.error());
  for (const std::string& key : keys) {
    if (auto erased = log->erase(key); !erased.ok()) return std::move(erased).status();
  }
  return {};
}

}  // namespace perdure::cli
