#include "model/sample_file.h"

namespace bowline::test {
namespace {

void add_graphs(file::ModelT& model) {
  auto forward = std::make_unique<file::GraphT>();
  forward->name = "forward";
  forward->inputs.push_back(make_input("x", file::DType::f32, {"batch", 2}));
  forward->parameters = {0, 1};  // 1, 2
  forward->nodes.push_back(
      make_node("up", {0, 1}, file::MatMulAttributesT{}, file::Op::MatMul));  // 3
  forward->nodes.back()->op.AsMatMul()->transpose_b = true;
  forward->nodes.push_back(
      make_node("down", {3, 2}, file::MatMulAttributesT{}, file::Op::MatMul));  // 4
  file::RepeatAttributesT repeat;
  repeat.body = 1;
  repeat.count = 2;
  repeat.parameters.push_back(std::make_unique<file::ParameterListT>());
  repeat.parameters[0]->parameters = {3, 4};
  forward->nodes.push_back(make_node("layers", {4}, std::move(repeat), file::Op::Repeat));  // 5
  file::ReshapeAttributesT reshape;
  reshape.dims = {0, 2};
  forward->nodes.push_back(make_node("", {5}, std::move(reshape), file::Op::Reshape));  // 6
  name_size(*forward->nodes.back(), "dims", 0, "batch");
  forward->outputs.push_back(make_output("y", 6));
  model.graphs.push_back(std::move(forward));

  auto body = std::make_unique<file::GraphT>();
  body->body = true;
  body->inputs.push_back(std::make_unique<file::ValueT>());
  body->body_parameters = 1;
  body->nodes.push_back(make_node("", {0, 1}, file::MatMulAttributesT{}, file::Op::MatMul));
  body->nodes.push_back(make_node("", {2}, file::GeluAttributesT{}, file::Op::Gelu));
  body->outputs.push_back(make_output("", 3));
  model.graphs.push_back(std::move(body));
}

}  // namespace

Sample make_sample() {
  Sample s;
  auto dim = std::make_unique<file::NamedDimT>();
  dim->name = "batch";
  dim->max = 16;
  s.model.dims.push_back(std::move(dim));

  s.add_storage({3, 2}, {1, 0, 0, 1, 1, 1});
  s.add_storage({2, 2}, {1, 2, 3, 4});
  s.add_storage({2, 2}, {5, 6, 7, 8});
  s.add_storage({3, 2}, {0, 0, 0, 0, 0, .5f}, file::Role::moment, 0);
  s.model.storages.push_back(std::make_unique<file::StorageT>());
  s.model.storages.back()->empty = true;
  s.model.storages.push_back(std::make_unique<file::StorageT>());
  s.model.storages.back()->shape = {4};
  s.model.storages.back()->init = std::make_unique<file::InitT>();
  s.model.storages.back()->init->kind = file::InitKind::normal;
  s.model.storages.back()->init->scale = 0.5f;

  s.add_parameter("emb", 0);
  s.add_parameter("head", 0);
  s.add_parameter("emb_t", 0);
  s.model.parameters.back()->view = std::make_unique<file::ViewT>();
  s.model.parameters.back()->view->transpose = true;
  s.add_parameter("l0", 1);
  s.add_parameter("l1", 2);
  s.add_parameter("bias", 5);
  add_graphs(s.model);

  s.model.assets.push_back(std::make_unique<file::AssetT>());
  s.model.assets[0]->name = "vocabulary";
  s.model.assets[0]->media_type = "text/plain";
  s.model.assets[0]->range = s.add_range(std::as_bytes(std::span("one two")));
  s.model.metadata.push_back(std::make_unique<file::MetadataT>());
  s.model.metadata[0]->key = "license";
  s.model.metadata[0]->value = "MIT";
  s.model.training = std::make_unique<file::TrainingStateT>();
  s.model.training->step = 7;
  return s;
}

}  // namespace bowline::test
