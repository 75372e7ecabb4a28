// Hostile storages, parameters, views, names and extras.
#include <limits>

#include "model/historic/hostile.h"

namespace bowline {
namespace {

using test::Hostile;
using test::Sample;

file::StorageT& row(Sample& s, size_t i) { return *s.model.storages[i]; }

void encode(file::StorageT& row, const char* name, uint32_t block, int32_t axis) {
  row.encoding = std::make_unique<file::EncodingT>();
  row.encoding->name = name;
  row.encoding->block = block;
  row.encoding->axis = axis;
  row.trainable = false;
}
file::ParameterT& parameter(Sample& s, size_t i) { return *s.model.parameters[i]; }
file::ViewT& view(Sample& s) {
  parameter(s, 2).view = std::make_unique<file::ViewT>();
  return *parameter(s, 2).view;
}

constexpr int64_t kLarge = 2147483647;

const Hostile kStorages[] = {
    {"size_product_wraps", "GGUF readers: u64 product of dims wraps (gguf#15)", "storage 1",
     [](Sample& s) {
       row(s, 1).shape = {kLarge, kLarge, kLarge, 4};
     }},
    {"zero_dim_hides_a_wrap", "MLX mlx#4244: 32-bit product", "storage 1",
     [](Sample& s) {
       row(s, 1).shape = {0, kLarge, kLarge, kLarge};
       row(s, 1).range->length = 0;
     }},
    {"dim_above_limit", "CVE-2022-23558", "2147483648",
     [](Sample& s) { row(s, 1).shape = {kLarge + 1}; }},
    {"negative_dim", "ncnn#6913: a negative count", "-2",
     [](Sample& s) {
       row(s, 1).shape = {-2, -2};
     }},
    {"rank_nine", "MLX: assert(ndim <= 8) is gone in release", "rank 9",
     [](Sample& s) { row(s, 1).shape = {1, 1, 1, 1, 1, 1, 1, 2, 2}; }},
    {"dims_larger_than_the_file", "CVE-2026-7482: heap disclosure",
     "16 bytes, the values take 1600000",
     [](Sample& s) {
       row(s, 1).shape = {1000, 400};
     }},
    {"values_smaller_than_the_range", "CVE-2025-53630", "16 bytes, the values take 4",
     [](Sample& s) { row(s, 1).shape = {1}; }},
    {"unknown_dtype", "TFLite: enum from a file", "dtype 99",
     [](Sample& s) { row(s, 1).dtype = static_cast<file::DType>(99); }},
    {"unknown_role", "TFLite: enum from a file", "role 77",
     [](Sample& s) { row(s, 1).role = static_cast<file::Role>(77); }},
    {"unknown_initialiser", "TFLite: enum from a file", "initialiser 9",
     [](Sample& s) { row(s, 5).init->kind = static_cast<file::InitKind>(9); }},
    {"initialiser_not_a_number", "division by zero from a scale field (CVE-2021-29585)",
     "scale of nan",
     [](Sample& s) { row(s, 5).init->scale = std::numeric_limits<float>::quiet_NaN(); }},
    {"unknown_encoding", "CVE-2021-37682: quantization parameters absent", "\"q9\"",
     [](Sample& s) {
       row(s, 1).encoding = std::make_unique<file::EncodingT>();
       row(s, 1).encoding->name = "q9";
     }},
    {"encoding_without_a_name", "null string", "no name",
     [](Sample& s) { row(s, 1).encoding = std::make_unique<file::EncodingT>(); }},
    {"a_block_longer_than_its_axis", "CVE-2021-29586: division by a zero block",
     "A block of 3 is longer", [](Sample& s) { encode(row(s, 1), "int8", 3, -1); }},
    {"an_axis_that_is_not_there", "index past the end of the shape", "Axis 5 of the encoding",
     [](Sample& s) { encode(row(s, 1), "int8", 1, 5); }},
    {"plain_with_a_block", "parameters that mean nothing", "\"plain\" takes no parameters",
     [](Sample& s) { encode(row(s, 1), "plain", 2, -1); }},
    {"unknown_scale_dtype", "TFLite: enum from a file", "unknown scale dtype 9",
     [](Sample& s) {
       encode(row(s, 1), "int8", 0, -1);
       row(s, 1).encoding->scale_dtype = static_cast<file::DType>(9);
     }},
    {"scales_that_are_whole_numbers", "type confusion", "scales of int8 cannot be i32",
     [](Sample& s) {
       encode(row(s, 1), "int8", 0, -1);
       row(s, 1).encoding->scale_dtype = file::DType::i32;
     }},
    {"int4_without_a_block", "CVE-2021-29586: division by a zero block",
     "A block of int4 cannot have 0 elements", [](Sample& s) { encode(row(s, 1), "int4", 0, -1); }},
    {"int4_blocks_that_share_a_byte", "an offset that is no whole number", "cannot have 3 elements",
     [](Sample& s) { encode(row(s, 1), "int4", 3, -1); }},
    {"int4_across_rows", "index past the end of the shape", "along the last axis, not 0",
     [](Sample& s) { encode(row(s, 1), "int4", 2, 0); }},
    {"rows_that_end_inside_a_block_of_gguf", "GGUF readers: rows that are no whole blocks",
     "not a multiple of 32",
     [](Sample& s) {
       encode(row(s, 1), "q8_0", 32, -1);
       row(s, 1).encoding->scale_dtype = file::DType::f16;
     }},
    {"gguf_with_other_blocks", "parameters that mean nothing", "takes no parameters",
     [](Sample& s) { encode(row(s, 1), "q4_0", 16, -1); }},
    {"codes_that_train", "a gradient written over codes", "quantized values have no gradient",
     [](Sample& s) {
       encode(row(s, 1), "int8", 0, -1);
       row(s, 1).trainable = true;
     }},
    {"moments_as_codes", "an optimizer that writes over codes", "cannot be quantized",
     [](Sample& s) { encode(row(s, 3), "int8", 0, -1); }},
    {"codes_without_room_for_scales", "CVE-2021-37682: a scale behind the end", "the values take 8",
     [](Sample& s) {
       encode(row(s, 1), "int8", 0, -1);
       row(s, 1).range->length = 4;
     }},
    {"a_view_that_turns_blocks", "codes read with the scales of others", "cannot transpose blocks",
     [](Sample& s) {
       encode(row(s, 0), "int8", 1, -1);
       row(s, 0).range = s.add_range(test::Bytes(32));
     }},
    {"owner_out_of_range", "CVE-2020-15214: index past the end", "owner 99",
     [](Sample& s) { row(s, 3).owner = 99; }},
    {"owner_negative", "CVE-2020-15208: tensor index -1 and below", "owner -5",
     [](Sample& s) { row(s, 3).owner = -5; }},
    {"owner_is_itself", "CVE-2021-29591: a cycle", "storage 3",
     [](Sample& s) { row(s, 3).owner = 3; }},
    {"owner_is_an_empty_row", "null buffer (CVE-2020-15209)", "owner 4 is an empty row",
     [](Sample& s) { row(s, 3).owner = 4; }},
    {"moment_of_another_shape", "heap overflow in an update",
     "shape [3,2] is not that of the owner 1", [](Sample& s) { row(s, 3).owner = 1; }},
    {"moment_with_as_many_elements", "heap overflow in an update",
     "shape [6] is not that of the owner 0", [](Sample& s) { row(s, 3).shape = {6}; }},
    {"moment_without_owner", "missing optional (CVE-2021-37681)", "has no owner",
     [](Sample& s) { row(s, 3).owner = -1; }},
    {"weight_with_owner", "role confusion", "has an owner", [](Sample& s) { row(s, 1).owner = 0; }},
    {"two_first_moments", "duplicate state", "second moment 0 of storage 0",
     [](Sample& s) {
       s.add_storage({3, 2}, {0, 0, 0, 0, 0, 0}, file::Role::moment, 0);
     }},
    {"slot_too_large", "count into an array", "slot 4000000000",
     [](Sample& s) { row(s, 3).slot = 4000000000; }},
    {"moment_below_f32", "state lowered to half (pytorch#43706)", "f32",
     [](Sample& s) { row(s, 3).dtype = file::DType::f16; }},
    {"empty_row_with_bytes", "aliased bytes", "empty, but has bytes",
     [](Sample& s) { row(s, 1).empty = true; }},
};

TEST(Historic, Storages) { test::expect_all_refused(kStorages); }

const Hostile kParameters[] = {
    {"tie_out_of_range", "CVE-2020-15211: tensor index past the end", "tie index 6",
     [](Sample& s) { parameter(s, 1).tie = 6; }},
    {"tie_huge", "CVE-2022-23560", "tie index 4294967295",
     [](Sample& s) { parameter(s, 1).tie = UINT32_MAX; }},
    {"tie_to_an_empty_row", "null buffer (CVE-2021-37688)", "tie index 4 is an empty row",
     [](Sample& s) { parameter(s, 1).tie = 4; }},
    {"name_missing", "null string", "Parameter 1 has no name",
     [](Sample& s) { parameter(s, 1).name = ""; }},
    {"name_twice", "last one wins", "\"emb\", which is taken",
     [](Sample& s) { parameter(s, 1).name = "emb"; }},
    {"name_not_utf8", "llama.cpp#25969: strings are attack surface", "not valid UTF-8",
     [](Sample& s) { parameter(s, 1).name = "\xC0\xAF"; }},
    {"name_with_control_characters", "forged lines in a listing", "control characters",
     [](Sample& s) { parameter(s, 1).name = "a\nb"; }},
    {"name_too_long", "unbounded string", "2000 bytes",
     [](Sample& s) { parameter(s, 1).name = std::string(2000, 'x'); }},
    {"target_unknown", "dangling name", "\"nobody\"",
     [](Sample& s) { parameter(s, 1).target = "nobody"; }},
    {"view_rows_past_the_end", "CVE-2021-29590: slice out of bounds",
     "4 rows from row 0 of a storage with 3", [](Sample& s) { view(s).rows = 4; }},
    {"view_start_past_the_end", "CVE-2021-37685", "row 4, but the storage has 3",
     [](Sample& s) { view(s).row_start = 4; }},
    {"view_start_negative", "negative axis (CVE-2020-15207)", "row -1",
     [](Sample& s) { view(s).row_start = -1; }},
    {"view_rows_negative", "negative count", "-7 rows", [](Sample& s) { view(s).rows = -7; }},
    {"view_sum_wraps", "CVE-2021-29601: start + length wraps", "\"emb_t\"",
     [](Sample& s) {
       file::ViewT& v = view(s);
       v.row_start = 2;
       v.rows = std::numeric_limits<int64_t>::max();
     }},
    {"view_reshape_does_not_fit", "heap overflow by reshape (CVE-2022-23559)",
     "cannot reshape 6 elements", [](Sample& s) { view(s).shape = {7}; }},
    {"view_reshape_rank_nine", "rank beyond a fixed array", "rank 9",
     [](Sample& s) { view(s).shape = {1, 1, 1, 1, 1, 1, 1, 1, 6}; }},
    {"view_transposes_a_vector", "axis out of range", "rank 1",
     [](Sample& s) {
       file::ViewT& v = view(s);
       v.shape = {6};
       v.transpose = true;
     }},
};

TEST(Historic, Parameters) { test::expect_all_refused(kParameters); }

const Hostile kExtras[] = {
    {"newer_format", "a reader that guesses", "format 2",
     [](Sample& s) { s.model.format_major = 2; }},
    {"unknown_feature", "a reader that ignores", "\"moe\"",
     [](Sample& s) { s.model.features = {"moe"}; }},
    {"dim_twice", "names are unique", "\"batch\", which is taken",
     [](Sample& s) {
       s.model.dims.push_back(std::make_unique<file::NamedDimT>());
       s.model.dims[1]->name = "batch";
     }},
    {"dim_with_bad_limits", "division by zero from a shape", "limits 0 to 16",
     [](Sample& s) { s.model.dims[0]->min = 0; }},
    {"dim_of_unknown_kind", "TFLite: enum from a file", "unknown kind 3",
     [](Sample& s) { s.model.dims[0]->kind = static_cast<file::DimKind>(3); }},
    {"sibling_outside", "CVE-2022-25882: path traversal", "../../etc/passwd",
     [](Sample& s) {
       s.model.siblings.push_back(std::make_unique<file::SiblingT>());
       s.model.siblings[0]->path = "../../etc/passwd";
     }},
    {"sibling_absolute", "CVE-2024-27318", "/etc/passwd",
     [](Sample& s) {
       s.model.siblings.push_back(std::make_unique<file::SiblingT>());
       s.model.siblings[0]->path = "/etc/passwd";
     }},
    {"sibling_hidden_parent", "CVE-2025-51480: a second round of bypass", "weights/../../secret",
     [](Sample& s) {
       s.model.siblings.push_back(std::make_unique<file::SiblingT>());
       s.model.siblings[0]->path = "weights/../../secret";
     }},
    {"sibling_index_out_of_range", "CVE-2020-15212", "sibling 2 of 0",
     [](Sample& s) { row(s, 1).range->file = 3; }},
    {"asset_without_range", "null table (CVE-2021-37689)", "\"vocabulary\"",
     [](Sample& s) { s.model.assets[0]->range.reset(); }},
    {"self_test_of_no_graph", "dangling name", "\"nothing\"",
     [](Sample& s) {
       s.model.self_tests.push_back(std::make_unique<file::SelfTestT>());
       s.model.self_tests[0]->graph = "nothing";
     }},
    {"self_test_without_range", "null table", "tensor \"x\"",
     [](Sample& s) {
       s.model.self_tests.push_back(std::make_unique<file::SelfTestT>());
       s.model.self_tests[0]->graph = "forward";
       s.model.self_tests[0]->inputs.push_back(std::make_unique<file::TensorT>());
       s.model.self_tests[0]->inputs[0]->name = "x";
     }},
    {"metadata_not_utf8", "GGUF metadata strings", "not valid UTF-8",
     [](Sample& s) { s.model.metadata[0]->value = "\xFF\xFE"; }},
    {"metadata_too_long", "unbounded string", "limit of 1048576",
     [](Sample& s) { s.model.metadata[0]->value = std::string((1 << 20) + 1, 'x'); }},
    {"loss_scale_zero", "division by zero", "loss scale 0",
     [](Sample& s) { s.model.training->loss_scale = 0; }},
    {"base_with_a_large_digest", "fixed buffer overflow", "100 bytes",
     [](Sample& s) {
       s.model.base = std::make_unique<file::BaseT>();
       s.model.base->name = "base";
       s.model.base->digest.resize(100);
     }},
};

TEST(Historic, Extras) { test::expect_all_refused(kExtras); }

}  // namespace
}  // namespace bowline
