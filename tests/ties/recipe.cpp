#include "ties/recipe.h"

#include <unistd.h>

#include <filesystem>

#include "api/internals.h"
#include "device/device.h"
#include "ties/recipes/topics.h"

namespace bowline::test {

Bench::Bench(Device on_a, Device on_b) : a(std::move(on_a)), b(std::move(on_b)) {
  if (Internals::open(b)->capabilities().compute) {
    least_tolerance_ = 1.0 / 64;  // bf16 has 8 significant bits
  }
}

Bench::~Bench() {
  for (const std::string& file : files_) {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
  }
}

void Bench::note(std::string_view what, std::string_view problem) {
  problems_ += format("{}{}: {}", problems_.empty() ? "" : "\n", what, problem);
}

void Bench::number(std::string_view what, double got, double right,
                   std::initializer_list<Wrong> signatures, double tolerance) {
  const std::string wrong =
      wrong_number(got, right, signatures, std::max(tolerance, least_tolerance_));
  if (!wrong.empty()) {
    note(what, wrong);
  }
}

void Bench::numbers(std::string_view what, std::span<const float> got, std::span<const float> right,
                    double tolerance) {
  count(what, got.size(), right.size());
  for (size_t i = 0; i < std::min(got.size(), right.size()); ++i) {
    number(format("{} [{}]", what, i), static_cast<double>(got[i]), static_cast<double>(right[i]),
           {}, tolerance);
  }
}

void Bench::same(std::string_view what, std::span<const float> got, std::span<const float> right) {
  count(what, got.size(), right.size());
  for (size_t i = 0; i < std::min(got.size(), right.size()); ++i) {
    if (std::memcmp(&got[i], &right[i], sizeof(float)) != 0) {
      note(format("{} [{}]", what, i), format("{} instead of {}", got[i], right[i]));
    }
  }
}

void Bench::same(std::string_view what, std::string_view got, std::string_view right) {
  if (got != right) {
    note(what, format("\n{}\ninstead of\n{}", got, right));
  }
}

void Bench::count(std::string_view what, uint64_t got, uint64_t right) {
  if (got != right) {
    note(what, format("{} instead of {}", got, right));
  }
}

void Bench::at_most(std::string_view what, uint64_t got, uint64_t most) {
  if (got > most) {
    note(what, format("{}, at most {} are right", got, most));
  }
}

void Bench::holds(std::string_view what, bool it) {
  if (!it) {
    note(what, "does not hold");
  }
}

void Bench::refused(std::string_view what, const Status& status, Code code,
                    std::initializer_list<std::string_view> words) {
  if (status.code() != code) {
    note(what,
         format("{} instead of {}: {}", name_of(status.code()), name_of(code), status.message()));
    return;
  }
  for (const std::string_view word : words) {
    if (status.message().find(word) == std::string::npos) {
      note(what, format("the message does not name \"{}\": {}", word, status.message()));
    }
  }
}

std::string Bench::file(std::string_view name) {
  const auto folder = std::filesystem::temp_directory_path();
  files_.push_back((folder / format("bowline-{}-{}-{}", ::getpid(), files_.size(), name)).string());
  return files_.back();
}

std::span<const std::span<const Recipe>> recipes() {
  static const std::span<const Recipe> topics[] = {
      recipes_of_models(),   recipes_of_transfer(), recipes_of_optimizers(), recipes_of_precision(),
      recipes_of_files(),    recipes_of_graphs(),   recipes_of_formats(),    recipes_of_quantized(),
      recipes_of_adapters(), recipes_of_sharing(),  recipes_of_peers()};
  return topics;
}

std::string run(const Recipe& recipe, const Device& a, const Device& b) {
  Bench bench(a, b);
  std::string problems;
  try {
    recipe.run(bench);
    problems = bench.problems();
  } catch (const std::exception& e) {
    problems =
        bench.problems() + format("{}it ends: {}", bench.problems().empty() ? "" : "\n", e.what());
  }
  return problems.empty() ? problems
                          : format("{}\nlooks like {}: {}", problems, recipe.source, recipe.story);
}

}  // namespace bowline::test
