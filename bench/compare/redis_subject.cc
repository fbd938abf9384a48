// Redis: a server of our own in the folder of the store, behind a Unix socket, with one connection
// of its client library per thread. Its append-only file is synced each second, or with sync before
// each reply; it makes no snapshots. write_many() and read_batch() send all their commands before
// they wait for the replies. The server is killed with the process that has started it.
#include <fcntl.h>
#include <fmt/core.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "bench/compare/foreign.h"
#include "bench/workloads/work.h"

namespace perdure::bench {
namespace {

constexpr const char* kServer = "redis-server";
constexpr int kAttempts = 6000;  // to connect, or to see the server end, with 10 ms between them
constexpr useconds_t kPauseUs = 10'000;
constexpr int kNoProgram = 127;

struct CloseConnection {
  void operator()(redisContext* connection) const noexcept { ::redisFree(connection); }
};
struct FreeReply {
  void operator()(void* reply) const noexcept { ::freeReplyObject(reply); }
};
using Connection = std::unique_ptr<redisContext, CloseConnection>;
using Reply = std::unique_ptr<redisReply, FreeReply>;

// Null if there is no server.
Connection connect(const std::string& socket) {
  Connection connection(::redisConnectUnix(socket.c_str()));
  return connection != nullptr && connection->err == 0 ? std::move(connection) : nullptr;
}

class RedisSession : public Session {
 public:
  RedisSession(const std::string& socket, const ForeignOptions& options)
      : options_(options), connection_(connect(socket)) {}

  Outcome insert(const KeyRef& key, const ValueRef& value) override {
    return one(OpKind::insert, key, value);
  }
  Outcome update(const KeyRef& key, const ValueRef& value) override {
    return one(OpKind::update, key, value);
  }
  Outcome erase(const KeyRef& key) override { return one(OpKind::erase, key, {}); }
  Outcome write_many(OpKind kind, std::span<const KeyRef> keys,
                     std::span<const ValueRef> values) override {
    if (kind == OpKind::batch) return Session::write_many(kind, keys, values);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      send(kind, keys[i], kind == OpKind::erase ? ValueRef{} : values[i]);
    }
    Outcome outcome = Outcome::yes;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const Outcome own = changed(receive());
      if (own == Outcome::failed) return own;
      if (own == Outcome::no) outcome = own;
    }
    return outcome;
  }
  Outcome read(const KeyRef& key, FunctionRef<void(const ValueRef&)> visit) override {
    send_read(key);
    return visited(receive(), visit);
  }
  Outcome read_batch(std::span<const KeyRef> keys,
                     FunctionRef<void(std::size_t, const ValueRef&)> visit) override {
    for (const KeyRef& key : keys) send_read(key);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto visit_it = [&](const ValueRef& value) { visit(i, value); };
      if (visited(receive(), visit_it) == Outcome::failed) return Outcome::failed;
    }
    return Outcome::yes;
  }
  Outcome scan(const KeyRef&, std::uint64_t, ScanTally&) override {
    return fail("redis: strings have no order");
  }

 private:
  void send(std::span<const std::string_view> words) {
    std::array<const char*, 4> bytes = {};
    std::array<std::size_t, 4> sizes = {};
    for (std::size_t i = 0; i < words.size(); ++i) {
      bytes[i] = words[i].data();
      sizes[i] = words[i].size();
    }
    if (connection_ != nullptr) {
      ::redisAppendCommandArgv(connection_.get(), static_cast<int>(words.size()), bytes.data(),
                               sizes.data());
    }
  }
  void send(OpKind kind, const KeyRef& key, const ValueRef& value) {
    const Encoded encoded_key(key);
    const Encoded encoded_value(value);
    if (kind == OpKind::erase) return send(std::array{std::string_view("DEL"), encoded_key.view()});
    send(std::array{std::string_view("SET"), encoded_key.view(), encoded_value.view(),
                    std::string_view(kind == OpKind::insert ? "NX" : "XX")});
  }
  void send_read(const KeyRef& key) {
    const Encoded encoded(key);
    send(std::array{std::string_view("GET"), encoded.view()});
  }
  // Null if the connection has failed.
  Reply receive() {
    void* reply = nullptr;
    if (connection_ == nullptr || ::redisGetReply(connection_.get(), &reply) != REDIS_OK) {
      return nullptr;
    }
    return Reply(static_cast<redisReply*>(reply));
  }
  // Sets the error if the reply is one.
  bool refused(const Reply& reply) {
    if (reply != nullptr && reply->type != REDIS_REPLY_ERROR) return false;
    fail(fmt::format("redis: {}", reply != nullptr         ? reply->str
                                  : connection_ == nullptr ? "cannot connect"
                                                           : connection_->errstr));
    return true;
  }
  // SET returns nil if its condition does not hold, DEL the number of keys.
  Outcome changed(const Reply& reply) {
    if (refused(reply)) return Outcome::failed;
    const bool none = reply->type == REDIS_REPLY_NIL ||
                      (reply->type == REDIS_REPLY_INTEGER && reply->integer == 0);
    return none ? Outcome::no : Outcome::yes;
  }
  Outcome visited(const Reply& reply, FunctionRef<void(const ValueRef&)> visit) {
    if (refused(reply)) return Outcome::failed;
    if (reply->type != REDIS_REPLY_STRING) return Outcome::no;
    visit(decode_value(options_.value, {reply->str, reply->len}));
    return Outcome::yes;
  }
  Outcome one(OpKind kind, const KeyRef& key, const ValueRef& value) {
    send(kind, key, value);
    return changed(receive());
  }

  const ForeignOptions& options_;
  Connection connection_;
};

