// Quantization of weights: bowline/quantize.h.
#include "bowline/quantize.h"

#include "api/internals.h"
#include "api/reshaping.h"
#include "graph/readers.h"
#include "params/verbs.h"

namespace bowline {

using graph::ModelState;

Result<QuantizeReport> quantize(Model& model, std::string_view encoding, std::string_view pattern) {
  return changing(Internals::state(model), [&](ModelState& s) -> Result<QuantizeReport> {
    BOWLINE_TRY(require_no_trainer(s, "quantize()"));
    BOWLINE_TRY_ASSIGN(const params::EncodingChoice parsed,
                       params::EncodingChoice::parse(encoding));
    const std::map<uint32_t, std::string> plain = graph::plain_readers(s);
    const std::vector<std::vector<uint32_t>> alike = graph::ties_of_lists(s);
    return reshaping(s, "quantize()", {}, [&](params::Table& table) {
      return params::quantize(table, parsed, pattern, plain, alike, s.users.busy());
    });
  });
}

Result<QuantizeReport> dequantize(Model& model, std::string_view pattern, DType to) {
  return changing(Internals::state(model), [&](ModelState& s) -> Result<QuantizeReport> {
    BOWLINE_TRY(require_no_trainer(s, "dequantize()"));
    const std::vector<std::vector<uint32_t>> alike = graph::ties_of_lists(s);
    return reshaping(s, "dequantize()", {}, [&](params::Table& table) {
      return params::dequantize(table, to, pattern, alike, s.users.busy());
    });
  });
}

}  // namespace bowline
