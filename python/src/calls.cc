#include "calls.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace perdure::python {

namespace {

struct ErrorClass {
  const char* name;
  const char* doc;
};
// By StatusCode. The order is that of status.h.
constexpr std::array kErrors{
    ErrorClass{"Error", "The base of all errors of perdure. `code` names the kind."},
    ErrorClass{"InvalidArgumentError", "The call breaks a rule of its documentation."},
    ErrorClass{"NotFoundError", "There is no such file or map. Never raised for a key."},
    ErrorClass{"ExistsError", "The file or map exists, and the call asked for a new one."},
    ErrorClass{"BusyError", "Another process owns the pool, or a later version is held."},
    ErrorClass{"CorruptionError", "The content of the file breaks the format."},
    ErrorClass{"FormatError", "Another format version, unknown features, or another machine."},
    ErrorClass{"UntrustedError", "The file may lack acknowledged data after a power failure."},
    ErrorClass{"PoolFullError", "No space is left in the pool or on the disk."},
    ErrorClass{"OutOfMemoryError", "The machine's memory is short, not the pool."},
    ErrorClass{"IoError", "The operating system refused an operation."},
    ErrorClass{"PoisonedError", "A write-back failed: close the pool and open it again."},
    ErrorClass{"UnsupportedError", "The engine, the medium or this build cannot do it."},
    ErrorClass{"ReadOnlyError", "A change of a pool that was opened read-only."},
    ErrorClass{"HashOverflowError", "More keys of one hash than the table takes."},
    ErrorClass{"ConflictError", "A requirement of a batch is not met. Nothing was changed."},
    ErrorClass{"LiveMissingError", "The live image of a buffered pool is missing, or not usable."},
};
PyObject* errors[kErrors.size()];
PyObject* access_error;
PyObject* closed_error;
PyObject* fork_error;

std::atomic<std::uint32_t> fork_count{0};

constexpr double kPatienceAtExit = 2;    // seconds
constexpr double kPatienceOfClose = 60;  // of a thread, at the exit

// The class of the standard library that the error also is; null if there is none.
PyObject* second_base(StatusCode code) {
  switch (code) {
    case StatusCode::invalid_argument:
      return PyExc_ValueError;
    case StatusCode::not_found:
      return PyExc_FileNotFoundError;
    case StatusCode::exists:
      return PyExc_FileExistsError;
    case StatusCode::busy:
      return PyExc_BlockingIOError;
    case StatusCode::out_of_memory:
      return PyExc_MemoryError;
    case StatusCode::pool_full:
    case StatusCode::io:
      return PyExc_OSError;
    case StatusCode::unsupported:
      return PyExc_NotImplementedError;
    default:
      return nullptr;
  }
}

// The errno of an error that is an OSError; 0 if it is none, or if it is not known. `last`: errno
// after the call. A Status has the text of a failed call of the system, but not its number. If the
// text is that of `last`, no later call has changed errno.
int errno_of(const Status& status, int last) {
  switch (status.code()) {
    case StatusCode::not_found:
      return ENOENT;
    case StatusCode::exists:
      return EEXIST;
    case StatusCode::busy:
      return EAGAIN;
    case StatusCode::pool_full:
      return ENOSPC;
    case StatusCode::io:
      return status.message().contains(std::strerror(last)) ? last : 0;
    default:
      return 0;
  }
}

// The text of an OSError is what is wrong; the class of the standard library would put the number
// before it and the name of the file behind it.
PyObject* text_of_error(PyObject* self, PyObject*) {
  PyObject* text = PyObject_GetAttrString(self, "strerror");
  if (text != nullptr && text != Py_None) return text;
  PyErr_Clear();  // no OSError
  Py_XDECREF(text);
  return PyObject_CallMethod(PyExc_BaseException, "__str__", "O", self);
}
PyMethodDef text_of_error_method{"__str__", &text_of_error, METH_NOARGS, nullptr};

PyObject* add_error(nb::module_& module, const char* name, const char* doc, const char* code,
                    PyObject* base, PyObject* second) {
  nb::object bases = second != nullptr
                         ? nb::object(nb::make_tuple(nb::borrow(base), nb::borrow(second)))
                         : nb::borrow(base);
  nb::dict attributes;
  attributes["code"] = code;
  const std::string full = std::string("perdure.") + name;
  PyObject* made = PyErr_NewExceptionWithDoc(full.c_str(), doc, bases.ptr(), attributes.ptr());
  if (made == nullptr) throw nb::python_error();
  module.attr(name) = nb::borrow(made);
  return made;
}

// `number`: the errno, or 0.
[[noreturn]] void raise_as(PyObject* type, std::string_view message, int number = 0,
                           const Paths& paths = {}) {
  const nb::object what = nb::steal(PyUnicode_DecodeUTF8(
      message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
  if (!what.is_valid()) throw nb::python_error();
  nb::object arguments = nb::make_tuple(what);
  if (PyObject_IsSubclass(type, PyExc_OSError) == 1) {  // pickle keeps these
    const nb::object code = number != 0 ? nb::object(nb::int_(number)) : nb::none();
    arguments = paths.first.empty() ? nb::make_tuple(code, what)
                : paths.second.empty()
                    ? nb::make_tuple(code, what, text(paths.first))
                    : nb::make_tuple(code, what, text(paths.first), nb::none(), text(paths.second));
  }
  const nb::object error = nb::steal(PyObject_CallObject(type, arguments.ptr()));
  if (!error.is_valid()) throw nb::python_error();
  PyErr_SetObject(type, error.ptr());
  throw nb::python_error();
}

// Whether the elements of a buffer are objects of Python, or have some. `format`: as the module
// struct has it, with the names of fields between colons; may be null.
bool has_objects(const char* format) {
  bool in_name = false;
  for (; format != nullptr && *format != 0; ++format) {
    if (*format == ':') in_name = !in_name;
    if (*format == 'O' && !in_name) return true;
  }
  return false;
}

}  // namespace

void add_errors(nb::module_& module) {
  for (std::size_t i = 0; i < kErrors.size(); ++i) {
    const auto code = static_cast<StatusCode>(i);
    errors[i] = add_error(module, kErrors[i].name, kErrors[i].doc,
                          i == 0 ? "error" : status_code_name(code),
                          i == 0 ? PyExc_Exception : errors[0], second_base(code));
  }
  const nb::object text = nb::steal(
      PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(errors[0]), &text_of_error_method));
  if (!text.is_valid()) throw nb::python_error();
  nb::borrow(errors[0]).attr("__str__") = text;
  access_error = add_error(module, "AccessError", "The operating system denies the access.", "io",
                           errors[static_cast<std::size_t>(StatusCode::io)], PyExc_PermissionError);
  PyObject* invalid = errors[static_cast<std::size_t>(StatusCode::invalid_argument)];
  closed_error = add_error(module, "ClosedError", "The pool, or the object, was closed.", "closed",
                           invalid, nullptr);
  fork_error = add_error(module, "ForkError",
                         "The pool was opened by the parent process. A child opens it itself, once "
                         "the parent has closed it.",
                         "forked", errors[0], PyExc_RuntimeError);
}

void raise(const Status& status, const Paths& paths) {
  const int number = errno_of(status, errno);
  const auto i = static_cast<std::size_t>(status.code());
  const bool denied = status.code() == StatusCode::io && (number == EACCES || number == EPERM);
  raise_as(denied               ? access_error
           : i < kErrors.size() ? errors[i]
                                : errors[0],
           status.message(), number, paths);
}
void raise_closed(const char* what) { raise_as(closed_error, std::string(what) + " is closed"); }
void raise_invalid(const std::string& message) {
  raise_as(errors[static_cast<std::size_t>(StatusCode::invalid_argument)], message);
}

Bytes::Bytes(PyObject* object, Kind kind) {
  if (PyBytes_Check(object)) {
    view_ = {PyBytes_AS_STRING(object), static_cast<std::size_t>(PyBytes_GET_SIZE(object))};
    return;
  }
  if (kind == Kind::key && PyUnicode_Check(object)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text == nullptr) throw nb::python_error();
    view_ = {text, static_cast<std::size_t>(size)};
    return;
  }
  if (PyObject_CheckBuffer(object) == 0) {
    if (kind == Kind::key) {
      PyErr_Format(PyExc_TypeError, "a key is bytes, str or another bytes-like object, not %.200s",
                   Py_TYPE(object)->tp_name);
    } else if (PyUnicode_Check(object)) {
      PyErr_SetString(PyExc_TypeError,
                      "a value is bytes or another bytes-like object: encode the str");
    } else {
      PyErr_Format(PyExc_TypeError, "a value is bytes or another bytes-like object, not %.200s",
                   Py_TYPE(object)->tp_name);
    }
    throw nb::python_error();
  }
  take_buffer(object);
  if (PyBuffer_IsContiguous(&buffer_, 'C') == 0) {
    copy_.resize(static_cast<std::size_t>(buffer_.len));
    if (PyBuffer_ToContiguous(copy_.data(), &buffer_, buffer_.len, 'C') != 0) {
      PyBuffer_Release(&buffer_);
      throw nb::python_error();
    }
    view_ = copy_;
    return;
  }
  view_ = {static_cast<const char*>(buffer_.buf), static_cast<std::size_t>(buffer_.len)};
  if (kind == Kind::key) {  // short, and must not change while the library uses it
    copy_ = view_;
    view_ = copy_;
  }
}

