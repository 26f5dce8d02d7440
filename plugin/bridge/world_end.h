// How worlds end, for who must not know how that is done.

#ifndef PACELINE_BRIDGE_WORLD_END_H
#define PACELINE_BRIDGE_WORLD_END_H

#include <exception>
#include <functional>
#include <string>

namespace horovod::paceline {

// Functions that are given an error return what to tell of it, which another rank may have said first;
// the world has failed then, and all ranks hear of it.
struct WorldEnd {
  using Explain = std::function<std::string(const std::exception&)>;

  std::function<std::string()> why;  // the world has failed; empty if it has not
  Explain others;                    // maybe because of another rank, whose news may be on its way
  Explain here;                      // because of this rank
  std::function<bool()> over;        // Horovod shuts down, has shut down, or has failed
  std::function<void()> settle;      // over: waits until Horovod needs its connections no more
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_WORLD_END_H
