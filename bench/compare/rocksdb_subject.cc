// RocksDB with its write-ahead log, without sync and compression; every other option has its
// default. Put and Delete do not look the key up. Therefore insert, update and erase always return
// "yes".
#include <fmt/core.h>
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/version.h>

#include "bench/compare/foreign.h"

namespace perdure::bench {
namespace {

rocksdb::Slice slice(std::string_view bytes) noexcept { return {bytes.data(), bytes.size()}; }
std::string_view view(const rocksdb::Slice& bytes) noexcept { return {bytes.data(), bytes.size()}; }

class RocksSession : public Session {
 public:
  RocksSession(rocksdb::DB& db, const ForeignOptions& options) : db_(db), options_(options) {}

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
    rocksdb::PinnableSlice value;
    const rocksdb::Status status =
        db_.Get(read_, db_.DefaultColumnFamily(), slice(encoded.view()), &value);
    if (status.ok()) visit(decode_value(options_.value, view(value)));
    return outcome_of(status);
  }
  Outcome scan(const KeyRef& from, std::uint64_t limit, ScanTally& tally) override {
    const Encoded encoded(from);
    const std::unique_ptr<rocksdb::Iterator> it(db_.NewIterator(read_));
    for (it->Seek(slice(encoded.view())); limit > 0 && it->Valid(); it->Next(), --limit) {
      tally.add(decode_key(options_.key, view(it->key())),
                decode_value(options_.value, view(it->value())));
    }
    return outcome_of(it->status());
  }

 private:
  Outcome outcome_of(const rocksdb::Status& status) {
    if (status.ok()) return Outcome::yes;
    return status.IsNotFound() ? Outcome::no : fail(status.ToString());
  }

  rocksdb::DB& db_;
  const ForeignOptions& options_;
  rocksdb::WriteOptions write_;  // sync is off by default
  rocksdb::ReadOptions read_;
};

class RocksSubject : public Subject {
 public:
  explicit RocksSubject(const ForeignOptions& options)
      : options_(options), folder_(options.path, "rocksdb") {}

  std::string name() const override { return "rocksdb"; }
  std::string medium() const override { return "page"; }
  std::string durability() const override { return "process"; }
  std::string version() const override {
    return fmt::format("{}.{}.{}", ROCKSDB_MAJOR, ROCKSDB_MINOR, ROCKSDB_PATCH);
  }

  Result<void> create() override {
    if (auto made = folder_.create(); !made) return made;
    return open(true);
  }
  Result<void> reopen() override { return open(false); }
  Result<void> close() override {
    if (db_ == nullptr) return {};
    const rocksdb::Status status = db_->Close();
    db_.reset();
    if (status.ok()) return {};
    return failure(kExitIo, "rocksdb: " + status.ToString());
  }
  void remove() override { folder_.remove(); }
  std::unique_ptr<Session> session() override {
    return std::make_unique<RocksSession>(*db_, options_);
  }
  Footprint footprint() override {
    std::uint64_t keys = 0;
    db_->GetIntProperty("rocksdb.estimate-num-keys", &keys);
    std::uint64_t dram = 0;
    for (const char* property :
         {"rocksdb.cur-size-all-mem-tables", "rocksdb.estimate-table-readers-mem",
          "rocksdb.block-cache-usage"}) {
      std::uint64_t bytes = 0;
      if (db_->GetIntProperty(property, &bytes)) dram += bytes;
    }
    return {.entries = keys, .pm_bytes = folder_.bytes(), .dram_bytes = dram};
  }

 private:
  Result<void> open(bool create) {
    rocksdb::Options options;
    options.create_if_missing = create;
    options.compression = rocksdb::kNoCompression;
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status = rocksdb::DB::Open(options, folder_.path().string(), &db);
    if (!status.ok()) {
      return failure(kExitIo,
                     fmt::format("{}: rocksdb: {}", folder_.path().string(), status.ToString()));
    }
    db_.reset(db);
    return {};
  }

  ForeignOptions options_;
  StoreFolder folder_;
  std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace

std::unique_ptr<Subject> make_rocksdb_subject(const ForeignOptions& options) {
  return std::make_unique<RocksSubject>(options);
}

}  // namespace perdure::bench
