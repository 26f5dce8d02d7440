// What Horovod's background thread is told of while it may sleep. Any thread; light, for Horovod's queues include it.

#ifndef PACELINE_BRIDGE_WAKING_H
#define PACELINE_BRIDGE_WAKING_H

namespace horovod::paceline {

// work_submitted: something is there that the next coordination round is to take up: requests, or a change of process
// sets.
void NotifyWorkSubmitted();

// waited_for: this thread waits for an operation. Also: for the background thread itself, to shut down.
void NotifyWaitedFor();

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_WAKING_H
