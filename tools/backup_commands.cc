// backup, restore, and info of a folder with a backup.
#include <algorithm>
#include <ctime>
#include <memory>

#include <fmt/format.h>

#include "commands.h"
#include "pool/output_check.h"
#include "progress.h"

namespace perdure::cli {

namespace {

struct BackupArguments {
  PoolArguments pool;
  std::string folder;
  std::uint64_t epoch = 0;
  bool has_epoch = false;
  std::optional<std::uint64_t> unix_ns;
};

void show(void* bar, std::uint64_t done, std::uint64_t total) {
  static_cast<Progress*>(bar)->show_bytes(done, total);
}

// "2026-11-27 21:50:00.25", UTC, or "@" and seconds since 1970. Nothing if it is neither.
std::optional<std::uint64_t> parse_time(const std::string& text) {
  std::string rest = text;
  std::time_t seconds = 0;
  if (rest.starts_with('@')) {
    const std::size_t end = std::min(rest.find_first_not_of("0123456789", 1), rest.size());
    if (end == 1 || end > 11) return std::nullopt;
    seconds = std::stoll(rest.substr(1, end - 1));
    rest.erase(0, end);
  } else {
    std::tm date{};
    std::replace(rest.begin(), rest.end(), 'T', ' ');
    const char* end = ::strptime(rest.c_str(), "%Y-%m-%d %H:%M:%S", &date);
    if (end == nullptr || date.tm_year < 70) return std::nullopt;
    const std::tm given = date;
    seconds = ::timegm(&date);  // makes a date of every day of a month
    if (given.tm_mday != date.tm_mday || date.tm_year > 300) return std::nullopt;
    rest.erase(0, static_cast<std::size_t>(end - rest.c_str()));
    if (rest.ends_with('Z')) rest.pop_back();
  }
  std::uint64_t ns = 0;
  if (!rest.empty()) {
    if (rest[0] != '.' || rest.size() < 2 || rest.size() > 10) return std::nullopt;
    rest.erase(0, 1);
    if (rest.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
    rest.resize(9, '0');
    ns = std::stoull(rest);
  }
  return static_cast<std::uint64_t>(seconds) * 1'000'000'000 + ns;
}

std::string epoch_words(const BackupEpoch& epoch) {
  if (epoch.unix_ns == 0) return fmt::format("epoch {}", epoch.epoch);
  return fmt::format("epoch {}, of {}", epoch.epoch, utc_time(epoch.unix_ns));
}

nlohmann::ordered_json to_json(const BackupInfo& info) {
  return {{"uuid", info.uuid},
          {"closed", info.closed},
          {"first_epoch", info.first.epoch},
          {"first_unix_ns", info.first.unix_ns},
          {"last_epoch", info.last.epoch},
          {"last_unix_ns", info.last.unix_ns},
          {"base_bytes", info.base_bytes},
          {"log_bytes", info.log_bytes},
          {"made_unix_ns", info.made_unix_ns},
          {"ends_unix_ns", info.ends_unix_ns}};
}

// An error of the folder of a backup: what helps there is not what helps with a pool.
int report_folder(const BackupArguments& arguments, const Status& status, const char* missing) {
  const std::string_view message = status.message();
  const bool of_folder = message.starts_with(arguments.folder + ": ");
  const char* remedy = !of_folder || message.find(';') != std::string_view::npos ? ""
                       : status == StatusCode::not_found                         ? missing
                       : status == StatusCode::corruption
                           ? "the backup has the damage; use another one"
                           : "";
  if (*remedy == '\0') return report(arguments.pool.path, status);
  return report(arguments.folder,
                fmt::format("{}; {}", message.substr(arguments.folder.size() + 2), remedy),
                exit_failure);
}

int run_backup(const BackupArguments& arguments) {
  if (const Status s = check_output(arguments.folder); !s.ok()) {
    return report_output(arguments.folder, s);
  }
  Progress progress(0, 0);
  auto made = back_up(arguments.pool.path, arguments.folder,
                      {.progress = show, .progress_context = &progress});
  progress.clear();
  if (!made) {
    return report_folder(arguments, made.error(),
                         "the folder above it must exist; make that first");
  }
  if (arguments.pool.json) {
    nlohmann::ordered_json object = {{"path", arguments.pool.path}, {"folder", arguments.folder}};
    object.update(to_json(*made));
    object["extended"] = made->extended;
    object["copied_bytes"] = made->copied_bytes;
    print_json(object);
    return exit_done;
  }
  fmt::print("{} {}: {} copied and read back; it ends with {}\n",
             made->extended ? "added to" : "backed up into", arguments.folder,
             human_bytes(made->copied_bytes),
             made->closed ? "the state in which the pool was closed" : epoch_words(made->last));
  return exit_done;
}

int run_restore(const BackupArguments& arguments) {
  if (const Status s = check_place(arguments.pool.path); !s.ok()) {
    return report_output(arguments.pool.path, s);
  }
  Progress progress(0, 0);
  RestoreOptions options{
      .unix_ns = arguments.unix_ns, .progress = show, .progress_context = &progress};
  if (arguments.has_epoch) options.epoch = arguments.epoch;
  auto restored = restore(arguments.folder, arguments.pool.path, options);
  progress.clear();
  if (!restored) {
    return report_folder(arguments, restored.error(), "name the folder of a backup");
  }
  if (arguments.pool.json) {
    print_json({{"path", arguments.pool.path},
                {"folder", arguments.folder},
                {"epoch", restored->epoch},
                {"unix_ns", restored->unix_ns}});
  } else {
    fmt::print("restored {}: {}; every key and checksum verified\n", arguments.pool.path,
               epoch_words(*restored));
  }
  return exit_done;
}

}  // namespace

int run_backup_info(const PoolArguments& arguments) {
  auto info = inspect_backup(arguments.path);
  if (!info) return report(arguments.path, info.error());
  if (arguments.json) {
    nlohmann::ordered_json object = {{"path", arguments.path}};
    object.update(to_json(*info));
    print_json(object);
    return exit_done;
  }
  print_row("backup", arguments.path);
  print_row("of the pool", info->uuid);
  print_row("pool's file copied", utc_time(info->made_unix_ns));
  print_row("ends", utc_time(info->ends_unix_ns));
  if (info->closed) {
    print_row("can be restored", "the state in which the pool was closed");
  } else {
    print_row("first to restore", epoch_words(info->first));
    print_row("last to restore", epoch_words(info->last));
  }
  print_row("pool's file", human_bytes(info->base_bytes));
  print_row("log", human_bytes(info->log_bytes));
  return exit_done;
}

void register_backup_commands(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<BackupArguments>();
  CLI::App* command =
      app.add_subcommand("backup", "copy a pool into a folder, also while it is used");
  add_path(*command, arguments->pool);
  command->add_option("DIR", arguments->folder, "the folder of the backup; made if it is absent")
      ->required();
  add_json(*command, arguments->pool);
  command->footer(R"(
A pool with durability `buffered` may be open in another process, which goes on. Others must be
closed. The backup has the last durable cut. What is copied is read back and verified.

If DIR has a backup of this pool from before, only what is new in its log is copied. That works as
long as the pool stays open and its log has what follows. Otherwise the command says so, and the
backup is as it was: name another folder.

EXAMPLES
  perdure backup users.perdure /backups/users
  perdure info /backups/users)");
  command->callback([&action, arguments] { action = [=] { return run_backup(*arguments); }; });

  auto given = std::make_shared<BackupArguments>();
  command = app.add_subcommand("restore", "make a pool of a backup, as it was at a moment");
  command->add_option("DIR", given->folder, "the folder of the backup")->required();
  command->add_option("PATH", given->pool.path, "the new pool's file, which must not exist")
      ->required();
  CLI::Option* epoch = add_count(*command, "--epoch", given->epoch, 0, ~std::uint64_t{0},
                                 "an epoch that `perdure info DIR` shows, or one between");
  command
      ->add_option_function<std::string>(
          "--time",
          [=](const std::string& text) {
            given->unix_ns = parse_time(text);
            if (!given->unix_ns)
              throw CLI::ValidationError("--time", "'" + text + "' is not a time");
          },
          "the last state up to a time, such as \"2026-11-27 21:50:00.25\" (UTC), or @ and\n"
          "seconds since 1970")
      ->type_name("T")
      ->excludes(epoch);
  add_json(*command, given->pool);
  command->footer(R"(
Without --epoch and --time the last state of the backup is restored. The checksums of all that is
copied are verified. Then the pool is checked in depth, and closed. Until that has succeeded, the
file is PATH.restoring-NUMBER.

EXAMPLES
  perdure restore /backups/users users.perdure
  perdure restore /backups/users before.perdure --time "2026-11-27 21:50:00")");
  command->callback([&action, given, epoch] {
    given->has_epoch = epoch->count() > 0;
    action = [=] { return run_restore(*given); };
  });
}

}  // namespace perdure::cli
