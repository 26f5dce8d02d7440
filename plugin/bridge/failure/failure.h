// How a world fails: at once, on every rank, with the reason. plugin/horovod/patches/failure.py says where Horovod
// calls this.

#ifndef PACELINE_BRIDGE_FAILURE_FAILURE_H
#define PACELINE_BRIDGE_FAILURE_FAILURE_H

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bridge/participant.h"
#include "gloo/context.h"
#include "horovod/common/common.h"

namespace horovod::paceline {

// A world has failed when a rank died or its background thread met an error that it cannot go on after. Nobody can be
// waited for or agreed with from then on: all connections are closed, which wakes whoever waits at one, here and, since
// the other ends see it, on the other ranks.

class Failure : public Participant {
 public:
  void BeginWorld() override;
};

// A new world begins in this process.
void ForgetFailure();
// Gloo has connected ranks for some purpose. Throws if the world has failed meanwhile.
void Connected(const std::shared_ptr<gloo::Context>& context);
// All ranks are connected by `context`: watch them. Throws std::runtime_error.
void Watch(const std::shared_ptr<gloo::Context>& context);
// This rank leaves the world.
void EndWatch();

// This rank cannot go on because of `error`.
void Fail(const std::exception& error);
// No rank can go on because of `why`, and each knows it: none is told.
void FailTogether(const std::string& why);
bool HasFailed();
// The reason, empty if the world has not failed. In a forked process that it was forked.
std::string WhyFailed();
// Throws the reason as std::runtime_error if the world has failed.
void ThrowIfFailed();

// Run a part that needs the other ranks. False: the world has failed, maybe through this.
bool Together(const std::function<void()>& part);
// What to tell about an exception of a collective; one of a connection is the end of the world.
std::string Explain(const std::exception& error);
// The same of an error that leaves nobody to go on with, whatever it is: the world has failed. Empty if it has not, but
// is `over` while news are awaited: all ranks shut Horovod down, and one that is ahead has closed its connections.
std::string ExplainEnd(const std::exception& error, const std::function<bool()>& over = nullptr);
// The status of operations that end, or are refused, because the world has ended: the reason, if it failed.
common::Status Ended(const common::Status& otherwise);

// Whether what is about to be set up is the same everywhere: the number of process sets, and the ranks of one. Throw
// std::logic_error that says who has which, on every rank.
void CheckSameNumber(const std::shared_ptr<gloo::Context>& context, int sets);
void CheckSameRanks(const std::shared_ptr<gloo::Context>& context, const std::vector<int>& ranks);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_FAILURE_FAILURE_H
