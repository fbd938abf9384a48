// LMDB with its defaults, and without read-ahead: a transaction is one of LMDB, and its commit
// syncs the file. If it may be lost, the environment has NOSYNC meanwhile. Sorted entries go in
// with MDB_APPEND. A compaction copies the environment, as LMDB has no other.
#include <fcntl.h>
#include <fmt/core.h>
#include <lmdb.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "bench/compare/bulk/store.h"
#include "bench/workloads/data.h"

namespace perdure::bench {
namespace {

constexpr std::size_t kMapSize = std::size_t{64} << 30;
constexpr unsigned kReaders = 64;

void must(int error) {
  if (error != 0) stop(kExitIo, fmt::format("lmdb: {}", ::mdb_strerror(error)));
}
// Returns whether there is an entry.
bool found(int error) {
  if (error == MDB_NOTFOUND) return false;
  must(error);
  return true;
}
MDB_val to_val(std::string_view bytes) noexcept {
  return {.mv_size = bytes.size(), .mv_data = const_cast<char*>(bytes.data())};
}
std::string_view from_val(const MDB_val& value) noexcept {
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

class LmdbReader : public BulkReader {
 public:
  LmdbReader(MDB_env* env, MDB_dbi dbi) : dbi_(dbi) {
    must(::mdb_txn_begin(env, nullptr, MDB_RDONLY, &txn_));
    must(::mdb_cursor_open(txn_, dbi_, &cursor_));
  }
  ~LmdbReader() override {
    ::mdb_cursor_close(cursor_);
    ::mdb_txn_abort(txn_);
  }

  bool read(std::string_view key, FunctionRef<void(std::string_view)> visit) override {
    MDB_val mdb_key = to_val(key);
    MDB_val value{};
    if (!found(::mdb_get(txn_, dbi_, &mdb_key, &value))) return false;
    visit(from_val(value));
    return true;
  }
  void scan(std::string_view from, std::uint64_t limit,
            FunctionRef<void(const Entry&)> visit) override {
    MDB_val key = to_val(from);
    MDB_val value{};
    // LMDB allows no empty key.
    MDB_cursor_op step = from.empty() ? MDB_FIRST : MDB_SET_RANGE;
    for (; limit > 0 && found(::mdb_cursor_get(cursor_, &key, &value, step)); --limit) {
      visit({from_val(key), from_val(value)});
      step = MDB_NEXT;
    }
  }

 private:
  MDB_dbi dbi_;
  MDB_txn* txn_ = nullptr;
  MDB_cursor* cursor_ = nullptr;
};

class LmdbStore : public BulkStore {
 public:
  explicit LmdbStore(const std::string& folder) : folder_(folder) {}

  void open() override {
    must(::mdb_env_create(&env_));
    must(::mdb_env_set_mapsize(env_, kMapSize));
    must(::mdb_env_set_maxreaders(env_, kReaders));
    must(::mdb_env_open(env_, folder_.c_str(), MDB_NORDAHEAD | MDB_NOTLS, 0600));
    write([&](MDB_txn* txn) { must(::mdb_dbi_open(txn, nullptr, 0, &dbi_)); });
  }
  void close() override { ::mdb_env_close(env_); }

  void set_commit(Commit commit) override {
    must(::mdb_env_set_flags(env_, MDB_NOSYNC, commit == Commit::soon ? 1 : 0));
  }
  void put(std::uint64_t count, EntrySource entries) override { put_all(count, entries, 0); }
  void append(std::uint64_t count, EntrySource entries) override {
    put_all(count, entries, MDB_APPEND);
  }
  void erase(std::uint64_t count, KeySource keys) override {
    write([&](MDB_txn* txn) {
      for (std::uint64_t i = 0; i < count; ++i) {
        MDB_val key = to_val(keys(i));
        must(::mdb_del(txn, dbi_, &key, nullptr));
      }
    });
  }
  void erase_if(std::string_view from, std::string_view to,
                FunctionRef<bool(const Entry&)> chosen) override {
    with_cursor([&](MDB_cursor* cursor) {
      MDB_val key = to_val(from);
      MDB_val value{};
      MDB_cursor_op step = from.empty() ? MDB_FIRST : MDB_SET_RANGE;
      while (found(::mdb_cursor_get(cursor, &key, &value, step)) && from_val(key) < to) {
        if (chosen({from_val(key), from_val(value)})) must(::mdb_cursor_del(cursor, 0));
        step = MDB_NEXT;  // also after a deletion
      }
    });
  }
  void pop(FunctionRef<bool(std::string_view)> goes_on) override {
    with_cursor([&](MDB_cursor* cursor) {
      MDB_val key{};
      MDB_val value{};
      MDB_cursor_op end = MDB_FIRST;
      for (bool more = true; more && found(::mdb_cursor_get(cursor, &key, &value, end));) {
        more = goes_on(from_val(key));
        must(::mdb_cursor_del(cursor, 0));
        end = end == MDB_FIRST ? MDB_LAST : MDB_FIRST;
      }
    });
  }
  std::uint64_t size() override {
    MDB_stat stat{};
    must(::mdb_env_stat(env_, &stat));
    return stat.ms_entries;
  }
  void compact() override {
    const std::filesystem::path copy = std::filesystem::path(folder_) / "copy.mdb";
    const int fd = ::open(copy.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) stop(kExitIo, fmt::format("{}: cannot be made", copy.string()));
    must(::mdb_env_copyfd2(env_, fd, MDB_CP_COMPACT));
    if (::fsync(fd) != 0 || ::close(fd) != 0) stop(kExitIo, "lmdb: the copy cannot be written");
    close();
    std::filesystem::rename(copy, std::filesystem::path(folder_) / "data.mdb");
    open();
  }
  std::unique_ptr<BulkReader> reader() override { return std::make_unique<LmdbReader>(env_, dbi_); }

 private:
  template <class Body>
  void write(Body body) {
    MDB_txn* txn = nullptr;
    must(::mdb_txn_begin(env_, nullptr, 0, &txn));
    body(txn);
    must(::mdb_txn_commit(txn));
  }
  template <class Body>
  void with_cursor(Body body) {
    write([&](MDB_txn* txn) {
      MDB_cursor* cursor = nullptr;
      must(::mdb_cursor_open(txn, dbi_, &cursor));
      body(cursor);
      ::mdb_cursor_close(cursor);
    });
  }
  void put_all(std::uint64_t count, EntrySource entries, unsigned flags) {
    write([&](MDB_txn* txn) {
      for (std::uint64_t i = 0; i < count; ++i) {
        const Entry entry = entries(i);
        MDB_val key = to_val(entry.key);
        MDB_val value = to_val(entry.value);
        must(::mdb_put(txn, dbi_, &key, &value, flags));
      }
    });
  }

  std::string folder_;
  MDB_env* env_ = nullptr;
  MDB_dbi dbi_ = 0;
};

}  // namespace

std::unique_ptr<BulkStore> make_lmdb_bulk(const std::string& folder) {
  return std::make_unique<LmdbStore>(folder);
}

}  // namespace perdure::bench
