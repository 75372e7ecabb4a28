// Compares the training of two systems: prints the distance of the weights of two tuned models,
// relative to the distance that training moved them from their base model.
#include <bowline.h>

#include <cmath>

using namespace bowline;

static Result<std::vector<float>> values_of(const Model& model, const ParameterInfo& parameter) {
  size_t elements = 1;
  for (const int64_t size : parameter.shape) {
    elements *= static_cast<size_t>(size);
  }
  std::vector<float> values(elements);
  BOWLINE_TRY(model.get_value(parameter.name, {"", DType::f32, parameter.shape, values.data()}));
  return values;
}

static Status compare(char** paths) {
  BOWLINE_TRY_ASSIGN(const Model base, Model::open(paths[0]));
  BOWLINE_TRY_ASSIGN(const Model one, Model::open(paths[1]));
  BOWLINE_TRY_ASSIGN(const Model other, Model::open(paths[2]));
  BOWLINE_TRY_ASSIGN(const ModelInfo info, base.describe());
  double distance = 0, moved = 0;
  for (const ParameterInfo& parameter : info.parameters) {
    BOWLINE_TRY_ASSIGN(const std::vector<float> from, values_of(base, parameter));
    BOWLINE_TRY_ASSIGN(const std::vector<float> a, values_of(one, parameter));
    BOWLINE_TRY_ASSIGN(const std::vector<float> b, values_of(other, parameter));
    for (size_t i = 0; i < from.size(); ++i) {
      const double start = static_cast<double>(from[i]), end = static_cast<double>(a[i]);
      distance += (end - static_cast<double>(b[i])) * (end - static_cast<double>(b[i]));
      moved += (end - start) * (end - start);
    }
  }
  std::printf("%.3g\n", std::sqrt(distance / moved));
  return {};
}

int main(int argc, char** argv) {
  const Status status =
      argc == 4 ? compare(argv + 1) : Status(Code::bad_argument, "usage: compare BASE ONE OTHER");
  if (!status.ok()) {
    std::fprintf(stderr, "compare: %s\n", status.message().c_str());
  }
  return status.ok() ? 0 : 1;
}
