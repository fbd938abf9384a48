// A hash map of chains over libpmemobj, written as the examples of PMDK teach it: every mutation is
// a transaction, nodes come from the transactional allocator, and the table doubles in one
// transaction at five nodes a bucket. libpmemobj has no map of its own, and its transactions belong
// to one thread: threads share one lock, lookups in shared mode.
//
// The pool is a set of files. With PMEM_IS_PMEM_FORCE=1, which main() sets, libpmem executes its
// write-backs on any memory, as durability `emulated` does.
#include <fmt/core.h>
#include <libpmemobj.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <system_error>

#include "bench/compare/foreign.h"

namespace perdure::bench {
namespace {

constexpr const char* kLayout = "perdure-compare";
constexpr std::uint64_t kFirstBuckets = 1024;
constexpr std::uint64_t kNodesPerBucket = 5;  // as in PMDK's hashmap_tx

// Numbers of the types, which libpmemobj keeps with each object.
enum Type : std::uint64_t { kTable = 1, kNode = 2 };

struct Node {
  PMEMoid next;
  std::uint64_t hash;
  std::uint32_t key_size;
  std::uint32_t value_size;
  // The bytes of key and value follow.
  char* bytes() noexcept { return reinterpret_cast<char*>(this + 1); }
  std::string_view key() noexcept { return {bytes(), key_size}; }
  std::string_view value() noexcept { return {bytes() + key_size, value_size}; }
};
struct Root {
  PMEMoid buckets;  // PMEMoid[bucket_count]
  std::uint64_t bucket_count;
  std::uint64_t nodes;
};

template <class T>
T* direct(PMEMoid oid) noexcept {
  return static_cast<T*>(::pmemobj_direct(oid));
}

std::uint64_t hash_of(std::string_view key) noexcept { return std::hash<std::string_view>{}(key); }

// The state that all sessions share.
struct Store {
  PMEMobjpool* pool = nullptr;
  Root* root = nullptr;
  std::shared_mutex mutex;

  PMEMoid& bucket(std::uint64_t hash) const noexcept {
    return direct<PMEMoid>(root->buckets)[hash & (root->bucket_count - 1)];
  }
  // The link that names the node of the key, or null.
  PMEMoid* find(std::string_view key, std::uint64_t hash) const noexcept {
    for (PMEMoid* link = &bucket(hash); !OID_IS_NULL(*link);) {
      Node* node = direct<Node>(*link);
      if (node->hash == hash && node->key() == key) return link;
      link = &node->next;
    }
    return nullptr;
  }
};

// Runs body() as one transaction. Returns 0, or the error with which libpmemobj has aborted it.
template <class Body>
int transaction(PMEMobjpool* pool, Body body) {
  int error = ::pmemobj_tx_begin(pool, nullptr, TX_PARAM_NONE);
  if (error == 0) {
    error = body();
    if (error == 0) {
      ::pmemobj_tx_commit();
    } else if (::pmemobj_tx_stage() == TX_STAGE_WORK) {
      ::pmemobj_tx_abort(error);
    }
  }
  (void)::pmemobj_tx_end();
  return error;
}

// Logs the old bytes of an object; the caller then changes them.
template <class T>
int log_old(T* object) noexcept {
  return ::pmemobj_tx_xadd_range_direct(object, sizeof(T), POBJ_XADD_NO_ABORT);
}

int grow(Root& root) {
  const std::uint64_t count = root.bucket_count * 2;
  const PMEMoid fresh =
      ::pmemobj_tx_xalloc(count * sizeof(PMEMoid), kTable, POBJ_XALLOC_ZERO | POBJ_XALLOC_NO_ABORT);
  if (OID_IS_NULL(fresh)) return errno;
  auto* to = direct<PMEMoid>(fresh);
  const auto* from = direct<PMEMoid>(root.buckets);
  for (std::uint64_t i = 0; i < root.bucket_count; ++i) {
    for (PMEMoid oid = from[i]; !OID_IS_NULL(oid);) {
      Node* node = direct<Node>(oid);
      const PMEMoid next = node->next;
      if (const int error = log_old(&node->next); error != 0) return error;
      PMEMoid& head = to[node->hash & (count - 1)];
      node->next = head;
      head = oid;
      oid = next;
    }
  }
  if (const int error = log_old(&root); error != 0) return error;
  if (const int error = ::pmemobj_tx_xfree(root.buckets, POBJ_XFREE_NO_ABORT); error != 0) {
    return error;
  }
  root.buckets = fresh;
  root.bucket_count = count;
  return 0;
}

// A new node in front of `next`; null if there is no memory.
PMEMoid make_node(std::string_view key, std::uint64_t hash, std::string_view value, PMEMoid next) {
  const PMEMoid oid =
      ::pmemobj_tx_xalloc(sizeof(Node) + key.size() + value.size(), kNode, POBJ_XALLOC_NO_ABORT);
  if (OID_IS_NULL(oid)) return oid;
  Node* node = direct<Node>(oid);
  *node = {.next = next,
           .hash = hash,
           .key_size = static_cast<std::uint32_t>(key.size()),
           .value_size = static_cast<std::uint32_t>(value.size())};
  std::memcpy(node->bytes(), key.data(), key.size());
  std::memcpy(node->bytes() + key.size(), value.data(), value.size());
  return oid;
}

class PmemobjSession : public Session {
 public:
  PmemobjSession(Store& store, const ForeignOptions& options) : store_(store), options_(options) {}

