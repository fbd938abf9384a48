// Forks: what a process does beside a fork().
#pragma once

namespace perdure {

// From now on each fork() calls `before` first, then `in_parent` and, in the child, `in_child`. A
// child that is made by vfork() or by a bare clone() calls nothing. Returns false if memory is
// short.
bool at_forks(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept;

}  // namespace perdure
