// The parts of a file besides storages and graphs.
#include <cmath>

#include "core/dtype.h"
#include "model/verify_parts.h"

namespace bowline::detail::model {
namespace {

Status check_range(Check& check, const file::Range* range, std::string name) {
  BOWLINE_REQUIRE(range != nullptr, "There is no range for {}.", name);
  BOWLINE_REQUIRE(range->file() <= count_of(check.model.siblings()),
                  "The range of {} lies in sibling {} of {}.", name, uint64_t{range->file()} - 1,
                  count_of(check.model.siblings()));
  check.ranges.push_back(
      {range->file(), range->offset(), range->length(), range->xxh3(), std::move(name)});
  return {};
}

Status check_assets(Check& check) {
  std::unordered_set<std::string_view> names;
  for (uint32_t i = 0; i < count_of(check.model.assets()); ++i) {
    const file::Asset& asset = *check.model.assets()->Get(i);
    const std::string what = format("Asset {}", i);
    BOWLINE_TRY(check_new_name(check, names, asset.name(), what));
    BOWLINE_TRY(check_optional_name(check, asset.media_type(), "The media type of " + what));
    BOWLINE_TRY(check_range(check, asset.range(), format("asset \"{}\"", text_of(asset.name()))));
  }
  return {};
}

using Tensors = flatbuffers::Vector<flatbuffers::Offset<file::Tensor>>;

Status check_tensors(Check& check, const Tensors* tensors) {
  std::unordered_set<std::string_view> names;
  for (uint32_t i = 0; i < count_of(tensors); ++i) {
    const file::Tensor& tensor = *tensors->Get(i);
    const std::string what = format("Tensor {}", i);
    BOWLINE_TRY(check_new_name(check, names, tensor.name(), what));
    BOWLINE_REQUIRE(tensor.dtype() <= file::DType::MAX, "{} has the unknown dtype {}.", what,
                    static_cast<int>(tensor.dtype()));
    BOWLINE_TRY_ASSIGN(const Shape shape, check_shape(check, tensor.shape()));
    const uint64_t bytes =
        static_cast<uint64_t>(shape.elements()) * size_of(static_cast<DType>(tensor.dtype()));
    BOWLINE_TRY(
        check_range(check, tensor.range(), format("tensor \"{}\"", text_of(tensor.name()))));
    BOWLINE_REQUIRE(tensor.range()->length() == bytes, "{} has a range of {} bytes, not {}.", what,
                    tensor.range()->length(), bytes);
  }
  return {};
}

Status check_self_tests(Check& check) {
  std::unordered_set<std::string_view> entry_points;
  for (uint32_t i = 0; i < count_of(check.model.graphs()); ++i) {
    if (!check.model.graphs()->Get(i)->body()) {
      entry_points.insert(text_of(check.model.graphs()->Get(i)->name()));
    }
  }
  for (uint32_t i = 0; i < count_of(check.model.self_tests()); ++i) {
    const file::SelfTest& test = *check.model.self_tests()->Get(i);
    const std::string place = format("While checking self test {}.", i);
    BOWLINE_TRY(check_name(check, test.graph(), format("The graph of self test {}", i)));
    BOWLINE_REQUIRE(entry_points.contains(text_of(test.graph())),
                    "Self test {} runs \"{}\", which is not an entry point.", i,
                    text_of(test.graph()));
    BOWLINE_REQUIRE(std::isfinite(test.relative_tolerance()) && test.relative_tolerance() >= 0,
                    "Self test {} has the tolerance {}.", i, test.relative_tolerance());
    BOWLINE_TRY(check_tensors(check, test.inputs()).at(place));
    BOWLINE_TRY(check_tensors(check, test.outputs()).at(place));
  }
  return {};
}

using Settings = flatbuffers::Vector<flatbuffers::Offset<file::Setting>>;

Status check_settings(Check& check, const Settings* settings, std::string_view what) {
  std::unordered_set<std::string_view> keys;
  for (uint32_t i = 0; i < count_of(settings); ++i) {
    const file::Setting& setting = *settings->Get(i);
    BOWLINE_TRY(check_new_name(check, keys, setting.key(), what));
    BOWLINE_TRY(check_text(check, setting.value(), what));
  }
  return {};
}

Status check_training(Check& check) {
  const file::TrainingState* training = check.model.training();
  if (training == nullptr) {
    return {};
  }
  BOWLINE_REQUIRE(std::isfinite(training->loss_scale()) && training->loss_scale() > 0,
                  "The training state has the loss scale {}.", training->loss_scale());
  BOWLINE_TRY(check_text(check, training->optimizer(), "The optimizer of the training state"));
  BOWLINE_TRY(check_text(check, training->schedule(), "The schedule of the training state"));
  BOWLINE_TRY(check_settings(check, training->config(), "A setting of the training state"));
  BOWLINE_TRY(check_settings(check, training->versions(), "A version of the training state"));
  BOWLINE_TRY(check_settings(check, training->run(), "An option of the run of the training state"));
  BOWLINE_TRY(spend(check, training->loss_log()));
  return spend(check, training->loss_weights());
}

bool safe_path(std::string_view path) {
  if (path.empty() || path.front() == '/' || path.back() == '/' || path.find('\\') != path.npos) {
    return false;
  }
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") {
      return false;
    }
    path.remove_prefix(slash == path.npos ? path.size() : slash + 1);
  }
  return true;
}

Status check_siblings(Check& check) {
  std::unordered_set<std::string_view> paths;
  for (uint32_t i = 0; i < count_of(check.model.siblings()); ++i) {
    const file::Sibling& sibling = *check.model.siblings()->Get(i);
    const std::string what = format("Sibling {}", i);
    BOWLINE_TRY(check_new_name(check, paths, sibling.path(), what));
    BOWLINE_REQUIRE(safe_path(text_of(sibling.path())),
                    "{} has the path \"{}\", which may leave the folder of the model.", what,
                    text_of(sibling.path()));
  }
  return {};
}

}  // namespace

Status check_extras(Check& check) {
  BOWLINE_TRY(check_assets(check));
  BOWLINE_TRY(check_self_tests(check));
  BOWLINE_TRY(check_training(check));
  BOWLINE_TRY(check_siblings(check));
  if (const file::Base* base = check.model.base()) {
    BOWLINE_TRY(check_name(check, base->name(), "The base"));
    BOWLINE_TRY(spend(check, base->digest()));
    BOWLINE_REQUIRE(count_of(base->digest()) <= 64, "The digest of the base has {} bytes.",
                    count_of(base->digest()));
  }
  std::unordered_set<std::string_view> keys;
  for (uint32_t i = 0; i < count_of(check.model.metadata()); ++i) {
    const file::Metadata& entry = *check.model.metadata()->Get(i);
    const std::string what = format("Metadata {}", i);
    BOWLINE_TRY(check_new_name(check, keys, entry.key(), what));
    BOWLINE_TRY(check_text(check, entry.value(), what));
  }
  return {};
}

}  // namespace bowline::detail::model
