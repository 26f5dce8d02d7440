// How a room ends the world when it cannot go on.

#ifndef PACELINE_BRIDGE_WORLD_END_H
#define PACELINE_BRIDGE_WORLD_END_H

#include <exception>
#include <functional>
#include <string>

namespace horovod::paceline {

// Functions that are given an error make the world fail, so that all ranks hear of it. They return the reason to tell,
// which may be one that another rank gave first.
struct WorldEnd {
  using Explain = std::function<std::string(const std::exception&)>;

  std::function<std::string()> why;  // the world has failed; empty if it has not
  Explain others;                    // another rank may be the cause, and its own reason on the way
  Explain here;                      // this rank is the cause
  std::function<bool()> over;        // Horovod shuts down, has shut down, or has failed
  std::function<void()> settle;      // over: waits until Horovod needs its connections no more
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_WORLD_END_H
