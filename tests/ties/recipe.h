// Recipes: small programs whose result is wrong if a tie is lost, doubled or stale. Each recipe
// stands for public reports of such a fault.
//
// A recipe runs on two devices, A and B. It ends at the first call that fails. It notes wrong
// values and continues.
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
  // Returns true if B computes in 16 bits for every dtype of the model. The tolerance of the
  // comparisons is then at least that of 16 bits.
  bool rounds() const { return least_tolerance_ > 0; }

  // Compares like wrong_number().
  void number(std::string_view what, double got, double right,
              std::initializer_list<Wrong> signatures = {}, double tolerance = 1e-6);
  void numbers(std::string_view what, std::span<const float> got, std::span<const float> right,
               double tolerance = 1e-6);
  // Compares bit by bit.
  void same(std::string_view what, std::span<const float> got, std::span<const float> right);
  void same(std::string_view what, std::string_view got, std::string_view right);
  void count(std::string_view what, uint64_t got, uint64_t right);
  void at_most(std::string_view what, uint64_t got, uint64_t most);
  void holds(std::string_view what, bool it);
  // Expects an error whose message contains all of `words`.
  void refused(std::string_view what, const Status& status, Code code,
               std::initializer_list<std::string_view> words = {});

  // Returns a path for a file. The destructor deletes the file.
  std::string file(std::string_view name);

  // Returns one line per problem, or an empty text.
  const std::string& problems() const { return problems_; }

 private:
  void note(std::string_view what, std::string_view problem);
  double least_tolerance_ = 0;
  std::string problems_;
  std::vector<std::string> files_;
};

}  // namespace bowline::test
