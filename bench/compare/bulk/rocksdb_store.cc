// RocksDB with the options of `rocksdb_tuned`: no compression, a bloom filter of 10 bits a key, a
// block cache of 1 GiB, tables in memory of 128 MiB, 4 background jobs.
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include "bench/compare/bulk/lsm_store.h"

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
  using WriteBatch = rocksdb::WriteBatch;
  using Iterator = rocksdb::Iterator;
  using Value = rocksdb::PinnableSlice;

  RocksDb() {
    rocksdb::BlockBasedTableOptions table;
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    table.block_cache = rocksdb::NewLRUCache(std::size_t{1} << 30);
    options_.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    options_.compression = rocksdb::kNoCompression;
    options_.create_if_missing = true;
    options_.write_buffer_size = std::size_t{128} << 20;
    options_.max_background_jobs = 4;
  }
  Status open(const std::string& path, Db*& db) { return rocksdb::DB::Open(options_, path, &db); }
  static Status get(Db& db, const Slice& key, Value& value) {
    return db.Get({}, db.DefaultColumnFamily(), key, &value);
  }
  static void compact(Db& db) { Lsm<RocksDb>::must(db.CompactRange({}, nullptr, nullptr)); }

 private:
  rocksdb::Options options_;
};

}  // namespace

std::unique_ptr<BulkStore> make_rocksdb_bulk(const std::string& folder) {
  return std::make_unique<LsmStore<RocksDb>>(folder);
}

}  // namespace perdure::bench
