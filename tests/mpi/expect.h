// Shared by the tests of the distributed store that use GoogleTest: what a call must return.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "tests/mpi/support.h"

namespace perdure::mpi::test {

template <class T>
T must(Expected<T> done) {
  EXPECT_TRUE(done) << done.error().message();
  if constexpr (!std::is_void_v<T>) return std::move(*done);
}
inline void must(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }
inline void must(const Found& found) { must(found.status()); }

template <class T>
Status status_of(const Expected<T>& done) {
  return done ? Status() : done.error();
}
inline Status status_of(const Found& found) { return found.status(); }

// Not by MPI_Allreduce, which a test may replace.
inline std::uint64_t reduced(std::uint64_t word, MPI_Op op) {
  PMPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_UINT64_T, op, MPI_COMM_WORLD);
  return word;
}
inline void expect_same_everywhere(std::uint64_t word) {
  EXPECT_EQ(reduced(word, MPI_MIN), reduced(word, MPI_MAX));
}
inline void expect_same_everywhere(const Status& status) {
  const std::uint64_t said = std::hash<std::string_view>()(status.message());
  EXPECT_EQ(reduced(said, MPI_MIN), reduced(said, MPI_MAX)) << status.message();
}

}  // namespace perdure::mpi::test
