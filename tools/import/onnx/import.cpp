// ModelProto -> an entry point of a Model: values in the order of the file, node by node.
#include "onnx/import.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "onnx.pb.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// The operator sets whose meaning is known, by domain.
struct Known {
  std::string_view domain;
  int64_t newest;
};
constexpr Known kDomains[] = {{"", 17}, {kTraining, 1}};

std::string_view domain_of(const std::string& text) {
  return text == "ai.onnx" ? std::string_view() : std::string_view(text);
}

std::string domain_text(std::string_view domain) {
  return domain.empty() ? "ai.onnx" : escaped(domain);
}

// By domain its version.
Result<std::map<std::string, int>> opsets_of(const file::ModelProto& model) {
  std::map<std::string, int> out;
  for (const auto& set : model.opset_import()) {
    const std::string_view domain = domain_of(set.domain());
    const auto known = std::ranges::find(kDomains, domain, &Known::domain);
    BOWLINE_REQUIRE_CODE(known != std::end(kDomains), Code::unsupported,
                         "Its operator set \"{}\" is not known.", domain_text(domain));
    BOWLINE_REQUIRE_CODE(set.version() >= 1 && set.version() <= known->newest, Code::unsupported,
                         "Its operator set \"{}\" has version {}; known are 1 to {}.",
                         domain_text(domain), set.version(), known->newest);
    out[std::string(domain)] = static_cast<int>(set.version());
  }
  BOWLINE_REQUIRE_CODE(!out.empty(), Code::bad_file, "It names no operator set.");
  return out;
}

// 'node 3 "conv1" (Conv)'
std::string node_text(int number, const file::NodeProto& node) {
  const std::string name = node.name().empty() ? "" : fmt::format(" \"{}\"", escaped(node.name()));
  return fmt::format("node {}{} ({})", number, name, escaped(node.op_type()));
}

class Reader {
 public:
  Reader(const file::ModelProto& model, const std::string& folder, const ImportOptions& options)
      : graph_(model.graph()),
        folder_(folder),
        options_(options),
        maker_(out_.model, options.entry_point) {}

  Result<Imported> read(const file::ModelProto& model) {
    BOWLINE_ASSIGN(opsets_, opsets_of(model));
    BOWLINE_TRY(check_producers());
    find_needed();
    BOWLINE_TRY(initializers());
    BOWLINE_TRY(inputs());
    for (int n = 0; n < graph_.node_size(); ++n) {
      if (needed_nodes_[static_cast<size_t>(n)]) {
        const std::string where = node_text(n, graph_.node(n));
        BOWLINE_TRY(lower(n).at(fmt::format("While reading {}.", where)));
      } else {
        out_.notes.push_back(
            fmt::format("No output needs {}; it is left out.", node_text(n, graph_.node(n))));
      }
    }
    BOWLINE_TRY(outputs());
    BOWLINE_TRY(maker_.finish());
    out_.inputs = maker_.inputs();
    return std::move(out_);
  }

 private:
  // Each value is computed once, by one node.
  Status check_producers() {
    for (int n = 0; n < graph_.node_size(); ++n) {
      for (const std::string& name : graph_.node(n).output()) {
        BOWLINE_REQUIRE_CODE(name.empty() || producer_.emplace(name, n).second, Code::bad_file,
                             "Value \"{}\" is computed by {} and by {}.", escaped(name),
                             node_text(producer_[name], graph_.node(producer_[name])),
                             node_text(n, graph_.node(n)));
      }
    }
    return {};
  }

  // The nodes and values that an output needs. Nodes stand in order, else lower() refuses them.
  void find_needed() {
    needed_nodes_.resize(static_cast<size_t>(graph_.node_size()));
    for (const auto& o : graph_.output()) {
      needed_.insert(o.name());
    }
    for (int n = graph_.node_size(); n-- > 0;) {
      const file::NodeProto& node = graph_.node(n);
      const bool used = std::ranges::any_of(
          node.output(), [&](const std::string& name) { return needed_.contains(name); });
      needed_nodes_[static_cast<size_t>(n)] = used;
      if (used) {
        needed_.insert(node.input().begin(), node.input().end());
      }
    }
  }

  Status define(const std::string& name, Term term) {
    BOWLINE_REQUIRE_CODE(!name.empty(), Code::bad_file, "A value has no name.");
    BOWLINE_REQUIRE_CODE(lowered_.values.emplace(name, std::move(term)).second, Code::bad_file,
                         "There are two values \"{}\".", escaped(name));
    return {};
  }

  Status initializers() {
    BOWLINE_REQUIRE_CODE(graph_.sparse_initializer_size() == 0, Code::unsupported,
                         "It has {} sparse initializers.", graph_.sparse_initializer_size());
    for (const file::TensorProto& t : graph_.initializer()) {
      if (!needed_.contains(t.name())) {
        continue;
      }
      Result<Numbers> numbers = numbers_of(t, folder_);
      BOWLINE_TRY(Status(numbers.status())
                      .at(fmt::format("While reading initializer \"{}\".", escaped(t.name()))));
      const bool weight = numbers.value().dtype == DType::f32 && !numbers.value().shape.empty();
      BOWLINE_TRY(
          define(t.name(), maker_.stored(std::move(numbers).value(), t.name(),
                                         weight ? StorageRole::weight : StorageRole::constant)));
    }
    return {};
  }

