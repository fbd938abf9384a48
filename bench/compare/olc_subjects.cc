// The trees with optimistic lock coupling, which are written here because no package has them. They
// show what an ordered map for many threads costs without persistence. Keys and values are
// integers.
#include <fmt/core.h>

#include "bench/compare/memory_subject.h"
#include "bench/compare/olc/art.h"
#include "bench/compare/olc/btree.h"

namespace perdure::bench {
namespace {

template <class Tree>
class TreeSubject : public MemorySubject<Tree, std::uint64_t, std::uint64_t> {
  using Base = MemorySubject<Tree, std::uint64_t, std::uint64_t>;

 public:
  explicit TreeSubject(const ForeignOptions& options)
      : Base(options), strings_(options.key.is_string || options.value.is_string) {}

  Result<void> create() override {
    if (!strings_) return Base::create();
    return failure(kExitUsage, fmt::format("{} takes keys and values that are integers; leave it "
                                           "out, or leave out --key and --value",
                                           Tree::kName));
  }

 private:
  bool strings_;
};

}  // namespace

std::unique_ptr<Subject> make_btree_olc_subject(const ForeignOptions& options) {
  return std::make_unique<TreeSubject<olc::Btree<>>>(options);
}
std::unique_ptr<Subject> make_art_olc_subject(const ForeignOptions& options) {
  return std::make_unique<TreeSubject<olc::Art>>(options);
}

}  // namespace perdure::bench
