// Name patterns: alternatives and numbers.
#include "base/pattern.h"

#include <gtest/gtest.h>

#include "bowline.h"

namespace bowline {
namespace {

using Texts = std::vector<std::string>;

TEST(Patterns, AlternativesStandForEveryChoice) {
  EXPECT_EQ(alternatives("a.*").value(), Texts{"a.*"});
  EXPECT_EQ(alternatives("").value(), Texts{""});
  EXPECT_EQ(alternatives("{a,b}.w").value(), (Texts{"a.w", "b.w"}));
  EXPECT_EQ(alternatives("{a,b}.{}.{w,}").value(), (Texts{"a.{}.w", "b.{}.w", "a.{}.", "b.{}."}));
  EXPECT_EQ(alternatives("x{a}").value(), Texts{"xa"});
  std::string many;
  for (int i = 0; i < 8; ++i) {
    many += "{a,b}";
  }
  EXPECT_EQ(alternatives(many).value().size(), 256u);
  EXPECT_EQ(alternatives(many + "{a,b}").status().code(), Code::bad_argument);
  for (const char* wrong : {"{a", "a}", "{a,{b,c}}", "{", "}", "{}}"}) {
    EXPECT_EQ(alternatives(wrong).status().message(),
              format("The pattern \"{}\" has an unmatched brace.", wrong));
  }
}

TEST(Patterns, ANameMatchesOneOfTheAlternatives) {
  const auto matches = [](std::string_view pattern, std::string_view name) {
    return matches_any(alternatives(pattern).value(), name);
  };
  EXPECT_TRUE(matches("*.{q,v}.w?", "a.v.w1"));
  EXPECT_TRUE(matches("kn?t", "kn\u00f6t"));  // "?" is a character, not a byte
  EXPECT_FALSE(matches("*.{q,v}.w?", "a.k.w1"));
  EXPECT_FALSE(matches("{a,b}", "c"));
}

std::string number(std::string_view pattern, std::string_view name) {
  const std::optional<Digits> d = number_in(pattern, name);
  return d ? std::string(name.substr(d->begin, d->end - d->begin)) : "none";
}

TEST(Patterns, NumbersAreWholeRunsOfDigits) {
  EXPECT_EQ(number("b.{}.w", "b.12.w"), "12");
  EXPECT_EQ(number("b.{}.w", "b.x.w"), "none");
  EXPECT_EQ(number("b.{}2.w", "b.12.w"), "none");
  EXPECT_EQ(number("{}", "007"), "007");
  EXPECT_EQ(number("*.{}.*", "a.1.b.2.c"), "1");
  EXPECT_EQ(number("*.b.{}.*", "a.1.b.2.c"), "2");
  EXPECT_EQ(number("b.*.w", "b.1.w"), "none");
  EXPECT_EQ(number("b.{}.w", "b.1.w.2"), "none");
  EXPECT_EQ(number("b?{}", "b.3"), "3");
}

}  // namespace
}  // namespace bowline
