// Tokenizers give the results of the package `tokenizers`, and reject damaged or malicious files.
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/escape.h"
#include "base/utf8.h"
#include "bowline_text.h"
#include "text/pattern.h"

namespace bowline::text {
namespace {

constexpr std::string_view kJson = "application/vnd.huggingface.tokenizer+json";
constexpr std::string_view kGguf = "application/vnd.gguf.tokenizer";

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::filesystem::path data(const std::string& name) {
  return std::filesystem::path(BOWLINE_TEXT_DATA) / name;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string from_hex(std::string_view text) {
  std::string out;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    int byte = 0;
    std::from_chars(text.data() + i, text.data() + i + 2, byte, 16);
    out += static_cast<char>(byte);
  }
  return out;
}

Result<Tokenizer> open(std::string_view type, std::string_view bytes) {
  return Tokenizer::from_bytes(type, std::as_bytes(std::span(bytes)));
}
Tokenizer tokenizer(const std::string& file) {
  return open(file.ends_with("gguf") ? kGguf : kJson, read(data(file))).value();
}

// Formats "id:begin:end ..." as in the fixtures; `places`: with the offsets.
std::string shown(const Encoding& e, bool places) {
  std::string out;
  for (size_t i = 0; i < e.ids.size(); ++i) {
    out += (i == 0 ? "" : " ") + std::to_string(e.ids[i]);
    if (places) {
      out += ":" + std::to_string(e.offsets[i].begin) + ":" + std::to_string(e.offsets[i].end);
    }
  }
  return out;
}
std::string without_places(const std::string& pieces) {
  std::string out;
  bool inside = false;
  for (const char c : pieces) {
    inside = c == ':' || (inside && c != ' ');
    out += inside ? std::string() : std::string(1, c);
  }
  return out;
}

struct Fixture {
  std::string text;
  std::string pieces;
  std::string decoded;
};
std::vector<Fixture> fixtures(const std::string& name) {
  const std::vector<std::string> texts = lines(read(data("texts.hex")));
  const std::vector<std::string> expected = lines(read(data(name + ".expected")));
  EXPECT_EQ(texts.size(), expected.size());
  std::vector<Fixture> out;
  for (size_t i = 0; i < std::min(texts.size(), expected.size()); ++i) {
    const size_t bar = expected[i].find('|');
    const std::string text = from_hex(texts[i]);
    const std::string decoded = expected[i].substr(bar + 1);
    out.push_back({text, expected[i].substr(0, bar), decoded == "=" ? text : from_hex(decoded)});
  }
  return out;
}

std::vector<std::string> kinds() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(BOWLINE_TEXT_DATA)) {
    if (entry.path().extension() == ".json") {
      out.push_back(entry.path().stem());
    }
  }
  std::ranges::sort(out);
  return out;
}

class Kind : public testing::TestWithParam<std::string> {};

TEST_P(Kind, GivesIdsOffsetsAndTextOfTheFixtures) {
  const Tokenizer t = tokenizer(GetParam() + ".json");
  for (const Fixture& f : fixtures(GetParam())) {
    const Encoding e = t.encode(f.text).value();
    EXPECT_EQ(shown(e, true), f.pieces) << escaped(f.text);
    EXPECT_EQ(t.decode(e.ids).value(), f.decoded) << escaped(f.text);
    EXPECT_EQ(e.mask, std::vector<int32_t>(e.ids.size(), 1));
    EXPECT_EQ(e.special.size(), e.ids.size());
    for (const int32_t id : e.ids) {
      EXPECT_EQ(t.token_to_id(t.id_to_token(id)), id);
      EXPECT_LT(static_cast<size_t>(id), t.size());
    }
  }
}

bool is_utf8(std::string_view text) {
  while (!text.empty() && utf8_length(text) > 0) {
    text.remove_prefix(utf8_length(text));
  }
  return text.empty();
}

TEST_P(Kind, StreamGivesWholeCodePointsAndTheTextOfDecode) {
  const Tokenizer t = tokenizer(GetParam() + ".json");
  Decoder stream = t.stream();
  for (const Fixture& f : fixtures(GetParam())) {
    std::string all;
    const Encoding e = t.encode(f.text).value();
    for (const int32_t id : e.ids) {
      const std::string part = stream.next(id).value();
      EXPECT_TRUE(is_utf8(part)) << escaped(part);
      all += part;
    }
    EXPECT_EQ(all + stream.flush(), f.decoded) << escaped(f.text);
  }
}

