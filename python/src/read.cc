// Lent: lends the memory of a value to a memoryview, and counts who still has a view of it.
#include "read.h"

namespace perdure::python {

namespace {

struct Lent {
  std::string_view bytes;
  std::atomic<int> views{0};
  bool ended = false;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  auto* lent = nb::inst_ready(self) ? nb::inst_ptr<Lent>(self) : nullptr;
  if (lent == nullptr || lent->ended) {
    view->obj = nullptr;
    PyErr_SetString(PyExc_BufferError, "the view ended with the function that got it");
    return -1;
  }
  const int done = PyBuffer_FillInfo(view, self, const_cast<char*>(lent->bytes.data()),
                                     static_cast<Py_ssize_t>(lent->bytes.size()), 1, flags);
  if (done == 0) ++lent->views;
  return done;
}
void release_buffer(PyObject* self, Py_buffer*) noexcept { --nb::inst_ptr<Lent>(self)->views; }

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                       {Py_bf_releasebuffer, reinterpret_cast<void*>(&release_buffer)},
                       {0, nullptr}};

}  // namespace

bool is_lent(PyObject* lender) noexcept { return nb::inst_ptr<Lent>(lender)->views != 0; }

nb::object lend(PoolState& pool, std::string_view bytes, nb::handle function) noexcept {
  try {
    auto* lent = new Lent;
    lent->bytes = bytes;
    const nb::object lender = nb::cast(lent, nb::rv_policy::take_ownership);
    PyObject* view = PyMemoryView_FromObject(lender.ptr());
    PyObject* value =
        view != nullptr ? PyObject_CallFunctionObjArgs(function.ptr(), view, nullptr) : nullptr;
    if (value == view) Py_CLEAR(value);  // the view itself, which ends now
    PyObject* type = nullptr;
    PyObject* error = nullptr;
    PyObject* trace = nullptr;
    PyErr_Fetch(&type, &error, &trace);
    nb::object owned_trace = nb::steal(trace);  // it refers to the frame, and that to the view
    if (view != nullptr) {
      PyObject* released = PyObject_CallMethod(view, "release", nullptr);
      if (released == nullptr) PyErr_Clear();  // something has a buffer of the view
      Py_XDECREF(released);
      Py_DECREF(view);
    }
    lent->ended = true;
    if (lent->views != 0) {
      pool.keep_lender(lender.ptr());
      if (type == nullptr) {
        Py_CLEAR(value);
        PyErr_SetString(PyExc_BufferError,
                        "the function of read() keeps a view of the value: it must copy what it "
                        "keeps");
        return {};
      }
    }
    if (type != nullptr) {
      PyErr_Restore(type, error, owned_trace.release().ptr());
    } else if (value == nullptr) {
      PyErr_SetString(PyExc_BufferError,
                      "the function of read() returns the view, which has ended");
    }
    return nb::steal(value);
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception&) {
    PyErr_NoMemory();
  }
  return {};
}

void add_lent(nb::module_& module) { nb::class_<Lent>(module, "_Lent", nb::type_slots(slots)); }

}  // namespace perdure::python
