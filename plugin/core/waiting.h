// Waiting for something that tells nobody when it has happened.

#ifndef PACELINE_CORE_WAITING_H
#define PACELINE_CORE_WAITING_H

#include <chrono>
#include <functional>

namespace paceline::core {

// Looks whether `done`, often at first and at least every millisecond, until it is or `limit` has passed; the last
// answer. Something that is done already costs one look.
bool WaitUntil(const std::function<bool()>& done, std::chrono::nanoseconds limit);

}  // namespace paceline::core

#endif  // PACELINE_CORE_WAITING_H
