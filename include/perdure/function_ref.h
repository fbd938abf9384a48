// FunctionRef: a reference to a callable, in two words, without allocation. It is valid only during
// the call that receives it.
#pragma once

#include <exception>
#include <memory>
#include <type_traits>
#include <utility>

namespace perdure {

template <class Signature>
class FunctionRef;

// A reference to a callable with this signature; see the head of this file.
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  // Refers to `f`, which must outlive this object.
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
             std::is_invocable_r_v<R, F&, Args...>)
  FunctionRef(F&& f) noexcept  // NOLINT: implicit on purpose, like std::function
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  // Calls it.
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

namespace detail {

// A callback that may throw. The library is compiled without exceptions: one that passed through it
// would leave guards held. So it waits here until the call of the library has returned: rethrow().
// Meanwhile f is not called again, and R() is returned: false, which ends a walk.
template <class F>
class Carried {
 public:
  explicit Carried(F f) noexcept : f_(std::move(f)) {}
  Carried(const Carried&) = delete;
  Carried& operator=(const Carried&) = delete;

  template <class... Args>
  auto operator()(Args&&... args) noexcept -> std::invoke_result_t<F&, Args...> {
#ifdef __cpp_exceptions
    using R = std::invoke_result_t<F&, Args...>;
    if (thrown_ != nullptr) return R();
    try {
      return f_(std::forward<Args>(args)...);
    } catch (...) {
      thrown_ = std::current_exception();
      return R();
    }
#else
    return f_(std::forward<Args>(args)...);
#endif
  }
  void rethrow() {
#ifdef __cpp_exceptions
    if (thrown_ != nullptr) std::rethrow_exception(std::move(thrown_));
#endif
  }

 private:
  F f_;
  std::exception_ptr thrown_;  // also without exceptions: a program may mix both
};

}  // namespace detail

}  // namespace perdure