// Single tokens of a code point, and tokens that do not belong together.
TEST_P(Kind, AnyIdsDecodeToUtf8) {
  const Tokenizer t = tokenizer(GetParam() + ".json");
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<int32_t> ids(random() % 8);
    std::ranges::generate(ids, [&] { return static_cast<int32_t>(random() % (t.size() + 8)) - 4; });
    EXPECT_TRUE(is_utf8(t.decode(ids, false).value()));
    Decoder stream = t.stream(false);
    for (const int32_t id : ids) {
      EXPECT_TRUE(is_utf8(stream.next(id).value()));
    }
    EXPECT_TRUE(is_utf8(stream.flush()));
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Kind, testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param; });

// A GGUF file has less data than a tokenizer.json: the ids are equal, but offsets are not trimmed.
TEST(Gguf, GivesTheIdsOfTheFixtures) {
  for (const std::string name : {"smollm", "llama3", "bert", "scores", "t5"}) {
    const Tokenizer t = tokenizer(name + ".gguf");
    for (const Fixture& f : fixtures(name)) {
      const Encoding e = t.encode(f.text).value();
      EXPECT_EQ(shown(e, false), without_places(f.pieces)) << name << " " << escaped(f.text);
      EXPECT_EQ(t.decode(e.ids).value(), f.decoded) << name << " " << escaped(f.text);
    }
  }
}

TEST(Options, SpecialTokensAreAddedFoundAndLeftOut) {
  const Tokenizer t = tokenizer("bert.json");
  const Encoding with = t.encode("the sea").value();
  EXPECT_EQ(with.special.front(), 1);
  EXPECT_EQ(with.special.back(), 1);
  const Encoding without = t.encode("the sea", {.special_tokens = false}).value();
  EXPECT_EQ(without.ids, std::vector<int32_t>(with.ids.begin() + 1, with.ids.end() - 1));
  const int32_t mask = t.token_to_id("[MASK]").value();
  EXPECT_TRUE(t.is_special(mask));
  EXPECT_FALSE(t.is_special(without.ids[0]));
  EXPECT_EQ(t.encode("[MASK]", {.special_tokens = false}).value().ids, std::vector{mask});
  EXPECT_GT(
      t.encode("[MASK]", {.special_tokens = false, .parse_special = false}).value().ids.size(), 1u);
  EXPECT_EQ(t.decode(std::vector{mask}, false).value(), "[MASK]");
  EXPECT_EQ(t.decode(std::vector{mask}).value(), "");
}

TEST(Options, MostTokensCutTheEndOfTheText) {
  const Tokenizer t = tokenizer("bert.json");
  const Encoding all = t.encode("in the beginning God created the heaven").value();
  const Encoding cut =
      t.encode("in the beginning God created the heaven", {.max_tokens = 5}).value();
  EXPECT_EQ(cut.ids.size(), 5u);
  EXPECT_TRUE(std::equal(cut.ids.begin(), cut.ids.end() - 1, all.ids.begin()));
  EXPECT_EQ(cut.ids.back(), all.ids.back());
  EXPECT_EQ(t.encode("in the beginning", {.max_tokens = 2}).value().ids.size(), 2u);
  const Status none = t.encode("in", {.max_tokens = 1}).status();
  EXPECT_EQ(none.code(), Code::bad_argument);
}

TEST(ByteTokenizer, HasAnIdPerByte) {
  const Tokenizer t = Tokenizer::of_bytes();
  const std::string text = "é\xff\n";
  const Encoding e = t.encode(text).value();
  EXPECT_EQ(e.ids, (std::vector<int32_t>{0xC3, 0xA9, 0xFF, 10}));
  EXPECT_EQ(e.offsets[1], (Offset{1, 2}));
  EXPECT_EQ(t.size(), 256u);
  Decoder stream = t.stream();
  EXPECT_EQ(stream.next(0xC3).value(), "");
  EXPECT_EQ(stream.next(0xA9).value(), "é");
  EXPECT_EQ(stream.next(0xE2).value(), "");
  EXPECT_EQ(stream.next('a').value(), "\uFFFDa");
  EXPECT_EQ(stream.next(0xC3).value(), "");
  EXPECT_EQ(stream.flush(), "\uFFFD");
}

TEST(ByteTokenizer, IsThatOfAModelThatSaysSo) {
  Model model;
  EXPECT_EQ(Tokenizer::from(model).status().code(), Code::bad_argument);
  ASSERT_TRUE(model.set_metadata("tokenizer", "bytes").ok());
  EXPECT_EQ(Tokenizer::from(model).value().kind(), "bytes");
}

