// A session store that survives its process. Sessions have numbers. Several threads log sessions
// in, and batches of sessions are looked up.
#include <perdure/perdure.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "scratch.h"

namespace {

using perdure::operator""_MiB;
using Sessions = perdure::Map<std::uint64_t, std::string_view>;
constexpr std::uint64_t kSessions = 32'000;

std::string content(std::uint64_t id) { return "{\"user\": " + std::to_string(id * 7) + "}"; }

bool log_in(Sessions& sessions, std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t id = begin; id < end; ++id) {
    if (!sessions.put(id, content(id)).ok()) return false;
  }
  return true;
}

// Counts the sessions that are present. get_many() overlaps the cache misses of a batch; single
// lookups would wait for each of them.
std::uint64_t present(Sessions& sessions, std::uint64_t begin, std::uint64_t end) {
  std::array<std::uint64_t, 16> ids{};
  std::array<std::optional<std::string>, 16> found;
  std::uint64_t count = 0;
  for (std::uint64_t id = begin; id + ids.size() <= end; id += ids.size()) {
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = id + i;
    if (!sessions.get_many(ids, found)) return 0;
    for (std::size_t i = 0; i < ids.size(); ++i) count += found[i] == content(ids[i]) ? 1 : 0;
  }
  return count;
}

bool first_process(const std::string& path) {
  auto pool = perdure::Pool::open(path, {.max_size = 256_MiB});
  if (!pool) return false;
  auto sessions = pool->map<std::uint64_t, std::string_view>("sessions");
  if (!sessions) return false;
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      if (!log_in(*sessions, i * kSessions / 2, (i + 1) * kSessions / 2)) ++failed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Log out every session of the first half.
  for (std::uint64_t id = 0; id < kSessions / 2; ++id) {
    if (!sessions->erase(id).present()) ++failed;
  }
  // The pool closes itself here. examples/quickstart.cc shows that a kill loses nothing either.
  return failed == 0;
}

bool second_process(const std::string& path) {
  auto pool = perdure::Pool::open(path, {.mode = perdure::OpenMode::existing});
  if (!pool) return false;
  auto sessions =
      pool->map<std::uint64_t, std::string_view>("sessions", {.mode = perdure::OpenMode::existing});
  if (!sessions) return false;
  const std::uint64_t gone = present(*sessions, 0, kSessions / 2);
  const std::uint64_t kept = present(*sessions, kSessions / 2, kSessions);
  std::printf("%llu of %llu sessions after reopening, %llu logged out\n",
              static_cast<unsigned long long>(kept), static_cast<unsigned long long>(kSessions / 2),
              static_cast<unsigned long long>(kSessions / 2 - gone));
  return kept == kSessions / 2 && gone == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Scratch scratch(argc, argv, "cache");
  return first_process(scratch.path()) && second_process(scratch.path()) ? 0 : 1;
}
