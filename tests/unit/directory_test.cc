// The directory of the multi-version store, which is PhaST's inner nodes over leaves of its own.
#include "index/pskiplist/directory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "platform/real_platform.h"
#include "tests/conformance/support.h"

namespace perdure::pskiplist {
namespace {

// No pool: leaves of integer keys look at no record.
class NoHost final : public Storage {
 public:
};

}  // namespace
}  // namespace perdure::pskiplist
