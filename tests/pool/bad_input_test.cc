// test: no asan, each engine
// Bad files: damaged, cut or foreign. Each must fail with a documented status, stay as it was, and
// never raise a signal. The tests do not know the layout of the header: they find its copies by
// their equal first words, and damage single bytes everywhere.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "index/engine_table.h"
#include "tests/support/small_pool.h"

namespace perdure::test {
namespace {

// Patches bytes in place, and restores the original at the end.
class Patient {
 public:
  explicit Patient(const std::string& path) : path_(path), original_(read_bytes(path)) {}
  const std::string& original() const { return original_; }
  void restore() const { write(original_); }
  void write(const std::string& bytes) const { write_bytes(path_, bytes); }

 private:
  std::string path_;
  std::string original_;
};

// The offsets of the header copies: where the first 8 bytes of the file occur.
std::vector<std::size_t> header_copies(const std::string& bytes) {
  std::vector<std::size_t> found;
  const std::string magic = bytes.substr(0, 8);
  for (std::size_t at = 0; at + 8 <= std::min<std::size_t>(bytes.size(), 65'536); at += 64) {
    if (bytes.compare(at, 8, magic) == 0) found.push_back(at);
  }
  return found;
}
// The used bytes of a copy: up to the last nonzero one, within the distance of the copies.
std::size_t header_length(const std::string& bytes) {
  const auto copies = header_copies(bytes);
  std::size_t length = copies.at(1) - copies.at(0);
  while (length > 0 && bytes[copies[0] + length - 1] == '\0') --length;
  return std::min<std::size_t>(length, 4'096);
}

// ---- Damaged files ----

TEST(HeaderDamage, TwoCopiesExist) {
  TempPath path;
  make_pool(path);
  EXPECT_EQ(header_copies(read_bytes(path)).size(), 2U);
}

// Damages one byte in one copy. The open repairs it from the other copy or reports it, and never
// serves wrong content.
TEST(HeaderDamage, EachByteOfEachCopyAloneIsRepairedOrReported) {
  TempPath path;
  make_pool(path);
  const Patient patient(path);
  const auto copies = header_copies(patient.original());
  ASSERT_EQ(copies.size(), 2U);
  const std::size_t length = header_length(patient.original());
  ASSERT_GE(length, 64U);
  const std::size_t step = san() ? 7 : 1;
  std::uint64_t repaired = 0;
  for (const std::size_t copy : copies) {
    for (std::size_t at = 0; at < length; at += step) {
      SCOPED_TRACE("byte " + std::to_string(at) + " of the copy at " + std::to_string(copy));
      std::string bytes = patient.original();
      bytes[copy + at] = static_cast<char>(bytes[copy + at] ^ 0x41);
      patient.write(bytes);
      auto pool = Pool::open(path, small_pool());
      if (!pool) {
        EXPECT_TRUE(pool.error() == StatusCode::corruption ||
                    pool.error() == StatusCode::unsupported_format ||
                    pool.error() == StatusCode::untrusted)
            << describe(pool.error());
        EXPECT_TRUE(read_bytes(path) == bytes) << "a refused file was changed";
        continue;
      }
      ++repaired;
      ASSERT_EQ(wrong_content(*pool), "");
      if (at % 16 == 0) {
        const CheckReport report = must(pool->check({.deep = true}));
        EXPECT_EQ(report.violation_count, 1U);
        EXPECT_NE(report.first().find("of the header was damaged"), Bytes::npos) << report.first();
      }
      ASSERT_TRUE(pool->close().ok());
      // Repaired means that both copies are whole again. The other one may now be lost.
      if (at % 16 == 0) {
        std::string after = read_bytes(path);
        const std::size_t other = copy == copies[0] ? copies[1] : copies[0];
        std::memset(after.data() + other, 0x5a, length);
        patient.write(after);
        auto again = Pool::open(path, small_pool());
        ASSERT_TRUE(again.has_value()) << "the repair was not written: " << describe(again.error());
        ASSERT_EQ(wrong_content(*again), "");
      }
    }
  }
  EXPECT_GT(repaired, length / step) << "one copy alone is meant to be enough";
}

TEST(HeaderDamage, BothCopiesDamagedIsCorruption) {
  TempPath path;
  make_pool(path);
  const Patient patient(path);
  const auto copies = header_copies(patient.original());
  ASSERT_EQ(copies.size(), 2U);
  const std::size_t length = header_length(patient.original());
  for (std::size_t at = 0; at < length; at += san() ? 31 : 3) {
    SCOPED_TRACE("byte " + std::to_string(at));
    std::string bytes = patient.original();
    for (const std::size_t copy : copies) {
      bytes[copy + at] = static_cast<char>(bytes[copy + at] ^ 0x10);
    }
    patient.write(bytes);
    expect_refused(path, kDamaged);
  }
  // Wipes whole copies, with zeros and with ones.
  for (const char fill : {'\0', '\xff'}) {
    std::string bytes = patient.original();
    for (const std::size_t copy : copies) std::memset(bytes.data() + copy, fill, length);
    patient.write(bytes);
    expect_refused(path, kDamaged);
  }
}

// Either copy alone records the close: the checksums of the content still count.
TEST(HeaderDamage, BothCopiesTellOfTheClose) {
  TempPath path;
  make_pool(path);
  const Patient patient(path);
  for (const std::size_t copy : header_copies(patient.original())) {
    std::string bytes = patient.original();
    std::memset(bytes.data() + copy, 0, header_length(bytes));
    patient.write(bytes);
    EXPECT_TRUE(must(Pool::inspect(path)).clean) << "without the copy at " << copy;
  }
}

// The owner died after growth. With either copy damaged, the other one counts all that is in use.
TEST(HeaderDamage, EitherCopyCountsWhatHasGrown) {
  TempPath path;
  struct Grown {
    std::string bytes;
    std::uint64_t entries;
  } grown[2];
  {
    PoolOptions quiet = small_pool();
    quiet.background_threads = 0;  // nothing is stored while the file is read
    Pool pool = open_pool(path, quiet);
    fill_pool(pool);
    auto more = must(pool.map<std::uint64_t, Bytes>("more", small_map()));
    std::uint64_t n = 0;
    // Twice: if growth wrote one copy, each would be the newer one once.
    for (Grown& left : grown) {
      const std::uint64_t before = std::filesystem::file_size(path.str());
      while (std::filesystem::file_size(path.str()) == before) {
        must(more.put(n++, std::string(2'000, 'm')));
      }
      left = {read_bytes(path), n};
    }
    must(pool.close());
  }
  for (const auto& [bytes, entries] : grown) {
    for (const std::size_t copy : header_copies(bytes)) {
      SCOPED_TRACE("without the copy at " + std::to_string(copy));
      std::string damaged = bytes;
      damaged[copy + 400] ^= 1;
      write_bytes(path, damaged);
      Pool pool = open_pool(path, small_pool());
      EXPECT_EQ(wrong_content(pool), "");
      auto more = must(pool.map<std::uint64_t, Bytes>("more", small_map()));
      for (std::uint64_t i = 0; i < entries; ++i) {
        EXPECT_EQ(must(more.get(i)), std::optional(std::string(2'000, 'm'))) << i;
      }
      for (std::uint64_t i = 0; i < 200; ++i) must(more.put(i, std::string(3'000, 'n')));
      for (std::uint64_t i = 0; i < 200; ++i) must(more.erase(i));
      must(pool.compact());
      expect_sound(pool);
      EXPECT_EQ(wrong_content(pool), "");
      must(pool.close());
    }
  }
}

// Copies of different ages: the open serves the newer one, or reports corruption.
TEST(HeaderDamage, OneCopyFromAnOlderClose) {
  TempPath path;
  make_pool(path);
  const std::string older = read_bytes(path);
  {
    Pool pool = open_pool(path, small_pool());
    must(must(pool.map<std::uint64_t, std::uint64_t>("third")).insert(1, 2));
    must(pool.close());
  }
  const Patient patient(path);
  const auto copies = header_copies(patient.original());
  ASSERT_EQ(copies.size(), 2U);
  const std::size_t length = header_length(patient.original());
  for (const std::size_t copy : copies) {
    std::string bytes = patient.original();
    std::memcpy(bytes.data() + copy, older.data() + copy, length);
    patient.write(bytes);
    auto pool = Pool::open(path, small_pool());
    if (!pool) {
      EXPECT_TRUE(pool.error() == StatusCode::corruption) << describe(pool.error());
      continue;
    }
    EXPECT_EQ(wrong_content(*pool), "");
    expect_sound(*pool);
  }
}

TEST(Damage, WrongMagicAndForeignFiles) {
  TempPath path;
  make_pool(path);
  const Patient patient(path);
  std::string bytes = patient.original();
  for (const std::size_t copy : header_copies(patient.original())) bytes[copy] = '?';
  patient.write(bytes);
  expect_refused(path, kDamaged);
  // Files of other programs, of all sizes.
  for (const std::size_t size :
       {1, 7, 8, 63, 64, 511, 512, 4'095, 4'096, 4'097, 8'192, 1'048'576}) {
    SCOPED_TRACE("foreign file of " + std::to_string(size) + " bytes");
    std::string foreign(size, '\0');
    Rng rng(size);
    for (char& c : foreign) c = static_cast<char>(rng());
    patient.write(foreign);
    expect_refused(path, kDamaged);
    const auto info = Pool::inspect(path);
    ASSERT_FALSE(info.has_value());
    EXPECT_NE(info.error().message().find("check the file name"), Bytes::npos)
        << info.error().message();
    patient.write(std::string(size, '\0'));
    expect_refused(path, kDamaged);
  }
}

// A file of another program must not be overwritten, even if the call would create a pool.
TEST(Damage, ForeignFilesSurviveAnOpenThatCreates) {
  TempPath path;
  for (const std::string& content : {std::string("precious"), std::string(100'000, 'x')}) {
    write_bytes(path, content);
    const auto pool = Pool::open(path, small_pool());
    ASSERT_FALSE(pool.has_value());
    EXPECT_EQ(read_bytes(path), content);
    const auto created = Pool::open(path, {.mode = OpenMode::create_new});
    EXPECT_EQ(code_of(created), StatusCode::exists);
    EXPECT_EQ(read_bytes(path), content);
  }
}

TEST(Damage, EmptyFile) {
  TempPath path;
  write_bytes(path, "");
  expect_refused(path, kDamaged);
  // With `create`, an empty file may become a pool (mkstemp) or be refused. It must not become half
  // a pool.
  auto pool = Pool::open(path, small_pool());
  if (pool) {
    must(must(pool->map<std::uint64_t, std::uint64_t>("m")).insert(1, 2));
    must(pool->close());
    Pool again = open_pool(path, small_pool());
    EXPECT_EQ(must(must(again.map<std::uint64_t, std::uint64_t>("m")).get(1)),
              std::optional<std::uint64_t>(2));
  } else {
    EXPECT_TRUE(pool.error() == StatusCode::corruption ||
                pool.error() == StatusCode::unsupported_format)
        << describe(pool.error());
    EXPECT_EQ(std::filesystem::file_size(path.str()), 0U);
  }
}

// A file shorter than the header says is corruption, at any length. The rest of the file stays as
// it is.
TEST(Damage, TruncationAtEvery4KiB) {
  TempPath path;
  make_pool(path);
  const std::string original = read_bytes(path);
  ASSERT_GE(original.size(), 64_KiB);
  const std::uint64_t step = san() ? 64_KiB : 4_KiB;
  PoolOptions options = small_pool();
  options.mode = OpenMode::existing;
  // One pass from the end. It checks that earlier refusals left the rest unchanged.
  for (std::uint64_t size = (original.size() - 1) / step * step;; size -= step) {
    SCOPED_TRACE("cut to " + std::to_string(size));
    ASSERT_EQ(truncate(path.str().c_str(), static_cast<off_t>(size)), 0);
    const auto pool = Pool::open(path, options);
    ASSERT_FALSE(pool.has_value());
    ASSERT_TRUE(pool.error() == StatusCode::corruption ||
                (size < 8'192 && pool.error() == StatusCode::unsupported_format))
        << describe(pool.error());
    ASSERT_EQ(std::filesystem::file_size(path.str()), size);
    if (size / step % 16 == 0) {
      ASSERT_TRUE(read_bytes(path) == original.substr(0, size));
    }
    if (size == 0) break;
  }
  // Cuts at other places than page boundaries.
  for (const std::uint64_t size : {original.size() - 1, original.size() - 4'095, std::size_t{4'097},
                                   std::size_t{100}, std::size_t{1}}) {
    write_bytes(path, Bytes(original).substr(0, size));
    expect_refused(path, kDamaged, options);
  }
  write_bytes(path, original);
  Pool pool = open_pool(path, options);
  EXPECT_EQ(wrong_content(pool), "");
}

// A closed pool with one map of every kind, and the offsets of its parts.
struct Anatomy {
  std::string bytes;
  std::vector<std::size_t> values;  // offsets of word values in records of string keys
};
constexpr std::uint64_t kMarked = 0x5EED'0000'0000'0000;

Anatomy closed_pool_of_words(const std::string& path) {
  {
    Pool pool = open_pool(path, small_pool());
    fill_pool(pool);
    auto words = must(pool.map<Bytes, std::uint64_t>("words", small_map()));
    for (std::uint64_t i = 0; i < kEntries; ++i) must(words.insert(text_of(i), kMarked + i));
    must(pool.close());
  }
  Anatomy out{.bytes = read_bytes(path), .values = {}};
  for (std::size_t at = 0; at + 8 <= out.bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, out.bytes.data() + at, 8);
    if (word >= kMarked && word < kMarked + kEntries) out.values.push_back(at);
  }
  return out;
}

// Word values in records are updated in place, and no checksum of the record covers them. Once the
// pool is closed, a checksum of the leaf or bucket does. In an engine that restarts at once, its
// walk finds the damage.
TEST(Damage, WordValuesOfStringKeys) {
  if (chosen_engine().engine == Engine::clevel) GTEST_SKIP() << "verified by reads, not by open";
  const bool at_once = find_engine(chosen_engine().engine)->at_once;
  TempPath path;
  const Anatomy pool = closed_pool_of_words(path);
  ASSERT_EQ(pool.values.size(), kEntries);
  for (std::size_t i = 0; i < pool.values.size(); i += san() ? 50 : 7) {
    std::string bytes = pool.bytes;
    bytes[pool.values[i] + i % 8] ^= static_cast<char>(1 << (i % 8));
    write_bytes(path, bytes);
    SCOPED_TRACE("value at " + std::to_string(pool.values[i]));
    if (!at_once) {
      expect_refused(path, kDamaged);
      continue;
    }
    Pool open = open_pool(path, small_pool());
    EXPECT_FALSE(must(open.check()).ok());
    EXPECT_EQ(open.close(), StatusCode::corruption);
    EXPECT_EQ(open.close(), StatusCode::corruption) << "a second call returns the same";
  }
  // After a mutation and a kill these checksums do not count. After the next close they do.
  write_bytes(path, pool.bytes);
  run_child([&] {
    Pool open = open_pool(path, small_pool());
    auto words = must(open.map<Bytes, std::uint64_t>("words", small_map()));
    must(words.update(text_of(1), 77));
    kill(getpid(), SIGKILL);
  });
  for (int round = 0; round < 2; ++round) {
    Pool open = open_pool(path, small_pool());
    auto words = must(open.map<Bytes, std::uint64_t>("words", small_map()));
    EXPECT_EQ(must(words.get(text_of(1))), std::optional<std::uint64_t>(77));
    EXPECT_EQ(must(words.get(text_of(2))), std::optional<std::uint64_t>(kMarked + 2));
    expect_sound(open);
    must(open.close());
  }
}

// The error of a read names the file and the map.
TEST(Damage, OfARecordThatIsRead) {
  if (chosen_engine().engine == Engine::ascs) GTEST_SKIP() << "its open reads every node";
  const bool at_once = find_engine(chosen_engine().engine)->at_once;
  TempPath path;
  const std::string value = "a value that lies in the file once: ";
  {
    Pool pool = open_pool(path, small_pool());
    auto records = must(pool.map<std::uint64_t, Bytes>("records", small_map()));
    for (std::uint64_t key = 0; key < 10; ++key)
      must(records.insert(key + 1, value + std::to_string(key)));
    must(pool.close());
  }
  std::string bytes = read_bytes(path);
  const std::size_t at = bytes.find(value + "5");
  ASSERT_NE(at, std::string::npos);
  ASSERT_EQ(bytes.find(value + "5", at + 1), std::string::npos);
  if (at_once) {
    bytes[at + 3] ^= 1;  // the item and the node have a checksum, which a read verifies
  } else {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at - 8, sizeof(length));
    ASSERT_EQ(length, value.size() + 1) << "a record has its length before its value";
    bytes[at - 3] ^= 1;
  }
  write_bytes(path, bytes);
  Pool pool = open_pool(path, small_pool());
  auto records = must(pool.map<std::uint64_t, Bytes>("records", small_map()));
  const auto got = records.get(6);
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error(), StatusCode::corruption);
  EXPECT_EQ(std::string(got.error().message()).rfind(path.str() + ": map records: ", 0), 0U)
      << got.error().message();
}

// A root line without its commit word looks free. The map must not vanish silently.
TEST(Damage, RootLinesThatLookFree) {
  TempPath path;
  const Anatomy pool = closed_pool_of_words(path);
  for (std::size_t slot = 0; slot < 3; ++slot) {
    for (const bool whole : {false, true}) {
      std::string bytes = pool.bytes;
      const std::size_t line = 8'192 + slot * 64;
      if (whole) {
        std::memset(bytes.data() + line, 0, 64);
      } else {
        std::memset(bytes.data() + line + 56, 0, 8);
      }
      write_bytes(path, bytes);
      SCOPED_TRACE("slot " + std::to_string(slot));
      expect_refused(path, kDamaged);
      // A read-only open without the lock fails, too.
      EXPECT_FALSE(Pool::open(path, {.mode = OpenMode::read_only}).has_value());
    }
  }
}

TEST(Damage, LongerThanTheHeaderSaysIsLegal) {
  TempPath path;
  make_pool(path);
  for (const std::uint64_t extra : {std::uint64_t{1}, std::uint64_t{4'096}, 3_MiB, 16_MiB}) {
    SCOPED_TRACE("longer by " + std::to_string(extra));
    const auto size = std::filesystem::file_size(path.str());
    ASSERT_EQ(truncate(path.str().c_str(), static_cast<off_t>(size + extra)), 0);
    Pool pool = open_pool(path, small_pool());
    ASSERT_EQ(wrong_content(pool), "");
    auto map = must(pool.map<std::uint64_t, Bytes>("more"));
    for (std::uint64_t i = 0; i < 200; ++i) must(map.put(i, std::string(1'000, 'm')));
    expect_sound(pool);
    must(pool.close());
  }
}

// In a cleanly closed pool every flipped bit in live data is noticed: by an error at open or at a
// read, or by a violation that check finds; or the results are right. Runs in children, because a
// signal is a verdict, too.
TEST(Damage, BitFlipsAreNoticedOrHarmless) {
  PERDURE_TRACE_SEED();
  TempPath path;
  (void)closed_pool_of_words(path);
  const Patient patient(path);
  std::vector<std::size_t> live;  // nonzero 64-byte lines
  for (std::size_t at = 0; at + 64 <= patient.original().size(); at += 64) {
    if (patient.original().compare(at, 64, std::string(64, '\0')) != 0) live.push_back(at);
  }
  ASSERT_GT(live.size(), 100U);
  Rng rng;
  const std::uint64_t batches = scaled(16, 3);
  std::uint64_t noticed = 0;
  for (std::uint64_t batch = 0; batch < batches; ++batch) {
    std::vector<std::pair<std::size_t, int>> flips;  // byte, bit; -1: the whole line is zeroed
    for (int i = 0; i < 40; ++i) {
      const bool line = rng.one_in(8);
      flips.emplace_back(live[rng.below(live.size())] + (line ? 0 : rng.below(64)),
                         line ? -1 : static_cast<int>(rng.below(8)));
    }
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const ChildEnd end = run_child([&] {
      for (const auto& [at, bit] : flips) {
        const std::string what = "byte " + std::to_string(at) + " bit " + std::to_string(bit);
        require(write(pipe_fds[1], &at, sizeof at) == sizeof at, "pipe");
        std::string bytes = patient.original();
        if (bit >= 0) {
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
        } else {
          std::memset(bytes.data() + at, 0, 64);
        }
        patient.write(bytes);
        char verdict = 'h';
        auto pool = Pool::open(path, small_pool());
        if (!pool) {
          verdict = 'n';
        } else {
          const auto report = pool->check({.deep = true});
          if (!report || !report->ok()) {
            verdict = 'n';
            int refused = 0;
            // may be wrong after the report, but must not raise a signal
            wrong_content(*pool, &refused);
          } else {
            int refused = 0;
            std::string wrong = wrong_content(*pool, &refused);
            auto words = pool->map<Bytes, std::uint64_t>("words", small_map());
            if (!words) ++refused;
            for (std::uint64_t i = 0; words && i < kEntries; ++i) {
              const auto found = words->get(text_of(i));
              if (!found) ++refused;
              if (found && *found != std::optional(kMarked + i)) wrong = "a word is wrong";
            }
            require(wrong.empty(), what + ": check found nothing, but " + wrong);
            if (refused != 0) verdict = 'n';
          }
          (void)pool->close();
        }
        const std::uint64_t out = verdict == 'n' ? 1 : 0;
        require(write(pipe_fds[1], &out, sizeof out) == sizeof out, "pipe");
      }
    });
    close(pipe_fds[1]);
    std::vector<std::uint64_t> lines;
    std::uint64_t word = 0;
    while (read(pipe_fds[0], &word, sizeof word) == static_cast<ssize_t>(sizeof word)) {
      lines.push_back(word);
    }
    close(pipe_fds[0]);
    for (std::size_t i = 1; i < lines.size(); i += 2) noticed += lines[i];
    const std::string last =
        lines.empty() ? "none" : std::to_string(lines[(lines.size() - 1) / 2 * 2]);
    EXPECT_TRUE(end.ok()) << end << " at a flip of byte " << last;
  }
  EXPECT_GT(noticed, batches * 4) << "most live bytes matter";
}

// The same for files with whole pages lost or exchanged.
TEST(Damage, LostAndSwappedPagesAreNoticedOrHarmless) {
  PERDURE_TRACE_SEED();
  TempPath path;
  make_pool(path);
  const Patient patient(path);
  Rng rng;
  const std::size_t pages = patient.original().size() / 4'096;
  for (std::uint64_t round = 0; round < scaled(60, 10); ++round) {
    std::string bytes = patient.original();
    const std::size_t a = rng.below(pages) * 4'096;
    const std::size_t b = rng.below(pages) * 4'096;
    if (round % 2 == 0) {
      std::memset(bytes.data() + a, 0, 4'096);
    } else {
      std::swap_ranges(bytes.begin() + static_cast<std::ptrdiff_t>(a),
                       bytes.begin() + static_cast<std::ptrdiff_t>(a) + (a == b ? 0 : 4'096),
                       bytes.begin() + static_cast<std::ptrdiff_t>(b));
    }
    patient.write(bytes);
    const ChildEnd end = run_child([&] {
      auto pool = Pool::open(path, small_pool());
      if (!pool) return;
      const auto report = pool->check({.deep = true});
      int refused = 0;
      const std::string wrong = wrong_content(*pool, &refused);
      if (report && report->ok()) require(wrong.empty(), "check found nothing, but " + wrong);
    });
    EXPECT_TRUE(end.ok()) << end << ", page " << a / 4'096
                          << (round % 2 == 0 ? " zeroed" : " swapped with ") << b / 4'096;
  }
}

}  // namespace
}  // namespace perdure::test
