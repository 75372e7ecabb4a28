// CSV and TSV: valid and invalid input of RFC 4180.
#include "data/csv.h"

#include <gtest/gtest.h>

namespace bowline::command {
namespace {

using Fields = std::vector<std::vector<std::string>>;

struct Read {
  Fields fields;
  std::vector<size_t> lines;
};

Read read(std::string_view text, char separator = ',') {
  Read out;
  const Result<std::vector<CsvRow>> rows = read_csv(text, "f.csv", separator);
  EXPECT_TRUE(rows.ok()) << rows.status().message();
  if (rows.ok()) {
    for (const CsvRow& row : rows.value()) {
      out.fields.push_back(row.fields);
      out.lines.push_back(row.line);
    }
  }
  return out;
}

std::string refusal(std::string_view text) {
  const Result<std::vector<CsvRow>> rows = read_csv(text, "f.csv", ',');
  EXPECT_FALSE(rows.ok()) << text;
  return rows.ok() ? "" : rows.status().message();
}

TEST(Csv, Fields) {
  EXPECT_EQ(read("a,b\n1,2\n").fields, (Fields{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(read("a,b\n1,2").fields, (Fields{{"a", "b"}, {"1", "2"}}));  // no newline at the end
  EXPECT_EQ(read("a,,b,\n").fields, (Fields{{"a", "", "b", ""}}));
  EXPECT_EQ(read(" a ,\tb\n").fields, (Fields{{" a ", "\tb"}}));  // spaces are part of the field
  EXPECT_EQ(read("a\tb,c\n", '\t').fields, (Fields{{"a", "b,c"}}));
  EXPECT_EQ(read("").fields, Fields());
}

TEST(Csv, Quotes) {
  EXPECT_EQ(read("\"a,b\",\"say \"\"hi\"\"\",\"\"\n").fields, (Fields{{"a,b", "say \"hi\"", ""}}));
  const Read r = read("t,l\n\"one\ntwo\r\nthree\",x\nfour,y\n");
  EXPECT_EQ(r.fields, (Fields{{"t", "l"}, {"one\ntwo\r\nthree", "x"}, {"four", "y"}}));
  EXPECT_EQ(r.lines, (std::vector<size_t>{1, 2, 5}));
}

TEST(Csv, LineEnds) {
  const Fields expected = {{"a", "b"}, {"1", "2"}};
  EXPECT_EQ(read("a,b\r\n1,2\r\n").fields, expected);
  EXPECT_EQ(read("\xEF\xBB\xBF"
                 "a,b\n1,2\n")
                .fields,
            expected);  // a byte-order mark
  const Read r = read("a,b\n\n\r\n1,2\n\n");
  EXPECT_EQ(r.fields, expected);
  EXPECT_EQ(r.lines, (std::vector<size_t>{1, 4}));
}

TEST(Csv, WrongQuotes) {
  EXPECT_EQ(refusal("a,b\nx,5\" disk\n").substr(0, 9), "f.csv:2: ");
  EXPECT_EQ(refusal("a,b\n\"x\"y,2\n").substr(0, 9), "f.csv:2: ");
  EXPECT_EQ(refusal("a,b\n1,2\n\"x,2\ny,3\n").substr(0, 9), "f.csv:3: ");
}

}  // namespace
}  // namespace bowline::command
