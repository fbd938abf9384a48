// Shared by the tests of the distributed store: a directory for all ranks, one interface for both
// kinds of store, and the oracle, a std::map of versions.
#pragma once

#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "perdure/mpi.h"

namespace perdure::mpi::test {

inline int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
inline int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}
inline void barrier() { MPI_Barrier(MPI_COMM_WORLD); }

// Memory if there is enough: a container's /dev/shm is small, and MPI's messages use it.
inline std::filesystem::path scratch() {
  struct statvfs stat;
  if (statvfs("/dev/shm", &stat) == 0 && access("/dev/shm", W_OK) == 0 &&
      stat.f_bavail * stat.f_bsize > 512_MiB) {
    return "/dev/shm";
  }
  return std::filesystem::temp_directory_path();
}

// A fresh directory, the same on all ranks. It is removed at the end.
class SharedDirectory {
 public:
  SharedDirectory() {
    char text[512] = {};
    if (world_rank() == 0) {
      static int number = 0;
      const auto path =
          scratch() / ("perdure-mpi." + std::to_string(getpid()) + "." + std::to_string(++number));
      std::filesystem::create_directories(path);
      path.string().copy(text, sizeof(text) - 1);
    }
    MPI_Bcast(text, sizeof(text), MPI_CHAR, 0, MPI_COMM_WORLD);
    path_ = text;
  }
  ~SharedDirectory() {
    barrier();
    std::error_code ignored;
    if (world_rank() == 0) std::filesystem::remove_all(path_, ignored);
    barrier();
  }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;
  std::string store(const char* name = "store") const { return path_ + "/" + name; }
  static std::string pool(const std::string& store, int rank) { return file(store, "rank", rank); }
  static std::string copy(const std::string& store, int rank) { return file(store, "copy", rank); }

 private:
  static std::string file(const std::string& store, const char* role, int rank) {
    char name[32];
    std::snprintf(name, sizeof(name), "/%s-%05d.perdure", role, rank);
    return store + name;
  }

  std::string path_;
};

// Makes keys and values from numbers, and text of them for comparison.
struct Integers {
  using Store = IntegerStore;
  using Key = std::uint64_t;
  static Key key(std::uint64_t n) { return n * 0x9E3779B97F4A7C15; }
  static Key value(std::uint64_t n) { return n; }
};
// Keys that share their first 8 bytes, are a prefix of others, or are empty; values up to 40 KB.
struct Strings {
  using Store = BytesStore;
  using Key = std::string;
  static Key key(std::uint64_t n) {
    if (n == 0) return {};
    const std::uint64_t mixed = n * 0x9E3779B97F4A7C15;
    std::string key(reinterpret_cast<const char*>(&mixed), n % 8);
    if (n % 3 == 0) key = "the same beginning" + key;
    return key + std::to_string(n);
  }
  static Key value(std::uint64_t n) {
    return std::string(n % 97 == 0 ? 40'000 : n % 50, static_cast<char>('a' + n % 26)) +
           (n % 11 == 0 ? "" : std::to_string(n));
  }
};

template <class Kind>
using State = std::map<typename Kind::Key, typename Kind::Key>;

}  // namespace perdure::mpi::test
