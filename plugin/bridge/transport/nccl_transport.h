// Transport of memory on CUDA devices over NCCL. Compiled where Horovod is built with NCCL; it has never been run on a
// GPU (docs/collectives.md).

#ifndef PACELINE_BRIDGE_TRANSPORT_NCCL_TRANSPORT_H
#define PACELINE_BRIDGE_TRANSPORT_NCCL_TRANSPORT_H

#include "bridge/transport/nccl_lane.h"

#if PACELINE_HAVE_NCCL

#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

namespace horovod::paceline {

// The lanes between this rank and the others of a process set, made as they are needed. They outlive transports: it
// takes long to make one. One thread.
struct NcclLanes {
  explicit NcclLanes(int on_device) : device(on_device) {}

  using Key = std::pair<int32_t, NcclLane::End>;

  const int device;
  std::map<Key, std::unique_ptr<NcclLane>> lanes;  // by peer
  std::map<int32_t, uint64_t> sent, received;      // operations of the lanes of that peer
  std::string failed;                              // why no lane can be used any more
};

// NCCL knows no tags, and both ends of a lane must launch operations in one order. So the two ends of each message meet
// first, by two small messages over another transport of the same ranks:
//
//   receiver -> sender   so many bytes are expected       when the receive is posted
//   sender -> receiver   your operation number n          when the send is posted, too
//
// The sender launches its operations by these numbers as it gives them, the receiver in their order, and neither before
// the other has memory for it. With the first number comes what the lane's communicator is made with.
class NcclTransport : public Transport {
 public:
  // Tags must be below this, enough for 2^30 collectives: those above are used on the other transport.
  static constexpr uint64_t kMessageTags = uint64_t{1} << 54U;

  NcclTransport(NcclLanes& lanes, std::unique_ptr<Transport> meeting) : lanes_(lanes), meeting_(std::move(meeting)) {}
  ~NcclTransport() override;

  int32_t rank() const override { return meeting_->rank(); }
  int32_t size() const override { return meeting_->size(); }
  std::chrono::milliseconds limit() const override { return meeting_->limit(); }

  // `data` is on the device of the lanes, and no stream writes into it any more.
  uint64_t Send(int32_t peer, uint64_t tag, const void* data, size_t bytes) override;
  uint64_t Receive(int32_t peer, uint64_t tag, void* data, size_t bytes) override;
  bool Wait(Clock::time_point until, Completion& completion) override;
  void GiveUp() override;

 private:
  struct Expected {
    uint64_t bytes = 0;
  };
  struct Numbered {
    uint64_t number = 0;  // 0: `id` is that of a new communicator
    ncclUniqueId id{};
  };
  struct Operation {
    NcclLane::End end = NcclLane::End::kSends;
    int32_t peer = 0;
    uint64_t tag = 0;
    void* data = nullptr;
    size_t bytes = 0;
    Expected expected;
    Numbered numbered;
    int32_t meetings = 0;    // messages about it that are under way
    bool met = false;        // both ends have memory
    bool travelled = false;  // or will not
    std::string error;
  };

  uint64_t Begin(NcclLane::End end, int32_t peer, uint64_t tag, void* data, size_t bytes);
  // A message of a meeting has completed.
  void Met(const Completion& message);
  void SenderMet(uint64_t number, Operation& operation);
  void ReceiverMet(int32_t peer, uint64_t turn, uint64_t number);
  NcclLane& LaneOf(const Operation& operation, const ncclUniqueId& id);
  void Expect(uint64_t number, uint64_t message);
  void Fail(const std::string& why);
  // Moves what has ended, and is done with its meeting, to completed_.
  void Look();
  void EndIfOver(uint64_t number);

  NcclLanes& lanes_;
  uint64_t made_ = 0;
  std::unordered_map<uint64_t, Operation> in_flight_;       // messages of meetings are read and written here
  std::unordered_map<uint64_t, uint64_t> messages_;         // of meetings -> whose
  std::map<std::pair<int32_t, uint64_t>, uint64_t> early_;  // receives whose turn has not come: peer, number -> which
  std::deque<Completion> completed_;
  const std::unique_ptr<Transport> meeting_;  // the first to go
};

}  // namespace horovod::paceline

#endif  // PACELINE_HAVE_NCCL

#endif  // PACELINE_BRIDGE_TRANSPORT_NCCL_TRANSPORT_H
