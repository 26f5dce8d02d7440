// The residuals of this process's gradients, between the background thread that encodes and threads that save.

#ifndef PACELINE_BRIDGE_COLLECTIVES_RESIDUALS_H
#define PACELINE_BRIDGE_COLLECTIVES_RESIDUALS_H

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/codecs/error_feedback.h"

namespace horovod::paceline {

// Any thread. Names are those of process sets and tensors: Name().
class Residuals {
 public:
  static std::string Name(int32_t process_set_id, const std::string& tensor) {
    return std::to_string(process_set_id) + " " + tensor;
  }

  void Encode(const ::paceline::core::Codec& codec, const std::vector<::paceline::core::ErrorFeedback::Part>& parts,
              ::paceline::core::DataType type, const void* block, uint8_t* bytes);
  std::vector<std::string> Names() const;
  // Empty: there is none.
  std::vector<float> Get(const std::string& name) const;
  void Put(const std::string& name, std::vector<float> residual);

 private:
  mutable std::mutex mutex_;  // protects feedback_
  ::paceline::core::ErrorFeedback feedback_;
};

// The process's, over all worlds: elastic training goes on with them.
Residuals& TheResiduals();

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_RESIDUALS_H
