// Faults injected between firmware and hardware, for tests of firmware: registers that read or take wrong values, DMA
// that fails. Plain lists with counts; without any, an access costs one comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orrery::rnic {

inline constexpr std::uint32_t fault_always = 0xffff'ffffU;

struct RegisterFault {
  std::uint32_t offset = 0;  // multiple of 4
  bool write = false;        // of what the firmware writes; else of what it reads
  std::uint32_t mask = 0xffff'ffffU;
  std::uint32_t value = 0;  // the bits of `mask` become these
  std::uint32_t count = 1;  // accesses; fault_always: every one
};
struct DmaFault {
  std::uint32_t channel = 0;
  std::uint32_t count = 1;  // transfers that end in error, none of their bytes moved; fault_always: every one
};

class ManagementFaults {
 public:
  static constexpr std::size_t most = 64;

  // Added ones hold beside earlier ones, in their order. False: there are `most` already, or a count is 0.
  bool add(const RegisterFault& fault);
  bool add(const DmaFault& fault);
  void clear();

  [[nodiscard]] bool any() const { return !registers_.empty() || !dma_.empty(); }
  // How often one has struck.
  [[nodiscard]] std::uint64_t struck() const { return struck_; }

  // The hardware's side: what an access turns into; whether a transfer fails. Each uses up one of a count.
  [[nodiscard]] std::uint32_t apply(std::uint32_t offset, bool write, std::uint32_t value);
  [[nodiscard]] bool fails(std::uint32_t channel);

 private:
  std::vector<RegisterFault> registers_;
  std::vector<DmaFault> dma_;
  std::uint64_t struck_ = 0;
};

}  // namespace orrery::rnic
