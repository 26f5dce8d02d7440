#include "bridge/collectives/choice.h"

namespace horovod::paceline {

void Choices::Choose(const CollectiveChoice& choice) {
  const std::lock_guard<std::mutex> lock(mutex_);
  choice_ = choice;
}

CollectiveChoice Choices::chosen() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return choice_;
}

void Choices::Encode(int32_t process_set_id, const std::string& name, const Encoding& encoding) {
  const std::lock_guard<std::mutex> lock(mutex_);
  by_name_[{process_set_id, name}] = encoding;
}

void Choices::EncodeAsChosen(int32_t process_set_id, const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  by_name_.erase({process_set_id, name});
}

Encoding Choices::EncodingOf(int32_t process_set_id, const std::string& name) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = by_name_.find({process_set_id, name});
  return found == by_name_.end() ? choice_.encoding : found->second;
}

void Choices::Forget(int32_t process_set_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  by_name_.erase(by_name_.lower_bound({process_set_id, ""}), by_name_.lower_bound({process_set_id + 1, ""}));
}

Choices& TheChoices() {
  static auto* choices = new Choices;
  return *choices;
}

}  // namespace horovod::paceline
