// What the medium under an open file promises.
#pragma once

#include "pool/file_storage.h"

namespace perdure {

MediumReport detect(int fd) noexcept;

}  // namespace perdure
