#include "bridge/collectives/residuals.h"

#include <utility>

namespace horovod::paceline {

void Residuals::Begin(int32_t process_set_id, const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  feedback_[process_set_id].Begin(name);
}

void Residuals::Spoil(int32_t process_set_id, const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  feedback_[process_set_id].Spoil(name);
}

void Residuals::Encode(int32_t process_set_id, const ::paceline::core::Codec& codec,
                       const std::vector<::paceline::core::ErrorFeedback::Part>& parts, ::paceline::core::DataType type,
                       const void* block, uint8_t* bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  feedback_[process_set_id].Encode(codec, parts, type, block, bytes);
}

std::vector<float> Residuals::Get(int32_t process_set_id, const std::string& name) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto set = feedback_.find(process_set_id);
  if (set == feedback_.end()) {
    return {};
  }
  return set->second.Of(name);
}

void Residuals::Put(int32_t process_set_id, const std::string& name, std::vector<float> residual) {
  const std::lock_guard<std::mutex> lock(mutex_);
  feedback_[process_set_id].Put(name, std::move(residual));
}

void Residuals::Forget(int32_t process_set_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  feedback_.erase(process_set_id);
}

Residuals& TheResiduals() {
  static auto* residuals = new Residuals;
  return *residuals;
}

}  // namespace horovod::paceline
