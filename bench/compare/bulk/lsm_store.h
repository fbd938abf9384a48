// RocksDB and LevelDB under the phases of bulk.h: their interfaces are the same but for names,
// which `Library` gives. A transaction is a WriteBatch. They hold all of it in memory, so one of
// more than 100,000 changes is cut in several, and the last one syncs the log. redb's benchmark
// does that to RocksDB, too. Pops are written one by one, and synced at the end.
//
//   kName, open(path, db), compact(db)
//   Db, Slice, Status, ReadOptions, WriteOptions, WriteBatch, Iterator, Value, get(db, key, value)
#pragma once

#include <fmt/core.h>

#include <memory>
#include <string>

#include "bench/compare/bulk/store.h"
#include "bench/workloads/data.h"

namespace perdure::bench {

template <class Library>
struct Lsm {
  using Slice = Library::Slice;
  static Slice slice(std::string_view bytes) noexcept { return {bytes.data(), bytes.size()}; }
  static std::string_view view(const Slice& bytes) noexcept { return {bytes.data(), bytes.size()}; }
  static void must(const Library::Status& status) {
    if (!status.ok()) stop(kExitIo, fmt::format("{}: {}", Library::kName, status.ToString()));
  }
  static std::unique_ptr<typename Library::Iterator> iterator(Library::Db& db) {
    return std::unique_ptr<typename Library::Iterator>(db.NewIterator({}));
  }
  static Entry entry(const Library::Iterator& it) { return {view(it.key()), view(it.value())}; }
};

template <class Library>
class LsmReader : public BulkReader {
  using L = Lsm<Library>;

 public:
  explicit LsmReader(Library::Db& db) : db_(db) {}

  bool read(std::string_view key, FunctionRef<void(std::string_view)> visit) override {
    typename Library::Value value;
    const auto status = Library::get(db_, L::slice(key), value);
    if (status.IsNotFound()) return false;
    L::must(status);
    visit({value.data(), value.size()});
    return true;
  }
  void scan(std::string_view from, std::uint64_t limit,
            FunctionRef<void(const Entry&)> visit) override {
    const auto it = L::iterator(db_);
    for (it->Seek(L::slice(from)); limit > 0 && it->Valid(); it->Next(), --limit) {
      visit(L::entry(*it));
    }
    L::must(it->status());
  }

 private:
  Library::Db& db_;
};

template <class Library>
class LsmStore : public BulkStore {
  using L = Lsm<Library>;
  static constexpr std::uint64_t kMostChanges = 100'000;

 public:
  explicit LsmStore(const std::string& folder) : folder_(folder) {}

  void open() override {
    typename Library::Db* db = nullptr;
    L::must(library_.open(folder_, db));
    db_.reset(db);
  }
  void close() override { db_.reset(); }

  void put(std::uint64_t count, EntrySource entries) override {
    Changes changes(*db_);
    for (std::uint64_t i = 0; i < count; ++i) {
      const Entry entry = entries(i);
      changes.next().Put(L::slice(entry.key), L::slice(entry.value));
    }
    changes.write(commit_);
  }
  void erase(std::uint64_t count, KeySource keys) override {
    Changes changes(*db_);
    for (std::uint64_t i = 0; i < count; ++i) changes.next().Delete(L::slice(keys(i)));
    changes.write(commit_);
  }
  void erase_if(std::string_view from, std::string_view to,
                FunctionRef<bool(const Entry&)> chosen) override {
    Changes changes(*db_);
    const auto it = L::iterator(*db_);  // does not see what is written meanwhile
    for (it->Seek(L::slice(from)); it->Valid() && L::view(it->key()) < to; it->Next()) {
      if (chosen(L::entry(*it))) changes.next().Delete(it->key());
    }
    L::must(it->status());
    changes.write(commit_);
  }
  void pop(FunctionRef<bool(std::string_view)> goes_on) override {
    bool last = false;
    for (bool more = true; more; last = !last) {
      const auto it = L::iterator(*db_);
      if (last) {
        it->SeekToLast();
      } else {
        it->SeekToFirst();
      }
      L::must(it->status());
      if (!it->Valid()) break;
      more = goes_on(L::view(it->key()));
      L::must(db_->Delete({}, it->key()));
    }
    Changes(*db_).write(commit_);
  }
  std::uint64_t size() override {
    std::uint64_t count = 0;
    const auto it = L::iterator(*db_);
    for (it->SeekToFirst(); it->Valid(); it->Next()) ++count;
    L::must(it->status());
    return count;
  }
  void compact() override { library_.compact(*db_); }
  std::unique_ptr<BulkReader> reader() override {
    return std::make_unique<LsmReader<Library>>(*db_);
  }

 private:
  // The changes of one transaction.
  class Changes {
   public:
    explicit Changes(Library::Db& db) : db_(db) {}
    // The batch that takes one more change.
    Library::WriteBatch& next() {
      if (count_++ == kMostChanges) {
        write(Commit::soon);
        count_ = 1;
      }
      return batch_;
    }
    void write(Commit commit) {
      typename Library::WriteOptions options;
      options.sync = commit == Commit::durable;
      L::must(db_.Write(options, &batch_));
      batch_.Clear();
    }

   private:
    Library::Db& db_;
    Library::WriteBatch batch_;
    std::uint64_t count_ = 0;
  };

  std::string folder_;
  Library library_;
  std::unique_ptr<typename Library::Db> db_;
};

}  // namespace perdure::bench
