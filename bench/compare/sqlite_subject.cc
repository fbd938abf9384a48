// SQLite: one table, one prepared statement per operation, each its own transaction, one connection
// per thread. `sqlite` has the default of every option: a rollback journal, and a sync for each
// transaction. `sqlite_wal` has a write-ahead log with synchronous=NORMAL, which syncs at
// checkpoints only. `sqlite_tuned` has a write-ahead log, no sync, a memory map and a cache of 1
// GiB. Both sync each transaction if that is asked for. Integer keys are the row id; order is kept
// by moving them by 2^63, because SQLite's integers have a sign.
#include <fmt/core.h>
#include <sqlite3.h>

#include <atomic>

#include "bench/compare/foreign.h"

namespace perdure::bench {
namespace {

constexpr int kBusyMs = 60'000;
enum class Kind : std::uint8_t { plain, wal, tuned };

constexpr const char* name_of(Kind kind) noexcept {
  return kind == Kind::plain ? "sqlite" : kind == Kind::wal ? "sqlite_wal" : "sqlite_tuned";
}
// The statements that give a connection its options.
std::string pragmas(Kind kind, bool sync) {
  // FULL, the default, does not sync the folder after the journal was removed.
  if (kind == Kind::plain) return sync ? "PRAGMA synchronous=EXTRA;" : "";
  const char* const level = sync ? "FULL" : kind == Kind::wal ? "NORMAL" : "OFF";
  std::string text = fmt::format("PRAGMA journal_mode=WAL; PRAGMA synchronous={};", level);
  if (kind == Kind::tuned) text += "PRAGMA mmap_size=2147418112; PRAGMA cache_size=-1048576;";
  return text;
}
constexpr std::uint64_t kSign = std::uint64_t{1} << 63;

struct CloseDb {
  void operator()(sqlite3* db) const noexcept { ::sqlite3_close(db); }
};
struct Finalize {
  void operator()(sqlite3_stmt* statement) const noexcept { ::sqlite3_finalize(statement); }
};
using Connection = std::unique_ptr<sqlite3, CloseDb>;
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

// A row of the result of the pragmas: the first has the mode of the journal.
int take_mode(void* mode, int columns, char** texts, char**) {
  auto& first = *static_cast<std::string*>(mode);
  if (first.empty() && columns > 0 && texts[0] != nullptr) first = texts[0];
  return 0;
}

// Null, and `error` set, if the file cannot be opened.
Connection connect(const std::string& file, const std::string& pragmas, std::string& error) {
  std::string mode;
  sqlite3* raw = nullptr;
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int code = ::sqlite3_open_v2(file.c_str(), &raw, kFlags, nullptr);
  Connection db(raw);
  if (code == SQLITE_OK && ::sqlite3_busy_timeout(raw, kBusyMs) == SQLITE_OK &&
      ::sqlite3_exec(raw, pragmas.c_str(), take_mode, &mode, nullptr) == SQLITE_OK) {
    if (pragmas.find("WAL") == std::string::npos || mode == "wal") return db;
    error = "the file cannot have a write-ahead log";
    return nullptr;
  }
  error = raw != nullptr ? ::sqlite3_errmsg(raw) : "out of memory";
  return nullptr;
}

class SqliteSession : public Session {
 public:
  SqliteSession(const std::string& file, const std::string& pragmas, const ForeignOptions& options,
                std::atomic<std::int64_t>& entries)
      : options_(options), entries_(entries), db_(connect(file, pragmas, trouble_)) {
    if (db_ == nullptr) return;
    insert_ = prepare("INSERT OR IGNORE INTO entries VALUES (?1, ?2)");
    update_ = prepare("UPDATE entries SET value = ?2 WHERE key = ?1");
    erase_ = prepare("DELETE FROM entries WHERE key = ?1");
    read_ = prepare("SELECT value FROM entries WHERE key = ?1");
    scan_ = prepare("SELECT key, value FROM entries WHERE key >= ?1 ORDER BY key LIMIT ?2");
  }

  Outcome insert(const KeyRef& key, const ValueRef& value) override {
    const Outcome outcome = change(insert_, key, &value);
    if (outcome == Outcome::yes) entries_.fetch_add(1, std::memory_order_relaxed);
    return outcome;
  }
  Outcome update(const KeyRef& key, const ValueRef& value) override {
    return change(update_, key, &value);
  }
  Outcome erase(const KeyRef& key) override {
    const Outcome outcome = change(erase_, key, nullptr);
    if (outcome == Outcome::yes) entries_.fetch_sub(1, std::memory_order_relaxed);
    return outcome;
  }
  Outcome read(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit) override {
    if (!trouble_.empty()) return fail("sqlite: " + trouble_);
    bind(read_, 1, key);
    const int code = ::sqlite3_step(read_.get());
    if (code == SQLITE_ROW) visit(value_at(read_, 0));
    return done(read_, code, code == SQLITE_ROW);
  }
  Outcome scan(const KeyRef& from, std::uint64_t limit, ScanTally& tally) override {
    if (!trouble_.empty()) return fail("sqlite: " + trouble_);
    bind(scan_, 1, from);
    ::sqlite3_bind_int64(scan_.get(), 2, static_cast<sqlite3_int64>(limit));
    int code = SQLITE_OK;
    while ((code = ::sqlite3_step(scan_.get())) == SQLITE_ROW) {
      tally.add(key_at(scan_, 0), value_at(scan_, 1));
    }
    return done(scan_, code, true);
  }

