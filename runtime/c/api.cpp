// The tables of functions.
#include "c/call.h"
#include "generated/c_api.h"

namespace bowline::c {
namespace {

#include "generated/bowline_api.inc"
#ifdef BOWLINE_C_TEXT
#include "generated/bowline_text_api.inc"
#endif
#ifdef BOWLINE_C_IMPORT
#include "generated/bowline_import_api.inc"
#endif

}  // namespace
}  // namespace bowline::c

extern "C" {

const bowline_api* bowline_get_api(uint32_t version) {
  return version == BOWLINE_API_VERSION ? &bowline::c::kBowlineApi : nullptr;
}

const bowline_text_api* bowline_get_text_api([[maybe_unused]] uint32_t version) {
#ifdef BOWLINE_C_TEXT
  if (version == BOWLINE_API_VERSION) {
    return &bowline::c::kBowlineTextApi;
  }
#endif
  return nullptr;
}

const bowline_import_api* bowline_get_import_api([[maybe_unused]] uint32_t version) {
#ifdef BOWLINE_C_IMPORT
  if (version == BOWLINE_API_VERSION) {
    return &bowline::c::kBowlineImportApi;
  }
#endif
  return nullptr;
}

}  // extern "C"
