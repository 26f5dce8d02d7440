#include "bridge/collectives/choice.h"

namespace horovod::paceline {

void Choices::Choose(const CollectiveChoice& choice) {
  ++changes_;
  const std::lock_guard<std::mutex> lock(mutex_);
  choice_ = choice;
}

CollectiveChoice Choices::chosen() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return choice_;
}

void Choices::GoBy(int32_t process_set_id, const std::string& name, int32_t method) {
  ++changes_;
  const std::lock_guard<std::mutex> lock(mutex_);
  methods_[{process_set_id, name}] = method;
}

int32_t Choices::MethodOf(int32_t process_set_id, const std::string& name) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = methods_.find({process_set_id, name});
  const auto method = found == methods_.end() ? choice_.method : found->second;
  const auto faster = method == CollectiveChoice::kHorovods && fastest_.count({process_set_id, name}) > 0;
  return faster ? CollectiveChoice::kAuto : method;
}

void Choices::GoFastest(int32_t process_set_id, const std::string& name) {
  ++changes_;
  const std::lock_guard<std::mutex> lock(mutex_);
  fastest_.emplace(process_set_id, name);
}

void Choices::GoAsChosen(int32_t process_set_id, const std::string& name) {
  ++changes_;
  const std::lock_guard<std::mutex> lock(mutex_);
  fastest_.erase({process_set_id, name});
}

void Choices::Encode(int32_t process_set_id, const std::string& name, const Encoding& encoding) {
  ++changes_;
  const std::lock_guard<std::mutex> lock(mutex_);
  encodings_[{process_set_id, name}] = encoding;
}

void Choices::EncodeAsChosen(int32_t process_set_id, const std::string& name) {
  ++changes_;
  const std::lock_guard<std::mutex> lock(mutex_);
  encodings_.erase({process_set_id, name});
}

Encoding Choices::EncodingOf(int32_t process_set_id, const std::string& name) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = encodings_.find({process_set_id, name});
  return found == encodings_.end() ? choice_.encoding : found->second;
}

void Choices::BeginWorld() {
  ++changes_;
  const std::lock_guard<std::mutex> lock(mutex_);
  fastest_.clear();
}

void Choices::Forget(int32_t process_set_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto drop = [&](auto& of_names) {
    of_names.erase(of_names.lower_bound({process_set_id, ""}), of_names.lower_bound({process_set_id + 1, ""}));
  };
  drop(encodings_);
  drop(methods_);
  drop(fastest_);
}

Choices& TheChoices() {
  static auto* choices = new Choices;
  return *choices;
}

}  // namespace horovod::paceline