TEST(Asset, IsTheTokenizerOfAModel) {
  Model model;
  const std::string bytes = read(data("gpt2.json"));
  ASSERT_TRUE(model.set_asset("tokenizer", kJson, std::as_bytes(std::span(bytes))).ok());
  EXPECT_EQ(Tokenizer::from(model).value().kind(), "byte-level BPE");
}

// The hand-written matchers cut like PCRE2 at all borders of white space, signs, numbers and
// letters.
TEST(Patterns, OfKnownFilesCutAsTheLibraryDoes) {
  const std::string_view parts[] = {
      "a",  "É",  "1",  "٣",  " ",  "  ", "\n", "\r", "\t",     "\u00a0", "\u3000",
      "'",  "'s", "'S", "'ſ", "'r", "re", "ll", "L",  ".",      "—",      "\u0301",
      "'v", "e",  "字", "😀",  "½",  "_",  "'d", "d",  "\u0085", "\u2028"};
  std::mt19937 random(1);
  for (const std::string_view expression : known_expressions()) {
    const Pattern by_hand = Pattern::of_expression(expression).value();
    const Pattern by_library = Pattern::of_expression(expression, true).value();
    for (int i = 0; i < 20'000; ++i) {
      std::string text;
      for (size_t n = 1 + random() % 8; n > 0; --n) {
        text += parts[random() % std::size(parts)];
      }
      std::vector<Range> a;
      std::vector<Range> b;
      ASSERT_TRUE(by_hand.find(text, a).ok());
      ASSERT_TRUE(by_library.find(text, b).ok());
      ASSERT_EQ(a, b) << expression << " " << escaped(text);
    }
  }
}

// Compares with the package, which uses Oniguruma.
TEST(Patterns, OfExpressionsCutAsThePackageDoes) {
  size_t rows = 0;
  for (const std::string& line : lines(read(data("expressions.expected")))) {
    const size_t first = line.find(' '), second = std::min(line.find(' ', first + 1), line.size());
    const std::string expression = from_hex(line.substr(0, first));
    const std::string text = from_hex(line.substr(first + 1, second - first - 1));
    SCOPED_TRACE(escaped(expression) + " on " + escaped(text));
    const Result<Pattern> pattern = Pattern::of_expression(expression, true);
    ASSERT_TRUE(pattern.ok()) << pattern.status().message();
    std::vector<Range> ranges;
    ASSERT_TRUE(pattern.value().find(text, ranges).ok());
    std::string pieces;
    for (const Range& r : ranges) {
      if (r.end > r.begin) {
        pieces += " " + std::to_string(r.begin) + ":" + std::to_string(r.end);
      }
    }
    EXPECT_EQ(pieces, line.substr(second));
    ++rows;
  }
  EXPECT_GE(rows, 1000u);
}

TEST(Patterns, WhatHasNoTranslationIsRefusedByName) {
  for (const std::string_view expression :
       {"(?x) a", R"(a\Kb)", R"(\Qa)", R"(\N)", "a{2}+", "a{2}?", "(*ACCEPT)", R"(\pL)"}) {
    const Status s = Pattern::of_expression(expression).status();
    EXPECT_EQ(s.code(), Code::unsupported) << expression << ": " << s.message();
  }
  for (const std::string_view damaged : {"[a", "(a", "a)", "[b-a]", "(?<x", "\\"}) {
    EXPECT_EQ(Pattern::of_expression(damaged).status().code(), Code::bad_file) << damaged;
  }
}

// ---- damaged files

struct Bad {
  std::string_view from;  // in the file of parts() or gpt2()
  std::string_view to;
  std::string_view says;
  Code code = Code::bad_file;
};

std::string small_file() {
  return R"({"added_tokens":[{"id":5,"content":"<s>","special":true}],"normalizer":{"type":"NFC"},)"
         R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":" "},"behavior":"Isolated"},"post_processor":null,)"
         R"("decoder":{"type":"Fuse"},"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2," ":3},"merges":["a b"]}})";
}

