// BulkStore: an ordered store of byte strings under the phases of bulk.h, as the benchmark of redb
// drives stores. Each store file says what its transactions are.
//
// A run has a process of its own, so no call returns an error: stop() ends the process, and the
// process that has started it removes the files.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "perdure/function_ref.h"

namespace perdure::bench {

// Prints the message on standard error and ends the process.
[[noreturn]] void stop(int exit_status, std::string_view message);

struct Entry {
  std::string_view key;
  std::string_view value;
};
// The i-th entry or key of a call. The views are valid until the next one is asked for.
using EntrySource = FunctionRef<Entry(std::uint64_t i)>;
using KeySource = FunctionRef<std::string_view(std::uint64_t i)>;

// What a transaction can lose at a power failure once it has returned.
enum class Commit : std::uint8_t { durable, soon };

inline constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// One thread's access for reads. Reads of a store that has read transactions are one of them.
class BulkReader {
 public:
  BulkReader() = default;
  virtual ~BulkReader() = default;
  BulkReader(const BulkReader&) = delete;
  BulkReader& operator=(const BulkReader&) = delete;

  // Returns whether the key is present, and then has called `visit` with its value.
  virtual bool read(std::string_view key, FunctionRef<void(std::string_view)> visit) = 0;
  // Visits at most `limit` entries in order, from `from` on.
  virtual void scan(std::string_view from, std::uint64_t limit,
                    FunctionRef<void(const Entry&)> visit) = 0;
};

// One thread calls it, except reader() and what that returns. Changes have no reader beside them.
class BulkStore {
 public:
  BulkStore() = default;
  virtual ~BulkStore() = default;
  BulkStore(const BulkStore&) = delete;
  BulkStore& operator=(const BulkStore&) = delete;

  // Opens the store, or makes it in the folder, which exists.
  virtual void open() = 0;
  virtual void close() = 0;

  // Of the transactions to come; durable at first.
  virtual void set_commit(Commit commit) { commit_ = commit; }
  // One transaction that puts `count` entries.
  virtual void put(std::uint64_t count, EntrySource entries) = 0;
  // The same, with keys that ascend and are greater than all that the store has.
  virtual void append(std::uint64_t count, EntrySource entries) { put(count, entries); }
  // One transaction that removes `count` keys, which are present.
  virtual void erase(std::uint64_t count, KeySource keys) = 0;
  // One transaction that visits the entries of [from, to) in order and removes those for
  // which `chosen` returns true.
  virtual void erase_if(std::string_view from, std::string_view to,
                        FunctionRef<bool(const Entry&)> chosen) = 0;
  // Removes the first entry, the last one, and so on in turn, as long as `goes_on` returns true. It
  // is called with each key before that is removed. A durable call is so when it returns.
  virtual void pop(FunctionRef<bool(std::string_view)> goes_on) = 0;
  // The number of entries, by the fastest exact way.
  virtual std::uint64_t size() = 0;
  virtual void compact() = 0;
  virtual std::unique_ptr<BulkReader> reader() = 0;

 protected:
  Commit commit_ = Commit::durable;
};

// `folder` has nothing but a mark.
std::unique_ptr<BulkStore> make_perdure_bulk(const std::string& folder);
std::unique_ptr<BulkStore> make_leveldb_bulk(const std::string& folder);
std::unique_ptr<BulkStore> make_lmdb_bulk(const std::string& folder);
std::unique_ptr<BulkStore> make_rocksdb_bulk(const std::string& folder);
std::unique_ptr<BulkStore> make_sqlite_bulk(const std::string& folder);

}  // namespace perdure::bench
