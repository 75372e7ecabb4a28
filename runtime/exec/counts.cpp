#include "exec/counts.h"

#include <cstring>

#include "core/strides.h"

namespace bowline::detail::exec {
namespace {

// The value of a dim in this run, and the input that gave it.
struct Said {
  int64_t number = 0;
  std::string_view input;
};

bool allows(const graph::CountedDim& dim, int64_t number) {
  return number >= dim.min && number <= dim.capacity;
}

Status check_number(const graph::CountedDim& dim, int64_t number) {
  BOWLINE_REQUIRE(allows(dim, number),
                  "Dim \"{}\" is {} in this run, outside {}..{}, the limits of the plan.", dim.name,
                  number, dim.min, dim.capacity);
  return {};
}

Status note_input(const plan::Plan& plan, const plan::IoRange& range, const Tensor& tensor,
                  std::vector<std::optional<Said>>& said) {
  if (std::cmp_not_equal(tensor.shape.size(), range.shape.rank())) {
    return {};  // check_tensor() rejects the shape
  }
  for (size_t axis = 0; axis < range.counted.size(); ++axis) {
    if (range.counted[axis] == graph::kNotCounted) {
      continue;
    }
    const auto number = static_cast<size_t>(range.counted[axis]);
    const graph::CountedDim& dim = plan.counted[number];
    const int64_t here = tensor.shape[axis];
    BOWLINE_TRY(check_number(dim, here).at(format("While checking input \"{}\".", range.name)));
    if (!said[number]) {
      said[number] = Said{here, range.name};
    }
    BOWLINE_REQUIRE(said[number]->number == here,
                    "Dim \"{}\" is {} in input \"{}\", but {} in input \"{}\".", dim.name,
                    said[number]->number, said[number]->input, here, range.name);
  }
  return {};
}

// Runs of bytes that are contiguous in both tensors: from the last dynamic axis on.
struct Runs {
  int axes = 0;  // before a run
  uint64_t bytes = 0;
  uint64_t count = 1;

  Runs(const plan::IoRange& range, const Shape& shape) {
    for (size_t a = 0; a < range.counted.size(); ++a) {
      axes = range.counted[a] != graph::kNotCounted ? static_cast<int>(a) : axes;
    }
    bytes = static_cast<uint64_t>(shape.elements(axes, shape.rank())) * size_of(range.dtype);
    count = static_cast<uint64_t>(shape.elements(0, axes));
  }
};

// Calls f(offset in the tensor of the plan, offset in the tensor of the run) for every run.
template <class F>
void each_run(const plan::IoRange& range, const Shape& shape, const Runs& runs, const F& f) {
  const Strides strides = strides_of(range.shape);
  for (uint64_t r = 0; r < runs.count; ++r) {
    auto rest = static_cast<int64_t>(r);
    int64_t at = 0;
    for (int a = runs.axes - 1; a >= 0; --a) {
      at += rest % shape[a] * strides[static_cast<size_t>(a)];
      rest /= shape[a];
    }
    if (runs.bytes > 0) {
      f(static_cast<uint64_t>(at) * size_of(range.dtype), r * runs.bytes);
    }
  }
}

}  // namespace

Status set_counts(const plan::Plan& plan, std::span<const Tensor> inputs, StepValues& values) {
  std::vector<std::optional<Said>> said(plan.counted.size());
  for (const plan::IoRange& range : plan.inputs) {
    const auto tensor = std::ranges::find(inputs, range.name, &Tensor::name);
    if (tensor != inputs.end()) {
      BOWLINE_TRY(note_input(plan, range, *tensor, said));
    }
  }
  for (size_t i = 0; i < plan.counted.size(); ++i) {
    const graph::CountedDim& dim = plan.counted[i];
    const int64_t given = values.get<uint32_t>(dim.name);
    if (!said[i]) {
      BOWLINE_TRY(check_number(dim, given));
      continue;
    }
    BOWLINE_REQUIRE(!values.is_given(dim.name) || given == said[i]->number,
                    "Dim \"{}\" is given as {}, but input \"{}\" has {}.", dim.name, given,
                    said[i]->input, said[i]->number);
    values.set(dim.name, static_cast<uint32_t>(said[i]->number));
  }
  return {};
}

Shape counted_shape(const plan::Plan& plan, const plan::IoRange& range, const StepValues& values) {
  Shape shape = range.shape;
  for (size_t a = 0; a < range.counted.size(); ++a) {
    if (range.counted[a] != graph::kNotCounted) {
      const graph::CountedDim& dim = plan.counted[static_cast<size_t>(range.counted[a])];
      shape[static_cast<int>(a)] = values.get<uint32_t>(dim.name);
    }
  }
  return shape;
}

bool takes(const plan::Plan& plan, const plan::IoRange& range, const TensorShape& shape) {
  if (std::cmp_not_equal(shape.size(), range.shape.rank())) {
    return false;
  }
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const int dim = range.counted.empty() ? graph::kNotCounted : range.counted[axis];
    if (dim == graph::kNotCounted ? shape[axis] != range.shape.dims()[axis]
                                  : !allows(plan.counted[static_cast<size_t>(dim)], shape[axis])) {
      return false;
    }
  }
  return true;
}

bool takes_all(const plan::Plan& plan, std::span<const Tensor> inputs) {
  return std::ranges::all_of(plan.inputs, [&](const plan::IoRange& range) {
    const auto given = std::ranges::find(inputs, range.name, &Tensor::name);
    return given != inputs.end() && takes(plan, range, given->shape);
  });
}

uint64_t largest_counted(const plan::Plan& plan) {
  uint64_t largest = 0;
  for (const auto* ranges : {&plan.inputs, &plan.outputs}) {
    for (const plan::IoRange& range : *ranges) {
      largest = std::max(largest, range.counted.empty() ? 0 : range.bytes());
    }
  }
  return largest;
}

void spread(const plan::IoRange& range, const Shape& shape, const std::byte* from,
            std::span<std::byte> to) {
  std::ranges::fill(to, std::byte{0});
  const Runs runs(range, shape);
  each_run(range, shape, runs, [&](uint64_t in_plan, uint64_t in_run) {
    std::memcpy(to.data() + in_plan, from + in_run, runs.bytes);
  });
}

void gather(const plan::IoRange& range, const Shape& shape, std::span<const std::byte> from,
            std::byte* to) {
  const Runs runs(range, shape);
  each_run(range, shape, runs, [&](uint64_t in_plan, uint64_t in_run) {
    std::memcpy(to + in_run, from.data() + in_plan, runs.bytes);
  });
}

std::vector<Run> runs_of(const plan::IoRange& range, const Shape& shape) {
  std::vector<Run> out;
  const Runs runs(range, shape);
  each_run(range, shape, runs, [&](uint64_t in_plan, uint64_t in_run) {
    out.push_back({in_plan, in_run, runs.bytes});
  });
  return out;
}

}  // namespace bowline::detail::exec
