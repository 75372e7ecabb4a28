// Tensors that are not what their members say.
#include <functional>
#include <limits>

#include "world.h"

namespace c_test {
namespace {

struct Tensors : ::testing::Test {
  Outcome set(const std::function<void(bowline_tensor*)>& change) {
    bowline_tensor value = {sizeof(value), nullptr,      BOWLINE_F32, 2, shape,
                            data,          sizeof(data), nullptr,     0};
    change(&value);
    return call(api()->model_set_value, world.h.model, "last.weight", &value);
  }
  World world;
  int64_t shape[9] = {kClasses, kWidth, 1, 1, 1, 1, 1, 1, 1};
  float data[kClasses * kWidth] = {};
};

TEST_F(Tensors, ARightOneIsTaken) {
  const Outcome done = set([](bowline_tensor*) {});
  EXPECT_EQ(done.code, BOWLINE_OK) << done.message;
}

TEST_F(Tensors, WrongOnesAreRefused) {
  const auto refused = [&](const char* part, const std::function<void(bowline_tensor*)>& change) {
    expect_error(set(change), BOWLINE_BAD_ARGUMENT, part);
  };
  refused("There is no dtype 99.", [](bowline_tensor* t) { t->dtype = 99; });
  refused("There is no dtype -1.", [](bowline_tensor* t) { t->dtype = BOWLINE_NO_DTYPE; });
  refused("need 16", [](bowline_tensor* t) { t->dtype = BOWLINE_F16; });
  refused("last.weight", [](bowline_tensor* t) { t->dtype = BOWLINE_I32; });
  refused("0 to 8 dimensions, not 9", [](bowline_tensor* t) { t->rank = 9; });
  refused("0 to 8 dimensions, not -1", [](bowline_tensor* t) { t->rank = -1; });
  refused("The shape of a tensor of rank 2 is NULL", [](bowline_tensor* t) { t->shape = nullptr; });
  refused("has 31 bytes. Its shape and dtype need 32.", [](bowline_tensor* t) { t->bytes = 31; });
  refused("has 33 bytes. Its shape and dtype need 32.", [](bowline_tensor* t) { t->bytes = 33; });
  refused("The data of tensor \"\" is NULL.", [](bowline_tensor* t) { t->data = nullptr; });
  refused("A dimension of tensor \"\" is -4.", [&](bowline_tensor*) { shape[1] = -4; });
  refused("needs more than 2^64 bytes",
          [&](bowline_tensor*) { shape[1] = std::numeric_limits<int64_t>::max(); });
  shape[1] = kWidth;
  refused("last.weight", [](bowline_tensor* t) { t->rank = 8; });
  refused("need 4", [](bowline_tensor* t) { t->rank = 0; });
}

TEST_F(Tensors, AnInputNeedsItsName) {
  Batch batch;
  batch.tensors[1].name = nullptr;
  expect_error(call(api()->trainer_micro_step, world.h.trainer, batch.tensors, 2, nullptr, 0,
                    nullptr, nullptr),
               BOWLINE_BAD_ARGUMENT, "has no name");
  batch.tensors[1].name = "other";
  expect_error(call(api()->trainer_micro_step, world.h.trainer, batch.tensors, 2, nullptr, 0,
                    nullptr, nullptr),
               BOWLINE_BAD_ARGUMENT, "Input \"labels\" is missing.");
  batch.tensors[1].name = "labels";
  batch.labels[2] = kClasses;
  EXPECT_EQ(call(api()->trainer_micro_step, world.h.trainer, batch.tensors, 2, nullptr, 0, nullptr,
                 nullptr)
                .code,
            BOWLINE_INDEX_OUT_OF_RANGE);
}

TEST_F(Tensors, DeclaredShapesAreChecked) {
  const auto declare = [&](const int64_t* dims, int32_t rank, int32_t role, bowline_dtype dtype) {
    return call(api()->model_parameter, world.h.model, "new", dims, rank, nullptr, role, dtype,
                nullptr);
  };
  expect_error(declare(shape, 9, 0, 0), BOWLINE_BAD_ARGUMENT, "not 9");
  expect_error(declare(shape, -1, 0, 0), BOWLINE_BAD_ARGUMENT, "not -1");
  expect_error(declare(nullptr, 1, 0, 0), BOWLINE_BAD_ARGUMENT, "NULL");
  expect_error(declare(shape, 1, 0, 99), BOWLINE_BAD_ARGUMENT, "99");
  expect_error(declare(shape, 1, 99, 0), BOWLINE_BAD_ARGUMENT, "role has no value 99");
  const int64_t negative[] = {-2};
  EXPECT_EQ(declare(negative, 1, 0, 0).code, BOWLINE_BAD_ARGUMENT);
  bowline_parameter out[1];
  EXPECT_EQ(
      call(api()->model_declare_parameters, world.h.model, "l.{}", -1, shape, 1, nullptr, 0, 0, out)
          .code,
      BOWLINE_BAD_ARGUMENT);
}

}  // namespace
}  // namespace c_test
