#include "bridge/partial/rounds.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "bridge/partial/accumulate.h"

namespace horovod::paceline {

namespace {

using ::paceline::core::RoundState;

std::string Describe(common::DataType dtype, const common::TensorShape& shape) {
  return common::DataType_Name(dtype) + " " + shape.DebugString();
}

}  // namespace

::paceline::core::QuorumRule PartialSettings::RuleAmong(int32_t ranks) const {
  // A world may have become smaller since the number was given.
  const int32_t count =
      quorum == kMajority ? ::paceline::core::QuorumRule::Majority(ranks).count : std::min(quorum, ranks);
  return {count, seed, max_lag};
}

bool PartialSettings::Same(const PartialSettings& other) const {
  return quorum == other.quorum && seed == other.seed && max_lag == other.max_lag && latest == other.latest &&
         counted == other.counted && weighted == other.weighted;
}

PartialChannel::PartialChannel(std::string name, PartialSettings settings, int32_t process_set_id,
                               const std::shared_ptr<common::Controller>& controller,
                               std::shared_ptr<::paceline::core::MemoryPool> memory)
    : name_(std::move(name)),
      settings_(std::move(settings)),
      process_set_id_(process_set_id),
      controller_(controller),
      rank_(controller->GetRank()),
      size_(controller->GetSize()),
      buffers_(std::move(memory)) {}

common::Status PartialChannel::CanReduce(const common::Tensor& tensor, const Reducing& reducing) const {
  if (reducing.op != common::ReduceOp::SUM) {
    return common::Status::InvalidArgument("Partial allreduce of " + name_ +
                                           ": expected op Sum or Average, found another. Late contributions are added "
                                           "up, which has no meaning for minima, maxima, products and Adasum.");
  }
  if (settings_.weighted && tensor.shape().num_elements() == 0) {
    return common::Status::InvalidArgument("Partial allreduce of " + name_ + ": expected a weight, found no element.");
  }
  if (!CanAdd(tensor.dtype())) {
    return common::Status::InvalidArgument("Partial allreduce of " + name_ + ": tensors of type " +
                                           common::DataType_Name(tensor.dtype()) + " cannot be added up.");
  }
  return common::Status::OK();
}

bool PartialChannel::Fits(const common::Tensor& tensor) const {
  return !buffers_.described() || (buffers_.dtype() == tensor.dtype() && buffers_.shape() == tensor.shape());
}

std::string PartialChannel::Misfit(common::DataType dtype, const common::TensorShape& shape,
                                   const std::string& where) const {
  return "Partial allreduce of " + name_ + ": expected " + Describe(buffers_.dtype(), buffers_.shape()) +
         " as in the rounds before, found " + Describe(dtype, shape) + where +
         ". Give a tensor of another shape or type another name.";
}

// A request that Horovod finds to be at odds with every vote: these have one dimension.
common::Request PartialChannel::MisfitOf(const common::Tensor& tensor) const {
  auto request = Vote(PartialNews::kMisfit);
  std::vector<int64_t> dims;
  for (int n = 0; n < tensor.shape().dims(); ++n) {
    dims.push_back(tensor.shape().dim_size(n));
  }
  dims.resize(std::max<size_t>(dims.size() + 1, 2), 1);
  request.set_tensor_type(tensor.dtype());
  request.set_tensor_shape(dims);
  return request;
}

PartialChannel::Reply PartialChannel::Contribute(const common::Tensor& tensor, common::Tensor& output) {
  const bool pending = state_.pending() > 0;
  const auto reply = state_.Call();
  switch (reply.kind) {
    case Reply::Kind::kVote:
      break;  // the round reads the tensor when it begins
    case Reply::Kind::kWait:
      buffers_.Send(tensor, pending);
      break;
    case Reply::Kind::kAnswered:
      Count(output, buffers_.SendAndAnswer(tensor, output, pending));
      break;
  }
  return reply;
}

common::Status PartialChannel::Call(ExchangeCall call, bool flush) {
  auto& queue = call.process_set.tensor_queue;
  const auto& tensor = *call.tensor;
  std::unique_lock<std::mutex> entering(entering_);
  auto kind = Reply::Kind::kVote;
  common::Request request;
  bool fits = true, under_way = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failed_.ok()) {
      return failed_;
    }
    if (state_.waiting()) {
      return common::DUPLICATE_NAME_ERROR;
    }
    const auto can = CanReduce(tensor, call.reducing);
    if (!can.ok()) {
      return can;
    }
    fits = Fits(tensor);
    if (!fits) {
      request = MisfitOf(tensor);
    }
  }
  if (!fits) {
    queue.PushMessageToQueue(request);
    return common::Status::InvalidArgument(Misfit(tensor.dtype(), tensor.shape()));
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!buffers_.described()) {
      buffers_.Describe(tensor.dtype(), tensor.shape());
    }
    reducing_ = call.reducing;
    if (flush) {
      under_way = state_.begun() > state_.executed();
      state_.Flush();
      request = Vote(PartialNews::kFlush);
    } else {
      const auto reply = Contribute(tensor, *call.output);
      kind = reply.kind;
      request = kind == Reply::Kind::kVote ? Vote(PartialNews::kVote)
                                           : NoteAbout(name_, PartialNews::kArrived, reply.round, rank_);
    }
    if (kind != Reply::Kind::kAnswered) {
      waiting_ = {call.tensor, call.output, std::move(call.callback)};
    }
  }
  queue_ = &queue;
  if (kind == Reply::Kind::kVote) {
    // Horovod's table has the entry of a round under way, or had it: that round's end enters the flush.
    return under_way ? common::Status::OK() : Enter(queue, std::move(request));
  }
  queue.PushMessageToQueue(request);
  entering.unlock();
  if (kind == Reply::Kind::kAnswered) {
    call.callback(common::Status::OK());
  }
  return common::Status::OK();
}