class RedisSubject : public Subject {
 public:
  explicit RedisSubject(const ForeignOptions& options)
      : options_(options),
        folder_(options.path, name()),
        socket_((folder_.path() / "socket").string()) {}
  ~RedisSubject() override { stop(); }

  std::string name() const override { return "redis"; }
  std::string medium() const override { return "page"; }
  std::string durability() const override { return options_.sync ? "power" : "1 s"; }
  std::string version() const override { return version_; }

  Result<void> create() override {
    if (auto made = folder_.create(); !made) return made;
    return reopen();
  }
  Result<void> reopen() override {
    if (socket_.size() >= sizeof(sockaddr_un::sun_path)) {
      return failed("the path is too long for a Unix socket; name a shorter one with --path");
    }
    if (auto started = start(); !started) return started;
    for (int i = 0; i < kAttempts && control_ == nullptr; ++i) {
      int status = 0;
      if (::waitpid(server_, &status, WNOHANG) == server_) {
        server_ = -1;
        return failed(WIFEXITED(status) && WEXITSTATUS(status) == kNoProgram
                          ? "redis-server is not installed"
                          : fmt::format("redis-server has ended; see {}", log()));
      }
      control_ = connect(socket_);
      // A server that still reads its file returns an error.
      if (control_ != nullptr && ask("PING") != "PONG") control_.reset();
      if (control_ == nullptr) ::usleep(kPauseUs);
    }
    if (control_ == nullptr) return failed("redis-server does not accept connections");
    version_ = field("SERVER", "redis_version:");
    return {};
  }
  Result<void> close() override {
    if (server_ <= 0) return {};
    if (control_ != nullptr) ask("SHUTDOWN");  // writes what is left, syncs it, and does not reply
    const bool asked = std::exchange(control_, nullptr) != nullptr;
    int status = 0;
    for (int i = 0; asked && i < kAttempts; ++i) {
      if (::waitpid(server_, &status, WNOHANG) == server_) {
        server_ = -1;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
        break;
      }
      ::usleep(kPauseUs);
    }
    stop();
    return failed(fmt::format("redis-server did not end cleanly; see {}", log()));
  }
  void remove() override { folder_.remove(); }
  std::unique_ptr<Session> session() override {
    return std::make_unique<RedisSession>(socket_, options_);
  }
  Footprint footprint() override {
    const Reply keys(static_cast<redisReply*>(::redisCommand(control_.get(), "DBSIZE")));
    return {.entries = keys != nullptr ? static_cast<std::uint64_t>(keys->integer) : 0,
            .pm_bytes = folder_.bytes(),
            .dram_bytes = number(field("MEMORY", "used_memory:"))};
  }

 private:
  Result<void> failed(const std::string& what) const {
    return failure(kExitIo, fmt::format("{}: redis: {}", folder_.path().string(), what));
  }
  std::string log() const { return (folder_.path() / "log").string(); }

  // A server has a lock as long as it lives: a process that was killed may have left one that still
  // ends.
  Result<void> start() {
    const std::string folder = folder_.path().string();
    const int lock = ::open((folder + "/lock").c_str(), O_RDWR | O_CREAT, 0600);
    if (lock < 0 || ::flock(lock, LOCK_EX) != 0) {
      if (lock >= 0) ::close(lock);
      return failed(std::strerror(errno));
    }
    const std::string at = log();
    const char* const arguments[] = {kServer,
                                     "--port",
                                     "0",
                                     "--unixsocket",
                                     socket_.c_str(),
                                     "--dir",
                                     folder.c_str(),
                                     "--logfile",
                                     at.c_str(),
                                     "--save",
                                     "",
                                     "--appendonly",
                                     "yes",
                                     "--appendfsync",
                                     options_.sync ? "always" : "everysec",
                                     nullptr};
    const pid_t parent = ::getpid();
    server_ = ::fork();
    if (server_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(kNoProgram);  // it died before
      const int null = ::open("/dev/null", O_RDWR);
      for (const int fd : {0, 1, 2}) ::dup2(null, fd);
      ::execvp(kServer, const_cast<char* const*>(arguments));
      ::_exit(kNoProgram);
    }
    ::close(lock);  // the server has it
    return server_ > 0 ? Result<void>{} : failed(std::strerror(errno));
  }
  // Kills the server if there is one.
  void stop() {
    if (server_ > 0) ::kill(server_, SIGKILL);
    while (server_ > 0 && ::waitpid(server_, nullptr, 0) < 0 && errno == EINTR) continue;
    server_ = -1;
  }

  // The text that the command returns, or "".
  std::string ask(const char* command) {
    const Reply reply(static_cast<redisReply*>(::redisCommand(control_.get(), command)));
    if (reply == nullptr || reply->type == REDIS_REPLY_ERROR || reply->str == nullptr) return {};
    return {reply->str, reply->len};
  }
  std::string field(const char* section, std::string_view name) {
    const std::string text = ask(fmt::format("INFO {}", section).c_str());
    const std::size_t at = text.find(name);
    if (at == std::string::npos) return {};
    const std::size_t begin = at + name.size();
    return text.substr(begin, text.find('\r', begin) - begin);
  }
  static std::uint64_t number(const std::string& text) {
    std::uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }

  ForeignOptions options_;
  StoreFolder folder_;
  std::string socket_;
  std::string version_;
  pid_t server_ = -1;
  Connection control_;
};

}  // namespace

std::unique_ptr<Subject> make_redis_subject(const ForeignOptions& options) {
  return std::make_unique<RedisSubject>(options);
}

}  // namespace perdure::bench
