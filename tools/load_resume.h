// How far a file has been loaded, kept in a map of the pool itself, so that a killed `load` goes on
// where it was. The key is the file's path and the map's name; an input counts as the same one if
// size, modification time and a hash of the loaded part's first MiB are the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "commands.h"
#include "load_pipeline.h"

namespace perdure::cli {

struct InputFile {
  int fd = -1;
  std::string name;       // as the user gave it
  std::string canonical;  // absolute, links resolved
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  bool regular = false;  // can be resumed
};

class ResumeLog {
 public:
  static Expected<ResumeLog> open(Pool& pool, const InputFile& input, const MapInfo& map);

  enum class Match : std::uint8_t { none, same, changed };
  struct Found {
    Match match = Match::none;
    Acknowledged at;
  };
  // What is known about the input.
  Expected<Found> find();
  // Durable when it returns. One thread at a time.
  Status save(const Acknowledged& at);

 private:
  ResumeLog(TextMap map, const InputFile& input, std::string key)
      : map_(std::move(map)), input_(&input), key_(std::move(key)) {}

  TextMap map_;
  const InputFile* input_;
  std::string key_;
  // The hash stops changing once its bound is reached.
  std::uint64_t hashed_bytes_ = 0;
  std::uint64_t hash_ = 0;
};

}  // namespace perdure::cli