  Outcome insert(const KeyRef& key, const ValueRef& value) override {
    const Encoded encoded_key(key);
    const Encoded encoded_value(value);
    const std::string_view bytes = encoded_key.view();
    const std::uint64_t hash = hash_of(bytes);
    const std::unique_lock guard(store_.mutex);
    if (store_.find(bytes, hash) != nullptr) return Outcome::no;
    return judged(transaction(store_.pool, [&] {
      Root& root = *store_.root;
      int error = 0;
      if (root.nodes >= root.bucket_count * kNodesPerBucket) error = grow(root);
      PMEMoid& head = store_.bucket(hash);
      if (error == 0) error = log_old(&head);
      if (error == 0) error = log_old(&root.nodes);
      if (error != 0) return error;
      const PMEMoid node = make_node(bytes, hash, encoded_value.view(), head);
      if (OID_IS_NULL(node)) return errno;
      head = node;
      ++root.nodes;
      return 0;
    }));
  }

  Outcome update(const KeyRef& key, const ValueRef& value) override {
    const Encoded encoded_key(key);
    const Encoded encoded_value(value);
    const std::string_view bytes = encoded_key.view();
    const std::string_view fresh = encoded_value.view();
    const std::uint64_t hash = hash_of(bytes);
    const std::unique_lock guard(store_.mutex);
    PMEMoid* link = store_.find(bytes, hash);
    if (link == nullptr) return Outcome::no;
    Node* node = direct<Node>(*link);
    return judged(transaction(store_.pool, [&] {
      if (node->value_size == fresh.size()) {
        char* old = node->bytes() + node->key_size;
        const int error = ::pmemobj_tx_xadd_range_direct(old, fresh.size(), POBJ_XADD_NO_ABORT);
        if (error == 0) std::memcpy(old, fresh.data(), fresh.size());
        return error;
      }
      if (const int error = log_old(link); error != 0) return error;
      const PMEMoid replaced = *link;
      const PMEMoid made = make_node(bytes, hash, fresh, node->next);
      if (OID_IS_NULL(made)) return errno;
      *link = made;
      return ::pmemobj_tx_xfree(replaced, POBJ_XFREE_NO_ABORT);
    }));
  }

  Outcome erase(const KeyRef& key) override {
    const Encoded encoded(key);
    const std::uint64_t hash = hash_of(encoded.view());
    const std::unique_lock guard(store_.mutex);
    PMEMoid* link = store_.find(encoded.view(), hash);
    if (link == nullptr) return Outcome::no;
    return judged(transaction(store_.pool, [&] {
      int error = log_old(link);
      if (error == 0) error = log_old(&store_.root->nodes);
      if (error != 0) return error;
      const PMEMoid gone = *link;
      *link = direct<Node>(gone)->next;
      --store_.root->nodes;
      return ::pmemobj_tx_xfree(gone, POBJ_XFREE_NO_ABORT);
    }));
  }

