// Notifications to Horovod's background thread, which may sleep. Any thread. Few includes, because Horovod's queues
// include this header.

#ifndef PACELINE_BRIDGE_WAKING_H
#define PACELINE_BRIDGE_WAKING_H

namespace horovod::paceline {

// work_submitted: the next coordination round has work: requests, or a change of process sets.
void NotifyWorkSubmitted();

// waited_for: the calling thread waits for an operation, or for the background thread to shut down.
void NotifyWaitedFor();

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_WAKING_H
