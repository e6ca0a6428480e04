// The hand-overs that tlm_device.h promises, with a model that does everything a model may do, and some that it
// may not.
#include <gmock/gmock.h>

#include <array>
#include <tlm>

#include "pcie/capabilities.h"
#include "plugin_host.h"
#include "probe_registers.h"

namespace orrery::test {
namespace {

constexpr std::uint64_t response_of(tlm::tlm_response_status status) {
  return static_cast<std::uint64_t>(std::int64_t{status} + 16);
}

class Adapter : public testing::TestWithParam<const char*> {
 protected:
  PluginHost host{ORRERY_TEST_PLUGINS "/probe_plugin.so", GetParam()};
  [[nodiscard]] bool timed() const { return GetParam() == std::string("timed"); }

  void set_up_dma(std::uint64_t address, std::uint64_t length, std::uint64_t flags, std::uint64_t workers = 1) {
    host.write64(probe::address, address);
    host.write64(probe::length, length);
    host.write64(probe::flags, flags);
    host.write64(probe::workers, workers);
  }
  std::uint64_t result(unsigned worker, std::uint64_t offset) {
    return host.read64(probe::results + worker * probe::result_size + offset);
  }
  // Starts and waits until `workers` have ended once more.
  void dma(std::uint64_t address, std::uint64_t length, std::uint64_t flags, std::uint64_t how = probe::start_blocking,
           std::uint64_t workers = 1) {
    set_up_dma(address, length, flags, workers);
    std::uint64_t before = 0;
    for (unsigned i = 0; i < workers; ++i) {
      before += result(i, probe::result_ended);
    }
    host.write64(probe::start, how);
    host.run_to_rest();
    std::uint64_t after = 0;
    for (unsigned i = 0; i < workers; ++i) {
      after += result(i, probe::result_ended);
    }
    ASSERT_EQ(after, before + workers);
  }
  // Starts reads of memory that doesn't answer, and lets things come to a stop there.
  void start_and_hold(std::uint64_t how, std::uint64_t workers) {
    set_up_dma(HeldMemory::base, 0x4000, 0, workers);
    host.write64(probe::start, how);
    host.run_until([&] { return false; }, 100_us);
    ASSERT_GE(host.held.held(), workers);
  }
  void expect_response(tlm::tlm_response_status status, unsigned worker = 0) {
    EXPECT_EQ(result(worker, probe::result_response), response_of(status)) << "worker " << worker;
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, Adapter, testing::Values("functional", "timed"),
                         [](const auto& mode) { return std::string(mode.param); });

// ---- The function -----------------------------------------------------------------------------------------

TEST_P(Adapter, DescribesTheFunction) {
  EXPECT_EQ(host.config_read32(0x2c), 0x0efe'1234U);  // subsystem IDs default to the IDs
  const auto bars = host.device->bars();
  EXPECT_EQ(bars[0].size, 4096U);
  EXPECT_EQ(bars[2].size, 0x10000U);
  EXPECT_TRUE(bars[2].is_64bit);
  EXPECT_TRUE(bars[2].prefetchable);
  EXPECT_EQ(bars[4].size, 4096U);
  EXPECT_EQ(bars[5].size, 4096U);  // MSI-X
  for (const auto& bar : bars) {
    EXPECT_EQ(bar.memory_fd, -1);
  }
  ASSERT_EQ(host.device->msix_vectors(), 2U);
  // The MSI-X capability names BAR5 for both of its structures (PCIe Base 6.3 §7.7.2), and the serial number is
  // an extended capability with ID 3 (§7.9.3).
  std::uint32_t at = host.config_read32(0x34) & 0xff;
  while (at != 0 && (host.config_read32(at) & 0xff) != 0x11) {
    at = (host.config_read32(at) >> 8) & 0xff;
  }
  ASSERT_NE(at, 0U);
  EXPECT_EQ(host.config_read32(at + 4), 5U);
  EXPECT_EQ(host.config_read32(at + 8), 2048U | 5U);
  std::uint32_t extended = 0x100;
  while (extended != 0 && (host.config_read32(extended) & 0xffff) != 3) {
    extended = host.config_read32(extended) >> 20;
  }
  ASSERT_NE(extended, 0U);
  EXPECT_EQ(host.config_read32(extended + 4), 0x1234'5678U);
  EXPECT_EQ(host.config_read32(extended + 8), 0x0200'0000U);
  EXPECT_EQ(host.read64(0, 5), 0U);
  host.write64(0, ~0ULL, 5);  // the table is the VMM's: nothing to break here
  EXPECT_EQ(host.read64(0, 5), 0U);
}

// ---- Registers ----------------------------------------------------------------------------------------------

TEST_P(Adapter, RegistersInEverySize) {
  host.write64(probe::scratch, 0x8877'6655'4433'2211);
  EXPECT_EQ(host.read<std::uint8_t>(probe::scratch + 6), 0x77U);
  EXPECT_EQ(host.read<std::uint16_t>(probe::scratch + 2), 0x4433U);
  EXPECT_EQ(host.read32(probe::scratch + 4), 0x8877'6655U);
  host.post<std::uint8_t>(probe::scratch + 1, 0xee);
  host.platform.settle();
  EXPECT_EQ(host.read64(probe::scratch), 0x8877'6655'4433'ee11U);
}

TEST_P(Adapter, MemoryBarSeesAccessesWhole) {
  std::array<std::byte, 48> bytes;
  for (std::byte& b : bytes) {
    b = static_cast<std::byte>(host.random());
  }
  host.device->bar_write(2, 0x101, bytes);
  host.platform.settle();
  EXPECT_GE(host.read64(probe::last_length), 15U);  // a TLP: the CPU writes at most a 64-byte line
  std::array<std::byte, 48> back{};
  host.device->bar_read(2, 0x101, back);
  EXPECT_EQ(back, bytes);
}

TEST_P(Adapter, NarrowBarSeesAlignedPieces) {
  host.write64(0, 0x8877'6655'4433'2211, 4);
  EXPECT_EQ(host.read64(probe::accesses), 4U);
  EXPECT_EQ(host.read64(probe::last_length), 2U);
  EXPECT_EQ(host.read64(0, 2), 0x8877'6655'4433'2211U);
  const std::uint64_t before = host.read64(probe::accesses);
  EXPECT_EQ(host.read32(1, 4), 0x5544'3322U);  // 1 + 2 + 1 bytes
  EXPECT_EQ(host.read64(probe::accesses), before + 3);
  EXPECT_EQ(host.read64(probe::last_length), 1U);
}

TEST_P(Adapter, ErrorResponsesAnswerAllOnesAndTheDeviceGoesOn) {
  for (const auto status :
       {tlm::TLM_ADDRESS_ERROR_RESPONSE, tlm::TLM_COMMAND_ERROR_RESPONSE, tlm::TLM_BURST_ERROR_RESPONSE,
        tlm::TLM_BYTE_ENABLE_ERROR_RESPONSE, tlm::TLM_GENERIC_ERROR_RESPONSE, tlm::TLM_INCOMPLETE_RESPONSE}) {
    host.write64(probe::answer, static_cast<std::uint64_t>(static_cast<std::int64_t>(status)));
    EXPECT_EQ(host.read64(probe::fail), ~0ULL);
    host.write64(probe::fail, 1);
  }
  host.write64(probe::answer, tlm::TLM_OK_RESPONSE);
  EXPECT_EQ(host.read64(probe::fail), 0U);
}

TEST_P(Adapter, WhatAModelMustNotDoInAnAccessIsContained) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(host.read64(probe::throws), ~0ULL);
    EXPECT_EQ(host.read64(probe::waits), ~0ULL);
    set_up_dma(host.iova(0), 64, 0);
    static_cast<void>(host.read64(probe::dma_inside));
    expect_response(tlm::TLM_GENERIC_ERROR_RESPONSE);
    host.write64(probe::throws, 1);
    host.write64(probe::waits, 1);
  }
  host.write64(probe::scratch, 7);
  EXPECT_EQ(host.read64(probe::scratch), 7U);
  EXPECT_EQ(host.platform.iommu().fault_total(), 0U);
}

// It ends the run, and whoever runs it learns why.
TEST_P(Adapter, ExceptionThatLeavesAProcessReachesTheProgram) {
  try {
    host.write64(probe::throw_in_process, 1);
    host.run_to_rest();
    FAIL() << "no exception";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("thrown by a process"));
  }
}

// ---- Interrupts ---------------------------------------------------------------------------------------------

TEST_P(Adapter, InterruptsByCallAndBySignal) {
  host.write64(probe::send_msix, 0);
  host.run_to_rest();
  EXPECT_EQ(host.interrupts, std::vector<unsigned>({0}));
  host.write64(probe::raise_irq, 1);
  host.run_to_rest();
  EXPECT_EQ(host.interrupts, std::vector<unsigned>({0, 1}));
  host.write64(probe::raise_irq, 1);  // no edge
  host.run_to_rest();
  host.write64(probe::raise_irq, 0);  // a falling one
  host.run_to_rest();
  EXPECT_EQ(host.interrupts.size(), 2U);
  host.write64(probe::raise_irq, 1);
  host.run_to_rest();
  EXPECT_EQ(host.interrupts, std::vector<unsigned>({0, 1, 1}));
}

TEST_P(Adapter, VectorsThatDontExistAreDropped) {
  for (const std::uint64_t vector : {2ULL, 2047ULL, 4096ULL, 0xffff'ffffULL}) {
    host.write64(probe::send_msix, vector);
  }
  host.run_to_rest();
  EXPECT_TRUE(host.interrupts.empty());
}

TEST_P(Adapter, HandlerThatAccessesRegistersAtOnceIsNotInsideTheAccess) {
  std::uint64_t seen = 0;
  host.on_interrupt = [&] { seen = timed() ? 0x99 : host.read64(probe::scratch); };
  host.write64(probe::scratch, 0x99);
  host.write64(probe::send_msix, 0);
  host.run_to_rest();
  EXPECT_EQ(seen, 0x99U);
}

// ---- DMA ----------------------------------------------------------------------------------------------------

TEST_P(Adapter, DmaOfAnyLengthAndAlignment) {
  for (const std::uint64_t how : {probe::start_blocking, probe::start_completed}) {
    for (const std::uint64_t length : {1ULL, 3ULL, 64ULL, 4096ULL, 10'000ULL, 65'536ULL}) {
      const std::uint64_t offset = 0x10000 + host.uniform(0, 4095);
      host.fill_random(offset, length);
      dma(host.iova(offset), length, 0, how);
      expect_response(tlm::TLM_OK_RESPONSE);
      // To another place, with what stands around it unharmed.
      host.fill_random(0x80000, 0x20000);
      std::vector<unsigned char> expected(host.ram + 0x80000, host.ram + 0xa0000);
      const std::uint64_t to = host.uniform(1, 4095);
      std::memcpy(expected.data() + to, host.ram + offset, length);
      dma(host.iova(0x80000 + to), length, probe::flag_write, how);
      expect_response(tlm::TLM_OK_RESPONSE);
      EXPECT_EQ(std::memcmp(host.ram + 0x80000, expected.data(), expected.size()), 0) << length;
    }
  }
}

TEST_P(Adapter, WithoutAnExtensionToo) {
  host.fill_random(0x1000, 100);
  dma(host.iova(0x1000), 100, probe::flag_no_extension);
  expect_response(tlm::TLM_OK_RESPONSE);
  dma(host.iova(0x2000), 100, probe::flag_no_extension | probe::flag_write);
  EXPECT_EQ(std::memcmp(host.ram + 0x1000, host.ram + 0x2000, 100), 0);
  dma(0x10, 100, probe::flag_no_extension);
  expect_response(tlm::TLM_ADDRESS_ERROR_RESPONSE);
}

TEST_P(Adapter, ReadOfWhatIsntMappedIsAnAddressError) {
  host.unmap(0x5000, 4096);
  dma(host.iova(0x4000), 0x2000, 0);
  expect_response(tlm::TLM_ADDRESS_ERROR_RESPONSE);
  EXPECT_EQ(result(0, probe::result_status), static_cast<std::uint64_t>(pcie::CompletionStatus::unsupported_request));
  EXPECT_GE(result(0, probe::result_failed_address), host.iova(0x4000));
  EXPECT_LT(result(0, probe::result_failed_address), host.iova(0x6000));
  EXPECT_EQ(result(0, probe::result_cancelled), 0U);
}

TEST_P(Adapter, WritesArePostedUnlessConfirmed) {
  host.unmap(0x5000, 4096);
  dma(host.iova(0x5000), 64, probe::flag_write);
  expect_response(tlm::TLM_OK_RESPONSE);
  EXPECT_EQ(host.platform.iommu().fault_total(), 1U);
  dma(host.iova(0x5000), 64, probe::flag_write | probe::flag_confirm);
  expect_response(tlm::TLM_ADDRESS_ERROR_RESPONSE);
  dma(host.iova(0x6000), 64, probe::flag_write | probe::flag_confirm);
  expect_response(tlm::TLM_OK_RESPONSE);
}

TEST_P(Adapter, AddressesThatWrapAndBusMasterOff) {
  dma(~0ULL - 10, 64, 0);
  expect_response(tlm::TLM_ADDRESS_ERROR_RESPONSE);
  dma(~0ULL - 10, 64, probe::flag_write, probe::start_updated);
  expect_response(tlm::TLM_ADDRESS_ERROR_RESPONSE);
  host.command(pcie::command_bit::memory_space);
  dma(host.iova(0), 64, 0);
  expect_response(tlm::TLM_ADDRESS_ERROR_RESPONSE);
  EXPECT_EQ(host.platform.iommu().fault_total(), 0U);
}

TEST_P(Adapter, TransactionsOutsideTheRulesAreRefused) {
  for (const std::uint64_t how : {probe::start_blocking, probe::start_completed}) {
    dma(host.iova(0), 64, probe::flag_ignore, how);
    expect_response(tlm::TLM_COMMAND_ERROR_RESPONSE);
    dma(host.iova(0), 64, probe::flag_byte_enables, how);
    expect_response(tlm::TLM_BYTE_ENABLE_ERROR_RESPONSE);
    dma(host.iova(0), 64, probe::flag_streaming, how);
    expect_response(tlm::TLM_BURST_ERROR_RESPONSE);
    dma(host.iova(0), 0, 0, how);
    expect_response(tlm::TLM_BURST_ERROR_RESPONSE);
  }
}

TEST_P(Adapter, ManyTransactionsAtOnce) {
  for (const std::uint64_t how :
       {probe::start_blocking, probe::start_completed, probe::start_updated, probe::start_accepted}) {
    host.fill_random(0x10000, 0x10000);
    dma(host.iova(0x10000), 0x4000, 0, how, 4);
    for (unsigned i = 0; i < 4; ++i) {
      expect_response(tlm::TLM_OK_RESPONSE, i);
    }
    std::memset(host.ram + 0x40000, 0, 0x10000);
    dma(host.iova(0x40000), 0x4000, probe::flag_write | probe::flag_confirm, how, 4);
    EXPECT_EQ(std::memcmp(host.ram + 0x10000, host.ram + 0x40000, 0x10000), 0) << how;
  }
}

TEST_P(Adapter, OneFailureAmongManyIsItsOwn) {
  host.unmap(0x14000, 0x4000);
  dma(host.iova(0x10000), 0x4000, 0, probe::start_accepted, 4);
  for (unsigned i = 0; i < 4; ++i) {
    expect_response(i == 1 ? tlm::TLM_ADDRESS_ERROR_RESPONSE : tlm::TLM_OK_RESPONSE, i);
  }
}

TEST_P(Adapter, InterruptFollowsTheWritesBefore) {
  set_up_dma(host.iova(0x10000), 0x4000, probe::flag_write | probe::flag_interrupt);
  for (std::uint64_t i = 0; i < 0x4000; i += 8) {
    host.write64(i, 0x0101'0101'0101'0101 * (1 + i % 251), 2);
  }
  bool complete = false;
  host.on_interrupt = [&] {
    complete = true;
    for (std::uint64_t i = 0; i < 0x4000; ++i) {
      complete = complete && host.ram[0x10000 + i] == 1 + (i & ~7ULL) % 251;
    }
  };
  host.write64(probe::start, probe::start_blocking);
  ASSERT_TRUE(host.wait_for_interrupts(1));
  EXPECT_TRUE(complete);
}

TEST_P(Adapter, AnnotatedDelayIsWaitedForFirst) {
  host.write64(probe::annotated_ns, 5000);
  for (const std::uint64_t how : {probe::start_blocking, probe::start_completed}) {
    const std::uint64_t before = host.platform.now().count;
    dma(host.iova(0), 64, 0, how);
    EXPECT_GE(result(0, probe::result_started), before + 5'000'000);
    EXPECT_GE(result(0, probe::result_finished), result(0, probe::result_started));
    EXPECT_EQ(result(0, probe::result_returned), result(0, probe::result_finished));
    if (timed()) {
      // Across a switch and the root complex to DRAM and back: hundreds of nanoseconds, no more than a few.
      EXPECT_GT(result(0, probe::result_finished) - result(0, probe::result_started), 500'000U);
      EXPECT_LT(result(0, probe::result_finished) - result(0, probe::result_started), 3'000'000U);
    } else {
      EXPECT_EQ(result(0, probe::result_finished), result(0, probe::result_started));
    }
  }
}

TEST_P(Adapter, ResetEndsTransactionsAsCancelled) {
  for (const std::uint64_t how :
       {probe::start_blocking, probe::start_completed, probe::start_updated, probe::start_accepted}) {
    const std::uint64_t resets = host.read64(probe::resets);
    start_and_hold(how, 4);
    host.device->reset();
    host.command(pcie::command_bit::memory_space | pcie::command_bit::bus_master);
    host.run_to_rest();
    EXPECT_EQ(host.read64(probe::resets), resets + 1);
    for (unsigned i = 0; i < 4; ++i) {
      EXPECT_EQ(result(i, probe::result_ended), 1U);
      expect_response(tlm::TLM_GENERIC_ERROR_RESPONSE, i);
      EXPECT_EQ(result(i, probe::result_cancelled), 1U);
    }
    // Data that comes too late goes nowhere.
    host.write64(0, 0x1122'3344'5566'7788, 2);
    host.held.release(std::byte{0xaa});
    host.run_to_rest();
    EXPECT_EQ(host.read64(0, 2), 0x1122'3344'5566'7788U);
    EXPECT_TRUE(host.platform.at_rest());
    // The interface works on.
    host.fill_random(0x20000, 64);
    dma(host.iova(0x20000), 64, 0, how);
    expect_response(tlm::TLM_OK_RESPONSE);
    EXPECT_EQ(std::memcmp(&host.ram[0x20000], std::array{host.read64(0, 2)}.data(), 8), 0);
  }
}

TEST_P(Adapter, ResetBeforeAnAnnotatedDelayIsOver) {
  for (const std::uint64_t how : {probe::start_blocking, probe::start_completed}) {
    set_up_dma(host.iova(0x100000), 0x4000, 0, 2);
    host.write64(probe::annotated_ns, 1'000'000);
    host.write64(probe::start, how);
    host.platform.advance(host.platform.now() + 100_us, 0);
    host.device->reset();
    host.command(pcie::command_bit::memory_space | pcie::command_bit::bus_master);
    host.run_to_rest();
    for (unsigned i = 0; i < 2; ++i) {
      EXPECT_EQ(result(i, probe::result_ended), 1U);
      EXPECT_EQ(result(i, probe::result_cancelled), 1U);
    }
    EXPECT_EQ(host.platform.iommu().fault_total(), 0U);
    EXPECT_TRUE(host.platform.at_rest());
    host.write64(probe::annotated_ns, 0);
    dma(host.iova(0), 64, 0, how);
    expect_response(tlm::TLM_OK_RESPONSE);
  }
}

TEST_P(Adapter, ResetWithNothingUnderWay) {
  host.write64(probe::scratch, 1);
  host.device->reset();
  host.command(pcie::command_bit::memory_space);
  EXPECT_EQ(host.read64(probe::scratch), 0U);
  EXPECT_EQ(host.read64(probe::resets), 1U);
}

TEST_P(Adapter, KillingAThreadInsideADmaLeavesNoWriterBehind) {
  start_and_hold(probe::start_blocking, 2);
  host.write64(probe::kill, 1);
  host.run_to_rest();
  EXPECT_EQ(result(1, probe::result_ended), 0U);
  EXPECT_EQ(result(0, probe::result_ended), 1U);
  expect_response(tlm::TLM_GENERIC_ERROR_RESPONSE, 0);
  host.write64(0x4000, 0x1122'3344'5566'7788, 2);
  host.held.release(std::byte{0xaa});
  host.run_to_rest();
  EXPECT_EQ(host.read64(0x4000, 2), 0x1122'3344'5566'7788U);
  EXPECT_TRUE(host.platform.at_rest());
  dma(host.iova(0), 64, 0);
  expect_response(tlm::TLM_OK_RESPONSE);
}

// ---- Address types ----------------------------------------------------------------------------------------

TEST_P(Adapter, TranslatedRequestsWithoutTheRightAreRefused) {
  dma(host.iova(0), 64, probe::flag_translated);
  EXPECT_NE(result(0, probe::result_response), response_of(tlm::TLM_OK_RESPONSE));
}

// ---- Peers ------------------------------------------------------------------------------------------------

class AdapterPeers : public testing::TestWithParam<const char*> {
 protected:
  PluginHost host{ORRERY_TEST_PLUGINS "/probe_plugin.so", GetParam(), "",
                  "[[device]]\nslot = \"switch0.slot3\"\nname = \"peer\"\nmodel = \"" ORRERY_TEST_PLUGINS
                  "/probe_plugin.so\"\n"};
  pcie::FunctionAccess& peer = host.function("peer");

  void SetUp() override {
    host.enumerate(peer, 0xe100'0000);
    for (const unsigned bar : {0U, 2U}) {
      ASSERT_EQ(host.device->dma_map(Iova{host.bar_address(peer, bar)}, peer.bars()[bar].size, {true, true},
                                     std::nullopt, nullptr),
                pcie::MapResult::ok);
    }
  }
  void dma(std::uint64_t address, std::uint64_t length, std::uint64_t flags) {
    host.write64(probe::address, address);
    host.write64(probe::length, length);
    host.write64(probe::flags, flags);
    host.write64(probe::workers, 1);
    const std::uint64_t before = host.read64(probe::results + probe::result_ended);
    host.write64(probe::start, probe::start_blocking);
    host.run_to_rest();
    ASSERT_EQ(host.read64(probe::results + probe::result_ended), before + 1);
  }
  std::uint64_t response() { return host.read64(probe::results + probe::result_response); }
  void peer_write(std::uint64_t offset, std::uint64_t value) {
    peer.bar_write(0, offset, std::as_bytes(std::span(&value, 1)));
    host.platform.settle();
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, AdapterPeers, testing::Values("functional", "timed"),
                         [](const auto& mode) { return std::string(mode.param); });

TEST_P(AdapterPeers, OneModelsDmaIsTheOthersAccess) {
  std::vector<std::byte> bytes(8192);
  for (std::byte& b : bytes) {
    b = static_cast<std::byte>(host.random());
  }
  host.device->bar_write(2, 0, bytes);
  host.platform.settle();
  dma(host.bar_address(peer, 2) + 3, 8192, probe::flag_write | probe::flag_confirm);
  EXPECT_EQ(response(), response_of(tlm::TLM_OK_RESPONSE));
  std::vector<std::byte> back(8192);
  peer.bar_read(2, 3, back);
  EXPECT_EQ(back, bytes);
  host.device->bar_write(2, 0, std::vector<std::byte>(8192));
  host.platform.settle();
  dma(host.bar_address(peer, 2) + 3, 8192, 0);
  host.device->bar_read(2, 0, back);
  EXPECT_EQ(back, bytes);
}

TEST_P(AdapterPeers, ResponseStatusBecomesCompletionStatusAndBack) {
  const std::uint64_t fail = host.bar_address(peer, 0) + probe::fail;
  dma(fail, 8, 0);
  EXPECT_EQ(response(), response_of(tlm::TLM_GENERIC_ERROR_RESPONSE));  // `answer` is 0, INCOMPLETE: CA
  for (const auto& [given, seen] : {std::pair{tlm::TLM_ADDRESS_ERROR_RESPONSE, tlm::TLM_ADDRESS_ERROR_RESPONSE},
                                    std::pair{tlm::TLM_COMMAND_ERROR_RESPONSE, tlm::TLM_ADDRESS_ERROR_RESPONSE},
                                    std::pair{tlm::TLM_BURST_ERROR_RESPONSE, tlm::TLM_ADDRESS_ERROR_RESPONSE},
                                    std::pair{tlm::TLM_GENERIC_ERROR_RESPONSE, tlm::TLM_GENERIC_ERROR_RESPONSE},
                                    std::pair{tlm::TLM_OK_RESPONSE, tlm::TLM_OK_RESPONSE}}) {
    peer_write(probe::answer, static_cast<std::uint64_t>(static_cast<std::int64_t>(given)));
    dma(fail, 8, 0);
    EXPECT_EQ(response(), response_of(seen));
  }
  dma(host.bar_address(peer, 0) + probe::throws, 8, 0);
  EXPECT_EQ(response(), response_of(tlm::TLM_GENERIC_ERROR_RESPONSE));
  EXPECT_EQ(host.read64(probe::results + probe::result_status),
            static_cast<std::uint64_t>(pcie::CompletionStatus::completer_abort));
}

// ---- Time -------------------------------------------------------------------------------------------------

TEST(AdapterTime, DelaysOfABarAddUp) {
  PluginHost host(ORRERY_TEST_PLUGINS "/probe_plugin.so", "timed");
  const auto read_time = [&](std::uint64_t offset) {
    const Picoseconds before = host.platform.now();
    static_cast<void>(host.read64(offset));
    return (host.platform.now() - before).count;
  };
  const std::uint64_t quick = read_time(probe::scratch);
  EXPECT_GT(quick, 0U);
  host.write64(probe::delay_ns, 300);
  host.platform.advance(host.platform.now() + 10_us, 0);
  EXPECT_EQ(read_time(probe::slow), quick + 300'000);
  // Two posted writes of 300 ns each are in front of the read: it waits for them, less the few nanoseconds that
  // the read arrives behind the second.
  host.platform.advance(host.platform.now() + 10_us, 0);
  host.post<std::uint64_t>(probe::slow, 1);
  host.post<std::uint64_t>(probe::slow, 2);
  const std::uint64_t behind = read_time(probe::slow);
  EXPECT_GT(behind, quick + 850'000);
  EXPECT_LE(behind, quick + 900'000 + 50'000);
  // A BAR of its own isn't held up.
  host.platform.advance(host.platform.now() + 10_us, 0);
  host.post<std::uint64_t>(probe::slow, 1);
  const Picoseconds before = host.platform.now();
  static_cast<void>(host.read64(0, 2));
  EXPECT_LT((host.platform.now() - before).count, quick + 100'000);
}

TEST(AdapterTime, FunctionalModeIgnoresDelays) {
  PluginHost host(ORRERY_TEST_PLUGINS "/probe_plugin.so", "functional");
  host.write64(probe::delay_ns, 1'000'000);
  static_cast<void>(host.read64(probe::slow));
  EXPECT_EQ(host.platform.now().count, 0U);
}

}  // namespace
}  // namespace orrery::test
