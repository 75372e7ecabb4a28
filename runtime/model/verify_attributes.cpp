#include "model/verify_attributes.h"

namespace bowline::model {
namespace {

template <class T>
Status check_numbers(Check& check, const flatbuffers::Vector<T>* list, std::string_view what) {
  BOWLINE_TRY(check_list(count_of(list), what));
  return spend(check, list);
}

Status check_reshape(Check& check, const file::ReshapeAttributes& reshape) {
  BOWLINE_TRY(check_list(count_of(reshape.dims()), "dims"));
  for (uint32_t i = 0; i < count_of(reshape.dims()); ++i) {
    const file::TargetDim& dim = *reshape.dims()->Get(i);
    BOWLINE_TRY(check_dim(check, dim.value(), dim.name(), -1));
  }
  return {};
}

}  // namespace

Status check_dim(Check& check, int64_t value, const flatbuffers::String* name, int64_t lowest) {
  if (count_of(name) == 0) {
    return bowline::check_dim(value, lowest);
  }
  BOWLINE_TRY(check_name(check, name, "A dim"));
  BOWLINE_REQUIRE(check.dims.contains(text_of(name)), "The dim \"{}\" is not one of the model.",
                  text_of(name));
  return {};
}

Status check_attributes(Check& check, const file::Node& node) {
  switch (node.op_type()) {
    case file::Op::Gelu:
      BOWLINE_REQUIRE(node.op_as_Gelu()->form() <= file::GeluForm::MAX, "The form {} is unknown.",
                      static_cast<int>(node.op_as_Gelu()->form()));
      return {};
    case file::Op::CrossEntropy:
      BOWLINE_REQUIRE(node.op_as_CrossEntropy()->reduction() <= file::Reduction::MAX,
                      "The reduction {} is unknown.",
                      static_cast<int>(node.op_as_CrossEntropy()->reduction()));
      return {};
    case file::Op::Reshape:
      return check_reshape(check, *node.op_as_Reshape());
    case file::Op::Transpose:
      return check_numbers(check, node.op_as_Transpose()->permutation(), "permutation");
    case file::Op::ReduceSum:
      return check_numbers(check, node.op_as_ReduceSum()->axes(), "axes");
    case file::Op::ReduceMean:
      return check_numbers(check, node.op_as_ReduceMean()->axes(), "axes");
    default:
      return {};
  }
}

}  // namespace bowline::model