void Bytes::take_buffer(PyObject* object) {
  bool objects = false;
  if (PyObject_GetBuffer(object, &buffer_, PyBUF_FULL_RO) != 0) {
    PyErr_Clear();  // no format is for its elements, such as the times of numpy
    if (PyObject_GetBuffer(object, &buffer_, PyBUF_FULL_RO & ~PyBUF_FORMAT) != 0) {
      buffer_.obj = nullptr;
      throw nb::python_error();
    }
    const nb::object type = nb::getattr(nb::handle(object), "dtype", nb::none());
    objects = !nb::getattr(type, "hasobject", nb::bool_(true)).equal(nb::bool_(false));
  } else {
    objects = has_objects(buffer_.format);
  }
  if (!objects) return;
  PyBuffer_Release(&buffer_);
  buffer_.obj = nullptr;
  PyErr_Format(PyExc_TypeError,
               "this %.200s holds Python objects, which are no bytes: encode them, or give the "
               "array a type of numbers",
               Py_TYPE(object)->tp_name);
  throw nb::python_error();
}

PoolState::PoolState(Pool pool, std::string path, std::shared_ptr<Messages> messages)
    : path_(std::move(path)),
      messages_(std::move(messages)),
      pool_(std::move(pool)),
      forks_(fork_count.load(std::memory_order_relaxed)) {
  const auto info = pool_.info();
  reads_may_wait_ = !info || info->medium == Medium::page || info->medium == Medium::network;
}

