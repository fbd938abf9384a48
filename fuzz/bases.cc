#include "fuzz/bases.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "format/pool_core.h"
#include "platform/file_storage.h"
#include "platform/real_platform.h"
#include "testing/checksums/checksums.h"

namespace perdure::fuzz {

namespace {

using Bytes = std::string_view;

template <class T>
T must(Expected<T> result) {
  PERDURE_EXPECT(result.has_value(), "a base pool cannot be made: %s",
                 std::string(result.error().message()).c_str());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}
void must(const Found& found) {
  PERDURE_EXPECT(found.ok(), "%s", std::string(found.status().message()).c_str());
}
void must(const Status& status) {
  PERDURE_EXPECT(status.ok(), "a base pool cannot be made: %s",
                 std::string(status.message()).c_str());
}

Engine engine_by_name() {
  const char* name = std::getenv("PERDURE_FUZZ_ENGINE");
  if (name == nullptr || *name == '\0') return Engine::phast;
  const auto engine = engine_named(name);
  PERDURE_EXPECT(engine.has_value(), "no engine %s", name);
  return *engine;
}

Oracles oracles_of(Pool& pool) {
  Oracles out;
  for (const MapInfo& info : must(pool.list())) {
    UntypedMap map = must(pool.untyped_map(info.name, {.mode = OpenMode::existing}));
    out.emplace(info.name, Oracle::of(map));
  }
  return out;
}

}  // namespace

ScratchFile::ScratchFile() : fd_(memfd_create("perdure-fuzz", MFD_CLOEXEC)) {
  PERDURE_EXPECT(fd_ >= 0, "memfd_create");
  path_ = "/proc/self/fd/" + std::to_string(fd_);
}
ScratchFile::~ScratchFile() { ::close(fd_); }

void ScratchFile::write(std::string_view bytes) const {
  PERDURE_EXPECT(ftruncate(fd_, static_cast<off_t>(bytes.size())) == 0, "ftruncate");
  PERDURE_EXPECT(pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
                 "pwrite");
}

std::string ScratchFile::read() const {
  struct stat info{};
  PERDURE_EXPECT(fstat(fd_, &info) == 0, "fstat");
  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  PERDURE_EXPECT(pread(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
                 "pread");
  return bytes;
}

std::uint64_t word_of(std::uint8_t choice) noexcept {
  if (choice == 255) return ~std::uint64_t{0};
  return choice < 200 ? choice * std::uint64_t{1000} : std::uint64_t{choice} << 56;
}
std::string text_of(std::uint8_t choice) {
  // Keys of four kinds: their first 8 bytes differ; these are equal; one key is a prefix of
  // another; the key is empty.
  if (choice < 100) return "customer:" + std::to_string(choice);
  return std::string(choice % 24, static_cast<char>('a' + choice % 3));
}

Fixture& Fixture::get() {
  static Fixture fixture;
  return fixture;
}

// A pool as small as the format allows. Pool::open would make a larger one.
void Fixture::make_empty() {
  file_.write("");
  RealPlatform platform;
  FileStorage storage;
  constexpr PoolShape kShape{
      .max_bytes = 192_KiB, .extent_bytes = 4_KiB, .root_slots = 8, .initial_extents = 2};
  must(storage.open(file_.path(), FileStorage::Access::owner));
  must(storage.map(kShape.max_bytes));
  layout::Identity identity;
  must(storage.identity(identity));
  const std::uint8_t uuid[16] = {'f', 'u', 'z', 'z'};
  must(PoolCore<RealPlatform>::create(platform, storage, kShape, identity, uuid,
                                      Durability::process));
}

// Adds two bases: the pool that `fill` leaves while it is open, and the same pool closed.
template <class F>
void Fixture::add(F&& fill, const CloseOptions& close) {
  make_empty();
  Pool pool = must(open_file(file_.path(), {.mode = OpenMode::existing}));
  fill(pool);
  oracles_.insert(oracles_.end(), 2, oracles_of(pool));
  bases_.push_back(file_.read());
  must(pool.close(close));
  bases_.push_back(file_.read());
  std::string fixed = bases_.back();
  testing::fix_engines(fixed);
  testing::fix_pool(fixed);
  PERDURE_EXPECT(fixed == bases_.back(),
                 "testing/checksums changes the checksums of a closed pool");
}

Fixture::Fixture() : engine_(engine_by_name()) {
  make_bases();
  const auto built = engines();
  const auto info = std::ranges::find(built, engine_, &EngineInfo::engine);
  if (info->versioned) make_versioned_bases();
  file_.write("");
}

void Fixture::make_bases() {
  const auto options = [this](std::uint32_t bits) {
    return MapOptions{.engine = engine_, .phast = {.partition_bits = bits}};
  };
  const auto words = [&](Pool& pool, unsigned n, std::uint32_t bits = 0) {
    auto map = must(pool.map<std::uint64_t, std::uint64_t>("words", options(bits)));
    for (unsigned i = 0; i < n; ++i) {
      must(map.put(word_of(static_cast<std::uint8_t>(i)), i));
    }
    return map;
  };
  const auto records = [&](Pool& pool, unsigned n) {
    auto map = must(pool.map<std::int32_t, Bytes>("records", options(0)));
    for (unsigned i = 0; i < n; ++i) {
      must(map.put(static_cast<std::int32_t>(i) * 1000, std::string(i % 40, 'r')));
    }
    return map;
  };
  const auto texts = [&](Pool& pool, unsigned n) {
    auto map = must(pool.map<Bytes, Bytes>("texts", options(0)));
    for (unsigned i = 0; i < n; ++i) {
      must(map.put(text_of(static_cast<std::uint8_t>(i)), std::string(i % 30, 't')));
    }
    return map;
  };
  const auto counts = [&](Pool& pool, unsigned n) {
    auto map = must(pool.map<Bytes, std::uint32_t>("counts", options(1)));
    for (unsigned i = 0; i < n; ++i) must(map.put(text_of(static_cast<std::uint8_t>(i)), i));
    return map;
  };
  add([](Pool&) {});
  add([&](Pool& pool) { words(pool, 20); });
  add([&](Pool& pool) { words(pool, 61); }, {.sync = false});  // a full node was split
  add([&](Pool& pool) {
    auto map = words(pool, 199, 1);
    for (unsigned i = 70; i < 140; ++i) must(map.erase(word_of(static_cast<std::uint8_t>(i))));
  });
  add([&](Pool& pool) { records(pool, 10); });
  add([&](Pool& pool) {
    auto map = records(pool, 70);
    must(map.put(-5, std::string(9000, 'L')));  // has extents of its own
  });
  add([&](Pool& pool) { texts(pool, 8); });
  add([&](Pool& pool) { texts(pool, 150); });
  add([&](Pool& pool) {
    auto map = texts(pool, 150);
    for (unsigned i = 0; i < 120; ++i) must(map.erase(text_of(static_cast<std::uint8_t>(i))));
  });
  add([&](Pool& pool) { counts(pool, 90); });
  add([&](Pool& pool) {
    words(pool, 5);
    records(pool, 5);
    texts(pool, 5);
    counts(pool, 5);
    must(must(pool.map<std::uint64_t, std::uint64_t>("gone", options(0))).insert(1, 2));
    must(pool.drop("gone"));
    must(pool.sync());  // sealed
  });
}

// Pools with histories of several segments, keys that no version still has, and values of all
// sizes.
void Fixture::make_versioned_bases() {
  const MapOptions options{.engine = engine_};
  const auto key_of = [](unsigned i) { return text_of(static_cast<std::uint8_t>(i)); };
  add([&](Pool& pool) {
    auto map = must(pool.versioned_map<std::uint64_t, std::uint64_t>("words", options));
    for (unsigned round = 0; round < 20; ++round) {
      for (unsigned i = 0; i < 64; i += 1 + round % 4) {
        const std::uint64_t key = word_of(static_cast<std::uint8_t>(i));
        if ((i + round) % 5 == 0) {
          must(map.erase(key));
        } else {
          must(map.put(key, round));
        }
      }
      if (round != 19) must(map.tag());
    }
  });
  const auto texts = [&](Pool& pool) {
    auto map = must(pool.versioned_map<Bytes, Bytes>("texts", options));
    for (unsigned round = 0; round < 6; ++round) {
      for (unsigned i = round; i < 60; i += 1 + round % 3) {
        must(map.put(key_of(i), std::string(i / 2 + round, 'v')));
        if (i % 4 == round % 4) must(map.erase(key_of(i)));
      }
      must(map.tag());
    }
    return map;
  };
  add([&](Pool& pool) { texts(pool); });
  add([&](Pool& pool) {
    auto map = texts(pool);
    must(map.rollback(4));
    must(map.put(key_of(1), "written behind the rollback"));
    must(map.tag());
    must(map.trim(3));
  });
}

const Oracles* Fixture::oracles(const Recipe& recipe, std::string_view bytes) const {
  if (recipe.base == Recipe::kRaw) return nullptr;
  const std::size_t base = recipe.base % bases_.size();
  return bytes == bases_[base] ? &oracles_[base] : nullptr;
}

std::string Fixture::write(const Recipe& recipe, PoolOptions& options) const {
  std::string bytes = expand(recipe, bases_);
  file_.write(bytes);
  RealPlatform::ends_at_violation = (recipe.flags & (Recipe::kFixPool | Recipe::kFixEngine)) == 0 ||
                                    oracles(recipe, bytes) != nullptr;
  options = {
      .mode = (recipe.flags & Recipe::kReadOnly) != 0 ? OpenMode::read_only : OpenMode::existing,
      .accept_untrusted = (recipe.flags & Recipe::kAccept) != 0,
      .durability = Durability::automatic};
  if ((recipe.flags & Recipe::kEmulated) != 0) options.durability = Durability::emulated;
  if ((recipe.flags & Recipe::kPower) != 0) options.durability = Durability::power;
  return bytes;
}

Expected<Pool> open_file(const std::string& path, const PoolOptions& options) {
  PoolOptions quiet = options;
  quiet.recovery_threads = 1;
  quiet.background_threads = 0;
  auto pool = Pool::open(path, quiet);
  if (pool) return pool;
  switch (pool.error().code()) {
    case StatusCode::corruption:
    case StatusCode::unsupported_format:
    case StatusCode::untrusted:
    case StatusCode::pool_full:
    case StatusCode::out_of_memory:
    case StatusCode::unsupported:  // `power` on a file in memory
      break;
    default:
      PERDURE_EXPECT(false, "open failed with the undocumented %s: %s",
                     status_code_name(pool.error().code()),
                     std::string(pool.error().message()).c_str());
  }
  PERDURE_EXPECT(pool.error().message().find(path) != std::string_view::npos,
                 "the message does not name the file");
  return pool;
}

}  // namespace perdure::fuzz
