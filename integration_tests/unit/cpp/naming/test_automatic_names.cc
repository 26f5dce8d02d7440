#include <doctest/doctest.h>

#include "core/naming/automatic_names.h"

using paceline::core::AutomaticNames;

TEST_CASE("each kind has its own count") {
  AutomaticNames names;
  CHECK(names.Next("allreduce", 0) == "allreduce.noname.0.0");
  CHECK(names.Next("allreduce", 0) == "allreduce.noname.0.1");
  CHECK(names.Next("broadcast", 0) == "broadcast.noname.0.0");
}

TEST_CASE("each process set has its own counts") {
  AutomaticNames member, other;
  member.Next("allreduce", 1);
  member.Next("allreduce", 1);
  CHECK(member.Next("allreduce", 0) == other.Next("allreduce", 0));
  CHECK(member.Next("allreduce", 1) == "allreduce.noname.0.2");
}

TEST_CASE("a meeting makes uneven counts even, and never gives a name twice") {
  AutomaticNames busy, idle;
  for (int n = 0; n < 5; ++n) {
    busy.Next("allreduce", 0);
  }
  busy.AdvanceEpoch(0);
  idle.AdvanceEpoch(0);
  CHECK(busy.Next("allreduce", 0) == idle.Next("allreduce", 0));
  CHECK(busy.Next("allreduce", 0) == "allreduce.noname.1.1");
}

TEST_CASE("a meeting is one of the ranks of a set: those of others may have missed it") {
  AutomaticNames member, other;
  member.AdvanceEpoch(1);
  CHECK(member.Next("allreduce", 0) == other.Next("allreduce", 0));
}

TEST_CASE("a new set begins at the beginning, though its id was another's") {
  AutomaticNames veteran, newcomer;
  veteran.Next("allreduce", 1);
  veteran.AdvanceEpoch(1);
  veteran.Next("allreduce", 1);
  veteran.Forget(1);
  CHECK(veteran.Next("allreduce", 1) == newcomer.Next("allreduce", 1));
}

TEST_CASE("a new world begins at the beginning, as new processes in it do") {
  AutomaticNames survivor, newcomer;
  survivor.Next("allreduce", 0);
  survivor.AdvanceEpoch(0);
  survivor.Reset();
  CHECK(survivor.Next("allreduce", 0) == newcomer.Next("allreduce", 0));
}

TEST_CASE("names that were made are told from those that were given") {
  AutomaticNames names;
  CHECK(AutomaticNames::Made(names.Next("grouped_allreduce", 0)));
  CHECK_FALSE(AutomaticNames::Made("allreduce.allreduce.noname.0.1"));  // of an optimizer's parameter without a name
  CHECK_FALSE(AutomaticNames::Made("noname"));
}
