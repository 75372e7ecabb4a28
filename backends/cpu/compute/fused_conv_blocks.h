// The blocks of neighbouring outputs into which a fused convolution is divided.
#pragma once

#include "compute/convolution.h"
#include "compute/fused_conv.h"

namespace bowline::detail::cpu {

// Maximum number of outputs per block.
constexpr size_t kMostOfBlock = 384;

// Number of tasks for this many products.
size_t tasks_of(size_t products, size_t threads);

size_t padded_channels(const Convolution& c);
size_t depth_of(const Convolution& c);

// Several samples, several rows of one sample, or several columns of one row.
struct Part {
  size_t sample, samples;
  size_t row, rows;
  size_t column, columns;
};

Part part_of(const Convolution& c, size_t begin, size_t count);

// Where the windows of a part read their elements: in x, or in a copy with zeros around x. For a
// single row of outputs, the copy contains only the lines of its windows.
struct Frame {
  Frame(const Convolution& c, const Part& p, bool copied);

  size_t width, lines;  // of a sample
  size_t apart;         // lines between two window lines
  size_t line;          // in floats
};

// How the outputs are divided into blocks of neighbours. If x is copied, each block is a Part.
struct Cut {
  Cut(const Convolution& c, const Threads& threads);

  size_t blocks() const { return outputs == 0 ? 0 : outputs / group * in_group(); }
  size_t begin(size_t i) const { return i / in_group() * group + i % in_group() * block; }
  size_t count(size_t i) const { return std::min(block, group - i % in_group() * block); }

  size_t outputs;
  size_t tasks;  // desired number
  bool copies;
  size_t group;       // outputs that are divided equally
  size_t block = 1;   // outputs per block
  size_t copied = 0;  // maximum number of floats per block

 private:
  // Divides a group into blocks of about equal size, with at most `most` times `unit` outputs.
  void cut(size_t units, size_t most, size_t unit) {
    const size_t parts = (units + most - 1) / most;
    block = (units + parts - 1) / parts * unit;
  }
  size_t in_group() const { return (group + block - 1) / block; }
};

// Copies the input of a part, with zeros around it.
void copy_part(const Convolution& c, const Part& p, const Frame& f, const float* x, float* to);

// The positions of the windows of outputs [begin, begin + count), counted from the first output of
// the part.
void find_windows(const Convolution& c, const Part& p, const Frame& f, size_t begin, size_t count,
                  size_t* from);

}  // namespace bowline::detail::cpu
