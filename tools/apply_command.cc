// apply: the puts, deletions and requirements of a file, committed as one batch.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>

#include <fmt/format.h>

#include "commands.h"
#include "tsv.h"

namespace perdure::cli {

namespace {

struct ApplyArguments {
  PoolArguments pool;
  std::string file;
};

// Returns the errno, or 0.
int read_all(int fd, std::string& text) {
  constexpr std::size_t kStep = 256 << 10;
  int error = 0;
  for (;;) {
    const std::size_t size = text.size();
    text.resize(size + kStep);
    const ssize_t got = ::read(fd, text.data() + size, kStep);
    error = got < 0 ? errno : 0;
    text.resize(size + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0 || (got < 0 && error != EINTR)) break;
  }
  return error;
}

// Reads all changes. Returns exit_done, or reports an error.
int read_changes(const std::string& name, std::string& text) {
  const int fd = name == "-" ? STDIN_FILENO : ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  int error = fd < 0 ? errno : 0;
  const int refused = fd < 0 ? int{exit_done} : refuse_own_input(input_name(name), fd);
  if (error == 0 && refused == exit_done) error = read_all(fd, text);
  if (fd > STDIN_FILENO) ::close(fd);
  if (error == 0) return refused;
  return report(input_name(name),
                fmt::format("cannot read: {}; name a file of changes or -", std::strerror(error)));
}

// Reads the lines of a file into a batch. Opens the maps that they name.
class BatchFile {
 public:
  BatchFile(Pool& pool, const PoolArguments& arguments) : pool_(pool), arguments_(arguments) {}

  // Returns the exit status. Reports the first bad line.
  int read(std::string_view text, const std::string& name) {
    for (std::uint64_t number = 1; !text.empty(); ++number) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      const Status s = add(text.substr(0, end));
      if (s == StatusCode::not_found) return report_map(arguments_, s);
      if (!s.ok()) {
        return report(name, fmt::format("line {}: {}", number, s.message()),
                      s == StatusCode::invalid_argument ? exit_usage : exit_failure);
      }
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return exit_done;
  }
  const WriteBatch& batch() const { return batch_; }

 private:
  Status add(std::string_view line) {
    std::string_view fields[3];
    std::size_t count = 0;
    for (bool more = true; more; ++count) {
      if (count == std::size(fields)) return bad("it has too many tabs; write \\t inside a value");
      const std::size_t tab = line.find('\t');
      more = tab != std::string_view::npos;
      fields[count] = line.substr(0, tab);
      if (const auto what = field_error(fields[count])) return bad(*what);
      line.remove_prefix(more ? tab + 1 : line.size());
    }
    const std::string_view word = fields[0];
    const bool has_value = word == "put" || word == "require";
    if (!has_value && word != "del" && word != "absent" && word != "map") {
      return bad(
          "it does not begin with put, del, require, absent or map; remove the line or mend it");
    }
    if (count != (has_value ? 3U : 2U)) {
      return bad(fmt::format("'{}' needs {}; write a tab before each field", word,
                             has_value ? "a key and a value" : "one field"));
    }
    std::string storage[2];
    const Bytes key = unescape(fields[1], storage[0]);
    if (word == "map") return use(std::string(key));
    if (map_ == nullptr) {
      if (Status s = use(arguments_.map); !s.ok()) return s;
    }
    const Bytes value = unescape(fields[2], storage[1]);
    if (word == "put") return map_->put(batch_, key, value);
    if (word == "del") return map_->erase(batch_, key);
    if (word == "require") return map_->require(batch_, key, value);
    return map_->require_absent(batch_, key);
  }
  static Status bad(const std::string& what) {
    return Status::format(StatusCode::invalid_argument, "%s", what.c_str());
  }

  Status use(const std::string& name) {
    arguments_.map = name;
    for (TextMap& map : maps_) {
      if (map.info().name != name) continue;
      map_ = &map;
      return {};
    }
    auto map = open_map(pool_, arguments_, false);
    if (!map) return std::move(map.error());
    map_ = &maps_.emplace_back(std::move(*map));
    return {};
  }

  Pool& pool_;
  PoolArguments arguments_;
  std::deque<TextMap> maps_;
  TextMap* map_ = nullptr;  // of the next line
  WriteBatch batch_;
};

int run_apply(const ApplyArguments& arguments) {
  std::string text;
  if (const int status = read_changes(arguments.file, text)) return status;
  auto pool = open_pool(arguments.pool, Access::existing);
  if (!pool) return report(arguments.pool.path, pool.error());
  int status = exit_done;
  {
    BatchFile file(*pool, arguments.pool);
    status = file.read(text, input_name(arguments.file));
    if (status == exit_done) {
      if (const Status s = pool->commit(file.batch()); !s.ok()) {
        status = report_entry(arguments.pool, s);
        if (s == StatusCode::conflict) status = exit_negative;
      }
    }
  }
  return close_pool(*pool, arguments.pool, status);
}

}  // namespace

void register_apply_command(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ApplyArguments>();
  CLI::App* command =
      app.add_subcommand("apply",
                         "make all changes of a file, or none; status 1 if it requires "
                         "what is not so");
  add_path(*command, arguments->pool);
  command->add_option("FILE", arguments->file, "the changes, one per line; - is standard input")
      ->required();
  add_map(*command, arguments->pool);
  add_durability(*command, arguments->pool);
  add_opening(*command, arguments->pool);
  command->footer(R"(
Each line has a word and its fields, with a tab before each field:

  put KEY VALUE       insert or replace
  del KEY             remove the key, if it is present
  require KEY VALUE   nothing is changed unless the key has this value
  absent KEY          nothing is changed unless the key is absent
  map NAME            the lines that follow are about this map; before, about that of --map

Fields are written as in the files of perdure load: \t, \n and \\ stand for a tab, a newline and a
backslash. Requirements are looked at before any change. Of several changes of a key the last one
counts. If the command or the machine stops, all changes are there afterwards, or none. The maps
must exist: perdure create, put and load make them.

EXAMPLES
  printf 'require\tada\t100\nput\tada\t70\nput\tbob\t30\n' | perdure apply bank.perdure -
  perdure apply inventory.perdure changes.txt)");
  command->callback([&action, arguments] { action = [=] { return run_apply(*arguments); }; });
}

}  // namespace perdure::cli
