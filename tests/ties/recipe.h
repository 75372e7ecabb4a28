// Recipes: small programs that a lost, doubled or stale tie makes print a wrong number. Each stands
// for public reports of it.
//
// A recipe runs on two devices, A and B. A call that fails ends it; a number that is wrong is
// noted, and it goes on.
#pragma once

#include "ties/models.h"
#include "ties/suite.h"

namespace bowline::test {

class Bench {
 public:
  Bench(Device on_a, Device on_b);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Device a;  // the CPU
  Device b;  // any
  // B computes in 16 bits whatever the dtype of a model: numbers are compared no closer than that.
  bool rounds() const { return least_tolerance_ > 0; }

  // As wrong_number().
  void number(std::string_view what, double got, double right,
              std::initializer_list<Wrong> signatures = {}, double tolerance = 1e-6);
  void numbers(std::string_view what, std::span<const float> got, std::span<const float> right,
               double tolerance = 1e-6);
  // Bit by bit.
  void same(std::string_view what, std::span<const float> got, std::span<const float> right);
  void same(std::string_view what, std::string_view got, std::string_view right);
  void count(std::string_view what, uint64_t got, uint64_t right);
  void at_most(std::string_view what, uint64_t got, uint64_t most);
  void holds(std::string_view what, bool it);
  // A refusal that names all of `words`.
  void refused(std::string_view what, const Status& status, Code code,
               std::initializer_list<std::string_view> words = {});

  // The path of a file that goes with the bench.
  std::string file(std::string_view name);

  // What is wrong, a line each; empty: nothing.
  const std::string& problems() const { return problems_; }

 private:
  void note(std::string_view what, std::string_view problem);
  double least_tolerance_ = 0;
  std::string problems_;
  std::vector<std::string> files_;
};

}  // namespace bowline::test
