// The pools that recipes start from, and the file that a target works on.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/oracle.h"
#include "fuzz/recipe.h"
#include "perdure/perdure.h"

namespace perdure::fuzz {

// A file in memory that opens by its name. Its inode stays the same, and therefore an unclean pool
// in it is trusted.
class ScratchFile {
 public:
  ScratchFile();
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const noexcept { return path_; }
  void write(std::string_view bytes) const;
  std::string read() const;

 private:
  int fd_;
  std::string path_;
};

using Oracles = std::map<std::string, Oracle>;

// The base pools and their oracles. They are made once, at the first input. PERDURE_FUZZ_ENGINE
// names their engine; the default is phast. The library makes them, with extents of one page.
// They cover every pair of kinds of key and value; empty maps, maps with splits and maps after
// erases; and histories, if the engine keeps versions. Each is stored as a killed process leaves it
// and as a close leaves it. Some closes do not sync; one pool is sealed.
class Fixture {
 public:
  static Fixture& get();

  const ScratchFile& file() const noexcept { return file_; }
  const std::vector<std::string>& bases() const noexcept { return bases_; }
  Engine engine() const noexcept { return engine_; }
  // Writes the recipe's pool to the file, sets `options`, and returns the pool's bytes.
  std::string write(const Recipe& recipe, PoolOptions& options) const;
  // The contents of the maps of the recipe's pool, by name. Null if `bytes` differ from the base.
  const Oracles* oracles(const Recipe& recipe, std::string_view bytes) const;

 private:
  Fixture();
  void make_empty();
  void make_bases();
  void make_versioned_bases();
  template <class F>
  void add(F&& fill, const CloseOptions& close = {});

  ScratchFile file_;
  Engine engine_;
  std::vector<std::string> bases_;
  std::vector<Oracles> oracles_;  // one per base
};

// Keys that the base pools hold, chosen by a byte of an input. Operations therefore hit entries.
std::uint64_t word_of(std::uint8_t choice) noexcept;
std::string text_of(std::uint8_t choice);

// Opens with one recovery thread and no background thread. Ends the process if the error is not a
// documented one.
Expected<Pool> open_file(const std::string& path, const PoolOptions& options);

}  // namespace perdure::fuzz
