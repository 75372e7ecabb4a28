// Einsum: combines the operands one by one. Each step is a matrix product, or an elementwise
// product if nothing is summed.
//
// Each letter of the equation is an axis. The axes of "..." get digits as letters, counted from the
// last axis, and broadcast.
//
// Source  ONNX operators, Einsum; numpy.einsum.
#include <algorithm>

#include "base/escape.h"
#include "onnx/lowering.h"

namespace bowline::onnx {
namespace {

// A value with a letter per axis.
struct Lettered {
  Term value;
  std::string letters;
};

bool contains(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

// Removes spaces from "ij, jk->ik" and replaces "..." by `rest` digits.
std::string letters_of(std::string_view text, size_t rest) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (text.substr(i).starts_with("...")) {
      for (size_t k = rest; k-- > 0;) {
        out.push_back(static_cast<char>('0' + k));
      }
      i += 2;
      continue;
    }
    const bool known = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    require(known, "The equation has \"{}\". Only letters, \",\", \"->\" and \"...\" are allowed.",
            escaped(std::string(1, letter)));
    out.push_back(letter);
  }
  return out;
}

// A letter that occurs twice selects the diagonal of the two axes.
void take_diagonals(Context& c, Lettered& x) {
  for (size_t second = 1; second < x.letters.size(); ++second) {
    const size_t first = x.letters.find(x.letters[second]);
    if (first == second) {
      continue;
    }
    const int64_t n = x.value.dims[first];
    require(x.value.dims[second] == n, "\"{}\" names axes of {} and of {}.", x.letters[second], n,
            x.value.dims[second]);
    support(n <= 46340, "The diagonal of {} rows is too long.", n);
    // Moves both axes to the end, merges them to n * n elements and takes every (n + 1)th.
    std::vector<int64_t> order;
    for (size_t a = 0; a < x.letters.size(); ++a) {
      if (a != first && a != second) {
        order.push_back(static_cast<int64_t>(a));
      }
    }
    order.push_back(static_cast<int64_t>(first));
    order.push_back(static_cast<int64_t>(second));
    const Term moved = c.m.transpose(x.value, order);
    const Dims dims = moved.dims.part(0, moved.rank() - 2).joined({n * n});
    const Term places = c.m.count(DType::i32, n) * (n + 1);
    x.value = c.m.gather(c.m.reshape(moved, dims), places, -1);
    const char letter = x.letters[second];
    x.letters.erase(second, 1);
    x.letters.erase(first, 1);
    x.letters.push_back(letter);
    second = 0;
  }
}

// Sums over the letters that are not in `kept`.
void drop(Context& c, Lettered& x, const std::string& kept) {
  std::vector<int64_t> axes;
  std::string left;
  for (size_t a = 0; a < x.letters.size(); ++a) {
    if (contains(kept, x.letters[a])) {
      left.push_back(x.letters[a]);
    } else {
      axes.push_back(static_cast<int64_t>(a));
    }
  }
  x.value = c.m.reduce("ReduceSum", x.value, axes, false);
  x.letters = left;
}

// Transposes x to this order of letters. Missing letters get axes of size 1.
Term ordered(Context& c, const Lettered& x, const std::string& order) {
  std::vector<int64_t> permutation;
  Dims dims;
  for (const char letter : order) {
    const size_t a = x.letters.find(letter);
    if (a != std::string::npos) {
      permutation.push_back(static_cast<int64_t>(a));
    }
    dims.push_back(a == std::string::npos ? 1 : x.value.dims[a]);
  }
  return c.m.reshape(c.m.transpose(x.value, permutation), dims);
}

// Multiplies two values and sums over the letters that are not in `kept`.
Lettered multiply(Context& c, Lettered a, Lettered b, const std::string& kept) {
  drop(c, a, kept + b.letters);
  drop(c, b, kept + a.letters);
  std::string both, left, right, summed;
  for (const char letter : a.letters) {
    (!contains(b.letters, letter) ? left
     : contains(kept, letter)     ? both
                                  : summed)
        .push_back(letter);
  }
  for (const char letter : b.letters) {
    if (!contains(a.letters, letter)) {
      right.push_back(letter);
    }
  }
  for (const char letter : summed) {  // an axis of size 1 broadcasts to the other operand
    const int64_t n = a.value.dims[a.letters.find(letter)];
    const int64_t m = b.value.dims[b.letters.find(letter)];
    require(n == m || n == 1 || m == 1, "\"{}\" names axes of {} and of {}.", letter, n, m);
    for (Lettered* const x : {&a, &b}) {
      Dims dims(x->letters.size(), 1);
      dims[x->letters.find(letter)] = std::max(n, m);
      x->value = c.m.expand(x->value, dims);
    }
  }
  if (summed.empty() || !is_float(a.value.dtype)) {
    const std::string all = both + left + right + summed;
    Lettered y{ordered(c, a, all) * ordered(c, b, all), all};
    drop(c, y, both + left + right);
    return y;
  }
  // [both.., left, summed] [both.., summed, right]
  Term x = ordered(c, a, both + left + summed);
  Term y = ordered(c, b, both + summed + right);
  const size_t n = both.size();
  // As a matrix whose last two axes start at `n` and `middle`.
  const auto matrix = [&](const Term& t, size_t middle) {
    return c.m.reshape(t, t.dims.part(0, n).joined({t.dims.part(n, middle).product(),
                                                    t.dims.part(middle, t.rank()).product()}));
  };
  const size_t x_middle = n + left.size(), y_middle = n + summed.size();
  const Term z = c.m.matmul(matrix(x, x_middle), matrix(y, y_middle));
  const Dims dims =
      z.dims.part(0, n).joined(x.dims.part(n, x_middle)).joined(y.dims.part(y_middle, y.rank()));
  return {c.m.reshape(z, dims), both + left + right};
}

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t at = 0;;) {
    const size_t comma = text.find(',', at);
    out.push_back(text.substr(at, comma - at));
    if (comma == std::string_view::npos) {
      return out;
    }
    at = comma + 1;
  }
}