TEST(BadFile, IsRefusedWithASentence) {
  const Bad cases[] = {
      {R"("a b")", R"("a c")", "names \"c\", which is not in the vocabulary"},
      {R"("a b")", R"("b a")", "names \"ba\""},
      {R"("a b")", R"("a b b")", "is not two tokens"},
      {R"("a b")", "7", "A merge is not two tokens"},
      {R"("b":1)", R"("b":0)", "Id 0 belongs to two tokens: \"a\" and \"b\""},
      {R"("b":1)", R"("a":1)", "Token \"a\" has two ids"},
      {R"("b":1)", R"("b":-1)", "id -1"},
      {R"("b":1)", R"("b":16000000)", "far beyond the number of tokens"},
      {R"("b":1)", R"("b":99999999999)", "which is outside of 0 to"},
      {R"("b":1)", R"("b":1.5)", "not an integer"},
      {R"("b":1)", R"("b":"x")", "not an integer"},
      {R"("id":5)", R"("id":0)", "Id 0 belongs to"},
      {R"("content":"<s>")", R"("content":"ab")", "the vocabulary has this text as token 2"},
      {R"("id":5)", R"("id":4000000000)", "has id 4000000000"},
      {R"({"Regex":" "})", R"({"Regex":"(a"})", "does not compile"},
      {R"({"Regex":" "})", R"({"Regex":"\\C"})", "does not compile"},
      {R"({"Regex":" "})", R"({"Other":" "})", "\"Regex\" is missing"},
      {R"("Isolated")", R"("Sometimes")", "\"Sometimes\" is not supported", Code::unsupported},
      {R"("NFC")", R"("NFQ")", "The normalizer \"NFQ\" is not supported", Code::unsupported},
      {R"("Fuse")", R"("Fuze")", "The decoder \"Fuze\" is not supported", Code::unsupported},
      {R"("BPE")", R"("CPE")", "The model \"CPE\" is not supported", Code::unsupported},
      {R"("post_processor":null)", R"("post_processor":{"type":"TemplateProcessing","single":[]})",
       "exactly once", Code::unsupported},
      {R"({"type":"NFC"})", R"({"type":"Precompiled","precompiled_charsmap":"/////w=="})",
       "more than the map"},
      {R"({"type":"NFC"})", R"({"type":"Precompiled","precompiled_charsmap":"?"})", "not base64"},
      {R"("merges")", R"("dropout":0.1,"merges")", "random", Code::unsupported},
      {R"("merges")", R"("unk_token":"<unk>","merges")",
       "unknown token \"<unk>\" is not in the vocabulary"},
      {R"("model")", R"("modem")", "\"model\" is missing"},
      {"}}", "}", "not valid JSON"},
      {R"("NFC")", "\"NF\xff\"", "not valid JSON"},
  };
  ASSERT_TRUE(open(kJson, small_file()).ok());
  for (const Bad& bad : cases) {
    std::string text = small_file();
    const size_t at = text.find(bad.from);
    ASSERT_NE(at, std::string::npos) << bad.from;
    const Status status = open(kJson, text.replace(at, bad.from.size(), bad.to)).status();
    EXPECT_EQ(status.code(), bad.code) << bad.to << ": " << status.message();
    EXPECT_NE(status.message().find(bad.says), std::string::npos)
        << bad.to << ": " << status.message();
  }
}

TEST(BadFile, IsNestedWithoutEnd) {
  std::string deep;
  for (int i = 0; i < 10'000; ++i) {
    deep += R"({"type":"Sequence","normalizers":[)";
  }
  for (const int depth : {20, 10'000}) {
    std::string steps = R"({"type":"NFC"})";
    for (int i = 0; i < depth; ++i) {
      steps = R"({"type":"Sequence","normalizers":[)" + steps + "]}";
    }
    std::string text = small_file();
    text.replace(text.find(R"({"type":"NFC"})"), 14, steps);
    EXPECT_EQ(open(kJson, text).status().code(), Code::bad_file) << depth;
  }
  EXPECT_EQ(open(kJson, deep).status().code(), Code::bad_file);
}

TEST(BadFile, IsCutAnywhere) {
  const std::string json = small_file();
  for (size_t n = 0; n < json.size(); ++n) {
    EXPECT_EQ(open(kJson, json.substr(0, n)).status().code(), Code::bad_file) << n;
  }
  const std::string gguf = read(data("bert.gguf"));
  for (size_t n = 0; n < gguf.size() - 8; n += 7) {
    EXPECT_FALSE(open(kGguf, gguf.substr(0, n)).ok()) << n;
  }
}

// A search that would take exponential time ends, and so does a series of such searches.
TEST(BadFile, HasAnExpressionThatExplodes) {
  for (const std::string_view expression :
       {R"((a+a+)+$)", R"((a|a|b)*[cd])", R"((?:a?){60}a{60}[cd])"}) {
    std::string text = small_file();
    text.replace(text.find(R"({"Regex":" "})"), 13,
                 "{\"Regex\":\"" + std::string(expression) + "\"}");
    const auto t = open(kJson, text);
    ASSERT_TRUE(t.ok()) << t.status().message();
    const Status status = t.value().encode(std::string(300, 'a') + "b").status();
    EXPECT_EQ(status.code(), Code::bad_file) << expression;
    EXPECT_NE(status.message().find("exceeds its limits"), std::string::npos) << status.message();
  }
}

// Each of 60 normalizers doubles the text.
TEST(BadFile, MakesATextOfAnyLength) {
  std::string steps;
  for (int i = 0; i < 60; ++i) {
    steps += R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"},)";
  }
  std::string text = small_file();
  text.replace(text.find(R"({"type":"NFC"})"), 14,
               R"({"type":"Sequence","normalizers":[)" + steps + R"({"type":"NFC"}]})");
  const Status status = open(kJson, text).value().encode("a").status();
  EXPECT_EQ(status.code(), Code::bad_file);
  EXPECT_NE(status.message().find("A normalizer makes more than"), std::string::npos)
      << status.message();
  text = small_file();
  text.replace(text.find(R"({"type":"Fuse"})"), 15,
               R"({"type":"Sequence","decoders":[)" + steps + R"({"type":"Fuse"}]})");
  EXPECT_EQ(open(kJson, text).value().decode(std::vector<int32_t>{0}).status().code(),
            Code::bad_file);
}

// The vocabulary has the bytes of é, but not those of x, y and z. The ids are those of the package.
TEST(ByteFallback, PutsTheUnknownPieceBehindBytes) {
  struct Case {
    std::string_view text;
    std::vector<int32_t> ids;
    std::vector<int32_t> fused;
  };
  const Case cases[] = {
      {"xé", {4, 5, 0}, {4, 5, 0}},
      {"éx", {4, 5, 0}, {4, 5, 0}},
      {"xya", {0, 0, 1}, {0, 1}},
      {"xyéa", {0, 4, 5, 0, 1}, {4, 5, 0, 1}},
      {"xéya", {4, 5, 0, 0, 1}, {4, 5, 0, 1}},
      {"aéxb", {1, 4, 5, 0, 2}, {1, 4, 5, 0, 2}},
      {"xéyéz", {4, 5, 0, 4, 5, 0, 0}, {4, 5, 4, 5, 0}},
  };
  const auto file = [](std::string_view unknown, std::string_view fuses) {
    return R"({"added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,)"
           R"("model":{"type":"BPE","byte_fallback":true,"fuse_unk":)" +
           std::string(fuses) + R"(,"unk_token":")" + std::string(unknown) + R"(","vocab":{")" +
           std::string(unknown) +
           R"(":0,"a":1,"b":2,"ab":3,"<0xC3>":4,"<0xA9>":5},"merges":["a b"]}})";
  };
  const Tokenizer plain = open(kJson, file("<unk>", "false")).value();
  const Tokenizer fuses = open(kJson, file("<unk>", "true")).value();
  for (const Case& c : cases) {
    EXPECT_EQ(plain.encode(c.text).value().ids, c.ids) << c.text;
    EXPECT_EQ(fuses.encode(c.text).value().ids, c.fused) << c.text;
  }
  const Tokenizer marks = open(kJson, file("?", "true")).value();
  EXPECT_EQ(marks.encode("?x").value().ids, (std::vector<int32_t>{0, 0}));
}

