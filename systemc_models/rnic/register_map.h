// Another register map than firmware/interface/registers.h, for firmware that wasn't written for it: described in a
// file, backed by plain storage and by the management block's registers.
//
// A file (docs/firmware.md has an example):
//   bar_bytes, [[register]] with name, offset, access, reset, writable, count, on; in it [[register.field]] (bits that
//   traces name), [[register.source]] (bits that show a register of the block), [[register.effect]] (what a write does
//   to the block's registers).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "firmware/native/native_firmware.h"
#include "systemc_models/rnic/management_faults.h"

namespace orrery::rnic {

enum class RegisterMode : std::uint8_t {
  rw,   // what is written is read, in the writable bits
  ro,   // writes are refused
  wo,   // reads 0; effects only
  w1c,  // writing 1 clears
};

struct RegisterField {
  std::string name;
  std::uint32_t high = 31;
  std::uint32_t low = 0;
};
// Bits [high:low] read as those of the block's register `on`, from its bit `from` up.
struct RegisterSource {
  std::string on;
  std::uint32_t high = 31;
  std::uint32_t low = 0;
  std::uint32_t from = 0;
};
// A write whose value has every bit of `when` writes `value` to the block's register `on`; with `pass` it writes what
// was written, shifted right by `shift`. Effects happen in their order.
struct RegisterEffect {
  std::string on;
  std::uint32_t when = 0;
  std::uint32_t value = 0;
  bool pass = false;
  std::uint32_t shift = 0;
};
struct RegisterDescription {
  std::string name;
  std::uint32_t offset = 0;
  std::uint32_t count = 1;  // words in a row with the same meaning
  RegisterMode mode = RegisterMode::rw;
  std::uint32_t reset = 0;
  std::uint32_t writable = 0xffff'ffffU;
  std::string on;  // accesses go to the block's register of this name (word i to the i-th from there); no storage
  std::vector<RegisterField> fields;
  std::vector<RegisterSource> sources;
  std::vector<RegisterEffect> effects;
};
struct RegisterMapDescription {
  std::uint32_t bar_bytes = 0x1'0000;
  std::vector<RegisterDescription> registers;
};

// Throws Error that names file, line and key, and lists all problems at once.
[[nodiscard]] RegisterMapDescription load_register_map(const std::string& path);
[[nodiscard]] RegisterMapDescription parse_register_map(const std::string& text, const std::string& name);

struct RegisterUse {
  std::string name;
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
};

class RegisterMap final : public firmware::RegisterAccess {
 public:
  // `description` is a checked one. `block` outlives the map.
  RegisterMap(const RegisterMapDescription& description, firmware::RegisterAccess& block);

  void reset();
  std::uint32_t read32(std::uint32_t offset) override;
  void write32(std::uint32_t offset, std::uint32_t value) override;

  [[nodiscard]] std::uint32_t bar_bytes() const { return description_.bar_bytes; }
  // By offset in this map; of its accesses, not of what they do to the block.
  [[nodiscard]] ManagementFaults& faults() { return faults_; }
  [[nodiscard]] const std::vector<RegisterUse>& use() const { return use_; }
  // Accesses that found no register, or one that may not be written.
  [[nodiscard]] std::uint64_t refused() const { return refused_; }
  // "STATUS.2", for a trace; "0x44" if there is no register.
  [[nodiscard]] std::string name(std::uint32_t offset) const;
  // "BUSY=1 ERROR=0": the fields of a value; empty without any.
  [[nodiscard]] std::string fields(std::uint32_t offset, std::uint32_t value) const;

 private:
  struct Source {
    std::uint32_t offset, mask, low, from;
  };
  struct Effect {
    std::uint32_t offset, when, value, shift;
    bool pass;
  };
  struct Register {
    std::uint32_t first = 0;  // offset
    std::uint32_t words = 0;
    std::uint32_t storage = 0;  // index of the first word
    bool bound = false;
    std::uint32_t target = 0;  // offset in the block
    std::vector<Source> sources;
    std::vector<Effect> effects;
  };
  [[nodiscard]] std::size_t find(std::uint32_t offset) const;  // index; registers_.size(): none

  RegisterMapDescription description_;  // in order of offsets
  firmware::RegisterAccess& block_;
  std::vector<Register> registers_;
  std::vector<std::uint32_t> storage_;
  std::vector<RegisterUse> use_;
  ManagementFaults faults_;
  std::uint64_t refused_ = 0;
};

}  // namespace orrery::rnic
