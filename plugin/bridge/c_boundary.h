// The boundary between C++ and its callers in C: no exception passes it.

#ifndef PACELINE_BRIDGE_C_BOUNDARY_H
#define PACELINE_BRIDGE_C_BOUNDARY_H

#include <cstdint>

namespace horovod::paceline {

// Both inside of a handler. Writes the message of the exception to `error`, or keeps it for this thread's TakeError.
void CaughtAtBoundary(char* error, int64_t capacity) noexcept;
void CaughtAtBoundary() noexcept;

// The message that this thread kept last, which is forgotten; empty if it kept none.
void TakeError(char* error, int64_t capacity) noexcept;

}  // namespace horovod::paceline

// Ends a C entry point that is a function-try-block: `int32_t f() try { ... } PACELINE_CATCH(-1)`. `failed` is what it
// returns after an exception; the entry point's `error` and `capacity` follow where it has them.
#define PACELINE_CATCH(failed, ...)                   \
  catch (...) {                                       \
    horovod::paceline::CaughtAtBoundary(__VA_ARGS__); \
    return failed;                                    \
  }

#endif  // PACELINE_BRIDGE_C_BOUNDARY_H
