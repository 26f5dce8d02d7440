// The residuals of this process's gradients, between the background thread that encodes and threads that save.

#ifndef PACELINE_BRIDGE_COLLECTIVES_RESIDUALS_H
#define PACELINE_BRIDGE_COLLECTIVES_RESIDUALS_H

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/codecs/error_feedback.h"

namespace horovod::paceline {

// By process set and tensor. Any thread.
class Residuals {
 public:
  // As of core::ErrorFeedback; steps are those of a process set.
  void Begin(int32_t process_set_id, const std::string& name);
  void Spoil(int32_t process_set_id, const std::string& name);
  void Encode(int32_t process_set_id, const ::paceline::core::Codec& codec,
              const std::vector<::paceline::core::ErrorFeedback::Part>& parts, ::paceline::core::DataType type,
              const void* block, uint8_t* bytes);
  // Empty: there is none.
  std::vector<float> Get(int32_t process_set_id, const std::string& name) const;
  // Empty: there is none from now on.
  void Put(int32_t process_set_id, const std::string& name, std::vector<float> residual);
  // A process set has ended.
  void Forget(int32_t process_set_id);

 private:
  mutable std::mutex mutex_;  // protects feedback_
  std::map<int32_t, ::paceline::core::ErrorFeedback> feedback_;
};

// The process's, over all worlds: elastic training goes on with them.
Residuals& TheResiduals();

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_RESIDUALS_H
