// perdure-coherence: counts the lines that operations take over from other cores, with up to 64
// simulated threads.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "testing/coherence/simulation.h"

namespace {

using namespace perdure::testing;

constexpr const char* kUsage =
    "perdure-coherence [--engine E] [--threads 1..64] [--records N] [--operations N] [--seed N]\n"
    "                  [--path FILE] [--lines N]\n"
    "  runs 50 % finds, 25 % updates, 12.5 % inserts, 12.5 % erases of uniform keys, and "
    "simulates\n"
    "  the private caches of the threads (testing/coherence/machine.h). Prints, per operation:\n"
    "    E.OPERATION.infrastructure   lines that no key owns, taken over from another core\n"
    "    E.OPERATION.content          lines of entries and what belongs to them\n"
    "    E.OPERATION.queue            the most threads that needed one line at one time\n"
    "    E.OPERATION.ns               time of the accesses, without write-backs and computing\n"
    "  then the hottest lines by name, with the functions that take them over most often\n";

[[noreturn]] void usage(const std::string& what) {
  std::fprintf(stderr, "%s\n%s", what.c_str(), kUsage);
  std::exit(2);
}

std::uint64_t number(const std::string& text, std::uint64_t min, std::uint64_t max) {
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < min || value > max) {
    usage("not a number from " + std::to_string(min) + " to " + std::to_string(max) + ": " + text);
  }
  return value;
}

void print(const SimulationOptions& options, const SimulationResult& result, std::size_t lines) {
  const std::string engine(perdure::engine_name(options.engine));
  std::printf("# threads %u, records %llu, operations %llu, seed %llu\n", options.threads,
              static_cast<unsigned long long>(options.records),
              static_cast<unsigned long long>(options.operations),
              static_cast<unsigned long long>(options.seed));
  std::uint64_t mutations = 0;
  std::uint64_t taken = 0;
  for (std::size_t i = 0; i < kOperations; ++i) {
    const OperationCost& cost = result.costs[i];
    const double each = cost.operations != 0 ? 1.0 / static_cast<double>(cost.operations) : 0;
    const std::string head = engine + "." + kOperationNames[i];
    std::printf("%s.infrastructure=%.3f\n", head.c_str(), each * double(cost.infrastructure));
    std::printf("%s.content=%.3f\n", head.c_str(), each * double(cost.content));
    std::printf("%s.queue=%u\n", head.c_str(), cost.queue);
    std::printf("%s.ns=%.1f\n", head.c_str(), each * double(cost.time_ps) / 1000);
    if (i == 0) continue;
    mutations += cost.operations;
    taken += cost.infrastructure;
  }
  std::printf("%s.mutation.infrastructure=%.3f\n", engine.c_str(),
              mutations != 0 ? double(taken) / double(mutations) : 0);
  for (const HotLine& line : result.hottest) {
    if (lines-- == 0) break;
    std::printf("%s.line %llu x%s, queue %u: %s", engine.c_str(),
                static_cast<unsigned long long>(line.taken_over), line.content ? ", content" : "",
                line.queue, line.name.c_str());
    if (!line.writer.empty()) std::printf("; written by %s", line.writer.c_str());
    if (!line.reader.empty()) std::printf("; read by %s", line.reader.c_str());
    std::puts("");
  }
}

}  // namespace

int main(int argc, char** argv) {
  SimulationOptions options;
  options.path = "/dev/shm/perdure-coherence.perdure";
  std::size_t lines = 10;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (++i == argc) usage(option + " needs a value, or is not known");
    const std::string value = argv[i];
    if (option == "--engine") {
      const auto engine = perdure::engine_named(value);
      if (!engine) usage("unknown engine " + value);
      options.engine = *engine;
    } else if (option == "--threads") {
      options.threads = static_cast<std::uint32_t>(number(value, 1, 64));
    } else if (option == "--records") {
      options.records = number(value, 1000, 100'000'000);
    } else if (option == "--operations") {
      options.operations = number(value, 1, 100'000'000);
    } else if (option == "--seed") {
      options.seed = number(value, 0, ~0ULL);
    } else if (option == "--path") {
      options.path = value;
    } else if (option == "--lines") {
      lines = number(value, 0, 1000);
    } else {
      usage("unknown option " + option);
    }
  }
  print(options, simulate(options), lines);
  return 0;
}
