// Forks: how a front end notices that a child of fork uses what its parent has opened. The core
// asks for the process id, which costs a system call; a front end asks at every call on an entry.
#pragma once

#include <cstdint>

namespace perdure {

namespace detail {
// No atomic: the child that counts has one thread, and its parent's word does not change.
[[gnu::visibility("hidden")]] extern std::uint32_t fork_count;
}  // namespace detail

// Counts forks from the first call on. Returns false if memory is short.
bool count_forks() noexcept;

// The number of forks between the process that called count_forks() and this one. A child that was
// made without fork(), by vfork() or by a bare clone(), is not counted.
inline std::uint32_t forks() noexcept { return detail::fork_count; }

}  // namespace perdure
