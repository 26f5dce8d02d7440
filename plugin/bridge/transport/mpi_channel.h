// State shared by the MPI transports of one process set: a communicator, its tags, and aborts.

#ifndef PACELINE_BRIDGE_TRANSPORT_MPI_CHANNEL_H
#define PACELINE_BRIDGE_TRANSPORT_MPI_CHANNEL_H

#if HAVE_MPI

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX
#endif
#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "core/transport/mpi_tags.h"

namespace horovod::paceline {

// The words of the MPI library for an error code.
std::string MpiText(int code);

// Looks whether `done`, at once and often, until it is or `until` has come. MPI either waits without a limit or not at
// all, tells nobody when something has completed, and moves data while it is called: there is nothing to sleep on.
bool LookUntil(const std::function<bool()>& done, std::chrono::steady_clock::time_point until);

// One thread: the one that makes all MPI calls of Horovod.
class MpiChannel {
 public:
  // The one of these ranks, which MPI_Comm_free(process_set) ends. All of them make the first call for a communicator
  // at the same place among the collective calls on it; others are waited for up to `limit`.
  static MpiChannel& Of(MPI_Comm process_set, std::chrono::milliseconds limit);

  MpiChannel(const MpiChannel&) = delete;
  MpiChannel& operator=(const MpiChannel&) = delete;
  MpiChannel(MpiChannel&&) = delete;
  MpiChannel& operator=(MpiChannel&&) = delete;
  ~MpiChannel();

  MPI_Comm comm() const { return comm_; }
  int32_t rank() const { return rank_; }
  int32_t size() const { return size_; }
  ::paceline::core::MpiTags& tags() { return tags_; }

  // Reason why messages cannot be sent any more: an abort of this or another rank, or no communicator. Else empty.
  const std::string& Failed();
  // Notifies all ranks of an abort. Sent messages that were not received remain in flight.
  void Abort();

 private:
  MpiChannel(MPI_Comm process_set, std::chrono::milliseconds limit);
  static int Freed(MPI_Comm process_set, int key, void* channel, void* state);

  int32_t rank_ = 0;
  int32_t size_ = 0;
  // Ours alone, so that nothing of Horovod's is taken for a message; errors on it are returned.
  MPI_Comm comm_ = MPI_COMM_NULL;
  bool made_ = false;
  ::paceline::core::MpiTags tags_;
  MPI_Request news_ = MPI_REQUEST_NULL;  // the empty message of a rank that gives up
  std::string failed_;
};

}  // namespace horovod::paceline

#endif  // HAVE_MPI

#endif  // PACELINE_BRIDGE_TRANSPORT_MPI_CHANNEL_H
