// SQLite: one table without row ids, a write-ahead log, a memory map and a cache of 1 GiB. A
// transaction is one of SQLite, with synchronous=FULL, or with OFF if it may be lost. A compaction
// is VACUUM, and a checkpoint that empties the log.
#include <fmt/core.h>
#include <sqlite3.h>

#include <vector>

#include "bench/compare/bulk/store.h"
#include "bench/workloads/data.h"

namespace perdure::bench {
namespace {

constexpr const char* kOptions =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA mmap_size=2147418112; "
    "PRAGMA cache_size=-1048576;";

struct CloseDb {
  void operator()(sqlite3* db) const noexcept { ::sqlite3_close(db); }
};
struct Finalize {
  void operator()(sqlite3_stmt* statement) const noexcept { ::sqlite3_finalize(statement); }
};

class Connection {
 public:
  explicit Connection(const std::string& file) {
    sqlite3* raw = nullptr;
    constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    const int code = ::sqlite3_open_v2(file.c_str(), &raw, kFlags, nullptr);
    db_.reset(raw);
    if (code != SQLITE_OK) fail();
    run(kOptions);
  }
  void run(const char* sql) {
    if (::sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail();
  }
  sqlite3* get() const noexcept { return db_.get(); }
  [[noreturn]] void fail() const {
    stop(kExitIo, fmt::format("sqlite: {}", ::sqlite3_errmsg(db_.get())));
  }

 private:
  std::unique_ptr<sqlite3, CloseDb> db_;
};

// A prepared statement whose parameters are byte strings.
class Statement {
 public:
  Statement(Connection& db, const char* sql) : db_(db) {
    sqlite3_stmt* statement = nullptr;
    if (::sqlite3_prepare_v3(db.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr) !=
        SQLITE_OK) {
      db.fail();
    }
    statement_.reset(statement);
  }
  void bind(int place, std::string_view bytes) {
    ::sqlite3_bind_blob(statement_.get(), place, bytes.data(), static_cast<int>(bytes.size()),
                        SQLITE_STATIC);
  }
  // Returns whether there is a row.
  bool step() {
    const int code = ::sqlite3_step(statement_.get());
    if (code != SQLITE_ROW && code != SQLITE_DONE) db_.fail();
    return code == SQLITE_ROW;
  }
  void reset() { ::sqlite3_reset(statement_.get()); }
  void run() {
    step();
    reset();
  }
  std::string_view bytes(int column) {
    const void* data = ::sqlite3_column_blob(statement_.get(), column);
    return {static_cast<const char*>(data),
            static_cast<std::size_t>(::sqlite3_column_bytes(statement_.get(), column))};
  }
  std::uint64_t number(int column) {
    return static_cast<std::uint64_t>(::sqlite3_column_int64(statement_.get(), column));
  }

 private:
  Connection& db_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class SqliteReader : public BulkReader {
 public:
  explicit SqliteReader(const std::string& file)
      : db_(file),
        read_(db_, "SELECT value FROM entries WHERE key = ?1"),
        scan_(db_, "SELECT key, value FROM entries WHERE key >= ?1 ORDER BY key") {
    db_.run("BEGIN");  // its first statement gives it its view of the table
  }

  bool read(std::string_view key, FunctionRef<void(std::string_view)> visit) override {
    read_.bind(1, key);
    const bool present = read_.step();
    if (present) visit(read_.bytes(0));
    read_.reset();
    return present;
  }
  void scan(std::string_view from, std::uint64_t limit,
            FunctionRef<void(const Entry&)> visit) override {
    scan_.bind(1, from);
    for (; limit > 0 && scan_.step(); --limit) visit({scan_.bytes(0), scan_.bytes(1)});
    scan_.reset();
  }

 private:
  Connection db_;
  Statement read_, scan_;
};

class SqliteStore : public BulkStore {
 public:
  explicit SqliteStore(const std::string& folder) : file_(folder + "/entries.db") {}

  void open() override {
    db_ = std::make_unique<Connection>(file_);
    db_->run("CREATE TABLE IF NOT EXISTS entries(key BLOB PRIMARY KEY, value) WITHOUT ROWID");
    put_ = std::make_unique<Statement>(*db_, "INSERT OR REPLACE INTO entries VALUES (?1, ?2)");
    erase_ = std::make_unique<Statement>(*db_, "DELETE FROM entries WHERE key = ?1");
  }
  void close() override {
    put_.reset();
    erase_.reset();
    db_.reset();
  }

  void set_commit(Commit commit) override {
    db_->run(commit == Commit::soon ? "PRAGMA synchronous=OFF" : "PRAGMA synchronous=FULL");
  }
  void put(std::uint64_t count, EntrySource entries) override {
    if (count != 1) db_->run("BEGIN IMMEDIATE");  // one statement is a transaction by itself
    for (std::uint64_t i = 0; i < count; ++i) {
      const Entry entry = entries(i);
      put_->bind(1, entry.key);
      put_->bind(2, entry.value);
      put_->run();
    }
    if (count != 1) db_->run("COMMIT");
  }
  void erase(std::uint64_t count, KeySource keys) override {
    db_->run("BEGIN IMMEDIATE");
    for (std::uint64_t i = 0; i < count; ++i) erase_one(keys(i));
    db_->run("COMMIT");
  }
  void erase_if(std::string_view from, std::string_view to,
                FunctionRef<bool(const Entry&)> chosen) override {
    db_->run("BEGIN IMMEDIATE");
    Statement scan(*db_,
                   "SELECT key, value FROM entries WHERE key >= ?1 AND key < ?2 ORDER BY key");
    scan.bind(1, from);
    scan.bind(2, to);
    std::vector<std::string> keys;  // a table must not change under a query
    while (scan.step()) {
      if (chosen({scan.bytes(0), scan.bytes(1)})) keys.emplace_back(scan.bytes(0));
    }
    scan.reset();
    for (const std::string& key : keys) erase_one(key);
    db_->run("COMMIT");
  }
  void pop(FunctionRef<bool(std::string_view)> goes_on) override {
    Statement first(*db_, "SELECT key, value FROM entries ORDER BY key LIMIT 1");
    Statement last(*db_, "SELECT key, value FROM entries ORDER BY key DESC LIMIT 1");
    db_->run("BEGIN IMMEDIATE");
    Statement* end = &first;
    for (bool more = true; more && end->step();) {
      const std::string key(end->bytes(0));
      end->reset();
      more = goes_on(key);
      erase_one(key);
      end = end == &first ? &last : &first;
    }
    db_->run("COMMIT");
  }
  std::uint64_t size() override {
    Statement count(*db_, "SELECT count(*) FROM entries");
    count.step();
    return count.number(0);
  }
  void compact() override { db_->run("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)"); }
  std::unique_ptr<BulkReader> reader() override { return std::make_unique<SqliteReader>(file_); }

 private:
  void erase_one(std::string_view key) {
    erase_->bind(1, key);
    erase_->run();
  }

  std::string file_;
  std::unique_ptr<Connection> db_;
  std::unique_ptr<Statement> put_, erase_;
};

}  // namespace

std::unique_ptr<BulkStore> make_sqlite_bulk(const std::string& folder) {
  return std::make_unique<SqliteStore>(folder);
}

}  // namespace perdure::bench
