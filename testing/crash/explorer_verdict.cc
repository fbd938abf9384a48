// Explorer: judges a crash image.
#include "testing/crash/explorer.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace perdure::testing {

std::string Explorer::verdict(SimMemory& memory, const Expectation& expected, bool created,
                              std::uint64_t seed) {
  const auto violations_of = [](Subject& subject) -> std::string {
    std::vector<std::string> violations;
    subject.check(violations);
    return violations.empty() ? "" : "check: " + violations.front();
  };
  SimPlatform::seed(seed);
  Model model;
  {
    const auto subject = factory_();
    const Status opened = subject->open(memory, seed);
    if (!opened.ok()) {
      if (!created) return {};
      if (options_.process_mode) return {};  // the open may fail, with any error
      return "open: " + std::string(opened.message());
    }
    if (std::string wrong = violations_of(*subject); !wrong.empty()) return wrong;
    std::string first_wrong;
    bool right = false;
    for (const Model& candidate : expected.candidates) {
      const std::string wrong = compare(*subject, candidate);
      right = wrong.empty();
      if (right) {
        model = candidate;
        break;
      }
      first_wrong += (first_wrong.empty() ? "" : "; or: ") + wrong;
    }
    if (!right) return first_wrong;
    if (std::string wrong = battery(*subject, model, seed); !wrong.empty()) return wrong;
    if (std::string wrong = compare(*subject, model); !wrong.empty()) {
      return "after further operations: " + wrong;
    }
    if (std::string wrong = violations_of(*subject); !wrong.empty()) {
      return "after further operations: " + wrong;
    }
    if (const Status s = subject->close(); !s.ok()) return "close: " + std::string(s.message());
    if (memory.hole_stores() != 0) return "stores into space that is not backed by the medium";
  }
  const auto subject = factory_();
  if (const Status s = subject->open(memory, seed); !s.ok()) {
    return "reopen: " + std::string(s.message());
  }
  if (std::string wrong = violations_of(*subject); !wrong.empty()) return "reopened: " + wrong;
  if (std::string wrong = compare(*subject, model); !wrong.empty()) return "reopened: " + wrong;
  memory.set_mode(SimMode::frozen);  // closing it again would test nothing
  return {};
}

std::string Explorer::battery(Subject& subject, Model& model, std::uint64_t seed) {
  Random random(seed);
  for (std::uint32_t i = 0; i < options_.battery; ++i) {
    const Op op = source_(random);
    if (op.kind == OpKind::reopen) continue;
    // The others may change several keys, and a refused one changes none.
    const bool single = op.kind <= OpKind::find;
    const bool keeps = op.kind >= OpKind::sync && op.kind <= OpKind::background;
    Model after;
    const auto before = model.find(op.key);
    const bool had = before != model.end();
    const std::string old = had ? before->second : std::string();
    if (!single && !keeps) after = model;
    const bool expected = apply_to(single || keeps ? model : after, op);
    const auto result = subject.apply(op);
    if (!result && result.error() == StatusCode::pool_full) {
      if (single && had) model[op.key] = old;
      if (single && !had) model.erase(op.key);
      continue;
    }
    if (!result) {
      return "further operation " + describe(op) + ": " + std::string(result.error().message());
    }
    if (*result != expected) {
      return "further operation " + describe(op) +
             (expected ? " returned false" : " returned true");
    }
    if (!single && !keeps) model = std::move(after);
    if (!single) continue;
    std::string value;
    const auto found = subject.lookup(op.key, value);
    const auto it = model.find(op.key);
    if (!found || *found != (it != model.end()) || (*found && value != it->second)) {
      return "lookup after further operation " + describe(op);
    }
  }
  return {};
}

std::vector<Op> random_workload(const OpSource& source, std::uint64_t seed, std::size_t n) {
  Random random(seed);
  std::vector<Op> ops;
  for (std::size_t i = 0; i < n; ++i) ops.push_back(source(random));
  return ops;
}

bool fails_in_child(const std::function<bool()>& body, unsigned seconds) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    alarm(seconds);
    // The output of a mutant that crashes is shown only with PERDURE_VERBOSE.
    if (std::getenv("PERDURE_VERBOSE") == nullptr &&
        std::freopen("/dev/null", "w", stderr) == nullptr) {
      _exit(2);
    }
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

}  // namespace perdure::testing
