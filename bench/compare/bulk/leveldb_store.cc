// LevelDB with the options of `leveldb_tuned`: no compression, a bloom filter of 10 bits a key, a
// block cache of 1 GiB, tables in memory of 64 MiB.
#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/filter_policy.h>
#include <leveldb/options.h>
#include <leveldb/write_batch.h>

#include "bench/compare/bulk/lsm_store.h"

namespace perdure::bench {
namespace {

class LevelDb {
 public:
  static constexpr const char* kName = "leveldb";
  using Db = leveldb::DB;
  using Slice = leveldb::Slice;
  using Status = leveldb::Status;
  using ReadOptions = leveldb::ReadOptions;
  using WriteOptions = leveldb::WriteOptions;
  using WriteBatch = leveldb::WriteBatch;
  using Iterator = leveldb::Iterator;
  using Value = std::string;

  LevelDb()
      : filter_(leveldb::NewBloomFilterPolicy(10)),
        cache_(leveldb::NewLRUCache(std::size_t{1} << 30)) {
    options_.compression = leveldb::kNoCompression;
    options_.create_if_missing = true;
    options_.filter_policy = filter_.get();
    options_.block_cache = cache_.get();
    options_.write_buffer_size = std::size_t{64} << 20;
  }
  Status open(const std::string& path, Db*& db) { return leveldb::DB::Open(options_, path, &db); }
  static Status get(Db& db, const Slice& key, Value& value) { return db.Get({}, key, &value); }
  static void compact(Db& db) { db.CompactRange(nullptr, nullptr); }

 private:
  std::unique_ptr<const leveldb::FilterPolicy> filter_;
  std::unique_ptr<leveldb::Cache> cache_;
  leveldb::Options options_;
};

}  // namespace

std::unique_ptr<BulkStore> make_leveldb_bulk(const std::string& folder) {
  return std::make_unique<LsmStore<LevelDb>>(folder);
}

}  // namespace perdure::bench
