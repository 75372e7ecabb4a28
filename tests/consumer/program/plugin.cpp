// A plugin that links the library, statically or shared: opens a device, computes and releases
// everything.
#include <bowline.h>

using namespace bowline;

static Status compute() {
  BOWLINE_TRY_ASSIGN(const Device device, Device::open("cpu", {.threads = 3}));
  Model model;
  BOWLINE_TRY_ASSIGN(const Parameter w, model.parameter("w", {64, 64}, Init::normal(1)));
  GraphBuilder g(model, "main");
  g.output("y", g.op("Linear", {g.input("x", DType::f32, {256, 64}), g.parameter(w)}));
  BOWLINE_TRY(g.finish());
  BOWLINE_TRY(model.materialize(1));
  BOWLINE_TRY(model.to(device));
  BOWLINE_TRY_ASSIGN(Session session, Session::create(model, device, "main", {}));
  std::vector<float> x(256 * 64, 1), y(256 * 64);
  const Tensor inputs[] = {{"x", DType::f32, {256, 64}, x.data()}};
  const Tensor outputs[] = {{"y", DType::f32, {256, 64}, y.data()}};
  return session.run(inputs, outputs);
}

extern "C" __attribute__((visibility("default"))) int plugin() {
  const Status status = compute();
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
  }
  return status.ok() ? 0 : 1;
}