// No call is in the pool: each holds the object that it was made on.
PoolState::~PoolState() {
  if (closed() || forked()) return;
  if (lends()) {  // the memory must stay: the file is as a kill leaves it
    new Pool(std::move(pool_));
    new std::shared_ptr<Messages>(messages_);  // its threads write to them
    return;
  }
  const nb::gil_scoped_release release;
  close_quietly();
}

// The thread that ends the interpreter; 0 before that.
static std::atomic<unsigned long> last_thread{0};

void begin_exit() noexcept { last_thread.store(PyThread_get_thread_ident()); }

static bool ends_in_another_thread() noexcept {
  const unsigned long last = last_thread.load(std::memory_order_seq_cst);
  return last != 0 && last != PyThread_get_thread_ident();
}

bool PoolState::forked() const noexcept {
  return forks_ != fork_count.load(std::memory_order_relaxed);
}

bool PoolState::wait_for_calls(double seconds) {
  if (forked()) return true;  // they are the parent's
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, std::chrono::duration<double>(seconds),
                        [&] { return calls_.load(std::memory_order_acquire) == 0; });
}

Status PoolState::close_released(bool sync) {
  closing_.store(true, std::memory_order_release);
  while (!wait_for_calls(3600)) {
  }
  Status closed = pool_.close({.sync = sync});
  const std::lock_guard lock(mutex_);
  closing_.store(false, std::memory_order_release);
  idle_.notify_all();
  return closed;
}

void PoolState::keep_lender(PyObject* lender) {
  has_lent_.store(true, std::memory_order_relaxed);
  if (PyList_Append(lenders_.ptr(), lender) != 0) PyErr_Clear();
}

