// All that a new server must be told of a client, and the answers that the client gets meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "qemu_bridge/codec.h"
#include "qemu_bridge/relay/config_record.h"
#include "qemu_bridge/relay/device_description.h"
#include "qemu_bridge/relay/dma_record.h"
#include "qemu_bridge/relay/irq_record.h"
#include "qemu_bridge/relay/request.h"

namespace orrery::bridge {

// Payloads and descriptors are hostile: nothing is taken of a request that doesn't decode. One thread.
class ClientRecord {
 public:
  void open(const DeviceDescription& device);

  // Descriptors of a request as they are to be kept.
  [[nodiscard]] std::vector<SharedDescriptor> share(wire::Command command, std::span<FileDescriptor> descriptors);
  // A request that must not reach a server, since it couldn't be noted: its errno, else 0.
  [[nodiscard]] int admit(wire::Command command, std::span<const SharedDescriptor> descriptors) const;
  // A server has carried a request out (or was sent one that asks for no reply).
  void carried_out(wire::Command command, std::span<const std::byte> payload,
                   std::span<const SharedDescriptor> descriptors);

  // Answers in place of a server that isn't there: reads are all ones, writes are accepted, maps and interrupts are
  // noted, questions about the device have the first server's answers. Appends the payload of the reply; returns
  // the errno of an error reply, else 0.
  int answer(wire::Command command, std::span<const std::byte> payload, std::span<const SharedDescriptor> descriptors,
             std::vector<std::byte>& reply);
  // Commands whose answer never needs the server.
  [[nodiscard]] static bool answers_always(wire::Command command);
  // True if answer() has noted something that a server in the middle of a replay must be told, too.
  [[nodiscard]] static bool concerns_replay(wire::Command command, std::span<const std::byte> payload);

  // What leads a device that was just reset to where it was.
  [[nodiscard]] std::vector<RelayRequest> replay() const;
  [[nodiscard]] const DmaRecord& dma() const { return dma_; }

 private:
  int answer_map(std::span<const std::byte> payload, std::span<const SharedDescriptor> descriptors);
  int answer_unmap(std::span<const std::byte> payload, std::vector<std::byte>& reply);
  int answer_question(wire::Command command, std::span<const std::byte> payload, std::vector<std::byte>& reply) const;
  int answer_irqs(std::span<const std::byte> payload, std::span<const SharedDescriptor> descriptors);
  int answer_read(std::span<const std::byte> payload, std::vector<std::byte>& reply) const;
  int answer_write(std::span<const std::byte> payload, std::vector<std::byte>& reply);
  int answer_multi(std::span<const std::byte> payload, std::vector<std::byte>& reply);

  DeviceDescription device_;
  DmaRecord dma_;
  IrqRecord irqs_;
  ConfigRecord config_;
};

}  // namespace orrery::bridge
