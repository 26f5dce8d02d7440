#if HAVE_MPI

#include "bridge/transport/mpi_transport.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <utility>

namespace horovod::paceline {

MpiTransport::MpiTransport(MPI_Comm process_set, std::chrono::milliseconds limit, size_t piece_bytes)
    : channel_(MpiChannel::Of(process_set, limit)), limit_(limit), piece_bytes_(piece_bytes) {}

MpiTransport::~MpiTransport() {
  if (requests_.empty()) {
    return;
  }
  channel_.Abort();
  const auto ended = [this] {
    Look();
    return requests_.empty();
  };
  if (!LookUntil(ended, Clock::now() + limit_)) {
    std::fprintf(stderr,
                 "Paceline: rank %d of %d: an operation with rank %d has not ended %lld ms after it was given up. MPI "
                 "cannot take it back, so this job ends here.\n",
                 rank(), size(), pieces_.front().peer, static_cast<long long>(limit_.count()));
    MPI_Abort(channel_.comm(), 1);
  }
}

uint64_t MpiTransport::Send(int32_t peer, uint64_t tag, const void* data, size_t bytes) {
  return Post(false, peer, tag, const_cast<void*>(data), bytes);  // only read
}

uint64_t MpiTransport::Receive(int32_t peer, uint64_t tag, void* data, size_t bytes) {
  return Post(true, peer, tag, data, bytes);
}

uint64_t MpiTransport::Post(bool receive, int32_t peer, uint64_t tag, void* data, size_t bytes) {
  const auto number = ++made_;
  if (!channel_.Failed().empty()) {
    completed_.push_back({number, channel_.Failed()});
    return number;
  }
  const auto collective = tag >> kMessageBits;
  int mpi_tag = 0;
  try {
    mpi_tag = channel_.tags().Begin(collective, tag & ((uint64_t{1} << kMessageBits) - 1));
  } catch (const std::runtime_error& error) {
    completed_.push_back({number, error.what()});
    return number;
  }
  auto& operation = in_flight_[number];
  operation.collective = collective;
  auto* next = static_cast<uint8_t*>(data);
  do {  // one piece if there are no bytes
    const Piece piece{number, peer, receive, std::min(bytes, piece_bytes_)};
    const auto count = static_cast<int>(piece.bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    ++operation.pieces;
    const int code = receive ? MPI_Irecv(next, count, MPI_BYTE, peer, mpi_tag, channel_.comm(), &request)
                             : MPI_Isend(next, count, MPI_BYTE, peer, mpi_tag, channel_.comm(), &request);
    if (code != MPI_SUCCESS) {
      End(piece, MpiText(code));
      return number;
    }
    requests_.push_back(request);
    pieces_.push_back(piece);
    next += piece.bytes;
    bytes -= piece.bytes;
  } while (bytes > 0);
  return number;
}

bool MpiTransport::Wait(Clock::time_point until, Completion& completion) {
  const auto any = [this] {
    if (completed_.empty()) {
      Look();
    }
    return !completed_.empty();
  };
  if (!LookUntil(any, until)) {
    return false;
  }
  completion = std::move(completed_.front());
  completed_.pop_front();
  return true;
}

void MpiTransport::Look() {
  if (!cancelled_ && !channel_.Failed().empty()) {
    cancelled_ = true;
    for (size_t index = 0; index < requests_.size(); ++index) {
      if (pieces_[index].receive) {
        MPI_Cancel(&requests_[index]);
      }
    }
  }
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int ended = 0;
  const int code =
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &ended, indices_.data(), statuses_.data());
  for (int number = 0; number < ended; ++number) {  // MPI_UNDEFINED, which is negative: there are none
    const auto& status = statuses_[static_cast<size_t>(number)];
    const auto index = static_cast<size_t>(indices_[static_cast<size_t>(number)]);
    End(pieces_[index], ErrorOf(pieces_[index], code == MPI_SUCCESS ? code : status.MPI_ERROR, status));
    requests_[index] = MPI_REQUEST_NULL;
  }
  size_t kept = 0;
  for (size_t index = 0; index < requests_.size(); ++index) {
    if (requests_[index] != MPI_REQUEST_NULL) {
      requests_[kept] = requests_[index];
      pieces_[kept++] = pieces_[index];
    }
  }
  requests_.resize(kept);
  pieces_.resize(kept);
}

std::string MpiTransport::ErrorOf(const Piece& piece, int code, const MPI_Status& status) {
  int cancelled = 0;
  int count = 0;
  MPI_Test_cancelled(&status, &cancelled);
  if (cancelled != 0) {
    return channel_.Failed();
  }
  int kind = code;
  MPI_Error_class(code, &kind);
  MPI_Get_count(&status, MPI_BYTE, &count);
  const auto shorter = code == MPI_SUCCESS && piece.receive && static_cast<size_t>(count) != piece.bytes;
  if (shorter || kind == MPI_ERR_TRUNCATE) {
    return "it sends " + (shorter ? std::to_string(count) + " bytes" : std::string("more")) + " where " +
           std::to_string(piece.bytes) +
           " were expected. Are PACELINE_COLLECTIVE and PACELINE_DEBUG the same on all ranks?";
  }
  return code == MPI_SUCCESS ? "" : MpiText(code);
}

void MpiTransport::End(const Piece& piece, const std::string& error) {
  const auto found = in_flight_.find(piece.operation);
  auto& operation = found->second;
  if (operation.error.empty()) {
    operation.error = error;
  }
  if (--operation.pieces == 0) {
    channel_.tags().End(operation.collective);
    completed_.push_back({piece.operation, std::move(operation.error)});
    in_flight_.erase(found);
  }
}

}  // namespace horovod::paceline

#endif  // HAVE_MPI
