#include <cstdint>
#include <string>
#include <vector>

#include "core/partial/round_coordinator.h"
#include "doctest/doctest.h"
#include "events.h"

using paceline::core::MergeGroup;
using paceline::core::RoundCoordinator;

namespace {

constexpr int32_t kRanks = 3;

// Coordinates the names x, y and z. "x0" is a vote of rank 0 under x; "at1000:x,y" looks at 1000 ns and finds that x
// and y are ready.
struct Machine : events::Machine {
  Machine() {
    for (const std::string name : {"x", "y", "z"}) {
      On(name, [=](int32_t rank) { rounds.Vote(name, rank); });
      On("flush_" + name, [=](int32_t rank) { rounds.Flush(name, rank); });
      On("late_" + name, [=](int32_t rank, int64_t round) { rounds.Arrived(name, rank, round); });
      On("misfit_" + name, [=] { rounds.Misfit(name); });
      On("sent_" + name, [=] { rounds.Sent(name); });
      On("failed_" + name, [=] { rounds.Failed(name); });
      On("knows_" + name, [=] { return rounds.Knows(name); });
      On("begin_" + name, [=] { rounds.Begin(name, {kRanks, 0, 0}); });
      // With a quorum. Round 0 waits for all ranks.
      On("new_" + name, [=](int64_t quorum) {
        rounds.Begin(name, {static_cast<int32_t>(quorum), 0, 0});
        for (int32_t rank = 0; rank < kRanks; ++rank) {
          CHECK(Ready(1).empty());
          rounds.Vote(name, rank);
        }
        return Ready(1);
      });
    }
    On("absent", [this](int32_t rank) { rounds.SetAbsent(rank, true); });
    On("back", [this](int32_t rank) { rounds.SetAbsent(rank, false); });
    On("grouped", [this] { grouped = true; });
    On("at", [this](int64_t now_ns) { return Ready(now_ns); });
    On("waiting", [this] { return rounds.waiting(); });
    On("stands", [this](int64_t now_ns) { return rounds.StandsStill(now_ns); });
    On("begun", [this] {  // by a standstill: names, who called, who did not
      std::string text;
      for (const auto& one : rounds.begun_by_standstill()) {
        text += one.name + Numbers(one.called) + "/" + Numbers(one.missing) + ";";
      }
      return text;
    });
  }

  std::string Ready(int64_t now_ns) {
    std::string names;
    for (const auto& name :
         rounds.Ready([this](const std::string& one) { return grouped && one != "z" ? &group : nullptr; }, now_ns)) {
      names += (names.empty() ? "" : ",") + name;
    }
    return names;
  }

  static std::string Numbers(const std::vector<int32_t>& ranks) {
    std::string text;
    for (const int32_t rank : ranks) {
      text += std::to_string(rank);
    }
    return text;
  }

  const MergeGroup group{{"x", "y"}, 100};
  bool grouped = false;  // x and y are
  RoundCoordinator rounds{kRanks};
};

#define NEW_X(quorum) "new_x" #quorum ":x sent_x "
#define NEW_XY(quorum) NEW_X(quorum) "new_y" #quorum ":y sent_y "

constexpr events::Case kCases[] = {
    {"a round is ready once, with its quorum, and the next one counts from the beginning",
     NEW_X(2) "x2 at2 x0 at3:x at4 sent_x at5 x1 at6"},
    {"a rank that waits under one name and was late under another has called there; answered, it may call again",
     NEW_XY(3) "x0 x1 late_x2,1 at2 y2 at3:x sent_x y0 y1 at4:y sent_y x0 x1 late_x2,2 at5"},
    {"no round waits for a rank that something else holds up, until it is back",
     NEW_X(3) "x0 x1 at2 absent2 at3:x sent_x back2 x0 x1 at4"},
    {"a name that its group has waited for without a call is not waited for before its next call, of a thawed layer",
     NEW_XY(1) "grouped x0 at1000 waiting:yes at1100:x sent_x x1 at2000:x sent_x x1 at3000:x sent_x x1 at4000:x sent_x "
               "y2 at6000 x2 at6010:y,x sent_x sent_y x2 at7000"},
    {"names of a group wait for each other, for no longer than its patience",
     NEW_XY(1) "new_z1:z sent_z grouped x0 z0 at1000:z waiting:yes sent_z y1 at1050:x,y waiting:no sent_x sent_y "
               "y2 at2000 at2099 waiting:yes at2100:y waiting:no"},
    {"a misfit is sent with the next request; an error ends the name's count, and its vote blocks no rank any longer",
     NEW_X(3) "misfit_x at2 x1 at3:x failed_x knows_x:no at4 new_y1:y"},
    {"flushes wait for all ranks, and rounds go on without those that flush",
     NEW_X(3) "flush_x0 x1 x2 at2:x sent_x flush_x1 at3 flush_x2 at4:x"},
    {"all ranks that wait for each other begin their rounds after the limit, with those that have called",
     NEW_XY(3) "x0 x1 y2 at1000 stands5000000999:no at5000000999 stands5000001000:yes at5000001000:y,x "
               "begun:y2/01;x01/2; sent_x sent_y stands9000000000:no late_x2,2 y0 at9000000001 begun"},
    {"no standstill while one rank goes on, and none until the limit after the last message",
     NEW_XY(3) "x0 x1 at1000 stands9000000000:no at9000000000 y2 at10000000000 stands14999999999:no "
               "at15000000000:x,y begun:x01/2;y2/01;"},
    {"ranks that flush or are held up elsewhere wait, too; round 0 does not begin",
     NEW_XY(3) "flush_y0 x1 x2 at1000 stands5000001000:yes at5000001000:x begun:x12/0; sent_x flush_y1 flush_y2 at6:y "
               "sent_y absent0 x2 y1 at1000 at5000001000:y,x begun:y1/02;x2/01; sent_x sent_y back0 "
               "begin_z z0 x1 y2 at1000 at5000001000:y,x"},
    {"what is said about unknown names changes nothing", "sent_x failed_x knows_x:no at1"},
};

}  // namespace

TEST_CASE("rounds of several names") { events::PlayAll<Machine>(kCases); }
