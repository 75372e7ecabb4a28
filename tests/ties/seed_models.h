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

// Runs a session on an input x of this shape, whose elements follow from their places. Returns all
// outputs, one after the other.
inline Floats run_with_x(Session& session, const Dims& shape,
                         const std::vector<StepScalar>& steps = {}) {
  Floats x(static_cast<size_t>(Shape(shape).elements()));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  }
  const PlanInfo plan = must(session.describe());
  std::vector<Floats> values;
  values.reserve(plan.segments[0].outputs.size());
  std::vector<Tensor> outputs;
  for (const auto& o : plan.segments[0].outputs) {
    const Dims of_output(o.shape.begin(), o.shape.end());
    values.emplace_back(static_cast<size_t>(Shape(of_output).elements()));
    outputs.push_back(tensor(o.name, of_output, values.back()));
  }
  const Tensor input = tensor("x", shape, x);
  EXPECT_OK(session.run({&input, 1}, outputs, steps));
  Floats all;
  for (const Floats& v : values) {
    all.insert(all.end(), v.begin(), v.end());
  }
  return all;
}

}  // namespace bowline::test
