// The tensors of a source as parameters of a model: each is taken, tied or dropped, and none is
// left.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "architectures/architecture.h"
#include "source/finite.h"

namespace bowline::import {

// A parameter, or in a Repeat that of the iteration.
struct Weight {
  std::variant<Parameter, ParameterList> of;
  DType dtype = DType::f32;
};

// Declares parameters by the names that Hugging Face gives the tensors. The first failure sticks:
// what is returned after it is not used, and finish() has it.
class Weights {
 public:
  Weights(const Source& source, const BuildOptions& options, Model& model);

  // What most numbers of the source are, or what was asked for: graphs compute in it.
  DType dtype() const { return dtype_; }
  // Names without `prefix` count as if they had it (a model without its head), but those that
  // `except` begins.
  void add_prefix(std::string_view prefix, std::string_view except);
  // Names count as if they had it not.
  void strip_prefix(std::string_view prefix);
  // One name counts as another.
  void rename(std::string_view from, std::string_view to);

  // A skeleton has what it is asked for.
  bool has(std::string_view name) const { return options_.skeleton || find(name) != nullptr; }
  // Rows of a matrix, for what the config does not say; 0: there is none.
  int64_t rows_of(std::string_view name) const;

  Weight one(const std::string& name, std::vector<int64_t> shape);
  // "{}" in the name stands for the layer.
  Weight list(const std::string& name, int64_t count, std::vector<int64_t> shape);
  std::optional<Weight> one_if(bool is_there, const std::string& name, std::vector<int64_t> shape);
  std::optional<Weight> list_if(bool is_there, const std::string& name, int64_t count,
                                std::vector<int64_t> shape);
  // What the source has not.
  Weight fresh(const std::string& name, std::vector<int64_t> shape, Init init,
               StorageRole role = StorageRole::weight, std::optional<DType> dtype = {});
  // A number [1] that the graphs compute with, in `dtype`; none: in that of the graphs.
  Weight constant(const std::string& name, double value, std::optional<DType> dtype = {});
  // Caches of zeros, as quantize() has the encoding.
  Weight caches(const std::string& name, int64_t count, std::vector<int64_t> shape, DType dtype,
                std::string_view encoding);
  // A second name of `other`, whose tensor the source may have too: then its bytes must be the
  // same. `declares` is what says so ("\"tie_word_embeddings\" of config.json").
  Weight tied(const std::string& name, const Weight& other, const std::string& other_name,
              const std::string& declares);
  // Of the tensors that are not used yet those that match ("*": any characters).
  void drop(std::string_view pattern, std::string_view reason);
  void note(std::string sentence) { notes_.push_back(std::move(sentence)); }
  void fail(Status status);
  const Status& status() const { return status_; }

  // Ties what shares bytes and what the options name, gives all parameters their values, and moves
  // the report to `out`. Errors  the first
  // failure; bad_file: tensors are unexpected.
  Status finish(Built& out);

 private:
  struct Tensor {
    const SourceTensor* source = nullptr;
    std::string name;  // that counts
    TensorReport report;
  };
  const Tensor* find(std::string_view name) const;
  Tensor* find(std::string_view name);
  // The tensor, which is taken now; null after a failure.
  Tensor* take(const std::string& name, const std::vector<int64_t>& shape);
  DType parameter_dtype(const Tensor& tensor) const;
  // Of all that one list takes. None: they differ, which is a failure.
  std::optional<DType> common_dtype(const std::vector<Tensor*>& tensors);
  void index_names();
  Status tie(Tensor& to, Tensor& tensor, std::string_view reason);
  Status tie_shared();
  Result<Tensor*> asked(const std::string& name);
  Status tie_asked();
  // Ties what is equal, or says so in a note.
  Status find_equal();
  // Vectors that are one number again and again, of layers whose other tensors are tied to those of
  // another layer.
  Status tie_equal_layers();
  Status tie_equal(Tensor& to, Tensor& tensor);
  Status check_unexpected() const;
  // Gives what the tensor has to its parameter, of this dtype. It comes before the graphs: those of
  // one list are codes together.
  void fill(const Tensor& tensor, DType dtype);
  Weight fresh_list(const std::string& name, int64_t count, std::vector<int64_t> shape,
                    StorageRole role, DType dtype);

  const BuildOptions& options_;
  Model& model_;
  DType dtype_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;  // names of tensors_
  std::vector<std::string> notes_;
  FiniteCheck finite_;
  std::vector<std::pair<const Tensor*, const Tensor*>>
      equal_;  // tied by tie_equal(): which, and to which
  Status status_;
};

}  // namespace bowline::import
