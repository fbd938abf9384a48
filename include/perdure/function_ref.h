// FunctionRef: a reference to a callable, in two words, without allocation. It is valid only during
// the call that receives it.
#pragma once

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

}  // namespace perdure
