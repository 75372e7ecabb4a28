// The modules that the build has packed into the library.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "lzma.h"
#include "packed_shaders.h"
#include "spirv.h"
#include "vulkan_shaders.h"

namespace bowline::detail::vulkan {
namespace {

// The words of a file, without instructions that carry only names and lines of the source.
std::vector<uint32_t> built_module(const std::string& name) {
  std::ifstream in(BOWLINE_SHADER_FOLDER "/" + name + ".spv", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  std::vector<uint32_t> words(bytes.size() / sizeof(uint32_t));
  std::memcpy(words.data(), bytes.data(), words.size() * sizeof(uint32_t));
  if (words.size() < spirv::kHeaderWords) {
    return {};
  }
  std::vector<uint32_t> out(words.begin(), words.begin() + spirv::kHeaderWords);
  spirv::for_each_instruction(words, [&](spirv::Instruction i) {
    enum : uint32_t {
      kSourceContinued = 2,
      kMemberName = 6,
      kString = 7,
      kLine = 8,
      kNoLine = 317
    };
    constexpr uint32_t kModuleProcessed = 330;
    const uint32_t op = spirv::operation(i);
    const bool is_name = (op >= kSourceContinued && op <= kMemberName) || op == kString ||
                         op == kLine || op == kNoLine || op == kModuleProcessed;
    if (!is_name) {
      out.insert(out.end(), i.begin(), i.end());
    }
  });
  return out;
}

TEST(PackedShaders, UnpackToTheModulesOfTheBuild) {
  uint32_t compared = 0;
  for (uint32_t i = 0; i < kShaderCount; ++i) {
    if (kPackedShaders[i].words != 0) {
      EXPECT_EQ(shader_module(i), built_module(kPackedShaders[i].name)) << kPackedShaders[i].name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 100u);
}

// A pack that is cut off, or whose first match refers to bytes before the first one.
TEST(PackedShaders, ADamagedPackIsNoticed) {
  const std::span whole(kPackedWords);
  std::vector<uint8_t> words(4 * kPackedShaders[0].words);
  ASSERT_FALSE(words.empty());
  EXPECT_TRUE(decode_lzma(whole, words));
  for (size_t bytes = 0; bytes < 100; ++bytes) {
    EXPECT_FALSE(decode_lzma(whole.first(bytes), words)) << bytes << " bytes";
  }
  std::vector<uint8_t> damaged(whole.begin(), whole.end());
  damaged[1] = damaged[2] = 0xFF;  // the first bits are those of a match
  EXPECT_FALSE(decode_lzma(damaged, words));
}

}  // namespace
}  // namespace bowline::detail::vulkan
