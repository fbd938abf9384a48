// RocksDB with its write-ahead log, without compression, and without sync unless it is asked for.
// `rocksdb` has the default of every other option. `rocksdb_tuned` has what its tuning guide
// advises for lookups: a bloom filter of 10 bits a key, a block cache of 1 GiB, and tables in
// memory of 128 MiB.
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/version.h>

#include "bench/compare/lsm_subject.h"

namespace perdure::bench {
namespace {

class RocksDb {
 public:
  static constexpr const char* kName = "rocksdb";
  using Db = rocksdb::DB;
  using Slice = rocksdb::Slice;
  using Status = rocksdb::Status;
  using ReadOptions = rocksdb::ReadOptions;
  using WriteOptions = rocksdb::WriteOptions;
  using Iterator = rocksdb::Iterator;
  using Value = rocksdb::PinnableSlice;

  explicit RocksDb(bool tuned) {
    options_.compression = rocksdb::kNoCompression;
    if (!tuned) return;
    rocksdb::BlockBasedTableOptions table;
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    table.block_cache = rocksdb::NewLRUCache(std::size_t{1} << 30);
    table.cache_index_and_filter_blocks = false;  // they stay in memory
    options_.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    options_.write_buffer_size = std::size_t{128} << 20;
    options_.max_background_jobs = 4;
  }
  static std::string version() {
    return fmt::format("{}.{}.{}", ROCKSDB_MAJOR, ROCKSDB_MINOR, ROCKSDB_PATCH);
  }
  static Status get(Db& db, const ReadOptions& options, const Slice& key, Value& value) {
    return db.Get(options, db.DefaultColumnFamily(), key, &value);
  }
  Status open(const std::string& path, bool create, Db*& db) {
    options_.create_if_missing = create;
    return rocksdb::DB::Open(options_, path, &db);
  }
  static Status close(Db& db) { return db.Close(); }
  static std::uint64_t keys(Db& db) { return number(db, "rocksdb.estimate-num-keys"); }
  static std::uint64_t dram(Db& db) {
    return number(db, "rocksdb.cur-size-all-mem-tables") +
           number(db, "rocksdb.estimate-table-readers-mem") +
           number(db, "rocksdb.block-cache-usage");
  }

 private:
  static std::uint64_t number(Db& db, const char* property) {
    std::uint64_t value = 0;
    db.GetIntProperty(property, &value);
    return value;
  }

  rocksdb::Options options_;
};

}  // namespace

std::unique_ptr<Subject> make_rocksdb_subject(const ForeignOptions& options) {
  return std::make_unique<LsmSubject<RocksDb>>(options, false);
}
std::unique_ptr<Subject> make_rocksdb_tuned_subject(const ForeignOptions& options) {
  return std::make_unique<LsmSubject<RocksDb>>(options, true);
}

}  // namespace perdure::bench
