// RocksDB and LevelDB under the driver: their interfaces are the same but for names, which
// `Library` gives. Put and Delete do not look the key up. Therefore insert, update and erase
// always return "yes".
//
//   kName, version()
//   Db, Slice, Status, ReadOptions, WriteOptions, Value
//   Iterator, get(db, options, key, value)
//   Library(tuned), open(path, create, db), close(db), keys(db), dram(db)
#pragma once

#include <fmt/core.h>

#include <memory>
#include <string>

#include "bench/compare/foreign.h"

namespace perdure::bench {

template <class Library>
class LsmSession : public Session {
  using Slice = Library::Slice;

 public:
  LsmSession(Library::Db& db, const ForeignOptions& options) : db_(db), options_(options) {
    write_.sync = options.sync;
  }

  Outcome insert(const KeyRef& key, const ValueRef& value) override { return update(key, value); }
  Outcome update(const KeyRef& key, const ValueRef& value) override {
    const Encoded encoded_key(key);
    const Encoded encoded_value(value);
    return outcome_of(db_.Put(write_, slice(encoded_key.view()), slice(encoded_value.view())));
  }
  Outcome erase(const KeyRef& key) override {
    const Encoded encoded(key);
    return outcome_of(db_.Delete(write_, slice(encoded.view())));
  }
  Outcome read(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit) override {
    const Encoded encoded(key);
    typename Library::Value value;
    const auto status = Library::get(db_, read_, slice(encoded.view()), value);
    if (status.ok()) visit(decode_value(options_.value, {value.data(), value.size()}));
    return outcome_of(status);
  }
  Outcome scan(const KeyRef& from, std::uint64_t limit, ScanTally& tally) override {
    const Encoded encoded(from);
    const std::unique_ptr<typename Library::Iterator> it(db_.NewIterator(read_));
    for (it->Seek(slice(encoded.view())); limit > 0 && it->Valid(); it->Next(), --limit) {
      tally.add(decode_key(options_.key, view(it->key())),
                decode_value(options_.value, view(it->value())));
    }
    return outcome_of(it->status());
  }

 private:
  static Slice slice(std::string_view bytes) noexcept { return {bytes.data(), bytes.size()}; }
  static std::string_view view(const Slice& bytes) noexcept { return {bytes.data(), bytes.size()}; }
  Outcome outcome_of(const Library::Status& status) {
    if (status.ok()) return Outcome::yes;
    return status.IsNotFound() ? Outcome::no : fail(status.ToString());
  }

  Library::Db& db_;
  const ForeignOptions& options_;
  Library::WriteOptions write_;
  Library::ReadOptions read_;
};

template <class Library>
class LsmSubject : public Subject {
 public:
  // `tuned`: with a bloom filter, a cache and a large table in memory.
  LsmSubject(const ForeignOptions& options, bool tuned)
      : options_(options),
        name_(std::string(Library::kName) + (tuned ? "_tuned" : "")),
        library_(tuned),
        folder_(options.path, name_) {}

  std::string name() const override { return name_; }
  std::string medium() const override { return "page"; }
  std::string durability() const override { return options_.sync ? "power" : "process"; }
  std::string version() const override { return Library::version(); }

  Result<void> create() override {
    if (auto made = folder_.create(); !made) return made;
    return open(true);
  }
  Result<void> reopen() override { return open(false); }
  Result<void> close() override {
    if (db_ == nullptr) return {};
    const auto status = library_.close(*db_);
    db_.reset();
    return judged(status);
  }
  void remove() override { folder_.remove(); }
  std::unique_ptr<Session> session() override {
    return std::make_unique<LsmSession<Library>>(*db_, options_);
  }
  Footprint footprint() override {
    return {.entries = library_.keys(*db_),
            .pm_bytes = folder_.bytes(),
            .dram_bytes = library_.dram(*db_)};
  }

 private:
  Result<void> open(bool create) {
    typename Library::Db* db = nullptr;
    const auto status = library_.open(folder_.path().string(), create, db);
    db_.reset(db);
    return judged(status);
  }
  Result<void> judged(const Library::Status& status) const {
    if (status.ok()) return {};
    return failure(kExitIo,
                   fmt::format("{}: {}: {}", folder_.path().string(), name_, status.ToString()));
  }

  ForeignOptions options_;
  std::string name_;
  Library library_;
  StoreFolder folder_;
  std::unique_ptr<typename Library::Db> db_;
};

}  // namespace perdure::bench
