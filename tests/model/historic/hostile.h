// Hostile files. Each case changes one value of the valid sample. The reader must refuse the file
// with the right code and location.
//
// The cases come from published reports about other readers. `story` names the report.
#pragma once

#include <gtest/gtest.h>

#include "graph/load.h"
#include "model/sample_file.h"

namespace bowline::test {

struct Hostile {
  const char* name;
  const char* story;  // the public report of this cause
  const char* says;   // a part that the message must contain: the cause and the location
  std::function<void(Sample&)> change;
};

// Opens the bytes in the same way as an app: verify, then load with the shape inference of every
// operator.
inline Status open_as_app(Bytes bytes) {
  BOWLINE_TRY_ASSIGN(auto file, verify(std::move(bytes)));
  return graph::load_model(std::move(file)).status();
}

inline void expect_refused(const char* name, const Status& status, std::string_view says) {
  EXPECT_EQ(status.code(), Code::bad_file) << name << ": " << status.message();
  EXPECT_NE(status.message().find(says), std::string::npos)
      << name << " says\n"
      << status.message() << "\nnot \"" << says << "\"";
}

inline void expect_all_refused(std::span<const Hostile> cases) {
  ASSERT_TRUE(open_as_app(make_sample().bytes()).ok());
  for (const Hostile& h : cases) {
    Sample sample = make_sample();
    h.change(sample);
    expect_refused(h.name, open_as_app(sample.bytes()), h.says);
  }
}

}  // namespace bowline::test
