#include "bridge/collectives/choice.h"

#include <mutex>

namespace horovod::paceline {

void Choices::Choose(const CollectiveChoice& choice) {
  ++changes_;
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  choice_ = choice;
}

CollectiveChoice Choices::chosen() const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  return choice_;
}

void Choices::GoBy(int32_t process_set_id, const std::string& name, int32_t method) {
  ++changes_;
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  sets_[process_set_id].methods[name] = method;
}

int32_t Choices::MethodOf(int32_t process_set_id, const std::string& name) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto set = sets_.find(process_set_id);
  if (set == sets_.end()) {
    return choice_.method;
  }
  const auto found = set->second.methods.find(name);
  const auto method = found == set->second.methods.end() ? choice_.method : found->second;
  const auto faster = method == CollectiveChoice::kHorovods && set->second.fastest.count(name) > 0;
  return faster ? CollectiveChoice::kAuto : method;
}

void Choices::GoFastest(int32_t process_set_id, const std::string& name) {
  ++changes_;
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  sets_[process_set_id].fastest.insert(name);
}

void Choices::GoAsChosen(int32_t process_set_id, const std::string& name) {
  ++changes_;
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  sets_[process_set_id].fastest.erase(name);
}

void Choices::Encode(int32_t process_set_id, const std::string& name, const Encoding& encoding) {
  ++changes_;
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  sets_[process_set_id].encodings[name] = encoding;
}

void Choices::EncodeNoMore(int32_t process_set_id, const std::string& name) {
  ++changes_;
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  sets_[process_set_id].encodings.erase(name);
}

Encoding Choices::EncodingOf(int32_t process_set_id, const std::string& name) const {
  const std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto set = sets_.find(process_set_id);
  if (set == sets_.end()) {
    return {};
  }
  const auto found = set->second.encodings.find(name);
  return found == set->second.encodings.end() ? Encoding{} : found->second;
}

void Choices::BeginWorld() {
  ++changes_;
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  for (auto& [id, set] : sets_) {
    set.fastest.clear();
  }
}

void Choices::Forget(int32_t process_set_id) {
  const std::lock_guard<std::shared_mutex> lock(mutex_);
  sets_.erase(process_set_id);
}

Choices& TheChoices() {
  static auto* choices = new Choices;
  return *choices;
}

}  // namespace horovod::paceline
