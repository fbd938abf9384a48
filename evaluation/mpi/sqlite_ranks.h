// SqliteRanks: SQLiteReg over MPI, with which the paper compares the distributed store (section
// V.H). Each rank has a file of SQLite and versions of its own, one for each insert. A find is a
// broadcast of the query and a reduction of the replies. A snapshot is collected by the two ways of
// the distributed store, with its merges. Throws std::runtime_error; an error of MPI ends the run.
#pragma once

#include <unistd.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "evaluation/versions/store.h"
#include "mpi/merge.h"
#include "perdure/mpi_types.h"

namespace perdure::mpi::bench {

class SqliteRanks {
 public:
  using Entry = std::pair<std::uint64_t, std::uint64_t>;

  // `directory` exists. `merge_threads` as of the distributed store.
  SqliteRanks(MPI_Comm comm, const std::string& directory, std::uint32_t merge_threads = 0)
      : comm_(comm), merge_threads_(merge_threads) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &ranks_);
    store_ =
        paper::versions::make_sqlite_file(directory + "/rank-" + std::to_string(rank_) + ".sqlite");
  }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int owner(std::uint64_t key) const {
    return static_cast<int>(key % static_cast<std::uint64_t>(ranks_));
  }

  // Called by the owner. Closes a version of its own.
  void put(std::uint64_t key, std::uint64_t value) { last_ = store_->insert(key ^ kSign, value); }

  // Collective. Looks up the key of rank 0 in the last versions; rank 0 alone returns the value.
  std::optional<std::uint64_t> find(std::uint64_t key) {
    MPI_Bcast(&key, 1, MPI_UINT64_T, 0, comm_);
    std::uint64_t reply[2] = {0, 0};  // 1 if it was found; the value
    if (store_->find(key ^ kSign, last_, reply[1])) {
      reply[0] = 1;
    } else {
      reply[1] = 0;
    }
    std::uint64_t all[2] = {0, 0};
    MPI_Reduce(reply, all, 2, MPI_UINT64_T, MPI_BOR, 0, comm_);
    return all[0] != 0 ? std::optional(all[1]) : std::nullopt;
  }

  // Collective. Rank 0 returns the entries of the last versions of all ranks, by key.
  std::vector<Entry> snapshot(Merge merge, SnapshotTimes& times) {
    times = {};
    lap_ = MPI_Wtime();
    std::vector<Entry> mine;
    store_->snapshot(last_, [&](std::uint64_t key, std::uint64_t value) {
      mine.emplace_back(key ^ kSign, value);
    });
    times.extract_ns += lap();
    if (merge == Merge::naive) return gathered(mine, times);
    doubling(mine, times);
    wait_for_rank_0();
    if (rank_ != 0) mine.clear();
    return mine;
  }

 private:
  static constexpr std::uint64_t kSign = 1ULL << 63;  // SQLite's integers have a sign

  static bool before(const Entry& a, const Entry& b) { return a.first < b.first; }
  std::uint64_t lap() {
    const double now = MPI_Wtime();
    return static_cast<std::uint64_t>((now - std::exchange(lap_, now)) * 1e9);
  }
  static int words(std::uint64_t entries) { return static_cast<int>(2 * entries); }

  std::vector<Entry> gathered(const std::vector<Entry>& mine, SnapshotTimes& times) {
    const auto ranks = static_cast<std::size_t>(ranks_);
    std::vector<int> sizes(ranks), places(ranks);
    const int size = words(mine.size());
    MPI_Allgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, comm_);
    for (std::size_t r = 1; r < ranks; ++r) places[r] = places[r - 1] + sizes[r - 1];
    const auto total = static_cast<std::size_t>(rank_ == 0 ? places.back() + sizes.back() : 0) / 2;
    std::vector<Entry> parts(total), all(total);
    MPI_Gatherv(mine.data(), size, MPI_UINT64_T, parts.data(), sizes.data(), places.data(),
                MPI_UINT64_T, 0, comm_);
    times.transfer_ns += lap();
    std::vector<detail::RunCursor<Entry>> runs;
    for (std::size_t r = 0; r < ranks && rank_ == 0; ++r) {
      const Entry* begin = parts.data() + places[r] / 2;
      if (sizes[r] != 0) runs.push_back({begin, begin + sizes[r] / 2});
    }
    detail::merge_many(std::span(runs), all.data(), &before);
    times.merge_ns += lap();
    return all;
  }

  void doubling(std::vector<Entry>& mine, SnapshotTimes& times) {
    for (int d = 1; d < ranks_; d *= 2) {
      if ((rank_ & d) != 0) {
        MPI_Send(mine.data(), words(mine.size()), MPI_UINT64_T, rank_ - d, 0, comm_);
        return;
      }
      if (rank_ + d >= ranks_) continue;
      MPI_Status status;
      int count = 0;
      MPI_Probe(rank_ + d, 0, comm_, &status);
      MPI_Get_count(&status, MPI_UINT64_T, &count);
      std::vector<Entry> theirs(static_cast<std::size_t>(count) / 2);
      MPI_Recv(theirs.data(), count, MPI_UINT64_T, rank_ + d, 0, comm_, MPI_STATUS_IGNORE);
      times.transfer_ns += lap();
      std::vector<Entry> merged(mine.size() + theirs.size());
      detail::merge_two(std::span<const Entry>(mine), std::span<const Entry>(theirs), merged.data(),
                        threads(2 * d), &before);
      mine = std::move(merged);
      times.merge_ns += lap();
    }
  }
  // The cores of the ranks that a merge joins, as in the distributed store.
  std::uint64_t threads(int joined) const {
    if (merge_threads_ != 0) return merge_threads_;
    const std::uint64_t share = std::thread::hardware_concurrency() * std::min(joined, ranks_) /
                                static_cast<std::uint64_t>(ranks_);
    return std::max<std::uint64_t>(share, 1);
  }
  // A rank that polls would occupy a core that a merge needs.
  void wait_for_rank_0() {
    MPI_Request request;
    MPI_Ibarrier(comm_, &request);
    for (int done = 0; done == 0;) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done == 0 && rank_ != 0) ::usleep(50);
    }
  }

  MPI_Comm comm_;
  std::uint32_t merge_threads_;
  int rank_ = 0;
  int ranks_ = 1;
  std::uint64_t last_ = 0;
  double lap_ = 0;
  std::unique_ptr<paper::versions::Store> store_;
};

}  // namespace perdure::mpi::bench
