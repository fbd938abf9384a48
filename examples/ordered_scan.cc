// Ordered maps: ranges, prefixes, both directions, and several maps in one pool.
#include <perdure/perdure.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "scratch.h"

namespace {

using Bytes = std::string_view;

// Integer keys: a reading for each second. Signed keys order as signed numbers.
bool scan_readings(perdure::Pool& pool) {
  auto readings = pool.ordered_map<std::int64_t, double>("readings");
  if (!readings) return false;
  for (std::int64_t second = -500; second < 500; ++second) {
    if (!readings->put(second, static_cast<double>(second) / 2).ok()) return false;
  }
  double sum = 0;
  auto visited = readings->scan(-10, 11, [&](std::int64_t, double value) { sum += value; });
  if (!visited) return false;
  std::printf("%llu readings from -10 to 10, sum %.1f\n", static_cast<unsigned long long>(*visited),
              sum);
  return *visited == 21 && sum == 0;
}

// Byte-string keys: a prefix is a range. An iterator holds no lock between steps and owns what it
// needs: here, the map that it came from is already gone.
bool scan_paths(perdure::Pool& pool) {
  auto paths = pool.ordered_map<Bytes, Bytes>("paths");
  if (!paths) return false;
  for (const char* path : {"/usr/bin/awk", "/etc/hosts", "/usr/lib/libc.so", "/usr/bin/sed",
                           "/usr/bin/perl", "/usr/binary"}) {
    if (!paths->put(path, "file").ok()) return false;
  }
  std::string joined;
  auto it = pool.ordered_map<Bytes, Bytes>("paths")->scan({.prefix = "/usr/bin/", .reverse = true});
  for (; it.valid(); it.next()) {
    joined += it.key();
    joined += ' ';
  }
  if (!it.status().ok()) return false;
  std::printf("below /usr/bin, descending: %s\n", joined.c_str());

  // It moves both ways: to the first path at or before "/usr/bin/perm", and back.
  it.seek("/usr/bin/perm");
  const bool found = it.valid() && it.key() == "/usr/bin/perl";
  it.prev();
  const bool back = it.valid() && it.key() == "/usr/bin/sed";

  // A callback may return false to end the scan.
  std::string first;
  auto visited = paths->scan({.from = "/usr"}, [&](Bytes key, Bytes) {
    first = key;
    return false;
  });
  return found && back && visited && first == "/usr/bin/awk" &&
         joined == "/usr/bin/sed /usr/bin/perl /usr/bin/awk ";
}

}  // namespace

int main(int argc, char** argv) {
  const Scratch scratch(argc, argv, "ordered_scan");
  auto pool = perdure::Pool::open(scratch.path());
  if (!pool) return std::printf("%s\n", pool.error().message().data()), 1;
  const bool right = scan_readings(*pool) && scan_paths(*pool);
  return pool->close().ok() && right ? 0 : 1;
}
