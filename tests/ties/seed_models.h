// The models of models.h for tests with GoogleTest.
#pragma once

#include <gtest/gtest.h>

#include "graph/model_state.h"
#include "params/table.h"
#include "ties/models.h"

namespace bowline::test {

inline Status status_of(Status status) { return status; }
template <class T>
Status status_of(Result<T> result) {
  return std::move(result).status();
}

#define ASSERT_OK(call)                                                   \
  do {                                                                    \
    const ::bowline::Status ok_status = ::bowline::test::status_of(call); \
    ASSERT_TRUE(ok_status.ok()) << ok_status.message();                   \
  } while (false)
#define EXPECT_OK(call)                                                   \
  do {                                                                    \
    const ::bowline::Status ok_status = ::bowline::test::status_of(call); \
    EXPECT_TRUE(ok_status.ok()) << ok_status.message();                   \
  } while (false)

// Expects that wrong_number() finds no error.
inline void expect_number(double value, double right, std::initializer_list<Wrong> signatures = {},
                          double tolerance = 1e-6) {
  const std::string wrong = wrong_number(value, right, signatures, tolerance);
  EXPECT_TRUE(wrong.empty()) << wrong;
}

}  // namespace bowline::test
