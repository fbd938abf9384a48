// The library's version.
#pragma once

#define PERDURE_VERSION "0.1.0"
