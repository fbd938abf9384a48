// The version of these headers; perdure::version() returns that of the library.
#pragma once

#define PERDURE_VERSION "0.1.0"