common::Status PartialChannel::Flush() {
  std::lock_guard<std::mutex> entering(entering_);
  common::Request request;
  bool under_way = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failed_.ok() || flush_ != FlushState::kNone || queue_ == nullptr || controller_.expired()) {
      return failed_;
    }
    if (state_.waiting()) {
      return common::DUPLICATE_NAME_ERROR;
    }
    under_way = state_.begun() > state_.executed();
    state_.Flush();
    request = Vote(PartialNews::kFlush);
    flush_ = FlushState::kWaits;
    flushed_ = std::make_shared<CpuTensor>(buffers_.dtype(), buffers_.shape());
    const auto self = shared_from_this();
    waiting_ = {nullptr, flushed_, [self](const common::Status& status) {
                  std::lock_guard<std::mutex> ended(self->mutex_);
                  self->flush_ = status.ok() ? FlushState::kDone : FlushState::kNone;
                }};
  }
  return under_way ? common::Status::OK() : Enter(*queue_, std::move(request));
}

PartialChannel::FlushState PartialChannel::Flushed(void* out, int64_t size, common::Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  status = failed_;
  if (flush_ != FlushState::kDone || out == nullptr) {
    return flush_;
  }
  if (flushed_->size() != size) {
    status = common::Status::InvalidArgument(Misfit(buffers_.dtype(), buffers_.shape(), " in what is to be drained"));
    return flush_;
  }
  std::memcpy(out, flushed_->data(), static_cast<size_t>(size));
  flush_ = FlushState::kNone;
  flushed_.reset();
  status = common::Status::OK();
  return FlushState::kDone;
}

// Under entering_.
common::Status PartialChannel::Enter(common::TensorQueue& queue, common::Request request) {
  common::TensorTableEntry entry;
  entry.tensor_name = name_;
  entry.context = CpuContext();
  entry.device = CPU_DEVICE_ID;
  entry.process_set_id = process_set_id_;
  const auto self = shared_from_this();
  entry.callback = [self](const common::Status& status) { self->Performed(status); };
  {
    std::lock_guard<std::mutex> lock(mutex_);
    entry.tensor = buffers_.in_flight();
    entry.output = buffers_.in_flight();
    queued_ = true;
  }
  auto status = queue.AddToTensorQueue(entry, request);
  if (!status.ok()) {  // only for a first call: later the name is known to be partial
    std::lock_guard<std::mutex> lock(mutex_);
    queued_ = false;
    const bool taken = status.type() == common::StatusType::INVALID_ARGUMENT;  // otherwise the world has ended
    failed_ = !taken ? status
                     : common::Status::InvalidArgument("Partial allreduce of " + name_ +
                                                       ": the same name is in use by an allreduce that is not partial. "
                                                       "Give them different names.");
    waiting_ = {};
    state_.Fail();
    return failed_;
  }
  return status;
}

// Horovod's table takes no entry without a message. This one is dropped when it is popped.
common::Request PartialChannel::Nothing() const {
  common::Request request;
  request.set_tensor_name(name_);
  return request;
}

common::Request PartialChannel::Vote(PartialNews news) const {
  common::Request request;
  request.set_request_type(common::Request::ALLREDUCE);
  request.set_request_rank(rank_);
  request.set_tensor_name(name_);
  request.set_tensor_type(buffers_.dtype());
  request.set_device(CPU_DEVICE_ID);
  request.set_group_id(NULL_GROUP_ID);
  request.set_prescale_factor(reducing_.prescale);
  request.set_postscale_factor(reducing_.postscale);
  request.set_reduce_op(common::ReduceOp::SUM);
  request.set_root_rank(NewsAndRound(news, state_.executed()));
  request.add_tensor_shape(buffers_.elements() + RoundBuffers::kExtra);
  return request;
}

bool PartialChannel::HasRun() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_.executed() > 0;
}

