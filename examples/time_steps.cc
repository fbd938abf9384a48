// A simulation whose time steps are versions. A kill in the middle of a step leaves writes of that
// step behind. The next process rolls back to the last step that it noted, and goes on.
//
// The number that tag() returns is not the number of the step: after a kill and after a rollback
// numbers are skipped. So the program notes which version each step is, in a map of its own.
#include <perdure/perdure.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "scratch.h"

namespace {

using perdure::Version;
using Cells = perdure::VersionedMap<std::uint64_t, double>;
using Notes = perdure::OrderedMap<std::uint64_t, Version>;  // step -> the version that it is

constexpr std::uint64_t kCells = 100;
constexpr std::uint64_t kKept = 3;  // steps that can be read

double state(std::uint64_t step, std::uint64_t cell) {
  return static_cast<double>(step) + static_cast<double>(cell) / 1000;
}

struct Simulation {
  perdure::Pool pool;
  Cells cells;
  Notes notes;
  std::uint64_t step;  // the last one that is complete
};

std::optional<Simulation> open(const std::string& path) {
  auto pool = perdure::Pool::open(path);
  if (!pool) return std::nullopt;
  auto cells = pool->versioned_map<std::uint64_t, double>("cells");
  auto notes = pool->ordered_map<std::uint64_t, Version>("notes");
  if (!cells || !notes) return std::nullopt;
  auto last = notes->scan({.limit = 1, .reverse = true});
  const std::uint64_t step = last.valid() ? last.key() : 0;
  if (!last.status().ok()) return std::nullopt;
  return Simulation{std::move(*pool), std::move(*cells), std::move(*notes), step};
}

// Closes the version, then notes it. After a kill in between, the note is missing and the step is
// computed again.
bool finish(Simulation& simulation, std::uint64_t step) {
  auto version = simulation.cells.tag();
  if (!version || !simulation.notes.put(step, *version).ok()) return false;
  simulation.step = step;
  return true;
}

// Removes what was written after the last note. A new simulation notes step 0, which is empty, so
// that the first kill finds a version to go back to.
bool go_back(Simulation& simulation) {
  auto version = simulation.notes.get(simulation.step);
  if (!version) return false;
  return *version ? simulation.cells.rollback(**version).ok() : finish(simulation, 0);
}

bool write_cells(Simulation& simulation, std::uint64_t step, std::uint64_t cells) {
  for (std::uint64_t cell = 0; cell < cells; ++cell) {
    if (!simulation.cells.put(cell, state(step, cell)).ok()) return false;
  }
  return true;
}

// Forgets the steps below `oldest`, the notes first: a note must not name a version that is gone.
bool forget(Simulation& simulation, std::uint64_t oldest) {
  auto version = simulation.notes.get(oldest);
  if (!version || !*version) return false;
  for (auto it = simulation.notes.scan({.to = oldest}); it.valid(); it.next()) {
    if (!simulation.notes.erase(it.key()).ok()) return false;
  }
  return simulation.cells.trim(**version).has_value();
}

bool run(Simulation& simulation, std::uint64_t steps) {
  while (simulation.step < steps) {
    const std::uint64_t step = simulation.step + 1;
    if (!write_cells(simulation, step, kCells) || !finish(simulation, step)) return false;
    if (step > kKept && !forget(simulation, step - kKept + 1)) return false;
  }
  return true;
}

// Whether each cell has the value of its step.
bool is_step(Simulation& simulation, std::uint64_t step) {
  auto version = simulation.notes.get(step);
  if (!version || !*version) return false;
  auto snapshot = simulation.cells.snapshot(**version);
  if (!snapshot) return false;
  bool right = true;
  auto count = snapshot->scan(
      {}, [&](std::uint64_t cell, double value) { right = right && value == state(step, cell); });
  return right && count && *count == kCells;
}

// Computes five steps and is killed in the middle of the sixth.
[[noreturn]] void first_process(const std::string& path) {
  auto simulation = open(path);
  if (simulation && go_back(*simulation) && run(*simulation, 5) &&
      write_cells(*simulation, 6, kCells / 2)) {
    kill(getpid(), SIGKILL);
  }
  _exit(1);
}

bool second_process(const std::string& path) {
  auto simulation = open(path);
  if (!simulation || simulation->step != 5) return false;
  // The writes of step 6 have survived. They are in versions that no tag() has returned.
  auto noted = simulation->notes.get(5);
  auto cell = simulation->cells.get(0);
  if (!noted || !*noted || !cell || *cell != state(6, 0)) return false;
  auto above = simulation->cells.get(0, **noted + 1);
  if (simulation->cells.versions().last <= **noted || !above || *above != state(6, 0)) return false;

  if (!go_back(*simulation)) return false;
  cell = simulation->cells.get(0);
  if (!cell || *cell != state(5, 0) || !is_step(*simulation, 5)) return false;

  if (!run(*simulation, 10)) return false;
  auto last = simulation->notes.get(10);
  if (!last || !*last) return false;
  std::printf("killed in step 6, went on from step 5; step 10 is version %llu\n",
              static_cast<unsigned long long>(**last));
  // The last steps can be read, older ones are forgotten.
  auto old = simulation->notes.get(7);
  return is_step(*simulation, 8) && is_step(*simulation, 9) && is_step(*simulation, 10) && old &&
         !*old && **last > 10 && simulation->pool.close().ok();
}

}  // namespace

int main(int argc, char** argv) {
  const Scratch scratch(argc, argv, "time_steps");
  const pid_t child = fork();  // before the pool is opened: a child must not use its parent's pool
  if (child == 0) first_process(scratch.path());
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) return 1;
  return second_process(scratch.path()) ? 0 : 1;
}
