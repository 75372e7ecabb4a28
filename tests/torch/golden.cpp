#include "torch/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace bowline::test {
namespace {

// Reads "(1,nan,-2.5)" or "[3,5]" from `at` on, and moves `at` behind it.
Numbers read_list(const std::string& text, size_t& at) {
  Numbers out;
  const char close = text[at] == '(' ? ')' : ']';
  ++at;
  while (at < text.size() && text[at] != close) {
    char* end = nullptr;
    out.push_back(std::strtod(text.c_str() + at, &end));
    const auto next = static_cast<size_t>(end - text.c_str());
    EXPECT_GT(next, at) << "no number in: " << text.substr(at, 40);
    if (next == at) {
      return out;
    }
    at = next + (text[next] == ',' ? 1 : 0);
  }
  ++at;
  return out;
}

NumberLists read_lists(const std::string& text, size_t at) {
  NumberLists out;
  for (; at < text.size(); ++at) {
    if (text[at] == '_') {
      out.emplace_back();
    } else if (text[at] == '(') {
      out.emplace_back(read_list(text, at));
      --at;
    }
  }
  return out;
}

template <class Line>
void for_lines(const std::string& file, Line&& line) {
  std::ifstream in(std::filesystem::path(BOWLINE_TORCH_FOLDER) / file);
  ASSERT_TRUE(in.is_open()) << file;
  std::string text;
  for (int number = 1; std::getline(in, text); ++number) {
    if (!text.empty() && text[0] != '#') {
      line(number, text);
    }
  }
}

}  // namespace

std::vector<int32_t> GoldenTensor::integers() const {
  std::vector<int32_t> out;
  for (const double v : numbers) {
    out.push_back(static_cast<int32_t>(v));
  }
  return out;
}

const GoldenTensor& GoldenSection::at(const std::string& name) const {
  const auto found = tensors.find(name);
  EXPECT_NE(found, tensors.end()) << name;
  static const GoldenTensor none;
  return found == tensors.end() ? none : found->second;
}

std::map<std::string, double> GoldenSection::options() const {
  std::map<std::string, double> out;
  for (const std::string& word : words) {
    if (const size_t equals = word.find('='); equals != word.npos) {
      out[word.substr(0, equals)] = std::strtod(word.c_str() + equals + 1, nullptr);
    }
  }
  return out;
}

std::vector<GoldenCase> golden_cases(const std::string& file) {
  std::vector<GoldenCase> out;
  for_lines(file, [&](int number, const std::string& text) {
    if (text.starts_with("dout ")) {
      out.back().douts = read_lists(text, 5);
    } else if (text.starts_with("din ")) {
      out.back().dins = read_lists(text, 4);
    } else {
      const size_t colon = text.find(": ");
      ASSERT_NE(colon, text.npos) << file << ":" << number;
      out.push_back({text.substr(0, colon), text.substr(colon + 2), number, {}, {}});
    }
  });
  return out;
}

std::vector<GoldenSection> golden_sections(const std::string& file) {
  std::vector<GoldenSection> out;
  for_lines(file, [&](int number, const std::string& text) {
    std::istringstream words(text);
    std::string word;
    words >> word;
    if (word != "tensor") {
      GoldenSection& section = out.emplace_back();
      for (; !word.empty(); word.clear(), words >> word) {
        section.words.push_back(word);
      }
      return;
    }
    ASSERT_FALSE(out.empty()) << file << ":" << number;
    words >> word;
    size_t at = text.find(" [");
    ASSERT_NE(at, text.npos) << file << ":" << number;
    GoldenTensor& tensor = out.back().tensors[word];
    int64_t elements = 1;
    for (const double dim : read_list(text, ++at)) {
      tensor.shape.push_back(static_cast<int64_t>(dim));
      elements *= tensor.shape.back();
    }
    at = text.find('(', at);
    ASSERT_NE(at, text.npos) << file << ":" << number;
    tensor.numbers = read_list(text, at);
    ASSERT_EQ(tensor.numbers.size(), static_cast<size_t>(elements)) << file << ":" << number;
  });
  return out;
}

}  // namespace bowline::test
