// The pools that recipes start from, and the one file that a target works on.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/oracle.h"
#include "fuzz/recipe.h"
#include "perdure/perdure.h"

namespace perdure::fuzz {

// A file in memory that opens by its name. Its inode stays, so an unclean pool in it is trusted.
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

// What a target needs to try a recipe: made once, at the first input. The pools are of the engine
// that PERDURE_FUZZ_ENGINE names (phast), tiny (extents of one page), and made by the library:
// every pair of kinds; empty, with splits and after erases; with histories, where versions are
// kept; closed, closed without a sync, sealed, and as a killed process leaves them.
class Fixture {
 public:
  static Fixture& get();

  const ScratchFile& file() const noexcept { return file_; }
  const std::vector<std::string>& bases() const noexcept { return bases_; }
  Engine engine() const noexcept { return engine_; }
  // The pool of a recipe in the file; its options. Answers its bytes.
  std::string write(const Recipe& recipe, PoolOptions& options) const;
  // What the maps of the recipe's pool hold, by name; null if `bytes` are not as a base has them.
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
  std::vector<Oracles> oracles_;  // of each
};

// Keys and values that the base pools hold, so that operations meet them. From a byte of an input.
std::uint64_t word_of(std::uint8_t choice) noexcept;
std::string text_of(std::uint8_t choice);

// No thread, no file, no wait. Fails the input if what is answered is no documented answer.
Expected<Pool> open_file(const std::string& path, const PoolOptions& options);

}  // namespace perdure::fuzz
