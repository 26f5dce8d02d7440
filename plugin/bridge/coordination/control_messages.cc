#include "bridge/coordination/control_messages.h"

#include <algorithm>
#include <utility>

namespace horovod::paceline {

namespace {

constexpr uint64_t kHeads = 0, kRests = 1;  // tags

}  // namespace

ControlMessages::ControlMessages(std::unique_ptr<Transport> transport) : posts_(std::move(transport)) {
  inboxes_.resize(static_cast<size_t>(posts_.rank() == 0 ? posts_.size() : 1));
  for (int32_t peer = posts_.rank() == 0 ? 1 : 0; peer < static_cast<int32_t>(inboxes_.size()); ++peer) {
    Post(peer);
  }
}

void ControlMessages::Post(int32_t peer) {
  auto& inbox = inboxes_[static_cast<size_t>(peer)];
  posts_.Receive(peer, kHeads, &inbox.head, sizeof(inbox.head), inbox.coming);
}

void ControlMessages::AwaitSent(Outgoing& outgoing) {
  posts_.Await(outgoing.under_way, posts_.rank() == 0 ? posts_.size() - 1 : 0, posts_.limit(),
               [] { return "has not taken what was sent to it, or others,"; });
}

void ControlMessages::SendTo(int32_t peer, const std::string& text) {
  posts_.Look();
  outgoing_.remove_if([](const auto& one) { return one.under_way == 0; });
  auto& outgoing = outgoing_.emplace_back();
  const auto in_head = std::min(text.size(), Head::kRoom);
  outgoing.head.bytes = text.size();
  std::copy_n(text.data(), in_head, outgoing.head.text.data());
  posts_.Send(peer, kHeads, &outgoing.head, offsetof(Head, text) + in_head, outgoing.under_way);
  if (in_head < text.size()) {
    outgoing.rest = text.substr(in_head);
    posts_.Send(peer, kRests, outgoing.rest.data(), outgoing.rest.size(), outgoing.under_way);
  }
}

std::string ControlMessages::ReceiveFrom(int32_t peer) {
  auto& inbox = inboxes_[static_cast<size_t>(peer)];
  const auto what = [] { return "has not sent its part of a coordination round"; };
  posts_.Await(inbox.coming, peer, posts_.limit(), what);
  const auto in_head = std::min(inbox.head.bytes, uint64_t{Head::kRoom});
  inbox.text.assign(inbox.head.text.data(), in_head);
  if (in_head < inbox.head.bytes) {
    inbox.text.resize(inbox.head.bytes);
    posts_.Receive(peer, kRests, &inbox.text[in_head], inbox.text.size() - in_head, inbox.coming);
    posts_.Await(inbox.coming, peer, posts_.limit(), what);
  }
  Post(peer);
  return std::move(inbox.text);
}

std::vector<std::string> ControlMessages::Gather() {
  std::vector<std::string> all(1);
  for (int32_t peer = 1; peer < posts_.size(); ++peer) {
    all.push_back(ReceiveFrom(peer));
  }
  return all;
}

void ControlMessages::Broadcast(const std::string& text) {
  for (int32_t peer = 1; peer < posts_.size(); ++peer) {
    SendTo(peer, text);
  }
}

void ControlMessages::Leave() {
  for (auto& outgoing : outgoing_) {
    AwaitSent(outgoing);
  }
  posts_.Leave();
}

}  // namespace horovod::paceline