 private:
  Statement prepare(const char* sql) {
    sqlite3_stmt* statement = nullptr;
    if (::sqlite3_prepare_v3(db_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr) !=
        SQLITE_OK) {
      trouble_ = ::sqlite3_errmsg(db_.get());
    }
    return Statement(statement);
  }

  Outcome change(Statement& statement, const KeyRef& key, const ValueRef* value) {
    if (!trouble_.empty()) return fail("sqlite: " + trouble_);
    bind(statement, 1, key);
    if (value != nullptr) bind_value(statement, *value);
    const int code = ::sqlite3_step(statement.get());
    return done(statement, code, ::sqlite3_changes(db_.get()) != 0);
  }

  // Ends the transaction of a statement.
  Outcome done(Statement& statement, int code, bool yes) {
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
      const std::string message = ::sqlite3_errmsg(db_.get());
      ::sqlite3_reset(statement.get());
      return fail("sqlite: " + message);
    }
    ::sqlite3_reset(statement.get());
    return yes ? Outcome::yes : Outcome::no;
  }

  static void bind_blob(Statement& statement, int place, std::string_view bytes) {
    ::sqlite3_bind_blob(statement.get(), place, bytes.data(), static_cast<int>(bytes.size()),
                        SQLITE_STATIC);
  }
  void bind(Statement& statement, int place, const KeyRef& key) const {
    if (options_.key.is_string) {
      bind_blob(statement, place, key.bytes);
    } else {
      ::sqlite3_bind_int64(statement.get(), place, static_cast<sqlite3_int64>(key.word ^ kSign));
    }
  }
  void bind_value(Statement& statement, const ValueRef& value) const {
    if (options_.value.is_string) {
      bind_blob(statement, 2, value.bytes);
    } else {
      ::sqlite3_bind_int64(statement.get(), 2, static_cast<sqlite3_int64>(value.word));
    }
  }
  static std::string_view blob_at(Statement& statement, int column) {
    const void* bytes = ::sqlite3_column_blob(statement.get(), column);
    return {static_cast<const char*>(bytes),
            static_cast<std::size_t>(::sqlite3_column_bytes(statement.get(), column))};
  }
  static std::uint64_t word_at(Statement& statement, int column) {
    return static_cast<std::uint64_t>(::sqlite3_column_int64(statement.get(), column));
  }
  KeyRef key_at(Statement& statement, int column) const {
    if (options_.key.is_string) return {.bytes = blob_at(statement, column)};
    return {.word = word_at(statement, column) ^ kSign};
  }
  ValueRef value_at(Statement& statement, int column) const {
    if (options_.value.is_string) return {.bytes = blob_at(statement, column)};
    return {.word = word_at(statement, column)};
  }

  const ForeignOptions& options_;
  std::atomic<std::int64_t>& entries_;
  std::string trouble_;  // why no statement can run
  Connection db_;
  Statement insert_, update_, erase_, read_, scan_;
};

class SqliteSubject : public Subject {
 public:
  SqliteSubject(const ForeignOptions& options, Kind kind)
      : options_(options),
        kind_(kind),
        pragmas_(pragmas(kind, options.sync)),
        folder_(options.path, name_of(kind)),
        file_((folder_.path() / "entries.db").string()) {}

  std::string name() const override { return name_of(kind_); }
  std::string medium() const override { return "page"; }
  std::string durability() const override {
    return kind_ == Kind::plain || options_.sync ? "power" : "process";
  }
  std::string version() const override { return ::sqlite3_libversion(); }

  Result<void> create() override {
    if (auto made = folder_.create(); !made) return made;
    entries_ = 0;
    return run(options_.key.is_string
                   ? "CREATE TABLE entries(key BLOB PRIMARY KEY, value) WITHOUT ROWID"
                   : "CREATE TABLE entries(key INTEGER PRIMARY KEY, value)");
  }
  Result<void> reopen() override { return run("SELECT key FROM entries LIMIT 1"); }
  Result<void> close() override { return {}; }  // each connection closes with its session
  void remove() override { folder_.remove(); }
  std::unique_ptr<Session> session() override {
    return std::make_unique<SqliteSession>(file_, pragmas_, options_, entries_);
  }
  Footprint footprint() override {
    return {.entries = static_cast<std::uint64_t>(entries_.load()), .pm_bytes = folder_.bytes()};
  }

 private:
  Result<void> run(const char* sql) {
    std::string error;
    const Connection db = connect(file_, pragmas_, error);
    if (db == nullptr) return failure(kExitIo, fmt::format("{}: {}", file_, error));
    if (::sqlite3_exec(db.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
    return failure(kExitIo, fmt::format("{}: {}", file_, ::sqlite3_errmsg(db.get())));
  }

  ForeignOptions options_;
  Kind kind_;
  std::string pragmas_;
  StoreFolder folder_;
  std::string file_;
  std::atomic<std::int64_t> entries_ = 0;
};

}  // namespace

std::unique_ptr<Subject> make_sqlite_subject(const ForeignOptions& options) {
  return std::make_unique<SqliteSubject>(options, Kind::plain);
}
std::unique_ptr<Subject> make_sqlite_tuned_subject(const ForeignOptions& options) {
  return std::make_unique<SqliteSubject>(options, Kind::tuned);
}
std::unique_ptr<Subject> make_sqlite_wal_subject(const ForeignOptions& options) {
  return std::make_unique<SqliteSubject>(options, Kind::wal);
}

}  // namespace perdure::bench