// The output letters of an equation without an arrow: the digits of "...", then the letters that
// occur once, in alphabetical order. `all` holds the letters of all terms.
std::string implied(std::string all) {
  std::string rest, out;
  std::ranges::sort(all);
  for (size_t i = 0; i < all.size(); ++i) {
    const bool digit = all[i] <= '9';
    if (digit && !contains(rest, all[i])) {
      rest.insert(rest.begin(), all[i]);
    }
    if (!digit && std::ranges::count(all, all[i]) == 1) {
      out.push_back(all[i]);
    }
  }
  return rest + out;
}

Term einsum(Context& c) {
  std::string equation = c.text("equation", "");
  std::erase(equation, ' ');
  const size_t arrow = equation.find("->");
  const std::vector<std::string_view> parts = parts_of(std::string_view(equation).substr(0, arrow));
  require(parts.size() == c.inputs() && c.inputs() > 0,
          "Equation \"{}\" has {} terms, but the node has {} inputs.", escaped(equation),
          parts.size(), c.inputs());
  // Intermediate products of 16-bit operands stay f32, so that they are not rounded.
  const bool in_between = parts.size() > 2;
  std::vector<Lettered> operands;
  std::string all;  // letters of all terms
  size_t most = 0;  // number of axes of "..."
  for (size_t i = 0; i < parts.size(); ++i) {
    const Term x = c.in(i);
    const bool open = parts[i].find("...") != std::string_view::npos;
    const size_t named = parts[i].size() - (open ? 3 : 0);
    require(open ? named <= x.rank() : named == x.rank(), "\"{}\" does not name the axes of {}.",
            escaped(std::string(parts[i])), x.dims);
    const size_t rest = open ? x.rank() - named : 0;
    most = std::max(most, rest);
    Lettered operand;
    operand.letters = letters_of(parts[i], rest);
    require(operand.letters.size() == x.rank(), "\"{}\" does not name the axes of {}.",
            escaped(std::string(parts[i])), x.dims);
    operand.value = in_between ? in_f32(x) : x;
    all += operand.letters;
    take_diagonals(c, operand);
    operands.push_back(std::move(operand));
  }
  std::string wanted = implied(std::move(all));
  if (arrow != std::string::npos) {
    wanted = letters_of(std::string_view(equation).substr(arrow + 2), most);
  }
  for (const char letter : wanted) {
    const bool there = std::ranges::any_of(
        operands, [&](const Lettered& x) { return contains(x.letters, letter); });
    require(there && std::ranges::count(wanted, letter) == 1,
            "The result of equation \"{}\" has the letter \"{}\" {}.", escaped(equation), letter,
            there ? "twice" : "that no input has");
  }
  Lettered y = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    std::string kept = wanted;
    for (size_t k = i + 1; k < operands.size(); ++k) {
      kept += operands[k].letters;
    }
    y = multiply(c, y, operands[i], kept);
  }
  drop(c, y, wanted);
  const Term first = c.in(0);
  return cast(ordered(c, y, wanted), first.dtype);
}

constexpr Lowering kEinsumLowerings[] = {
    {"Einsum", einsum},
};

}  // namespace

std::span<const Lowering> lowerings_of_einsum() { return kEinsumLowerings; }

}  // namespace bowline::onnx
