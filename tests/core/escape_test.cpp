// Escaping of untrusted text for display.
#include "base/escape.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "bowline.h"

namespace bowline {
namespace {

using namespace std::string_literals;

TEST(Escape, PlainTextStays) {
  for (const char* text : {"", "embedding.weight", "C:\\models \"a\"",
                           "Kn\u00f6tchen \u65e5\u672c \U0001F9F6", "a'b~|"}) {
    EXPECT_EQ(escaped(text), text);
  }
}

TEST(Escape, WhatActsOnATerminalIsShown) {
  EXPECT_EQ(escaped("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(escaped("\x1b[31mred\x07\x7f"), "\\x1b[31mred\\x07\\x7f");
  EXPECT_EQ(escaped("nul\0nul"s), "nul\\x00nul");
  EXPECT_EQ(escaped("\u009b31m \u0085"), "\\u{9b}31m \\u{85}");
}

TEST(Escape, WhatCannotBeSeenIsShown) {
  EXPECT_EQ(escaped("user\u202egpj.exe"), "user\\u{202e}gpj.exe");
  EXPECT_EQ(escaped("\u2066a\u2069\u200f\u061c"), "\\u{2066}a\\u{2069}\\u{200f}\\u{61c}");
  EXPECT_EQ(escaped("a\u200b\u200db\ufeff\u00ad"), "a\\u{200b}\\u{200d}b\\u{feff}\\u{ad}");
  EXPECT_EQ(escaped("a\u2028b\u2029"), "a\\u{2028}b\\u{2029}");
  EXPECT_EQ(escaped("\U000e0041\ufe0f"), "\\u{e0041}\\u{fe0f}");
}

TEST(Escape, BytesThatAreNotUtf8AreShown) {
  EXPECT_EQ(escaped("caf\xe9"), "caf\\xe9");
  EXPECT_EQ(escaped("\xc0\xaf \xed\xa0\x80"), "\\xc0\\xaf \\xed\\xa0\\x80");
  EXPECT_EQ(escaped("cut \xe2\x82"), "cut \\xe2\\x82");
}

TEST(Escape, LinesKeepNewlinesOnly) {
  EXPECT_EQ(escaped_lines("a\x1b\n- b\r\n\n"), "a\\x1b\n- b\\r\n\n");
  EXPECT_EQ(escaped_lines(""), "");
}

TEST(Escape, NamesInListingsAreQuotedWhereTheyNeedIt) {
  EXPECT_EQ(listed_name("block.0.weight"), "block.0.weight");
  EXPECT_EQ(listed_name("Kn\u00f6tchen"), "Kn\u00f6tchen");
  EXPECT_EQ(listed_name(""), "\"\"");
  EXPECT_EQ(listed_name("a, b"), "\"a, b\"");
  EXPECT_EQ(listed_name("say \"a\\b\""), "\"say \\\"a\\\\b\\\"\"");
  EXPECT_EQ(listed_name("a\u202eb"), "\"a\\u{202e}b\"");
}

TEST(Escape, NoTwoNamesAreListedAlike) {
  std::vector<std::string> names = {""};
  for (size_t from = 0, length = 1; length <= 3; ++length) {
    const size_t end = names.size();
    for (; from < end; ++from) {
      for (const char* c : {"a", ",", " ", "\"", "\\", "n", "\n", "x", "\u0085", "\x85"}) {
        names.push_back(names[from] + c);
      }
    }
  }
  std::set<std::string> seen;
  for (const std::string& name : names) {
    EXPECT_TRUE(seen.insert(listed_name(name)).second) << escaped(name);
  }
}

}  // namespace
}  // namespace bowline
