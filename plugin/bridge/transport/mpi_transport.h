// Transport over MPI, where Horovod's own messages use it.

#ifndef PACELINE_BRIDGE_TRANSPORT_MPI_TRANSPORT_H
#define PACELINE_BRIDGE_TRANSPORT_MPI_TRANSPORT_H

#if HAVE_MPI

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "bridge/transport.h"
#include "bridge/transport/mpi_channel.h"

namespace horovod::paceline {

// MPI has no connections that could be closed, and what is under way cannot be taken back, receives that nothing came
// for excepted. If the destructor waits for such operations longer than the limit, it ends the job (MPI_Abort).
class MpiTransport : public Transport {
 public:
  // An int counts what one call of MPI may send; larger messages are sent in pieces of this size.
  static constexpr size_t kPieceBytes = size_t{1} << 30U;

  // See MpiChannel::Of: the first one among the ranks of a communicator is made by all of them.
  MpiTransport(MPI_Comm process_set, std::chrono::milliseconds limit, size_t piece_bytes = kPieceBytes);
  ~MpiTransport() override;

  int32_t rank() const override { return channel_.rank(); }
  int32_t size() const override { return channel_.size(); }
  std::chrono::milliseconds limit() const override { return limit_; }
  uint64_t window() const override { return static_cast<uint64_t>(channel_.tags().collectives()); }

  uint64_t Send(int32_t peer, uint64_t tag, const void* data, size_t bytes) override;
  uint64_t Receive(int32_t peer, uint64_t tag, void* data, size_t bytes) override;
  bool Wait(Clock::time_point until, Completion& completion) override;
  void Abort() override { channel_.Abort(); }

 private:
  struct Operation {
    uint64_t collective = 0;
    int32_t pieces = 0;  // that have not ended
    std::string error;   // of the first that failed
  };
  // Belongs to the request with the same index.
  struct Piece {
    uint64_t operation = 0;
    int32_t peer = 0;
    bool receive = false;
    size_t bytes = 0;
  };

  uint64_t Post(bool receive, int32_t peer, uint64_t tag, void* data, size_t bytes);
  // What has ended meanwhile.
  void Look();
  std::string ErrorOf(const Piece& piece, int code, const MPI_Status& status);
  void End(const Piece& piece, const std::string& error);

  MpiChannel& channel_;
  const std::chrono::milliseconds limit_;
  const size_t piece_bytes_;
  uint64_t made_ = 0;
  std::unordered_map<uint64_t, Operation> in_flight_;
  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_;
  std::vector<int> indices_;  // what MPI_Testsome fills
  std::vector<MPI_Status> statuses_;
  bool cancelled_ = false;
  std::deque<Completion> completed_;
};

}  // namespace horovod::paceline

#endif  // HAVE_MPI

#endif  // PACELINE_BRIDGE_TRANSPORT_MPI_TRANSPORT_H
