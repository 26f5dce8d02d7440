#include "bridge/collectives/residuals.h"

#include <utility>

namespace horovod::paceline {

void Residuals::Encode(const ::paceline::core::Codec& codec,
                       const std::vector<::paceline::core::ErrorFeedback::Part>& parts, ::paceline::core::DataType type,
                       const void* block, uint8_t* bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  feedback_.Encode(codec, parts, type, block, bytes);
}

std::vector<std::string> Residuals::Names() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, residual] : feedback_.residuals()) {
    names.push_back(name);
  }
  return names;
}

std::vector<float> Residuals::Get(const std::string& name) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = feedback_.residuals().find(name);
  return found == feedback_.residuals().end() ? std::vector<float>() : found->second;
}

void Residuals::Put(const std::string& name, std::vector<float> residual) {
  const std::lock_guard<std::mutex> lock(mutex_);
  feedback_.Put(name, std::move(residual));
}

Residuals& TheResiduals() {
  static auto* residuals = new Residuals;
  return *residuals;
}

}  // namespace horovod::paceline
