// Fuzz target: the description of a register map, and the map that it makes. Input: TOML text.
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/error.h"
#include "systemc_models/rnic/register_map.h"
#include "tests/fuzz/require.h"

namespace {

// The block's side: only registers that it has may be touched.
class FuzzBlock final : public orrery::firmware::RegisterAccess {
 public:
  std::uint32_t read32(std::uint32_t offset) override { return check(offset); }
  void write32(std::uint32_t offset, std::uint32_t /*value*/) override { check(offset); }

 private:
  static std::uint32_t check(std::uint32_t offset) {
    orrery::fuzz::require(offset % 4 == 0 && offset < 0x20'0000, "an access stays in the block's registers");
    return offset;
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orrery;
  try {
    FuzzBlock block;
    rnic::RegisterMap map(rnic::parse_register_map(std::string(reinterpret_cast<const char*>(data), size), "fuzz.toml"),
                          block);
    constexpr std::uint32_t looked_at = 0x4000;
    for (std::uint32_t offset = 0; offset < looked_at; offset += 4) {
      map.write32(offset, 0xa5a5'5a5a);
      const std::uint32_t value = map.read32(offset);
      fuzz::require(!map.name(offset).empty(), "every offset has a name");
      static_cast<void>(map.fields(offset, value));
    }
    map.reset();
  } catch (const Error&) {
  }
  return 0;
}
