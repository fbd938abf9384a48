#include "testing/disk/disk_explorer.h"

#include <cstdlib>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "util/crc32c.h"

namespace perdure::disk {

namespace {

using States = std::vector<std::uint32_t>;
using Verdict = std::function<std::string(SimFileSystem&)>;

class Explorer {
 public:
  Explorer(const DiskExploration& exploration, const Verdict& verdict)
      : exploration_(exploration), verdict_(verdict) {}

  // Explores what `run` does to `files`.
  void follow(SimFileSystem& files, const std::string& path, const std::function<void()>& run) {
    std::uint64_t point = 0;
    files.before_change([&] {
      const std::uint64_t number = point++;
      if (depth_ != 0 || number >= exploration_.first_point)
        judge(files, path + "p" + std::to_string(number));
    });
    run();
    files.before_change(nullptr);
    judge(files, path + "p" + std::to_string(point));
  }

  DiskReport report() && { return std::move(report_); }

 private:
  bool wanted(const std::string& path) const {
    const std::string& replay = exploration_.replay;
    return replay.empty() || replay == path || replay.starts_with(path + ".");
  }

  void judge(const SimFileSystem& files, const std::string& path) {
    if (report_.failures != 0) return;
    ++report_.points;
    std::set<std::uint64_t> seen;
    std::uint64_t number = 0;
    for (const States& states : chosen(files.undecided(), path)) {
      SimFileSystem image = files.after_power_failure(states);
      if (!seen.insert(image.fingerprint()).second) continue;
      const std::string name = path + ".i" + std::to_string(number++);
      if (wanted(name)) judge_image(image, name);
      if (report_.failures != 0) return;
    }
  }

  void judge_image(SimFileSystem& image, const std::string& name) {
    ++report_.images;
    report_.second_images += depth_ != 0 ? 1 : 0;
    const bool again = depth_ == 0 && exploration_.second_failure != 0 &&
                       (report_.images % exploration_.second_failure == 0 ||
                        exploration_.replay.starts_with(name + "."));
    if (again) {
      SimFileSystem copy = image;
      ++depth_;
      follow(copy, name + ".", [&] { (void)verdict_(copy); });
      --depth_;
    }
    const std::string wrong = verdict_(image);
    if (wrong.empty()) return;
    if (report_.failures++ == 0) report_.first_failure = name + ": " + wrong;
  }

  // The same for the same path, so that a replay chooses the same.
  std::vector<States> chosen(const States& counts, const std::string& path) const {
    std::mt19937_64 random(exploration_.seed ^ crc32c(0, path.data(), path.size()));
    std::vector<States> result;
    double combinations = 1;
    for (const std::uint32_t count : counts) combinations *= count;
    if (combinations <= exploration_.all_below) {
      States states(counts.size(), 0);
      for (;;) {
        result.push_back(states);
        std::size_t i = 0;
        while (i < counts.size() && ++states[i] == counts[i]) states[i++] = 0;
        if (i == counts.size()) return result;
      }
    }
    const States none(counts.size(), 0);
    States all = counts;
    for (std::uint32_t& state : all) --state;
    result.push_back(none);
    result.push_back(all);
    const std::size_t step = counts.size() / exploration_.alone + 1;
    for (std::size_t i = random() % step; i < counts.size(); i += step) {
      for (std::uint32_t state = 0; state < counts[i]; ++state) {
        result.push_back(none);
        result.back()[i] = state;
        result.push_back(all);
        result.back()[i] = state;
      }
    }
    for (std::uint32_t k = 0; k < exploration_.random; ++k) {
      result.push_back(none);
      for (std::size_t i = 0; i < counts.size(); ++i)
        result.back()[i] = static_cast<std::uint32_t>(random() % counts[i]);
    }
    return result;
  }

  const DiskExploration& exploration_;
  const Verdict& verdict_;
  DiskReport report_;
  unsigned depth_ = 0;
};

}  // namespace

std::string replayed() {
  const char* image = std::getenv("PERDURE_REPLAY");
  return image != nullptr ? image : "";
}

DiskReport explore_disk(const DiskExploration& exploration,
                        const std::function<void(SimFileSystem&)>& scenario,
                        const Verdict& verdict) {
  Explorer explorer(exploration, verdict);
  SimFileSystem files;
  explorer.follow(files, "", [&] { scenario(files); });
  return std::move(explorer).report();
}

}  // namespace perdure::disk
