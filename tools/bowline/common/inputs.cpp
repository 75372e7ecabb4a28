#include "common/inputs.h"

#include <algorithm>
#include <concepts>
#include <map>
#include <optional>

#include "base/random.h"
#include "base/status.h"
#include "common/find.h"
#include "common/strings.h"
#include "common/text_array.h"

namespace bowline::command {

const char* const kInputHelp = "Input: @x.npy|@x.txt|zeros|ones|1,2";

const char* const kStepHelp = "Value of a scalar, or size of a dynamic dimension";

namespace {

// Sets an element to `real` if the dtype is a float dtype, else to `integer`.
void set(Array& array, size_t i, float real, int integer) {
  with_zero(array.dtype, [&]<class T>(T) {
    if constexpr (std::integral<T>) {
      set_element(array, i, static_cast<T>(std::same_as<T, bool> ? integer & 1 : integer));
    } else {
      set_element(array, i, from_f32<T>(real));
    }
  });
}

Status fill(Array& array, const std::string& what) {
  const size_t elements = array.elements();
  if (what == "zeros") {
    return {};
  }
  if (what == "ones") {
    for (size_t i = 0; i < elements; ++i) {
      set(array, i, 1, 1);
    }
    return {};
  }
  constexpr std::string_view kRandom = "random:";
  const auto seed = what.starts_with(kRandom)
                        ? number_in<uint64_t>(std::string_view(what).substr(kRandom.size()))
                        : std::nullopt;
  BOWLINE_REQUIRE(seed,
                  "\"{}\" is not an input value. Use @file.npy, @file.txt, zeros, ones, "
                  "random:SEED, or a list such as 1,2,3.",
                  what);
  for (size_t i = 0; i < elements; ++i) {
    const RandomBlock draw =
        philox({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0},
               {static_cast<uint32_t>(*seed), static_cast<uint32_t>(*seed >> 32)});
    const int k = static_cast<int>(draw[0] >> 24);  // 0..255
    set(array, i, static_cast<float>(k - 128) / 128, static_cast<int>(draw[1] >> 25));
  }
  return {};
}

// Returns the value from the flags for each input name.
Result<std::map<std::string, std::string>> parse(const EntryPointInfo& entry,
                                                 const std::vector<std::string>& flags) {
  std::map<std::string, std::string> given;
  for (const std::string& flag : flags) {
    const size_t equals = flag.find('=');
    BOWLINE_REQUIRE(equals != std::string::npos && equals + 1 < flag.size(),
                    "--input \"{}\" is not of the form NAME=VALUE.", flag);
    const std::string name = flag.substr(0, equals);
    BOWLINE_REQUIRE(find_named(entry.inputs, name) != nullptr,
                    "Entry point \"{}\" has no input \"{}\"; it has {}.", entry.name, name,
                    joined(entry.inputs, &InputInfo::name));
    BOWLINE_REQUIRE(given.emplace(name, flag.substr(equals + 1)).second,
                    "Input \"{}\" is given twice.", name);
  }
  return given;
}

void add_dims_of(const InputInfo& input, const Array& array, std::vector<BoundDim>& dims) {
  for (size_t i = 0; i < input.dims.size() && i < array.shape.size(); ++i) {
    const std::string& name = input.dims[i].name;
    if (!name.empty() && find_named(dims, name) == nullptr) {
      dims.push_back({name, array.shape[i]});
    }
  }
}

// True if the text begins like a number.
bool is_numbers(const std::string& what) {
  return what.find_first_not_of("-.") < what.size() &&
         std::string_view("0123456789").find(what[what.find_first_not_of("-.")]) !=
             std::string_view::npos;
}

// Returns the shape for parsing a text. The text determines a size of -1.
TextShape text_shape(const InputInfo& input, std::span<const BoundDim> dims) {
  TextShape out{input.dtype, {}};
  for (const GraphDim& dim : input.dims) {
    const BoundDim* const bound = find_named(dims, dim.name);
    out.shape.push_back(dim.name.empty() ? dim.value : bound == nullptr ? -1 : bound->value);
  }
  return out;
}

// Reads a file or a list of numbers. Returns false for a value that is made once its shape is
// known.
Result<bool> read(const InputInfo& input, const std::string& what, std::span<const BoundDim> dims,
                  Array& array) {
  const bool file = what[0] == '@';
  if (!file && !is_numbers(what)) {
    return false;
  }
  const std::string path = what.substr(file ? 1 : 0);
  BOWLINE_TRY_ASSIGN(
      array, !file ? parse_text_array(what, "--input " + input.name, text_shape(input, dims))
             : is_text_path(path) ? read_text_array(path, text_shape(input, dims))
                                  : read_npy(path));
  return true;
}

// Errors  bad_argument: the size of a dim is unknown.
Result<std::vector<int64_t>> shape_of(const InputInfo& input, std::span<const BoundDim> dims) {
  std::vector<int64_t> shape;
  for (const GraphDim& dim : input.dims) {
    const BoundDim* const bound = find_named(dims, dim.name);
    BOWLINE_REQUIRE(dim.name.empty() || bound != nullptr,
                    "The size of dimension \"{}\" is unknown. Set it with --dim NAME=N.", dim.name);
    shape.push_back(dim.name.empty() ? dim.value : bound->value);
  }
  return shape;
}

}  // namespace

std::vector<Tensor> Inputs::tensors() {
  std::vector<Tensor> out;
  for (size_t i = 0; i < names.size(); ++i) {
    out.push_back(arrays[i].tensor(names[i]));
  }
  return out;
}

Result<Inputs> make_inputs(const EntryPointInfo& entry, const std::vector<std::string>& flags,
                           std::vector<BoundDim> dims, const std::string& otherwise) {
  BOWLINE_TRY_ASSIGN(auto given, parse(entry, flags));
  Inputs inputs;
  inputs.dims = std::move(dims);
  std::vector<bool> read_already;
  // Files and numbers come first, because their shapes determine the dims of the other inputs.
  for (const InputInfo& input : entry.inputs) {
    Array array;
    std::string& what = given.try_emplace(input.name, otherwise).first->second;
    BOWLINE_REQUIRE(!what.empty(),
                    "Input \"{}\" of entry point \"{}\" is not given. Add --input NAME=VALUE.",
                    input.name, entry.name);
    BOWLINE_TRY_ASSIGN(const bool is_read, read(input, what, inputs.dims, array));
    read_already.push_back(is_read);
    if (is_read) {
      add_dims_of(input, array, inputs.dims);
      add_dims_of(input, array, inputs.lengths);
    }
    inputs.names.push_back(input.name);
    inputs.arrays.push_back(std::move(array));
  }
  for (const BoundDim& d : inputs.dims) {
    if (find_named(inputs.lengths, d.name) == nullptr) {
      inputs.lengths.push_back(d);
    }
  }
  for (size_t i = 0; i < inputs.names.size(); ++i) {
    const InputInfo& input = entry.inputs[i];
    const std::string& what = given[input.name];
    if (!read_already[i]) {
      BOWLINE_TRY_ASSIGN(const std::vector<int64_t> shape, shape_of(input, inputs.lengths));
      BOWLINE_TRY_ASSIGN(inputs.arrays[i], make_array(input.dtype, shape));
      BOWLINE_TRY(fill(inputs.arrays[i], what));
    }
  }
  return inputs;
}

Result<std::vector<StepScalar>> steps_of(const std::vector<std::string>& flags) {
  std::vector<StepScalar> out;
  for (const std::string& flag : flags) {
    const size_t equals = flag.find('=');
    const std::string_view name = std::string_view(flag).substr(0, equals);
    const std::string_view text =
        std::string_view(flag).substr(std::min(equals, flag.size() - 1) + 1);
    const auto whole = number_in<uint64_t>(text);
    const auto real = number_in<double>(text);
    BOWLINE_REQUIRE(!name.empty() && (whole || real),
                    "--step \"{}\" is not of the form NAME=NUMBER.", flag);
    out.push_back(whole ? StepScalar(name, *whole) : StepScalar(name, *real));
  }
  return out;
}

}  // namespace bowline::command
