// perdure-coherence: counts the lines that operations take over from other cores, with up to 64
// simulated threads.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "testing/coherence/simulation.h"

namespace {

using namespace perdure::testing;

constexpr const char* kAbout =
    "Runs 50 % finds, 25 % updates, 12.5 % inserts, 12.5 % erases of uniform keys, and simulates\n"
    "the private caches of the threads (testing/coherence/machine.h). Prints, per operation:\n"
    "  E.OPERATION.infrastructure   lines that no key owns, taken over from another core\n"
    "  E.OPERATION.content          lines of entries and what belongs to them\n"
    "  E.OPERATION.queue            the most threads that needed one line at one time\n"
    "  E.OPERATION.ns               time of the accesses, without write-backs and computing\n"
    "Then the hottest lines by name, with the functions that take them over most often.";

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
  options.path = "/dev/shm/perdure-coherence-" + std::to_string(getpid()) + ".perdure";
  std::string engine = "phast";
  std::size_t lines = 10;
  CLI::App app(kAbout, "perdure-coherence");
  app.add_option("--engine", engine, "engine (phast)");
  app.add_option("--threads", options.threads, "simulated threads (64)")->check(CLI::Range(1, 64));
  app.add_option("--records", options.records, "keys that are loaded before (1000000)")
      ->check(CLI::Range(1'000, 100'000'000));
  app.add_option("--operations", options.operations, "operations that count (200000)")
      ->check(CLI::Range(1, 100'000'000));
  app.add_option("--seed", options.seed, "seed of the choices (1)");
  app.add_option("--path", options.path, "a new file for the pool, which is removed again");
  app.add_option("--lines", lines, "hottest lines that are printed (10)");
  CLI11_PARSE(app, argc, argv);
  const auto named = perdure::engine_named(engine);
  if (!named) {
    std::fprintf(stderr, "perdure-coherence: unknown engine %s\n", engine.c_str());
    return 2;
  }
  options.engine = *named;
  print(options, simulate(options), lines);
  return 0;
}
