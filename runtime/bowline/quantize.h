/// \file
/// Quantization of weights.
///
/// A quantized storage holds small integers and their scales. Its parameters keep their dtype and
/// shape, and operators dequantize the values while they compute. Quantized values have no
/// gradient, so their storages are frozen.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bowline/model.h"
#include "bowline/status.h"
#include "bowline/tensor.h"

#pragma GCC visibility push(default)

namespace bowline {

/// The result of quantize() or dequantize().
struct QuantizeReport {
  uint32_t storages = 0;          ///< Storages that have another encoding now.
  uint64_t bytes_before = 0;      ///< Bytes of these storages before the call.
  uint64_t bytes_after = 0;       ///< Bytes of these storages now, with their scales.
  std::vector<std::string> kept;  ///< Unchanged storages and why, for example: "b" has rank 1.
  std::vector<DroppedStorage> dropped;  ///< Removed training state of these storages.

  /// Returns the report as text, one line per item: "1 storage converted: 131072 bytes before,
  /// 36864 after".
  std::string text() const;
};

/// Quantizes the storages of all parameters that match `pattern`. A tied storage is quantized once.
///
/// Moments and other training state of the storages are removed. `encoding` is one of these:
/// - "int8": 8 bits, one f32 scale for the storage.
/// - "int8 block row": 8 bits, one f32 scale per row.
/// - "int8 block 32": 8 bits, one f32 scale per 32 values of the last axis. 32 is an example.
/// - "int4": 4 bits, one f16 scale per 32 values of the last axis.
/// - "q6_k", "q5_k", "q4_k", "q3_k", "q2_k", "iq4_xs": formats of GGUF with blocks of 256 values.
/// - "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl", "mxfp4": formats of GGUF with blocks of 32.
/// - "q4_k_m": the mixture of llama.cpp. It uses q6_k for the language model head and for some
/// value
///   and down projections, q5_k for fused attention inputs, and q4_k for the rest. Rows that are
///   not multiples of 256 get q8_0, q5_1 and q5_0 instead.
///
/// An int8 or int4 encoding can end with "scale f32" (or f16, bf16), then "with zero points". For
/// example, "int4 with zero points" has one zero point per scale.
///
/// Quantized values can be the weight of a Linear, the table of an Embedding, and the matrices of a
/// MatMul. A storage that has the encoding already does not change. QuantizeReport::kept lists the
/// other storages that do not change, with the reason:
/// - Another operator reads the storage.
/// - Its role is neither weight nor constant, or its rank is below 2.
/// - The encoding does not fit its dtype or shape, or a view would split a block.
/// - The storage would not become smaller.
/// - A value is or would become non-finite, or its error would be too large. The limit is half a
///   quantization step (block formats except q8_0: one step), plus a margin for 16-bit scales.
/// - Another storage of the same ParameterList does not change.
///
/// A storage without values only gets the encoding. Model::load() or Model::set_source() must then
/// supply quantized values.
///
/// Errors:
/// - bad_argument: a Trainer of the model exists, no parameter matches, or the encoding is unknown.
/// - bad_argument: a storage has another encoding. Call dequantize() first.
/// - bad_argument: the pattern matches only some storages of a ParameterList.
/// - over_budget, out_of_memory: the old and new storages do not fit at the same time.
Result<QuantizeReport> quantize(Model& model, std::string_view encoding,
                                std::string_view pattern = "*");

/// Dequantizes the storages of all parameters that match `pattern`, to the dtype `to`.
///
/// `to` is f32, f16 or bf16; values are rounded to nearest even. A storage stays quantized if a
/// value would become infinite. The storages stay frozen. Call Model::freeze(name, false) to train
/// them.
///
/// Errors: as Model::cast(), except for infinite values.
/// - bad_argument: a Trainer of the model exists.
Result<QuantizeReport> dequantize(Model& model, std::string_view pattern = "*",
                                  DType to = DType::f32);

}  // namespace bowline

#pragma GCC visibility pop
