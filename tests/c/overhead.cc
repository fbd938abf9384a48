// What a call of the C library costs beside the same call of C++, on the same map: both in turns,
// in rounds, so that both see the same machine. C is called through pointers, as from a shared
// library. Prints a Markdown table of nanoseconds per call: the medians of the rounds, and the
// median of the differences within a round. Fails if that of an operation in cache is above 10 ns.
//     c_overhead [FILE]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "c/check.h"
#include "c/handles.h"
#include "perdure/perdure.h"

namespace {

constexpr int kRounds = 100;
constexpr std::uint64_t kCalls = 20000;  // of a round

// The compiler must not know which functions these are.
struct Calls {
  decltype(&perdure_u64_get) u64_get = perdure_u64_get;
  decltype(&perdure_u64_put) u64_put = perdure_u64_put;
  decltype(&perdure_get) get = perdure_get;
  decltype(&perdure_get_into) get_into = perdure_get_into;
  decltype(&perdure_put) put = perdure_put;
  decltype(&perdure_free) free = perdure_free;
};
volatile Calls calls;

std::uint64_t sink = 0;

template <class F>
double per_call(F&& f) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < kCalls; ++i) f(i);
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
  return spent.count() / kCalls;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[kRounds / 2 - 1] + values[kRounds / 2]) / 2;
}

// Returns the median difference.
template <class C, class Cpp>
double compare(const char* what, std::uint64_t keys, C&& c, Cpp&& cpp) {
  std::vector<double> of_c;
  std::vector<double> of_cpp;
  std::vector<double> differences;
  for (int round = 0; round <= kRounds; ++round) {
    // Each is the first one in every other round: the second one finds its keys in cache.
    double a = round % 2 == 0 ? per_call(c) : 0;
    const double b = per_call(cpp);
    if (round % 2 != 0) a = per_call(c);
    if (round == 0) continue;  // warms up
    of_c.push_back(a);
    of_cpp.push_back(b);
    differences.push_back(a - b);
  }
  const double more = median(differences);
  std::printf("| %s | %llu | %.1f | %.1f | %+.1f |\n", what, static_cast<unsigned long long>(keys),
              median(of_cpp), median(of_c), more);
  return more;
}

// The numbers of keys in an order that no prefetcher guesses.
std::uint64_t spread(std::uint64_t i, std::uint64_t keys) {
  return (i * 0x9E3779B97F4A7C15ULL >> 20) % keys;
}

double words(perdure_pool* pool, std::uint64_t keys) {
  const std::string name = "words" + std::to_string(keys);
  perdure_map* c = open_map(pool, name.c_str(), PERDURE_ENGINE_DEFAULT, PERDURE_KEY_U64, 8);
  auto cpp = pool->state->pool->map<std::uint64_t, std::uint64_t>(name);
  for (std::uint64_t i = 0; i < keys; ++i) CHECK(cpp->put(i, i).ok());
  double most = compare(
      "get, u64 to u64", keys,
      [&](std::uint64_t i) {
        std::uint64_t value = 0;
        bool present = false;
        CHECK(calls.u64_get(c, spread(i, keys), &value, &present) == PERDURE_OK && present);
        sink += value;
      },
      [&](std::uint64_t i) {
        auto value = cpp->get(spread(i, keys));
        CHECK(value && *value);
        sink += **value;
      });
  most = std::max(most, compare(
                            "put, u64 to u64", keys,
                            [&](std::uint64_t i) {
                              const auto s = calls.u64_put(c, spread(i, keys), i, nullptr);
                              CHECK(s == PERDURE_OK);
                            },
                            [&](std::uint64_t i) { CHECK(cpp->put(spread(i, keys), i).ok()); }));
  perdure_map_close(c);
  return most;
}

double bytes(perdure_pool* pool, std::uint64_t keys) {
  const std::string name = "bytes" + std::to_string(keys);
  perdure_map* c = open_bytes(pool, name.c_str(), PERDURE_ENGINE_DEFAULT);
  auto cpp = pool->state->pool->map<std::string_view, std::string_view>(name);
  const std::string value(100, 'v');
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < keys; ++i) {
    names.push_back("user:" + std::to_string(1000000007 * i % 10000000000));
    CHECK(cpp->put(names[i], value).ok());
  }
  const auto name_of = [&](std::uint64_t i) -> const std::string& {
    return names[spread(i, keys)];
  };
  char buffer[128];
  double most = compare(
      "get, a copy of 100 bytes", keys,
      [&](std::uint64_t i) {
        void* copy = nullptr;
        std::size_t size = 0;
        const std::string& key = name_of(i);
        CHECK(calls.get(c, key.data(), key.size(), &copy, &size) == PERDURE_OK && size == 100);
        calls.free(copy);
      },
      [&](std::uint64_t i) {
        auto copy = cpp->get(name_of(i));
        CHECK(copy && (*copy)->size() == 100);
      });
  most = std::max(most, compare(
                            "get, 100 bytes into a buffer", keys,
                            [&](std::uint64_t i) {
                              std::size_t size = 0;
                              bool present = false;
                              const std::string& key = name_of(i);
                              CHECK(calls.get_into(c, key.data(), key.size(), buffer,
                                                   sizeof(buffer), &size, &present) == PERDURE_OK);
                              CHECK(present && size == 100);
                            },
                            [&](std::uint64_t i) {
                              const auto found = cpp->read(name_of(i), [&](std::string_view seen) {
                                std::memcpy(buffer, seen.data(), seen.size());
                              });
                              CHECK(found.present());
                            }));
  most = std::max(most, compare(
                            "put, 100 bytes", keys,
                            [&](std::uint64_t i) {
                              const std::string& key = name_of(i);
                              CHECK(calls.put(c, key.data(), key.size(), value.data(), value.size(),
                                              nullptr) == PERDURE_OK);
                            },
                            [&](std::uint64_t i) { CHECK(cpp->put(name_of(i), value).ok()); }));
  perdure_map_close(c);
  return most;
}

}  // namespace

int main(int argc, char** argv) {
  perdure_pool_options options = PERDURE_POOL_OPTIONS_INIT;
  options.max_size = std::uint64_t{4} << 30;
  perdure_pool* pool = nullptr;
  const std::string path = argc > 1 ? argv[1] : scratch("overhead");
  std::remove(path.c_str());
  OK(perdure_pool_open(path.c_str(), &options, &pool));
  std::printf("| Call | Keys | C++, ns | C, ns | difference, ns |\n|---|---|---|---|---|\n");
  double most = words(pool, 1000);
  most = std::max(most, bytes(pool, 1000));
  words(pool, 1000000);
  bytes(pool, 1000000);
  OK(perdure_pool_close(pool, PERDURE_CLOSE_NO_SYNC));
  std::remove(path.c_str());
  if (most > 10) std::printf("a call of C costs %.1f ns more, at most 10 are allowed\n", most);
  return most > 10 ? 1 : 0;
}
