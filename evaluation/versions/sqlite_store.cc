// SQLiteReg and SQLiteMem as the paper describes them: a row per insert or removal, an index over
// key and version, prepared statements. SQLiteReg is a file with a write-ahead log, SQLiteMem
// memory with a page cache that the threads share. Each thread has its own connection.
#include <sqlite3.h>

#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "evaluation/versions/store.h"

namespace perdure::paper::versions {

namespace {

// The mark of a removal, as in the paper. No drawn value equals it.
constexpr sqlite3_int64 kRemoved = -1;

class Statement {
 public:
  Statement(sqlite3* db, const char* sql) : db_(db) {
    if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement_, nullptr) !=
        SQLITE_OK) {
      throw std::runtime_error(sqlite3_errmsg(db));
    }
  }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement() { sqlite3_finalize(statement_); }

  void bind(int place, std::uint64_t value) {
    sqlite3_bind_int64(statement_, place, static_cast<sqlite3_int64>(value));
  }
  sqlite3_int64 column(int place) { return sqlite3_column_int64(statement_, place); }
  // Calls visit() for each row. Tables of a shared cache are locked without a busy handler; the
  // query then starts again, before its first row.
  template <class F>
  std::uint64_t run(F&& visit) {
    for (std::uint64_t rows = 0;;) {
      const int code = sqlite3_step(statement_);
      if (code == SQLITE_ROW) {
        visit();
        ++rows;
        continue;
      }
      const bool locked = (code & 0xFF) == SQLITE_LOCKED || (code & 0xFF) == SQLITE_BUSY;
      sqlite3_reset(statement_);
      if (code == SQLITE_DONE) return rows;
      if (!locked || rows != 0) throw std::runtime_error(sqlite3_errmsg(db_));
      std::this_thread::yield();
    }
  }
  void run() {
    run([] {});
  }

 private:
  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
};

struct Close {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
using Handle = std::unique_ptr<sqlite3, Close>;

struct Connection {
  static sqlite3* open(const std::string& name) {
    sqlite3* db = nullptr;
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI;
    if (sqlite3_open_v2(name.c_str(), &db, flags, nullptr) != SQLITE_OK) {
      const std::string message = sqlite3_errmsg(db);
      sqlite3_close(db);
      throw std::runtime_error(message);
    }
    sqlite3_busy_timeout(db, 60'000);
    return db;
  }

  explicit Connection(const std::string& name) : db(open(name)) {}
  Handle db;
  Statement add{db.get(), "INSERT INTO kv VALUES(?1, ?2, ?3)"};
  Statement find{db.get(),
                 "SELECT value FROM kv WHERE key = ?1 AND version <= ?2 "
                 "ORDER BY version DESC LIMIT 1"};
  Statement history{db.get(), "SELECT version, value FROM kv WHERE key = ?1 ORDER BY version"};
  Statement snapshot{db.get(),
                     "SELECT key, value, MAX(version) FROM kv WHERE version <= ?1 "
                     "GROUP BY key ORDER BY key"};
};

class SqliteStore final : public Store {
 public:
  SqliteStore(std::string name, bool file) : name_(std::move(name)), file_(file) { create(); }

  std::uint64_t insert(std::uint64_t key, std::uint64_t value) override {
    return add(key, static_cast<sqlite3_int64>(value));
  }
  std::uint64_t remove(std::uint64_t key) override { return add(key, kRemoved); }
  bool find(std::uint64_t key, std::uint64_t version, std::uint64_t& value) override {
    Statement& s = mine().find;
    s.bind(1, key);
    s.bind(2, version);
    sqlite3_int64 found = kRemoved;
    s.run([&] { found = s.column(0); });
    value = static_cast<std::uint64_t>(found);
    return found != kRemoved;
  }
  std::uint64_t history(std::uint64_t key,
                        FunctionRef<void(std::uint64_t, std::uint64_t, bool)> visit) override {
    Statement& s = mine().history;
    s.bind(1, key);
    return s.run([&] {
      const auto version = static_cast<std::uint64_t>(s.column(0));
      visit(version, static_cast<std::uint64_t>(s.column(1)), s.column(1) == kRemoved);
    });
  }
  std::uint64_t snapshot(std::uint64_t version,
                         FunctionRef<void(std::uint64_t, std::uint64_t)> visit) override {
    Statement& s = mine().snapshot;
    s.bind(1, version);
    std::uint64_t keys = 0;
    s.run([&] {
      if (s.column(1) == kRemoved) return;
      visit(static_cast<std::uint64_t>(s.column(0)), static_cast<std::uint64_t>(s.column(1)));
      ++keys;
    });
    return keys;
  }
  bool reopen(unsigned) override {
    if (!file_) return false;
    connections_.clear();
    mine();
    return true;
  }

 private:
  void create() {
    Handle db(Connection::open(name_));
    for (const char* sql : {file_ ? "PRAGMA journal_mode = WAL" : "PRAGMA journal_mode = MEMORY",
                            "CREATE TABLE kv(version INTEGER, key INTEGER, value INTEGER)",
                            "CREATE INDEX by_key ON kv(key, version)"}) {
      if (sqlite3_exec(db.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
        throw std::runtime_error(sqlite3_errmsg(db.get()));
      }
    }
    if (!file_) kept_ = std::move(db);
  }
  Connection& mine() {
    const std::lock_guard lock(mutex_);
    auto& connection = connections_[std::this_thread::get_id()];
    if (connection == nullptr) connection = std::make_unique<Connection>(name_);
    return *connection;
  }
  std::uint64_t add(std::uint64_t key, sqlite3_int64 value) {
    const std::uint64_t version = clock_.fetch_add(1);
    Statement& s = mine().add;
    s.bind(1, version);
    s.bind(2, key);
    s.bind(3, static_cast<std::uint64_t>(value));
    s.run();
    return version;
  }

  std::string name_;
  bool file_;
  Handle kept_;  // a database in memory lives as long as a connection
  std::mutex mutex_;
  std::map<std::thread::id, std::unique_ptr<Connection>> connections_;
  std::atomic<std::uint64_t> clock_{1};
};

}  // namespace

std::unique_ptr<Store> make_sqlite_file(const std::string& path) {
  return std::make_unique<SqliteStore>("file:" + path, true);
}
std::unique_ptr<Store> make_sqlite_memory(const std::string&) {
  return std::make_unique<SqliteStore>("file:paper?mode=memory&cache=shared", false);
}

}  // namespace perdure::paper::versions
