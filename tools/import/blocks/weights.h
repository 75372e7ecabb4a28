// Creates parameters from the tensors of a source. Every tensor must be taken, tied or dropped.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "architectures/architecture.h"
#include "source/finite.h"

namespace bowline::import {

// A parameter, or a list with a parameter per iteration of a Repeat.
struct Weight {
  std::variant<Parameter, ParameterList> of;
  DType dtype = DType::f32;
};

// Declares parameters by the Hugging Face names of their tensors. After the first failure the
// returned values must not be used. finish() returns the failure.
class Weights {
 public:
  // `generates`: the model needs the head of a language model.
  Weights(const Source& source, const TextImportOptions& options, Model& model,
          bool generates = true);
  bool generates() const { return generates_; }

  // The compute dtype of the graphs: the requested dtype, or the dtype of most elements of the
  // source.
  DType dtype() const { return dtype_; }
  // Adds `prefix` to names that lack it (a model without its head), except names that begin with
  // one of `except`.
  void add_prefix(std::string_view prefix, std::initializer_list<std::string_view> except);
  // Removes the prefix from names.
  void strip_prefix(std::string_view prefix);
  // Replaces a name by another.
  void rename(std::string_view from, std::string_view to);

  // Always true for a skeleton.
  bool has(std::string_view name) const { return options_.skeleton || find(name) != nullptr; }
  // Rows of a matrix, for sizes that the config does not have. 0: the tensor is missing.
  int64_t rows_of(std::string_view name) const;

  Weight one(const std::string& name, std::vector<int64_t> shape);
  // "{}" in the name stands for the layer index. The layers before `first` have no such tensor;
  // their items are those of `first`.
  Weight list(const std::string& name, int64_t count, std::vector<int64_t> shape,
              int64_t first = 0);
  // Creates a parameter that the source does not have.
  Weight fresh(const std::string& name, std::vector<int64_t> shape, Init init,
               StorageRole role = StorageRole::weight, std::optional<DType> dtype = {});
  // A constant [1] that graphs read. `dtype`: the default is the compute dtype.
  Weight constant(const std::string& name, double value, std::optional<DType> dtype = {}) {
    return constant(name, std::vector{static_cast<float>(value)}, dtype);
  }
  Weight constant(const std::string& name, std::vector<float> values,
                  std::optional<DType> dtype = {}) {
    const int64_t size = std::ssize(values);
    return table(name, {size}, std::move(values), dtype);
  }
  // A constant of any shape.
  Weight table(const std::string& name, std::vector<int64_t> shape, std::vector<float> values,
               std::optional<DType> dtype = {});
  // Caches of zeros, with an encoding of quantize().
  Weight caches(const std::string& name, int64_t count, std::vector<int64_t> shape, DType dtype,
                std::string_view encoding);
  // A second name of `other`. If the source has a tensor of this name, its bytes must be equal.
  // `declares` names the origin of the tie ("\"tie_word_embeddings\" of config.json").
  Weight tied(const std::string& name, const Weight& other, const std::string& other_name,
              const std::string& declares);
  // Drops the unused tensors that match ("*": any characters).
  void drop(std::string_view pattern, std::string_view reason);
  void note(std::string sentence) { notes_.push_back(std::move(sentence)); }
  void fail(Status status);
  template <class... Ts>
  void fail(Code code, fmt::format_string<Ts...> sentence, Ts&&... values) {
    fail(Status(code, fmt::format(sentence, std::forward<Ts>(values)...)));
  }
  const Status& status() const { return status_; }

  // Ties tensors that share bytes or that the options name, sets the values of all parameters, and
  // moves the report to `out`.
  // Errors  the first failure; bad_file: a tensor is unexpected.
  Status finish(Built& out);

 private:
  struct Tensor {
    const SourceTensor* source = nullptr;
    std::string name;  // after prefixes and renames
    ImportedTensor report;
  };
  const Tensor* find(std::string_view name) const;
  Tensor* find(std::string_view name);
  // Returns the tensor and marks it as taken; null after a failure.
  Tensor* take(const std::string& name, const std::vector<int64_t>& shape);
  DType parameter_dtype(const Tensor& tensor) const;
  // The dtype of all tensors of a list. Empty after a failure: the tensors differ.
  std::optional<DType> common_dtype(const std::vector<Tensor*>& tensors);
  void index_names();
  Status tie(Tensor& to, Tensor& tensor, std::string_view reason);
  Status tie_shared();
  Result<Tensor*> asked(const std::string& name);
  Status tie_asked();
  // Ties tensors with equal values, or adds a note about them.
  Status find_equal();
  // Ties constant vectors of layers whose other tensors are tied to those of another layer.
  Status tie_equal_layers();
  Status tie_equal(Tensor& to, Tensor& tensor);
  Status check_unexpected() const;
  // Sets the values of the tensor's parameter, with this dtype. Must run before the graphs are
  // built: parameters of a list are quantized together.
  void fill(const Tensor& tensor, DType dtype);
  // The weight of a parameter or list that the model made. A failure is kept.
  template <class Made>
  Weight weight_of(Result<Made> made, DType dtype) {
    fail(made.status());
    return made.ok() ? Weight{std::move(made).value(), dtype} : Weight{};
  }
  Weight list_from(int64_t first, const std::string& name, int64_t count,
                   const std::vector<int64_t>& shape);
  Weight fresh_list(const std::string& name, int64_t count, std::vector<int64_t> shape, Init init,
                    StorageRole role, DType dtype);

  const TextImportOptions& options_;
  const Progress& progress_;
  Model& model_;
  DType dtype_;
  bool generates_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;  // names of tensors_
  std::vector<std::string> notes_;
  FiniteCheck finite_;
  // Ties of tie_equal(): a tensor and the tensor that it is tied to.
  std::vector<std::pair<const Tensor*, const Tensor*>> equal_;
  Status status_;
};

}  // namespace bowline::import
