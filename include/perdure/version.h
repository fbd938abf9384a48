// The version of these headers; perdure::version() returns that of the library.
#pragma once

// Major, minor and patch number, as a string.
#define PERDURE_VERSION "0.1.0"