  Outcome read(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit) override {
    const Encoded encoded(key);
    const std::uint64_t hash = hash_of(encoded.view());
    const std::shared_lock guard(store_.mutex);
    const PMEMoid* link = store_.find(encoded.view(), hash);
    if (link == nullptr) return Outcome::no;
    visit(decode_value(options_.value, direct<Node>(*link)->value()));
    return Outcome::yes;
  }
  Outcome scan(const KeyRef&, std::uint64_t, ScanTally&) override {
    return fail("the engine keeps no order");
  }

 private:
  Outcome judged(int error) {
    return error == 0 ? Outcome::yes : fail(fmt::format("pmemobj: {}", ::pmemobj_errormsg()));
  }

  Store& store_;
  const ForeignOptions& options_;
};

class PmemobjSubject : public Subject {
 public:
  explicit PmemobjSubject(const ForeignOptions& options)
      : options_(options),
        folder_(options.path, "pmemobj"),
        file_((folder_.path() / "pool.set").string()) {}
  ~PmemobjSubject() override { (void)close(); }

  std::string name() const override { return "pmemobj"; }
  std::string medium() const override { return "tmpfs"; }
  std::string durability() const override { return "emulated"; }
  std::string version() const override {
    return fmt::format("{}.{}", PMEMOBJ_MAJOR_VERSION, PMEMOBJ_MINOR_VERSION);
  }

  Result<void> create() override {
    if (auto made = folder_.create(); !made) return made;
    // libpmemobj allocates the whole of a plain file. A set of parts grows as the pool is filled.
    std::error_code error;
    const std::filesystem::path parts = folder_.path() / "parts";
    std::filesystem::create_directory(parts, error);
    std::ofstream set(file_);
    set << "PMEMPOOLSET\nOPTION SINGLEHDR\n"
        << options_.max_size << "B " << std::filesystem::absolute(parts).string() << "\n";
    set.close();
    if (!set || error) return failure(kExitIo, fmt::format("{}: cannot write", file_));
    store_.pool = ::pmemobj_create(file_.c_str(), kLayout, 0, 0600);
    if (store_.pool == nullptr) return failed();
    store_.root = direct<Root>(::pmemobj_root(store_.pool, sizeof(Root)));
    std::uint64_t buckets = kFirstBuckets;
    while (buckets * kNodesPerBucket < options_.capacity) buckets *= 2;
    const int aborted = transaction(store_.pool, [&] {
      if (const int refused = log_old(store_.root); refused != 0) return refused;
      store_.root->buckets = ::pmemobj_tx_xalloc(buckets * sizeof(PMEMoid), kTable,
                                                 POBJ_XALLOC_ZERO | POBJ_XALLOC_NO_ABORT);
      store_.root->bucket_count = buckets;
      return OID_IS_NULL(store_.root->buckets) ? errno : 0;
    });
    if (aborted != 0) return failed();
    return {};
  }
  Result<void> reopen() override {
    store_.pool = ::pmemobj_open(file_.c_str(), kLayout);
    if (store_.pool == nullptr) return failed();
    store_.root = direct<Root>(::pmemobj_root(store_.pool, sizeof(Root)));
    return {};
  }
  Result<void> close() override {
    if (store_.pool != nullptr) ::pmemobj_close(store_.pool);
    store_.pool = nullptr;
    return {};
  }
  void remove() override { folder_.remove(); }
  std::unique_ptr<Session> session() override {
    return std::make_unique<PmemobjSession>(store_, options_);
  }
  Footprint footprint() override {
    // The sizes of all objects, as the allocator hands them out; not its own tables.
    std::uint64_t bytes = 0;
    PMEMoid oid = ::pmemobj_first(store_.pool);
    for (; !OID_IS_NULL(oid); oid = ::pmemobj_next(oid)) bytes += ::pmemobj_alloc_usable_size(oid);
    return {.entries = store_.root->nodes, .pm_bytes = bytes};
  }

 private:
  std::unexpected<Failure> failed() const {
    return failure(kExitIo, fmt::format("{}: pmemobj: {}", file_, ::pmemobj_errormsg()));
  }

  ForeignOptions options_;
  StoreFolder folder_;
  std::string file_;
  Store store_;
};

}  // namespace

std::unique_ptr<Subject> make_pmemobj_subject(const ForeignOptions& options) {
  return std::make_unique<PmemobjSubject>(options);
}

}  // namespace perdure::bench
