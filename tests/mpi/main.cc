// GoogleTest on every rank. A failure ends the run at once, because the other ranks would wait for
// ever.
#include <gtest/gtest.h>

#include "perdure/mpi.h"

namespace {
class AbortOnFailure : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank,
                 result.file_name() != nullptr ? result.file_name() : "?", result.line_number(),
                 result.message());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
};
}  // namespace

// What the program asks MPI for. A test may have its own, with more than most programs ask for.
[[gnu::weak]] int level_of_threads() { return MPI_THREAD_SINGLE; }

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, level_of_threads(), &provided);
  testing::InitGoogleTest(&argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new AbortOnFailure);
  const int result = RUN_ALL_TESTS();
  MPI_Finalize();
  return result;
}