TEST(PostProcessors, ATemplateEndsThem) {
  const auto file = [](const std::string& steps) {
    std::string text = small_file();
    const std::string_view none = R"("post_processor":null)";
    return text.replace(text.find(none), none.size(),
                        R"("post_processor":{"type":"Sequence","processors":[)" + steps + "]}");
  };
  const auto around = [](const std::string& parts) {
    return R"({"type":"TemplateProcessing","single":[)" + parts +
           R"(],"special_tokens":{"<s>":{"id":"<s>","ids":[5],"tokens":["<s>"]}}})";
  };
  const std::string text = R"({"Sequence":{"id":"A","type_id":0}})";
  const std::string begins = around(R"({"SpecialToken":{"id":"<s>","type_id":0}},)" + text);
  const std::string bert = R"({"type":"BertProcessing","cls":["a",0],"sep":["b",1]})";
  const std::string bytes = R"({"type":"ByteLevel"})";
  const auto ids = [&](const std::string& steps) {
    return open(kJson, file(steps)).value().encode("a").value().ids;
  };
  EXPECT_EQ(ids(bert + "," + begins), (std::vector<int32_t>{5, 0, 0, 1}));
  EXPECT_EQ(ids(around(text) + "," + begins), (std::vector<int32_t>{5, 0}));
  EXPECT_EQ(ids(begins + "," + bytes), (std::vector<int32_t>{5, 0}));
  for (const std::string& second : {begins, bert, around(text)}) {
    const Status status = open(kJson, file(begins + "," + second)).status();
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_NE(status.message().find("follows a TemplateProcessing"), std::string::npos);
  }
}

