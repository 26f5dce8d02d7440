#if HAVE_MPI

#include "bridge/transport/mpi_channel.h"

#include <array>
#include <thread>

namespace horovod::paceline {

namespace {

using Clock = std::chrono::steady_clock;

// So long the processor is only lent to others, for a small message takes microseconds; then it is left alone for
// times in which no network in use overflows the buffers of a socket.
constexpr std::chrono::microseconds kEager{200};
constexpr std::chrono::microseconds kPause{20};

// Null if it has none.
void* Attribute(MPI_Comm comm, int key) {
  void* value = nullptr;
  int found = 0;
  MPI_Comm_get_attr(comm, key, static_cast<void*>(&value), &found);
  return found == 0 ? nullptr : value;
}

int32_t HighestTag() {
  constexpr int32_t kPromised = 32767;
  const auto* value = static_cast<int*>(Attribute(MPI_COMM_WORLD, MPI_TAG_UB));
  return value == nullptr ? kPromised : *value;
}

}  // namespace

std::string MpiText(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<size_t>(length)};
}

bool LookUntil(const std::function<bool()>& done, Clock::time_point until) {
  const auto begin = Clock::now();
  while (!done()) {
    const auto now = Clock::now();
    if (now >= until) {
      return false;
    }
    if (now < begin + kEager) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
  return true;
}

MpiChannel& MpiChannel::Of(MPI_Comm process_set, std::chrono::milliseconds limit) {
  static const int* key = new int([] {
    int made = MPI_KEYVAL_INVALID;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, Freed, &made, nullptr);
    return made;
  }());
  auto* channel = static_cast<MpiChannel*>(Attribute(process_set, *key));
  if (channel == nullptr) {
    channel = new MpiChannel(process_set, limit);
    MPI_Comm_set_attr(process_set, *key, channel);
  }
  return *channel;
}

int MpiChannel::Freed(MPI_Comm /*process_set*/, int /*key*/, void* channel, void* /*state*/) {
  const auto* own = static_cast<MpiChannel*>(channel);
  if (own->made_) {  // if not, MPI writes into it when the others come
    delete own;
  }
  return MPI_SUCCESS;
}

MpiChannel::MpiChannel(MPI_Comm process_set, std::chrono::milliseconds limit) : tags_(HighestTag()) {
  MPI_Comm_rank(process_set, &rank_);
  MPI_Comm_size(process_set, &size_);
  MPI_Request making = MPI_REQUEST_NULL;
  MPI_Comm_idup(process_set, &comm_, &making);
  made_ = LookUntil(
      [&making] {
        int done = 0;
        MPI_Test(&making, &done, MPI_STATUS_IGNORE);
        return done != 0;
      },
      Clock::now() + limit);
  if (!made_) {
    failed_ = "not all ranks of its process set began with a collective of Paceline's within " +
              std::to_string(limit.count()) + " ms. Is PACELINE_COLLECTIVE the same on all ranks?";
    return;
  }
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Irecv(nullptr, 0, MPI_BYTE, MPI_ANY_SOURCE, tags_.other(), comm_, &news_);
}

MpiChannel::~MpiChannel() {
  if (news_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&news_);
    MPI_Wait(&news_, MPI_STATUS_IGNORE);
  }
  MPI_Comm_free(&comm_);
}

const std::string& MpiChannel::Failed() {
  if (failed_.empty()) {
    int received = 0;
    MPI_Status status;
    const auto code = MPI_Test(&news_, &received, &status);
    if (code != MPI_SUCCESS) {
      failed_ = MpiText(code);
    } else if (received != 0) {
      failed_ = "rank " + std::to_string(status.MPI_SOURCE) + " gave up";
    }
  }
  return failed_;
}

void MpiChannel::Abort() {
  if (!Failed().empty()) {
    return;  // all know, or nobody can be told
  }
  failed_ = "this rank gave up";
  for (int32_t peer = 0; peer < size_; ++peer) {
    MPI_Request notice = MPI_REQUEST_NULL;
    if (peer != rank_ && MPI_Isend(nullptr, 0, MPI_BYTE, peer, tags_.other(), comm_, &notice) == MPI_SUCCESS) {
      MPI_Request_free(&notice);
    }
  }
}

}  // namespace horovod::paceline

#endif  // HAVE_MPI
