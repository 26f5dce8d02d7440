#include "bridge/partial/notes.h"

namespace horovod::paceline {

namespace {

constexpr int32_t kNews = 8;
constexpr int64_t kRounds = 0x8000000;  // times kNews fits into an int32

}  // namespace

int32_t NewsAndRound(PartialNews news, int64_t round) {
  return static_cast<int32_t>(news) + kNews * static_cast<int32_t>(round % kRounds);
}

bool OfRound(const common::Request& request, int64_t round) { return request.root_rank() / kNews == round % kRounds; }

PartialNews NewsOf(const common::Request& request) { return static_cast<PartialNews>(request.root_rank() % kNews); }

common::TensorShape FoundShape(const common::Request& misfit) {
  common::TensorShape shape;
  for (size_t n = 0; n + 1 < misfit.tensor_shape().size(); ++n) {
    shape.AddDim(misfit.tensor_shape()[n]);
  }
  return shape;
}

std::string NotedName(const std::string& name) { return name.substr(kNoteNames.size()); }

common::Request NoteAbout(const std::string& name, PartialNews news, int64_t round, int32_t rank) {
  common::Request request;
  request.set_request_type(common::Request::ALLREDUCE);
  request.set_request_rank(rank);
  request.set_tensor_name(std::string(kNoteNames) + name);
  request.set_device(CPU_DEVICE_ID);
  request.set_group_id(NULL_GROUP_ID);
  request.set_root_rank(NewsAndRound(news, 0));
  request.add_tensor_shape(round);
  return request;
}

}  // namespace horovod::paceline
