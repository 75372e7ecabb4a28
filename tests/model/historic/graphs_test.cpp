// Hostile graphs.
#include "model/historic/hostile.h"

namespace bowline {
namespace {

using test::Hostile;
using test::Sample;

file::GraphT& graph(Sample& s, size_t i = 0) { return *s.model.graphs[i]; }
file::NodeT& node(Sample& s, size_t i) { return *graph(s).nodes[i]; }
file::RepeatAttributesT& repeat(Sample& s) { return *node(s, 2).op.AsRepeat(); }

template <class Attributes>
void replace(file::NodeT& n, file::Op op, Attributes attributes) {
  n.op.Reset();
  n.op.type = op;
  n.op.value = new Attributes(std::move(attributes));
}

// Adds an entry point with a node that writes storage 5. The entry point does not declare the
// write.
void add_writer(Sample& s) {
  s.model.storages[5]->trainable = false;
  auto step = std::make_unique<file::GraphT>();
  step->name = "step";
  step->inputs.push_back(test::make_input("x", file::DType::f32, {1}));
  step->parameters = {5};
  step->nodes.push_back(std::make_unique<file::NodeT>());
  step->nodes[0]->inputs = {1, 0};
  replace(*step->nodes[0], file::Op::WriteRows, file::WriteRowsAttributesT());
  step->outputs.push_back(test::make_output("y", 2));
  s.model.graphs.push_back(std::move(step));
}

const Hostile kGraphs[] = {
    {"input_from_the_future", "CVE-2020-15213: a cyclic graph", "value 4",
     [](Sample& s) { node(s, 0).inputs[0] = 4; }},
    {"input_is_own_output", "CVE-2020-15210: one tensor both input and output",
     "Input 0 is value 3, but only 3 values exist before the node",
     [](Sample& s) { node(s, 0).inputs[0] = 3; }},
    {"input_out_of_range", "CVE-2020-15211", "value 4294967295",
     [](Sample& s) { node(s, 0).inputs[0] = UINT32_MAX; }},
    {"output_out_of_range", "CVE-2022-23561", "Output 0 is value 7",
     [](Sample& s) { graph(s).outputs[0]->value = 7; }},
    {"no_outputs", "empty tensor list", "no outputs", [](Sample& s) { graph(s).outputs.clear(); }},
    {"output_name_twice", "names are unique", "which is taken",
     [](Sample& s) { graph(s).outputs.push_back(test::make_output("y", 3)); }},
    {"parameter_out_of_range", "CVE-2021-29603", "Parameter 6 is not one",
     [](Sample& s) { graph(s).parameters[1] = 6; }},
    {"input_of_unknown_dtype", "TFLite: enum from a file", "dtype 50",
     [](Sample& s) { graph(s).inputs[0]->dtype = static_cast<file::DType>(50); }},
    {"input_of_an_unknown_dim", "dangling name", "\"length\"",
     [](Sample& s) { graph(s).inputs[0]->shape[0]->name = "length"; }},
    {"input_of_negative_dim", "CVE-2021-29605", "Dim -4",
     [](Sample& s) { graph(s).inputs[0]->shape[1]->value = -4; }},
    {"input_with_too_many_elements", "CVE-2022-23558: integer overflow in a size", "more than",
     [](Sample& s) {
       for (int i = 0; i < 3; ++i) {
         graph(s).inputs[0]->shape.push_back(std::make_unique<file::DimT>());
         graph(s).inputs[0]->shape.back()->value = 2147483647;
       }
     }},
    {"input_of_rank_nine", "fixed array of dims", "rank 9",
     [](Sample& s) {
       while (graph(s).inputs[0]->shape.size() < 9) {
         graph(s).inputs[0]->shape.push_back(std::make_unique<file::DimT>());
       }
     }},
    {"input_name_twice", "names are unique", "which is taken",
     [](Sample& s) { graph(s).inputs.push_back(test::make_input("x", file::DType::f32, {1})); }},
    {"graph_name_twice", "names are unique", "\"forward\", which is taken",
     [](Sample& s) {
       auto copy = std::make_unique<file::GraphT>();
       copy->name = "forward";
       copy->inputs.push_back(test::make_input("x", file::DType::f32, {1}));
       copy->outputs.push_back(test::make_output("y", 0));
       s.model.graphs.push_back(std::move(copy));
     }},
    {"no_operator", "missing union", "operator 0", [](Sample& s) { node(s, 0).op.Reset(); }},
    {"outputs_zero", "ncnn#6937: division by top_count", "0 outputs",
     [](Sample& s) { node(s, 0).outputs = 0; }},
    {"outputs_huge", "ncnn CVE-2026-50144: a count into resize", "4000000000 outputs",
     [](Sample& s) { node(s, 0).outputs = 4000000000; }},
    {"outputs_more_than_the_operator_has", "CVE-2021-29606", "2 outputs, not 1",
     [](Sample& s) { node(s, 3).outputs = 2; }},
    {"inputs_missing", "CVE-2021-37681: missing optional", "inputs",
     [](Sample& s) { node(s, 0).inputs.clear(); }},
    {"enum_attribute_unknown", "TFLite: enum from a file", "form has the unknown value 9",
     [](Sample& s) { graph(s, 1).nodes[1]->op.AsGelu()->form = static_cast<file::GeluForm>(9); }},
    {"reduction_unknown", "TFLite: enum from a file", "reduction has the unknown value 9",
     [](Sample& s) {
       file::CrossEntropyAttributesT a;
       a.reduction = static_cast<file::Reduction>(9);
       replace(node(s, 3), file::Op::CrossEntropy, a);
     }},
    {"permutation_too_long", "CVE-2021-37683", "9 entries",
     [](Sample& s) {
       file::TransposeAttributesT a;
       a.permutation.assign(9, 0);
       replace(node(s, 3), file::Op::Transpose, a);
     }},
    {"permutation_out_of_range", "negative axis (CVE-2020-15207)", "node 3",
     [](Sample& s) {
       file::TransposeAttributesT a;
       a.permutation = {0, 5};
       replace(node(s, 3), file::Op::Transpose, a);
     }},
    {"permutation_twice_the_same", "uninitialised axis", "node 3",
     [](Sample& s) {
       file::TransposeAttributesT a;
       a.permutation = {1, 1};
       replace(node(s, 3), file::Op::Transpose, a);
     }},
    {"axis_out_of_range", "CVE-2021-37687: negative axis", "node 3",
     [](Sample& s) {
       file::ReduceAttributesT a;
       a.axes = {-9};
       replace(node(s, 3), file::Op::ReduceSum, a);
     }},
    {"concat_axis_out_of_range", "CVE-2021-37687", "node 3",
     [](Sample& s) {
       file::ConcatAttributesT a;
       a.axis = 1000000;
       replace(node(s, 3), file::Op::Concat, a);
     }},
    {"slice_past_the_end", "CVE-2021-29590", "node 3",
     [](Sample& s) {
       file::SliceAttributesT a;
       a.axis = 1;
       a.start = 1;
       a.length = std::numeric_limits<int64_t>::max();
       replace(node(s, 3), file::Op::Slice, a);
     }},
    {"slice_negative", "CVE-2021-37685", "node 3",
     [](Sample& s) {
       file::SliceAttributesT a;
       a.axis = 1;
       a.start = -1;
       replace(node(s, 3), file::Op::Slice, a);
     }},
    {"reshape_to_other_size", "CVE-2022-23559", "node 3",
     [](Sample& s) { node(s, 3).op.AsReshape()->dims[1] = 1000; }},
    {"reshape_to_a_dim_below_minus_one", "CVE-2021-29593: division by zero",
     "Dim 1 is negative: -2", [](Sample& s) { node(s, 3).op.AsReshape()->dims[1] = -2; }},
    {"reshape_by_an_unknown_dim", "dangling name", "\"who\"",
     [](Sample& s) { node(s, 3).attribute_dims[0]->dim = "who"; }},
    {"dim_of_an_attribute_without_a_name", "dangling name", "names no size",
     [](Sample& s) { node(s, 3).attribute_dims[0]->dim.clear(); }},
    {"dim_of_no_attribute", "dangling name", "width has no size at index 0",
     [](Sample& s) { node(s, 3).attribute_dims[0]->attribute = "width"; }},
    {"dim_behind_the_end_of_an_attribute", "CVE-2021-29591: index past a list",
     "dims has no size at index 2", [](Sample& s) { node(s, 3).attribute_dims[0]->index = 2; }},
    {"two_dims_for_one_attribute", "two writers of one value", "names two dims at index 0",
     [](Sample& s) { test::name_size(node(s, 3), "dims", 0, "batch"); }},
    {"dim_where_a_number_stands", "two writers of one value", "dims has the size 2 where",
     [](Sample& s) { node(s, 3).attribute_dims[0]->index = 1; }},
    {"matrices_that_do_not_fit", "CVE-2021-29599", "node 1",
     [](Sample& s) {
       node(s, 1).inputs = {3, 3};
     }},
    {"updates_without_an_operator", "state written by a lie",
     "updated storages is 0, but the nodes of the graph write none",
     [](Sample& s) { graph(s).updates = {0}; }},
    {"updates_of_no_storage", "CVE-2021-29591: index past a list", "The updated storage 99",
     [](Sample& s) { graph(s).updates = {99}; }},
    {"updates_that_descend", "one of two writers unseen", "0 follows 1",
     [](Sample& s) {
       graph(s).updates = {1, 0};
     }},
    {"updates_of_a_body", "state written by a lie",
     "A body cannot update storages, but this one lists 1",
     [](Sample& s) { graph(s, 1).updates = {0}; }},
    {"update_that_is_not_said", "state written in secret",
     "is none, but the nodes of the graph write 5", [](Sample& s) { add_writer(s); }},
    {"update_of_what_is_trained", "state and weight in one", "(a weight) is trainable",
     [](Sample& s) {
       add_writer(s);
       s.model.storages[5]->trainable = true;
     }},
    {"body_out_of_range", "CVE-2021-37686", "body 9", [](Sample& s) { repeat(s).body = 9; }},
    {"body_contains_itself", "CVE-2021-29591: recursive subgraphs", "body 0",
     [](Sample& s) { repeat(s).body = 0; }},
    {"body_is_an_entry_point", "CVE-2021-29591", "Graph 2 is not a body",
     [](Sample& s) {
       auto other = std::make_unique<file::GraphT>();
       other->name = "other";
       other->inputs.push_back(test::make_input("x", file::DType::f32, {1}));
       other->outputs.push_back(test::make_output("y", 0));
       s.model.graphs.push_back(std::move(other));
       repeat(s).body = 2;
     }},
    {"body_of_two_repeats", "ONNX: functions used exponentially often", "belongs to another Repeat",
     [](Sample& s) {
       graph(s).nodes.push_back(test::make_node("", {5}, repeat(s), file::Op::Repeat));
     }},
    {"body_of_nobody", "unreachable and unchecked", "No Repeat node of an earlier graph",
     [](Sample& s) { replace(node(s, 2), file::Op::Relu, file::NoAttributesT{}); }},
    {"repeat_of_zero", "ncnn: zero count", "count of 0", [](Sample& s) { repeat(s).count = 0; }},
    {"repeat_without_end", "CVE-2021-29591: infinite loop", "count of 4294967295",
     [](Sample& s) { repeat(s).count = UINT32_MAX; }},
    {"repeat_carries_more_than_it_gets", "out of bounds", "carries 9 values, but has 1 inputs",
     [](Sample& s) { repeat(s).carried = 9; }},
    {"repeat_list_too_short", "CVE-2020-15214", "3 iterations",
     [](Sample& s) { repeat(s).count = 3; }},
    {"repeat_list_out_of_range", "CVE-2020-15211", "Parameter 77",
     [](Sample& s) { repeat(s).parameters[0]->parameters[1] = 77; }},
    {"repeat_list_of_two_shapes", "heap overflow by the second weight", "\"emb\"",
     [](Sample& s) { repeat(s).parameters[0]->parameters[1] = 0; }},
    {"repeat_without_its_list", "missing operand", "1 parameters, but its Repeat has 0 lists",
     [](Sample& s) { repeat(s).parameters.clear(); }},
    {"body_changes_the_carried_shape", "out of bounds in iteration 2", "Carried value 0",
     [](Sample& s) {
       file::ReduceAttributesT a;
       a.axes = {0};
       replace(*graph(s, 1).nodes[1], file::Op::ReduceSum, a);
     }},
    {"body_names_parameters", "aliasing past the list", "names parameters",
     [](Sample& s) { graph(s, 1).parameters = {0}; }},
    {"body_parameters_of_an_entry_point", "values without a source", "not a body",
     [](Sample& s) { graph(s).body_parameters = 4000000000; }},
};

TEST(Historic, Graphs) { test::expect_all_refused(kGraphs); }

// The file format allows nested Repeats. This library refuses them as not supported.
TEST(Historic, ARepeatInsideABodyIsNotSupported) {
  Sample s = test::make_sample();
  graph(s, 1).nodes[1] = test::make_node("", {2}, file::RepeatAttributesT(), file::Op::Repeat);
  graph(s, 1).nodes[1]->op.AsRepeat()->body = 2;
  auto inner = std::make_unique<file::GraphT>();
  inner->body = true;
  inner->inputs.push_back(std::make_unique<file::ValueT>());
  inner->outputs.push_back(test::make_output("", 0));
  s.model.graphs.push_back(std::move(inner));
  EXPECT_EQ(test::open_as_app(s.bytes()).code(), Code::unsupported);
}

}  // namespace
}  // namespace bowline