  // The dims of an input: numbers, or names that the caller gave numbers.
  Result<Dims> dims_of(const file::TypeProto::Tensor& type) {
    BOWLINE_REQUIRE_CODE(type.has_shape(), Code::unsupported, "It has no shape.");
    Dims dims;
    for (const auto& dim : type.shape().dim()) {
      if (dim.has_dim_value()) {
        dims.push_back(dim.dim_value());
        continue;
      }
      const auto bound = std::ranges::find(options_.dims, dim.dim_param(), &BoundDim::name);
      BOWLINE_REQUIRE_CODE(dim.has_dim_param() && bound != options_.dims.end(), Code::unsupported,
                           "Its dim {} (\"{}\") has no number.", dims.size(),
                           escaped(dim.dim_param()));
      dims.push_back(bound->value);
    }
    return dims;
  }

  Result<Term> input(const file::ValueInfoProto& info) {
    BOWLINE_REQUIRE_CODE(info.type().has_tensor_type(), Code::unsupported, "It is no tensor.");
    const auto& type = info.type().tensor_type();
    const auto given = options_.given.find(info.name());
    if (given != options_.given.end()) {
      const Numbers& n = given->second;
      return maker_.input(info.name(), n.dtype, n.shape, n);
    }
    BOWLINE_ASSIGN(const DType dtype, dtype_of(type.elem_type()));
    BOWLINE_ASSIGN(const Dims dims, dims_of(type));
    return maker_.input(info.name(), dtype, dims, {});
  }

  Status inputs() {
    for (const auto& info : graph_.input()) {
      if (!needed_.contains(info.name()) || lowered_.values.contains(info.name())) {
        continue;  // an initializer is the default of an input, and becomes a parameter
      }
      Result<Term> term = input(info);
      const std::string where = fmt::format("While reading input \"{}\".", escaped(info.name()));
      BOWLINE_TRY(Status(term.status()).at(where));
      BOWLINE_TRY(Status(maker_.status()).at(where));
      BOWLINE_TRY(define(info.name(), std::move(term).value()));
    }
    return {};
  }

  Result<Term> value(const std::string& name) {
    const auto found = lowered_.values.find(name);
    if (found != lowered_.values.end()) {
      return found->second;
    }
    const auto by = producer_.find(name);
    BOWLINE_REQUIRE_CODE(
        by == producer_.end(), Code::bad_file,
        "It reads \"{}\", which {} computes later: the graph has a cycle or is not "
        "in order.",
        escaped(name), node_text(by->second, graph_.node(by->second)));
    return Status(Code::bad_file,
                  fmt::format("It reads \"{}\", which nothing computes.", escaped(name)));
  }

  Status lower(int n) {
    const file::NodeProto& node = graph_.node(n);
    const std::string domain(domain_of(node.domain()));
    const auto opset = opsets_.find(domain);
    BOWLINE_REQUIRE_CODE(opset != opsets_.end(), Code::bad_file,
                         "The model imports no operator set \"{}\".", domain_text(domain));
    BOWLINE_ASSIGN(const Lowering* lowering, find_lowering(domain, node.op_type()));
    Terms terms;
    std::vector<bool> present;
    for (const std::string& name : node.input()) {
      present.push_back(!name.empty());
      if (name.empty()) {
        terms.emplace_back();
        continue;
      }
      BOWLINE_ASSIGN(Term term, value(name));
      terms.push_back(std::move(term));
    }
    maker_.name(node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name());
    std::vector<bool> wanted;
    for (const std::string& name : node.output()) {
      wanted.push_back(!name.empty() && needed_.contains(name));
    }
    Context c(maker_, node, opset->second, folder_, lowered_, std::move(terms), std::move(present),
              std::move(wanted));
    BOWLINE_TRY(lowering->lower(c));
    BOWLINE_TRY(Status(maker_.status()));
    BOWLINE_TRY(c.leftovers());
    for (size_t i = 0; i < c.results().size(); ++i) {
      if (c.wants(i)) {
        BOWLINE_TRY(define(node.output(static_cast<int>(i)), c.results()[i]));
      }
    }
    lowered_.nodes.push_back(&node);
    return {};
  }

  Status outputs() {
    for (const auto& info : graph_.output()) {
      Result<Term> term = value(info.name());
      BOWLINE_TRY(Status(term.status())
                      .at(fmt::format("While reading output \"{}\".", escaped(info.name()))));
      maker_.name(info.name());
      maker_.output(info.name(), term.value());
      out_.outputs.push_back(info.name());
    }
    return {};
  }

  const file::GraphProto& graph_;
  const std::string& folder_;
  const ImportOptions& options_;
  Imported out_;
  Maker maker_;
  std::map<std::string, int> opsets_;
  std::map<std::string, int> producer_;
  std::set<std::string> needed_;
  std::vector<bool> needed_nodes_;
  Lowered lowered_;
};

}  // namespace

Result<Imported> import_graph(const file::ModelProto& model, const std::string& folder,
                              const ImportOptions& options) {
  Result<Imported> read = Reader(model, folder, options).read(model);
  if (read.status().code() == Code::bad_argument) {  // what the file asks for, not the caller
    return std::move(read).status().as(Code::bad_file);
  }
  return read;
}

Result<Imported> import_file(const std::string& path, const ImportOptions& options) {
  BOWLINE_ASSIGN(const auto model, read_model(path));
  auto imported = import_graph(*model, std::filesystem::path(path).parent_path().string(), options);
  if (!imported.ok()) {
    return std::move(imported).status().at(fmt::format("While reading \"{}\".", escaped(path)));
  }
  return imported;
}

}  // namespace bowline::onnx
