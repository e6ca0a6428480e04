// The DMA channels between guest memory and SRAM.
#include "systemc_models/rnic/management_block.h"

#include "systemc_models/rnic/management_words.h"

namespace orrery::rnic {

void ManagementBlock::drop_dma(std::uint32_t function) {
  for (Channel& channel : channels_) {
    if (channel.status == reg::DmaStatus::busy && channel.function == function) {
      channel.status = reg::DmaStatus::error;
    }
  }
}

void ManagementBlock::on_dma_done(pcie::DmaTransfer& transfer) {
  for (Channel& channel : channels_) {
    if (&channel.transfer == &transfer && channel.status == reg::DmaStatus::busy) {
      channel.status =
          transfer.status == pcie::CompletionStatus::success ? reg::DmaStatus::done : reg::DmaStatus::error;
    }
  }
  wake();
}

std::uint32_t ManagementBlock::read_dma(std::uint32_t offset) const {
  const std::uint32_t channel = (offset - reg::dma_function) / reg::dma_stride;
  const std::uint32_t at = reg::dma_function + (offset - reg::dma_function) % reg::dma_stride;
  if (channel >= reg::dma_channels) {
    return 0;
  }
  if (within_block(at, reg::dma_function, 5)) {
    return channels_[channel].setup[(at - reg::dma_function) / 4];
  }
  return at == reg::dma_status ? static_cast<std::uint32_t>(channels_[channel].status) : 0;
}

void ManagementBlock::write_dma(std::uint32_t offset, std::uint32_t value) {
  const std::uint32_t number = (offset - reg::dma_function) / reg::dma_stride;
  const std::uint32_t at = reg::dma_function + (offset - reg::dma_function) % reg::dma_stride;
  if (number >= reg::dma_channels || channels_[number].status == reg::DmaStatus::busy) {
    bad_access();
    return;
  }
  Channel& channel = channels_[number];
  if (within_block(at, reg::dma_function, 5)) {
    channel.setup[(at - reg::dma_function) / 4] = value;
  } else if (at == reg::dma_control) {
    start_dma(channel, value);
  } else if (at == reg::dma_status) {
    channel.status = reg::DmaStatus::idle;
  } else {
    bad_access();
  }
}

void ManagementBlock::start_dma(Channel& channel, std::uint32_t value) {
  const auto [function, address_low, address_high, local, length] = channel.setup;
  std::uint64_t address = address_low | static_cast<std::uint64_t>(address_high) << 32;
  const auto command = static_cast<reg::DmaCommand>(value);
  channel.status = reg::DmaStatus::error;
  if ((command != reg::DmaCommand::read && command != reg::DmaCommand::write) || function >= functions_.size() ||
      functions_[function].port == nullptr || length == 0 || local > sram_.size() || length > sram_.size() - local) {
    bad_access();
    return;
  }
  if (faults_.any() && faults_.fails(static_cast<std::uint32_t>(&channel - channels_.data()))) {
    wake();
    return;
  }
  const FunctionState& f = functions_[function];
  // What a guest gives as an address may be anything: no access wraps, none leaves the function's window.
  if (address + length < address ||
      (f.window_limit != 0 && (address >= f.window_limit || length > f.window_limit - address))) {
    return;
  }
  address += f.window_base;
  if (address + length < address) {
    return;
  }
  channel.function = function;
  channel.status = reg::DmaStatus::busy;
  pcie::DmaTransfer& transfer = channel.transfer;
  transfer.kind = command == reg::DmaCommand::read ? pcie::DmaTransfer::Kind::read : pcie::DmaTransfer::Kind::write;
  transfer.address = address;
  transfer.length = length;
  transfer.buffer = sram_.data() + local;
  counters_.dma_bytes += length;
  f.port->start(transfer);
}

}  // namespace orrery::rnic
