// Stop strings in streamed text: no part of a stop string is shown, and no text is held back
// without need.
#include <gtest/gtest.h>

#include "bowline_text.h"

namespace bowline::text {
namespace {

TEST(StopStrings, TextIsShownUpToTheFirstOne) {
  StopStrings s({"END", "###"});
  EXPECT_EQ(s.add("one two"), "one two");
  EXPECT_EQ(s.add(" ### three END"), " ");
  EXPECT_TRUE(s.stopped());
  EXPECT_EQ(s.add("four"), "");
  EXPECT_EQ(s.flush(), "");
}

TEST(StopStrings, WhatMayBeginOneIsKeptBack) {
  StopStrings s({"<|end|>"});
  EXPECT_EQ(s.add("a <"), "a ");
  EXPECT_EQ(s.add("|e"), "");
  EXPECT_EQ(s.add("x"), "<|ex");
  EXPECT_EQ(s.add("b<|end"), "b");
  EXPECT_FALSE(s.stopped());
  EXPECT_EQ(s.add("|> c"), "");
  EXPECT_TRUE(s.stopped());
}

// A failed match may contain the start of another match.
TEST(StopStrings, AFailedBeginMayHoldAnotherOne) {
  StopStrings s({"aab"});
  EXPECT_EQ(s.add("a"), "");
  EXPECT_EQ(s.add("a"), "");
  EXPECT_EQ(s.add("a"), "a");
  EXPECT_EQ(s.add("b!"), "");
  EXPECT_TRUE(s.stopped());
}

TEST(StopStrings, TheEarliestOneStopsNotTheLongest) {
  StopStrings s({"longer stop", "on"});
  EXPECT_EQ(s.add("a strong longer stop"), "a str");
  EXPECT_TRUE(s.stopped());
}

TEST(StopStrings, WhatWasKeptBackComesAtTheEnd) {
  StopStrings s({"", "###"});
  EXPECT_EQ(s.add("a #"), "a ");
  EXPECT_EQ(s.add("#"), "");
  EXPECT_EQ(s.flush(), "##");
  EXPECT_EQ(s.flush(), "");
  EXPECT_FALSE(s.stopped());
}

}  // namespace
}  // namespace bowline::text