TEST(BadText, NeedsAPieceThatIsNotThere) {
  const Tokenizer t = open(kJson, small_file()).value();
  EXPECT_EQ(t.encode("ab b").value().ids, (std::vector<int32_t>{2, 3, 1}));
  const Status status = t.encode("abc").status();
  EXPECT_EQ(status.code(), Code::bad_file);
  EXPECT_NE(status.message().find("no token for \"c\""), std::string::npos) << status.message();
}

TEST(BadType, IsNamed) {
  const Status status = open("text/plain", "x").status();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("text/plain"), std::string::npos);
}

// ---- damaged GGUF files

template <class T>
std::string number(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string text_value(std::string_view text) {
  return number<uint64_t>(text.size()) + std::string(text);
}
std::string header(uint64_t keys, uint32_t version = 3) {
  return "GGUF" + number(version) + number<uint64_t>(0) + number(keys);
}

TEST(BadGguf, IsRefusedWithASentence) {
  const std::string model = text_value("tokenizer.ggml.model") + number(8u) + text_value("gpt2");
  const auto tokens = [](uint64_t count, std::string_view values) {
    return text_value("tokenizer.ggml.tokens") + number(9u) + number(8u) + number(count) +
           std::string(values);
  };
  const auto pre = [](std::string_view name) {
    return text_value("tokenizer.ggml.pre") + number(8u) + text_value(name);
  };
  const std::string two = text_value("a") + text_value("b");
  const std::pair<std::string, std::string_view> cases[] = {
      {"GGML", "does not begin with \"GGUF\""},
      {header(0, 1), "version 1"},
      {header(1ull << 60), "keys, but only 0 bytes follow"},
      {header(1), "keys, but only 0 bytes follow"},
      {header(1) + number(1ull << 62) + std::string(8, 'x'), "The file ends"},
      {header(1) + model, "no list of texts \"tokenizer.ggml.tokens\""},
      {header(2) + model + model, "two keys \"tokenizer.ggml.model\""},
      {header(2) + model + tokens(1ull << 61, two), "elements, but only"},
      {header(2) + model + tokens(2, text_value("a") + text_value("\xff")), "not UTF-8"},
      {header(4) + model + pre("gpt-2") + tokens(2, text_value("a") + text_value("a")) +
           text_value("tokenizer.ggml.merges") + number(9u) + number(8u) + number<uint64_t>(0),
       "has two ids"},
      {header(2) + model + tokens(2, two), "no \"tokenizer.ggml.pre\""},
      {header(3) + model + pre("") + tokens(2, two), "no \"tokenizer.ggml.pre\""},
      {header(3) + model + pre("default") + tokens(2, two),
       "\"default\" of the file is not supported"},
      {header(3) + model + pre("gpt-2") + tokens(2, two),
       "no list of texts \"tokenizer.ggml.merges\""},
      {header(1) + text_value("x") + number(13u), "13 is not a value type"},
      {header(1) + text_value("x") + number(9u) + number(4u) + number(UINT64_MAX), "elements"},
  };
  for (const auto& [bytes, says] : cases) {
    const Status status = open(kGguf, bytes).status();
    EXPECT_TRUE(status.code() == Code::bad_file || status.code() == Code::unsupported);
    EXPECT_NE(status.message().find(says), std::string::npos) << says << ": " << status.message();
  }
  std::string nested = header(1) + text_value("x") + number(9u);
  for (int i = 0; i < 100'000; ++i) {
    nested += number(9u) + number<uint64_t>(1);
  }
  EXPECT_EQ(open(kGguf, nested).status().code(), Code::bad_file);
}

}  // namespace
}  // namespace bowline::text
