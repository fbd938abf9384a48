// Store: the interface of a multi-version map in the pskiplist paper's evaluation (its section II).
// One driver measures all implementations.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "perdure/function_ref.h"
#include "perdure/status.h"

namespace perdure::paper::versions {

// Versions begin with 1 in every store. The threads of a run share a Store. A failure throws
// std::runtime_error.
class Store {
 public:
  virtual ~Store() = default;
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Does the operation and the tag after it. Returns the version that the tag closed.
  virtual std::uint64_t insert(std::uint64_t key, std::uint64_t value) = 0;
  virtual std::uint64_t remove(std::uint64_t key) = 0;
  virtual bool find(std::uint64_t key, std::uint64_t version, std::uint64_t& value) = 0;
  // Returns how often it called visit(version, value, removed).
  virtual std::uint64_t history(std::uint64_t key,
                                FunctionRef<void(std::uint64_t, std::uint64_t, bool)> visit) = 0;
  // Returns the number of keys of the version. Calls visit(key, value) in order.
  virtual std::uint64_t snapshot(std::uint64_t version,
                                 FunctionRef<void(std::uint64_t, std::uint64_t)> visit) = 0;
  // Closes and opens the store with so many threads that rebuild it, if it has to be. Returns false
  // if it does not survive that.
  virtual bool reopen(unsigned threads) = 0;
  // Bytes in the medium, and in DRAM; 0 if the store cannot say.
  virtual std::uint64_t medium_bytes() { return 0; }
  virtual std::uint64_t dram_bytes() { return 0; }
};

// `path` is a file that the store may make.
std::unique_ptr<Store> make_perdure(const std::string& path);     // engine pskiplist
std::unique_ptr<Store> make_locked_map(const std::string& path);  // std::map and a lock
std::unique_ptr<Store> make_skip_list(const std::string& path);   // lock-free, nothing persistent
std::unique_ptr<Store> make_sqlite_file(const std::string& path);
std::unique_ptr<Store> make_sqlite_memory(const std::string& path);

}  // namespace perdure::paper::versions