bool PartialChannel::Stale(const common::Request& message) const {
  std::lock_guard<std::mutex> lock(mutex_);
  switch (NewsOf(message)) {
    case PartialNews::kVote:
      return !OfRound(message, state_.executed()) || state_.Stale(state_.executed());
    case PartialNews::kFlush:
      return !OfRound(message, state_.executed()) || state_.phase() != RoundState::Phase::kFlushing;
    case PartialNews::kArrived:
      return message.tensor_shape()[0] < state_.executed();
    case PartialNews::kMisfit:
      return false;
    default:
      // Also what Horovod queues beside the entry of a rank that did not vote.
      return !IsNote(message.tensor_name());
  }
}

void PartialChannel::Begin(common::TensorQueue& queue, common::Timeline& timeline) {
  std::lock_guard<std::mutex> entering(entering_);
  bool enter = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto departure = state_.Begin();
    timeline_ = timeline.Initialized() ? &timeline : nullptr;
    if (timeline_ != nullptr) {
      timeline.Start(Track(), common::Response::ALLREDUCE, static_cast<int64_t>(buffers_.bytes()));
      timeline.ActivityStart(Track(), "ROUND_" + std::to_string(state_.begun() - 1) +
                                          (departure.fresh ? "_FRESH" : (departure.flushing ? "_FLUSH" : "_LATE")) +
                                          "_CARRIED_" + std::to_string(departure.carried));
    }
    buffers_.Depart(departure, waiting_.tensor.get());
    enter = !queued_;
  }
  if (enter) {
    Enter(queue, Nothing());
  }
}

void PartialChannel::Count(common::Tensor& output, int64_t fresh) const {
  if (settings_.counted) {
    SetElement(buffers_.dtype(), BytesOf(output), static_cast<size_t>(buffers_.elements()) - 1,
               static_cast<double>(fresh));
  }
}

void PartialChannel::Performed(const common::Status& status) {
  Waiting done;  // let go without the lock: PyTorch's tensors may want the interpreter's, whose holder may want ours
  bool waits = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queued_ = false;
    auto* const timeline = std::exchange(timeline_, nullptr);
    if (!status.ok()) {
      failed_ = status;
      state_.Fail();
      done = std::exchange(waiting_, {});
    } else {
      const double factor = reducing_.prescale * reducing_.postscale;
      const auto sum = [&](int64_t extra) { return std::llround(buffers_.Sum(extra) / factor); };
      const int64_t fresh = sum(RoundBuffers::kFresh);
      if (settings_.weighted) {
        buffers_.DivideByWeight();
      }
      if (timeline != nullptr) {
        timeline->ActivityEnd(Track());
        timeline->ActivityStart(Track(), "FRESH_" + std::to_string(fresh) + "_OF_" + std::to_string(size_));
      }
      const bool answers = state_.End(sum(RoundBuffers::kFlushes) == size_) > 0;
      const bool pending = state_.pending() > 0;
      if (!answers || buffers_.missed()) {
        buffers_.Miss(fresh, settings_.latest, pending);
      } else {
        buffers_.AnswerThis(*waiting_.output);
        Count(*waiting_.output, fresh);
      }
      if (answers) {
        if (buffers_.missed()) {
          Count(*waiting_.output, buffers_.AnswerMissed(*waiting_.output));
        }
        done = std::exchange(waiting_, {});
      }
      buffers_.End(pending);
      waits = state_.waiting();
    }
    if (timeline != nullptr) {
      timeline->End(Track(), nullptr);
    }
  }
  if (done.callback) {
    done.callback(status);
  }
  if (waits) {
    // A flush goes on waiting, and says so again: the coordinator's stall inspector knows of no rank that has not asked
    // since the last round. Horovod tells those who have an entry when it fails or shuts down.
    std::lock_guard<std::mutex> entering(entering_);
    common::Request flush;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      flush = Vote(PartialNews::kFlush);
    }
    Enter(*queue_, std::move(flush));
  }
}

bool PartialChannel::Save(PartialState& state) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state_.waiting() || state_.begun() > state_.executed() || !buffers_.described()) {
    return false;
  }
  state = {};
  state.rounds = state_.executed();
  state.pending = state_.pending();
  state.missed = state_.missed();
  buffers_.Save(state);
  return true;
}

bool PartialChannel::Restore(const PartialState& state) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state_.waiting() || state_.begun() > state_.executed()) {
    return false;
  }
  if (!buffers_.described()) {
    buffers_.Describe(state.dtype, state.shape);
  } else if (buffers_.dtype() != state.dtype || buffers_.shape() != state.shape) {
    return false;
  }
  state_.Restore(state.pending, state.missed);
  buffers_.Restore(state);
  return true;
}

common::TensorShape PartialChannel::shape() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return buffers_.shape();
}

common::DataType PartialChannel::dtype() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return buffers_.dtype();
}

RoundState::Counters PartialChannel::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return state_.counters();
}

}  // namespace horovod::paceline
