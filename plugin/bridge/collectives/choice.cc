#include "bridge/collectives/choice.h"

#include <mutex>

namespace horovod::paceline {

void Choices::Choose(const CollectiveChoice& choice) {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  choice_ = choice;
}

CollectiveChoice Choices::chosen() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  return choice_;
}

int32_t Choices::MethodOf(int32_t process_set_id, const std::string& name) const {
  const auto own = ::paceline::core::NameMark::Of(name).method;
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto method = own.value_or(choice_.method);
  const auto names = fastest_.find(process_set_id);
  const auto faster = method == CollectiveChoice::kHorovods && names != fastest_.end() && names->second.count(name) > 0;
  return faster ? CollectiveChoice::kAuto : method;
}

void Choices::GoFastest(int32_t process_set_id, const std::string& name) {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  fastest_[process_set_id].insert(name);
}

void Choices::GoAsChosen(int32_t process_set_id, const std::string& name) {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  fastest_[process_set_id].erase(name);
}

void Choices::BeginWorld() {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  fastest_.clear();
}

void Choices::Forget(int32_t process_set_id) {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  fastest_.erase(process_set_id);
}

Choices& TheChoices() {
  static auto* choices = new Choices;
  return *choices;
}

}  // namespace horovod::paceline
