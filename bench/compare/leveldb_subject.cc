// LevelDB with its log, without compression, and without sync unless it is asked for. `leveldb` has
// the default of every other option. `leveldb_tuned` has a bloom filter of 10 bits a key, a block
// cache of 1 GiB, and tables in memory of 64 MiB, as its documentation describes them.
#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/filter_policy.h>
#include <leveldb/options.h>

#include <charconv>

#include "bench/compare/lsm_subject.h"

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
  using Iterator = leveldb::Iterator;
  using Value = std::string;

  explicit LevelDb(bool tuned) {
    options_.compression = leveldb::kNoCompression;
    if (!tuned) return;
    filter_.reset(leveldb::NewBloomFilterPolicy(10));
    cache_.reset(leveldb::NewLRUCache(std::size_t{1} << 30));
    options_.filter_policy = filter_.get();
    options_.block_cache = cache_.get();
    options_.write_buffer_size = std::size_t{64} << 20;
  }
  static std::string version() {
    return fmt::format("{}.{}", leveldb::kMajorVersion, leveldb::kMinorVersion);
  }
  static Status get(Db& db, const ReadOptions& options, const Slice& key, Value& value) {
    return db.Get(options, key, &value);
  }
  Status open(const std::string& path, bool create, Db*& db) {
    options_.create_if_missing = create;
    return leveldb::DB::Open(options_, path, &db);
  }
  static Status close(Db&) { return {}; }       // the destructor closes
  static std::uint64_t keys(Db&) { return 0; }  // LevelDB does not count them
  static std::uint64_t dram(Db& db) {
    std::string text;
    std::uint64_t bytes = 0;
    if (db.GetProperty("leveldb.approximate-memory-usage", &text)) {
      std::from_chars(text.data(), text.data() + text.size(), bytes);
    }
    return bytes;
  }

 private:
  std::unique_ptr<const leveldb::FilterPolicy> filter_;
  std::unique_ptr<leveldb::Cache> cache_;
  leveldb::Options options_;
};

}  // namespace

std::unique_ptr<Subject> make_leveldb_subject(const ForeignOptions& options) {
  return std::make_unique<LsmSubject<LevelDb>>(options, false);
}
std::unique_ptr<Subject> make_leveldb_tuned_subject(const ForeignOptions& options) {
  return std::make_unique<LsmSubject<LevelDb>>(options, true);
}

}  // namespace perdure::bench
