// The progress of loads, in a map of the pool itself, so that a load that was killed can continue.
// The key is the path of the file and the name of the map. An input counts as unchanged if its
// size, its modification time and the hash of the first MiB of the loaded part are unchanged.
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
  std::string canonical;  // absolute, with links resolved
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  bool regular = false;  // a regular file, so a load of it can be resumed
};

class ResumeLog {
 public:
  static Expected<ResumeLog> open(Pool& pool, const InputFile& input, const MapInfo& map);

  enum class Match : std::uint8_t { none, same, changed };
  struct Found {
    Match match = Match::none;
    Acknowledged at;
  };
  // Finds the progress of this input.
  Expected<Found> find();
  // Saves the progress. Durable when it returns. One thread at a time.
  Status save(const Acknowledged& at);

 private:
  ResumeLog(TextMap map, const InputFile& input, std::string key)
      : map_(std::move(map)), input_(&input), key_(std::move(key)) {}

  TextMap map_;
  const InputFile* input_;
  std::string key_;
  // The hash does not change once the loaded part has reached its limit of bytes.
  std::uint64_t hashed_bytes_ = 0;
  std::uint64_t hash_ = 0;
};

}  // namespace perdure::cli