bool PoolState::lends() {
  while (nb::len(lenders_) != 0) {
    if (is_lent(nb::object(lenders_[nb::len(lenders_) - 1]).ptr())) return true;
    lenders_.attr("pop")();
  }
  return false;
}

void PoolState::close(bool sync) {
  if (InCallback::any()) raise_invalid("a callback of read() must not close a pool");
  if (closed()) return;
  if (lends()) {
    PyErr_Format(PyExc_BufferError, "%s: a function of read() has kept a view of a value",
                 path_.c_str());
    throw nb::python_error();
  }
  if (closed_.exchange(true, std::memory_order_acq_rel)) return;
  const Status status = released([&] { return close_released(sync); });
  messages_->deliver();
  check(status, {path_});
}

void PoolState::close_quietly() noexcept {
  if (closed_.exchange(true, std::memory_order_acq_rel)) return;
  (void)close_released(true);
}

bool PoolState::is_idle_at_exit() {
  if (wait_for_calls(kPatienceAtExit)) return true;
  closed_.store(true, std::memory_order_release);
  return false;
}

void PoolState::close_at_exit() noexcept {
  if (!closed_.exchange(true, std::memory_order_acq_rel)) {
    if (wait_for_calls(0)) (void)pool_.close();
    return;
  }
  std::unique_lock lock(mutex_);  // a thread may be closing it
  idle_.wait_for(lock, std::chrono::duration<double>(kPatienceOfClose),
                 [&] { return !closing_.load(std::memory_order_acquire); });
}

Use::Use(PoolState& state, Kind kind) : state_(state) {
  if (kind == Kind::changes && InCallback::any()) {
    raise_invalid("a callback of read() may read only: it must not change or call the pool");
  }
  state_.calls_.fetch_add(1, std::memory_order_seq_cst);
  const bool forked = state_.forked();
  const bool closed = state_.closed_.load(std::memory_order_seq_cst) || ends_in_another_thread();
  if (forked || closed) [[unlikely]] {
    leave();
    if (!forked) raise_closed(state_.path().c_str());
    raise_as(fork_error, state_.path() +
                             ": the parent of this process has opened the pool; a child must not "
                             "use it; close it in the parent, and then open it in the child");
  }
}

void Use::leave() noexcept {
  if (state_.calls_.fetch_sub(1, std::memory_order_seq_cst) != 1) return;
  const bool awaited = state_.closed_.load(std::memory_order_seq_cst) ||
                       last_thread.load(std::memory_order_seq_cst) != 0;
  if (!awaited || state_.forked()) [[likely]]
    return;
  const std::lock_guard lock(state_.mutex_);  // else the waiter may be about to sleep
  state_.idle_.notify_all();
}

thread_local unsigned InCallback::depth_ = 0;

void Messages::add(void* self, LogLevel level, std::string_view message) noexcept {
  auto& messages = *static_cast<Messages*>(self);
  try {
    const std::lock_guard lock(messages.mutex_);
    if (messages.lines_.size() == kMost) messages.lines_.pop_front();
    messages.lines_.push_back({level, std::string(message)});
  } catch (const std::exception&) {  // no memory for a line of the log
  }
}

void Messages::deliver() {
  std::deque<Line> lines;
  {
    const std::lock_guard lock(mutex_);
    lines.swap(lines_);
  }
  if (lines.empty()) return;
  const int last = errno;  // raise() reads it
  const nb::object logger = nb::module_::import_("logging").attr("getLogger")("perdure");
  for (const Line& line : lines) {
    const char* level = line.level == LogLevel::error     ? "error"
                        : line.level == LogLevel::warning ? "warning"
                                                          : "info";
    logger.attr(level)("%s", nb::steal(PyUnicode_DecodeUTF8(
                                 line.text.data(), static_cast<Py_ssize_t>(line.text.size()),
                                 "backslashreplace")));
  }
  errno = last;
}

void count_forks() {
  if (pthread_atfork(nullptr, nullptr,
                     [] { fork_count.fetch_add(1, std::memory_order_relaxed); }) != 0) {
    throw std::bad_alloc();
  }
}

}  // namespace perdure::python
