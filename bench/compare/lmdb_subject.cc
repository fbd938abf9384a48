// LMDB: one write transaction per operation, and one reader per thread, which is reset and renewed.
// With WRITEMAP, NOSYNC and MAPASYNC it keeps after a kill what `process` durability keeps. With
// sync it has none of them, as it comes, and survives a power failure. With integer keys,
// `lmdb_int` has MDB_INTEGERKEY: it compares words, not bytes.
#include <lmdb.h>

#include <fmt/core.h>

#include <cstring>

#include "bench/compare/foreign.h"

namespace perdure::bench {
namespace {

MDB_val to_val(std::string_view bytes) noexcept {
  return {.mv_size = bytes.size(), .mv_data = const_cast<char*>(bytes.data())};
}
std::string_view from_val(const MDB_val& value) noexcept {
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

// An integer key of MDB_INTEGERKEY, in the interface of Encoded.
class Word {
 public:
  explicit Word(const KeyRef& key) noexcept : word_(key.word) {}
  std::string_view view() const noexcept {
    return {reinterpret_cast<const char*>(&word_), sizeof(word_)};
  }
  static KeyRef decode(const DataKind&, std::string_view bytes) noexcept {
    KeyRef key;
    std::memcpy(&key.word, bytes.data(), sizeof(key.word));
    return key;
  }

 private:
  std::uint64_t word_;
};
// A key that LMDB compares as bytes.
class Bytes : public Encoded {
 public:
  using Encoded::Encoded;
  static KeyRef decode(const DataKind& kind, std::string_view bytes) noexcept {
    return decode_key(kind, bytes);
  }
};

template <class Key>
class LmdbSession : public Session {
 public:
  LmdbSession(MDB_env* env, MDB_dbi dbi, const ForeignOptions& options)
      : env_(env), dbi_(dbi), options_(options) {
    ready_ = ::mdb_txn_begin(env_, nullptr, MDB_RDONLY, &reader_) == 0 &&
             ::mdb_cursor_open(reader_, dbi_, &cursor_) == 0;
    if (ready_) ::mdb_txn_reset(reader_);
  }
  ~LmdbSession() override {
    if (cursor_ != nullptr) ::mdb_cursor_close(cursor_);
    if (reader_ != nullptr) ::mdb_txn_abort(reader_);
  }

  Outcome insert(const KeyRef& key, const ValueRef& value) override {
    return put(key, value, MDB_NOOVERWRITE, MDB_KEYEXIST);
  }
  Outcome update(const KeyRef& key, const ValueRef& value) override {
    return put(key, value, 0, 0);
  }
  Outcome erase(const KeyRef& key) override {
    const Key encoded(key);
    return write(
        [&](MDB_txn* txn) {
          MDB_val mdb_key = to_val(encoded.view());
          return ::mdb_del(txn, dbi_, &mdb_key, nullptr);
        },
        MDB_NOTFOUND);
  }

  Outcome read(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit) override {
    const Key encoded(key);
    if (const int error = renew(); error != 0) return failed(error);
    MDB_val mdb_key = to_val(encoded.view());
    MDB_val value{};
    const int error = ::mdb_get(reader_, dbi_, &mdb_key, &value);
    if (error == 0) visit(decode_value(options_.value, from_val(value)));
    ::mdb_txn_reset(reader_);
    if (error == MDB_NOTFOUND) return Outcome::no;
    return error == 0 ? Outcome::yes : failed(error);
  }

  Outcome scan(const KeyRef& from, std::uint64_t limit, ScanTally& tally) override {
    const Key encoded(from);
    if (const int error = renew(); error != 0) return failed(error);
    int error = ::mdb_cursor_renew(reader_, cursor_);
    MDB_val key = to_val(encoded.view());
    MDB_val value{};
    if (error == 0) error = ::mdb_cursor_get(cursor_, &key, &value, MDB_SET_RANGE);
    for (; error == 0 && limit > 0; --limit) {
      tally.add(Key::decode(options_.key, from_val(key)),
                decode_value(options_.value, from_val(value)));
      if (limit > 1) error = ::mdb_cursor_get(cursor_, &key, &value, MDB_NEXT);
    }
    ::mdb_txn_reset(reader_);
    return error == 0 || error == MDB_NOTFOUND ? Outcome::yes : failed(error);
  }

 private:
  Outcome failed(int error) { return fail(fmt::format("lmdb: {}", ::mdb_strerror(error))); }
  int renew() { return ready_ ? ::mdb_txn_renew(reader_) : MDB_BAD_TXN; }

  Outcome put(const KeyRef& key, const ValueRef& value, unsigned flags, int no_if) {
    const Key encoded_key(key);
    const Encoded encoded_value(value);
    return write(
        [&](MDB_txn* txn) {
          MDB_val mdb_key = to_val(encoded_key.view());
          MDB_val mdb_value = to_val(encoded_value.view());
          return ::mdb_put(txn, dbi_, &mdb_key, &mdb_value, flags);
        },
        no_if);
  }

  // Runs one transaction. `no_if` is the error that means "no"; 0 if no error does.
  template <class Body>
  Outcome write(Body body, int no_if) {
    MDB_txn* txn = nullptr;
    int error = ::mdb_txn_begin(env_, nullptr, 0, &txn);
    if (error != 0) return failed(error);
    error = body(txn);
    if (error != 0) {
      ::mdb_txn_abort(txn);
      return error == no_if ? Outcome::no : failed(error);
    }
    error = ::mdb_txn_commit(txn);
    return error == 0 ? Outcome::yes : failed(error);
  }

  MDB_env* env_;
  MDB_dbi dbi_;
  const ForeignOptions& options_;
  MDB_txn* reader_ = nullptr;
  MDB_cursor* cursor_ = nullptr;
  bool ready_ = false;
};

template <class Key>
class LmdbSubject : public Subject {
 public:
  explicit LmdbSubject(const ForeignOptions& options)
      : options_(options), folder_(options.path, kName) {}
  ~LmdbSubject() override { (void)close(); }

  std::string name() const override { return kName; }
  std::string medium() const override { return "page"; }
  std::string durability() const override { return options_.sync ? "power" : "process"; }
  std::string version() const override {
    return fmt::format("{}.{}.{}", MDB_VERSION_MAJOR, MDB_VERSION_MINOR, MDB_VERSION_PATCH);
  }

  Result<void> create() override {
    if (kInteger && options_.key.is_string) {
      return failure(kExitUsage, "lmdb_int takes keys that are integers; use lmdb");
    }
    if (auto made = folder_.create(); !made) return made;
    return reopen();
  }
  Result<void> reopen() override {
    const unsigned flags =
        MDB_NORDAHEAD | (options_.sync ? 0U : MDB_WRITEMAP | MDB_NOSYNC | MDB_MAPASYNC);
    constexpr unsigned kSpareReaders = 16;
    int error = ::mdb_env_create(&env_);
    if (error == 0) error = ::mdb_env_set_mapsize(env_, options_.max_size);
    if (error == 0) error = ::mdb_env_set_maxreaders(env_, options_.threads + kSpareReaders);
    if (error == 0) error = ::mdb_env_open(env_, folder_.path().c_str(), flags, 0600);
    MDB_txn* txn = nullptr;
    if (error == 0) error = ::mdb_txn_begin(env_, nullptr, 0, &txn);
    if (error == 0) error = ::mdb_dbi_open(txn, nullptr, kOfMap, &dbi_);
    if (error == 0) {
      error = ::mdb_txn_commit(txn);
    } else if (txn != nullptr) {
      ::mdb_txn_abort(txn);
    }
    if (error == 0) return {};
    return failure(kExitIo,
                   fmt::format("{}: lmdb: {}", folder_.path().string(), ::mdb_strerror(error)));
  }
  Result<void> close() override {
    if (env_ != nullptr) ::mdb_env_close(env_);
    env_ = nullptr;
    return {};
  }
  void remove() override { folder_.remove(); }
  std::unique_ptr<Session> session() override {
    return std::make_unique<LmdbSession<Key>>(env_, dbi_, options_);
  }
  Footprint footprint() override {
    MDB_envinfo info{};
    MDB_stat stat{};
    ::mdb_env_info(env_, &info);
    ::mdb_env_stat(env_, &stat);
    // The file is as large as the map. The used part ends with the last page.
    return {.entries = stat.ms_entries,
            .pm_bytes = (info.me_last_pgno + 1) * std::uint64_t{stat.ms_psize}};
  }

 private:
  static constexpr bool kInteger = std::is_same_v<Key, Word>;
  static constexpr const char* kName = kInteger ? "lmdb_int" : "lmdb";
  // MDB_CREATE does nothing for the unnamed map but lets its flags be set.
  static constexpr unsigned kOfMap = kInteger ? MDB_INTEGERKEY | MDB_CREATE : 0;

  ForeignOptions options_;
  StoreFolder folder_;
  MDB_env* env_ = nullptr;
  MDB_dbi dbi_ = 0;
};

}  // namespace

std::unique_ptr<Subject> make_lmdb_subject(const ForeignOptions& options) {
  return std::make_unique<LmdbSubject<Bytes>>(options);
}
std::unique_ptr<Subject> make_lmdb_int_subject(const ForeignOptions& options) {
  return std::make_unique<LmdbSubject<Word>>(options);
}

}  // namespace perdure::bench
