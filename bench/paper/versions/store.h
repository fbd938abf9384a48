// Store: a multi-version map as the pskiplist paper's evaluation sees it (its section II), so that
// one driver measures all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "perdure/function_ref.h"
#include "perdure/status.h"

namespace perdure::paper::versions {

// Versions of all stores begin with 1. A Store is shared by the threads of a run; what fails throws
// std::runtime_error.
class Store {
 public:
  virtual ~Store() = default;
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // The operation and the tag that follows it; answers the version that was closed.
  virtual std::uint64_t insert(std::uint64_t key, std::uint64_t value) = 0;
  virtual std::uint64_t remove(std::uint64_t key) = 0;
  virtual bool find(std::uint64_t key, std::uint64_t version, std::uint64_t& value) = 0;
  // How often visit(version, value, removed) was called.
  virtual std::uint64_t history(std::uint64_t key,
                                FunctionRef<void(std::uint64_t, std::uint64_t, bool)> visit) = 0;
  // How many keys the version has; visit(key, value) in order.
  virtual std::uint64_t snapshot(std::uint64_t version,
                                 FunctionRef<void(std::uint64_t, std::uint64_t)> visit) = 0;
  // Closed and opened again; false if nothing of it survives that.
  virtual bool reopen() = 0;
  // In the medium, and in DRAM; 0 where the store cannot say.
  virtual std::uint64_t medium_bytes() { return 0; }
  virtual std::uint64_t dram_bytes() { return 0; }
};

// `path` is a file that they may make.
std::unique_ptr<Store> make_perdure(const std::string& path);     // engine pskiplist
std::unique_ptr<Store> make_locked_map(const std::string& path);  // std::map and a lock
std::unique_ptr<Store> make_skip_list(const std::string& path);   // lock-free, nothing persistent
std::unique_ptr<Store> make_sqlite_file(const std::string& path);
std::unique_ptr<Store> make_sqlite_memory(const std::string& path);

}  // namespace perdure::paper::versions
