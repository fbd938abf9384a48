// Calls: what every call of the Python package does around a call of the library: arguments become
// views, the pool is looked at, the GIL is released, and an error becomes an exception.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "perdure/perdure.h"

namespace perdure::python {

namespace nb = nanobind;

// --- errors ---

// Makes the exception classes of the module, one for each StatusCode.
void add_errors(nb::module_& module);
// The files that the arguments of a call have named: `filename` and `filename2` of an OSError. May
// be empty.
struct Paths {
  std::string_view first, second;
};
// Raises the exception of the status. The GIL is held. Reads errno, so it comes right after the
// call.
[[noreturn]] void raise(const Status& status, const Paths& paths = {});
// Raises perdure.ClosedError, or InvalidArgumentError.
[[noreturn]] void raise_closed(const char* what);
[[noreturn]] void raise_invalid(const std::string& message);

inline void check(const Status& status, const Paths& paths = {}) {
  if (!status.ok()) raise(status, paths);
}
template <class T>
T take(Expected<T>&& result, const Paths& paths = {}) {
  if (!result) raise(result.error(), paths);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// --- arguments ---

// The bytes of a key or of a value: of a bytes object, of a str in UTF-8 (keys only), or of any
// other object with a buffer, which is copied if it is not contiguous. Holds the buffer. Raises
// TypeError, also for a buffer of Python objects: those are addresses.
class Bytes {
 public:
  enum class Kind : std::uint8_t { key, value };
  Bytes(PyObject* object, Kind kind);
  ~Bytes() {
    if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  std::string_view view() const noexcept { return view_; }
  UntypedKey key() const noexcept { return {.bytes = view_}; }
  UntypedValue value() const noexcept { return {.bytes = view_}; }
  // Another thread may change the bytes of a value while the GIL is released: also behind a
  // read-only buffer. A key was copied.
  bool may_change() const noexcept { return buffer_.obj != nullptr && copy_.empty(); }

 private:
  void take_buffer(PyObject* object);

  std::string_view view_;
  std::string copy_;
  Py_buffer buffer_ = {};
};

// `key in mapping` as dict has it: what cannot be a key is not in it, unless it has no hash, which
// raises TypeError. contains(key) returns Found.
template <class F>
bool has_key(nb::handle key, F&& contains) {
  std::optional<Bytes> bytes;
  try {
    bytes.emplace(key.ptr(), Bytes::Kind::key);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_UnicodeEncodeError)) throw;
    if (PyObject_Hash(key.ptr()) == -1) throw nb::python_error();
    return false;
  }
  const Found found = contains(bytes->key());
  check(found.status());
  return found.present();
}

inline nb::object bytes_object(std::string_view bytes) {
  PyObject* object = PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size()));
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

// A str. A path that is no UTF-8 is shown with escapes.
inline nb::object text(std::string_view chars) {
  PyObject* object =
      PyUnicode_DecodeUTF8(chars.data(), static_cast<Py_ssize_t>(chars.size()), "surrogateescape");
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

// --- the pool ---

class Messages;

// Whether something has a view of what the object has lent (read.cc).
bool is_lent(PyObject* lender) noexcept;

// An open pool, which stores, maps, iterators and snapshots share. They may outlive its close.
class PoolState {
 public:
  PoolState(Pool pool, std::string path, std::shared_ptr<Messages> messages);
  ~PoolState();
  PoolState(const PoolState&) = delete;
  PoolState& operator=(const PoolState&) = delete;

  Pool& pool() noexcept { return pool_; }
  const std::string& path() const noexcept { return path_; }
  Messages& messages() noexcept { return *messages_; }
  bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  bool forked() const noexcept;
  // A lookup may wait for the medium.
  bool reads_may_wait() const noexcept { return reads_may_wait_; }
  // Keeps the lender of a view that its function has kept. As long as there is one, the pool stays
  // open: its memory must not vanish. The GIL is held.
  void keep_lender(PyObject* lender);
  // Whether something still has a view of the pool's memory. The GIL is held.
  bool lends();
  // Whether lends() was ever true. Needs no GIL.
  bool has_lent() const noexcept { return has_lent_.load(std::memory_order_relaxed); }
  // Waits for the calls of other threads, then closes. The GIL is released meanwhile. A second call
  // does nothing.
  void close(bool sync);
  // For the end of an object: as close(), and never raises.
  void close_quietly() noexcept;
  // After begin_exit(): waits for the calls of other threads. Returns false if one stays in a call.
  // The caller then keeps the object for good, and the file is as a kill leaves it.
  bool is_idle_at_exit();
  // After the interpreter. Waits for a close that is under way.
  void close_at_exit() noexcept;

 private:
  friend class Use;
  // Waits until no call is in the pool. Returns false if one still is after so many seconds.
  bool wait_for_calls(double seconds);
  Status close_released(bool sync);

  std::string path_;
  std::shared_ptr<Messages> messages_;  // outlives the pool, whose threads write to it
  Pool pool_;
  std::uint32_t forks_;
  bool reads_may_wait_ = false;
  nb::list lenders_;
  std::atomic<bool> has_lent_{false};
  std::atomic<bool> closed_{false};
  std::atomic<bool> closing_{false};
  std::atomic<std::uint32_t> calls_{0};  // in the pool
  std::mutex mutex_;
  std::condition_variable idle_;
};

// The interpreter ends: from now on only the calling thread can begin a call on a pool. A thread
// that the interpreter does not wait for must not be inside of one when it ends.
void begin_exit() noexcept;

// The scope of one call on a pool. Raises ClosedError if the pool is closed, ForkError if the
// process that opened it is another one, and InvalidArgumentError where a callback of read() calls
// what it must not call. While it lives the pool is not closed.
class Use {
 public:
  enum class Kind : std::uint8_t { reads, changes };
  explicit Use(PoolState& state, Kind kind = Kind::changes);
  ~Use() { leave(); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  void leave() noexcept;

  PoolState& state_;
};

// The scope of a callback from inside a lookup: only lookups are allowed in it.
class InCallback {
 public:
  InCallback() noexcept { ++depth_; }
  ~InCallback() { --depth_; }
  static bool any() noexcept { return depth_ != 0; }

 private:
  static thread_local unsigned depth_;
};

// Calls f() without the GIL.
template <class F>
auto released(F&& f) {
  const nb::gil_scoped_release release;
  return f();
}
// The same if `wait` is true.
template <class F>
auto released_if(bool wait, F&& f) {
  if (!wait) return f();
  return released(std::forward<F>(f));
}

// Counts the steps of a long loop that needs the GIL, and lets other threads have it between them.
class Turns {
 public:
  void step() {
    if (++steps_ % kSteps != 0) return;
    const nb::gil_scoped_release release;
  }

 private:
  static constexpr std::size_t kSteps = 1024;  // below a millisecond
  std::size_t steps_ = 0;
};

// What pools log. Any thread of a pool adds lines, with locks of the pool held, so it must not wait
// for the GIL. Calls of the pool hand them to logging.getLogger("perdure").
class Messages {
 public:
  static void add(void* self, LogLevel level, std::string_view message) noexcept;
  // The GIL is held.
  void deliver();

 private:
  struct Line {
    LogLevel level;
    std::string text;
  };
  static constexpr std::size_t kMost = 1000;
  std::mutex mutex_;
  std::deque<Line> lines_;
};

// Counts forks from the import of the module on.
void count_forks();

}  // namespace perdure::python
