// The life of a command: doorbell, entry, mailboxes, execution, reply. One command at a time.
#include "firmware/capabilities.h"
#include "firmware/firmware.h"

namespace orrery::firmware {

namespace reg = rnic::reg;
using namespace layout;

namespace {

constexpr std::uint32_t command_channel = 0;
constexpr std::uint32_t work_channel = 1;
constexpr std::uint32_t no_slot = 32;

// The first bit set above `after`, or else the first at all.
std::uint32_t next_bit(std::uint64_t bits, std::uint32_t after, std::uint32_t width) {
  for (std::uint32_t i = 1; i <= width; ++i) {
    const std::uint32_t bit = (after + i) % width;
    if ((bits >> bit & 1U) != 0) {
      return bit;
    }
  }
  return width;
}

std::uint64_t read_pair(const Hal& hal, std::uint32_t offset) {
  const std::uint64_t low = read32(hal, offset);
  return low | static_cast<std::uint64_t>(read32(hal, offset + 4)) << 32;
}

constexpr std::uint32_t cmd_interface_revision = 5;
constexpr std::uint32_t log_slots = 5;
constexpr std::uint32_t log_slot_bytes = 6;
constexpr std::uint32_t firmware_major = 16;
constexpr std::uint32_t firmware_minor = 99;
constexpr std::uint32_t firmware_sub = 1000;
constexpr std::uint32_t watchdog_us = 5'000'000;
constexpr std::uint32_t syndrome_processor_dead = 0x07;  // health syndrome: the management processor is stuck

constexpr std::uint32_t event_command_completion = 0x0a;

}  // namespace

void Firmware::boot(const Hal& hal) {
  hal_ = hal;
  ethernet_ = strap(reg::strap_port_type) == static_cast<std::uint32_t>(reg::PortType::ethernet);
  translations.begin(strap(reg::strap_translation_entries));
  last_slot_ = no_slot - 1;
  const std::uint32_t count = strap(reg::strap_functions);
  for (std::uint32_t f = 0; f < count; ++f) {
    functions[f].number = f;
    reset_function(functions[f]);
    // The part of the init segment that doesn't change: revisions and the shape of the command queue.
    write32(hal_, reg::init_select, f);
    write32(hal_, reg::init_segment + 0x00, swap32(firmware_minor << 16 | firmware_major));
    write32(hal_, reg::init_segment + 0x04, swap32(cmd_interface_revision << 16 | firmware_sub));
    write32(hal_, reg::init_segment + 0x14, swap32(log_slots << 4 | log_slot_bytes));
    write32(hal_, reg::init_segment + 0x230, swap32(firmware_major << 24 | firmware_minor << 16 | firmware_sub));
    write32(hal_, reg::init_segment + 0x234, swap32(0x216));
  }
  write32(hal_, reg::fatal_syndrome, syndrome_processor_dead);
  write32(hal_, reg::watchdog_period, watchdog_us);
  update_enables();
  write32(hal_, reg::ready, 1);
}

// Level events whose handling has to wait would wake us in vain: they are enabled only when they can be handled.
void Firmware::update_enables() const {
  std::uint32_t enable = reg::event_init_written | reg::event_dma_done | reg::event_function_reset |
                         reg::event_watchdog_warning | reg::event_context_idle | reg::event_timer;
  if (command_.phase == Phase::idle) {
    enable |= reg::event_command;
  }
  if (queue_count_ < work_items) {
    enable |= reg::event_hardware;
  }
  write32(hal_, reg::event_enable, enable);
}

void Firmware::step() {
  const std::uint32_t pending = read32(hal_, reg::event_pending);
  write32(hal_, reg::watchdog_kick, 1);
  write32(hal_, reg::event_pending, pending & reg::event_latched);
  if ((pending & reg::event_function_reset) != 0) {
    handle_resets();
  }
  if ((pending & reg::event_init_written) != 0) {
    handle_init_writes();
  }
  if ((pending & reg::event_dma_done) != 0) {
    handle_dma();
  }
  if ((pending & reg::event_hardware) != 0) {
    handle_hardware_events();
  }
  if ((pending & reg::event_context_idle) != 0) {
    on_context_idle();
  }
  if ((pending & (reg::event_context_idle | reg::event_timer)) != 0) {
    on_work_drained();
  }
  if (work_.phase == WorkPhase::idle && queue_count_ > 0) {
    next_work();
  }
  if (command_.phase == Phase::idle) {
    next_command();
  }
  update_enables();
}

void Firmware::handle_resets() {
  const std::uint64_t functions_reset = read_pair(hal_, reg::function_reset_low);
  write32(hal_, reg::function_reset_low, static_cast<std::uint32_t>(functions_reset));
  write32(hal_, reg::function_reset_high, static_cast<std::uint32_t>(functions_reset >> 32));
  const std::uint32_t count = strap(reg::strap_functions);
  for (std::uint32_t f = 0; f < count; ++f) {
    if ((functions_reset >> f & 1U) != 0) {
      reset_function(functions[f]);
    }
  }
}

// The guest wrote the command queue's address, or asked for the interface to be disabled or reset.
void Firmware::handle_init_writes() {
  const std::uint64_t written = read_pair(hal_, reg::init_written_low);
  write32(hal_, reg::init_written_low, static_cast<std::uint32_t>(written));
  write32(hal_, reg::init_written_high, static_cast<std::uint32_t>(written >> 32));
  const std::uint32_t count = strap(reg::strap_functions);
  for (std::uint32_t f = 0; f < count; ++f) {
    if ((written >> f & 1U) == 0) {
      continue;
    }
    const std::uint32_t interface = read32(hal_, reg::nic_interface + 4 * f);
    if (interface == static_cast<std::uint32_t>(reg::NicInterface::disabled) ||
        interface == static_cast<std::uint32_t>(reg::NicInterface::software_reset)) {
      context_op(rnic::ContextKind::function, f, reg::ContextOp::reset_function);
      reset_function(functions[f]);
      // A software reset ends disabled, as the driver waits for.
      write32(hal_, reg::nic_interface + 4 * f, static_cast<std::uint32_t>(reg::NicInterface::disabled));
    }
  }
}

void Firmware::reset_function(Function& function) {
  if (command_.phase != Phase::idle && command_.function == function.number) {
    abandon_command();
  }
  if (work_.phase != WorkPhase::idle && work_.function == function.number) {
    write32(hal_, reg::dma_status + work_channel * reg::dma_stride, 1);
    work_.phase = WorkPhase::idle;
  }
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < queue_count_; ++i) {
    const WorkItem item = queue_[(queue_head_ + i) % work_items];
    if (item.function != function.number) {
      queue_[(queue_head_ + kept++) % work_items] = item;
    }
  }
  queue_count_ = kept;
  drop_objects(function, false);
  drop_pages(function);
  const std::uint32_t number = function.number;
  function = Function{};
  function.number = number;
  reset_capabilities(*this, function);
  function.vport.mac = strap_mac(function);
  function.vport.mtu = 1500;
}

std::uint64_t Firmware::port_guid(const Function& function) const {
  return read_pair(hal_, reg::strap_guid_low) + function.number;
}

std::uint64_t Firmware::strap_mac(const Function& function) const {
  return read_pair(hal_, reg::strap_mac_low) + function.number;
}

// ---- DMA -------------------------------------------------------------------------------------------------------

void Firmware::start_dma(std::uint32_t channel, std::uint32_t function, reg::DmaCommand command, std::uint64_t address,
                         std::uint32_t local, std::uint32_t length) const {
  const std::uint32_t base = channel * reg::dma_stride;
  write32(hal_, base + reg::dma_function, function);
  write32(hal_, base + reg::dma_address_low, static_cast<std::uint32_t>(address));
  write32(hal_, base + reg::dma_address_high, static_cast<std::uint32_t>(address >> 32));
  write32(hal_, base + reg::dma_local, local);
  write32(hal_, base + reg::dma_length, length);
  write32(hal_, base + reg::dma_control, static_cast<std::uint32_t>(command));
}

void Firmware::handle_dma() {
  for (std::uint32_t channel = 0; channel <= work_channel; ++channel) {
    const std::uint32_t offset = reg::dma_status + channel * reg::dma_stride;
    const auto status = static_cast<reg::DmaStatus>(read32(hal_, offset));
    if (status != reg::DmaStatus::done && status != reg::DmaStatus::error) {
      continue;
    }
    write32(hal_, offset, 1);
    const bool ok = status == reg::DmaStatus::done;
    if (channel == command_channel) {
      on_command_dma(ok);
    } else {
      on_work_dma(ok);
    }
  }
}

// ---- The command -----------------------------------------------------------------------------------------------

void Firmware::next_command() {
  const std::uint64_t waiting = read_pair(hal_, reg::command_functions_low);
  if (waiting == 0) {
    return;
  }
  const std::uint32_t f = next_bit(waiting, last_function_, rnic::max_functions);
  const std::uint32_t slots = read32(hal_, reg::command_doorbell + 4 * f);
  const std::uint32_t slot = next_bit(slots, last_slot_, no_slot);
  last_function_ = f;
  if (slot == no_slot) {
    return;
  }
  last_slot_ = slot;
  write32(hal_, reg::command_doorbell + 4 * f, 1U << slot);
  command_.function = f;
  command_.slot = static_cast<std::uint8_t>(slot);
  command_.entry_address = read_pair(hal_, reg::command_queue_low + 8 * f) + slot * entry::bytes;
  command_.info = nullptr;
  command_.result = Result{};
  command_.delivery = Delivery::ok;
  command_.opcode = 0;
  command_.op_mod = 0;
  command_.by_event = functions[f].command_eqn != 0;
  command_.phase = Phase::fetch_entry;
  start_dma(command_channel, f, reg::DmaCommand::read, command_.entry_address, local::entry, entry::bytes);
}

void Firmware::abandon_command() {
  write32(hal_, reg::dma_status + command_channel * reg::dma_stride, 1);
  command_.phase = Phase::idle;
}

void Firmware::on_command_dma(bool ok) {
  switch (command_.phase) {
    case Phase::fetch_entry:
      // An entry that can't be read can't be answered either: the driver's own time limit ends it.
      ok ? on_entry() : abandon_command();
      return;
    case Phase::fetch_input:
      ok ? on_input_block() : reject(Delivery::firmware);
      return;
    case Phase::fetch_output:
      ok ? on_output_trailer() : reject(Delivery::firmware);
      return;
    case Phase::write_mailbox:
      ++command_.block;
      write_mailbox();
      return;
    case Phase::write_inline:
      write_status();
      return;
    case Phase::write_status:
      finish_command();
      return;
    case Phase::idle:
    case Phase::draining:
      return;
  }
}

// Ends a command that can't be executed: no output, only the delivery status.
void Firmware::reject(Delivery delivery) {
  command_.delivery = delivery;
  write_status();
}

void Firmware::on_entry() {
  const View e(hal_, local::entry);
  if (e.get(entry::owner) == 0) {
    abandon_command();  // a doorbell without a command
    return;
  }
  command_.input_length = e.get(entry::input_length);
  command_.output_length = e.get(entry::output_length);
  command_.token = static_cast<std::uint8_t>(e.get(entry::token));
  for (std::uint32_t at = 0; at < entry::inline_bytes; at += 4) {
    input().set_word(at, e.word(entry::input_inline + at));
  }
  command_.opcode = static_cast<std::uint16_t>(input().get(head::opcode));
  command_.op_mod = static_cast<std::uint16_t>(input().get(head::op_mod));
  if (e.get(entry::type) != entry::type_pci) {
    reject(Delivery::descriptor);
    return;
  }
  if (command_.input_length < 8 || command_.input_length > max_input) {
    reject(Delivery::input_length);
    return;
  }
  if (command_.output_length < 8 || command_.output_length > max_output) {
    reject(Delivery::output_length);
    return;
  }
  command_.block = 0;
  command_.mailbox = e.get(entry::input_mailbox);
  if (command_.input_length > entry::inline_bytes) {
    fetch_input_block();
    return;
  }
  command_.mailbox = e.get(entry::output_mailbox);
  fetch_output_trailer();
}

// A block lands behind its predecessor's data: its trailer is looked at and then overwritten by the next.
void Firmware::fetch_input_block() {
  if (command_.mailbox == 0 || command_.mailbox % mailbox::data_bytes != 0) {
    reject(Delivery::input_pointer);
    return;
  }
  command_.phase = Phase::fetch_input;
  start_dma(command_channel, command_.function, reg::DmaCommand::read, command_.mailbox,
            local::input + entry::inline_bytes + command_.block * mailbox::data_bytes, mailbox::bytes);
}

void Firmware::on_input_block() {
  const View trailer(hal_, local::input + entry::inline_bytes + (command_.block + 1) * mailbox::data_bytes);
  if (trailer.get(mailbox::token) != command_.token) {
    reject(Delivery::token);
    return;
  }
  if (trailer.get(mailbox::number) != command_.block) {
    reject(Delivery::block_number);
    return;
  }
  ++command_.block;
  if (entry::inline_bytes + command_.block * mailbox::data_bytes < command_.input_length) {
    command_.mailbox = trailer.get(mailbox::next);
    fetch_input_block();
    return;
  }
  command_.block = 0;
  command_.mailbox = View(hal_, local::entry).get(entry::output_mailbox);
  fetch_output_trailer();
}

// The output's chain is walked before anything is executed: a bad one must not leave an object behind.
void Firmware::fetch_output_trailer() {
  if (entry::inline_bytes + command_.block * mailbox::data_bytes >= command_.output_length) {
    execute();
    return;
  }
  if (command_.mailbox == 0 || command_.mailbox % mailbox::data_bytes != 0) {
    reject(Delivery::output_pointer);
    return;
  }
  command_.phase = Phase::fetch_output;
  command_.output_blocks[command_.block] = command_.mailbox;
  start_dma(command_channel, command_.function, reg::DmaCommand::read, command_.mailbox + mailbox::data_bytes,
            local::trailer, mailbox::trailer_bytes);
}

void Firmware::on_output_trailer() {
  const View trailer(hal_, local::trailer);
  if (trailer.get(mailbox::token) != command_.token) {
    reject(Delivery::token);
    return;
  }
  if (trailer.get(mailbox::number) != command_.block) {
    reject(Delivery::block_number);
    return;
  }
  ++command_.block;
  command_.mailbox = trailer.get(mailbox::next);
  fetch_output_trailer();
}

bool Firmware::inject(Result& result) const {
  const std::uint32_t count = read32(hal_, reg::fault_count);
  if (count == 0 || read32(hal_, reg::fault_opcode) != command_.opcode) {
    return false;
  }
  if (count != 0xffff'ffffU) {
    write32(hal_, reg::fault_count, count - 1);
  }
  result.status = static_cast<Status>(read32(hal_, reg::fault_status));
  result.syndrome = read32(hal_, reg::fault_syndrome);
  return true;
}

void Firmware::execute() {
  Function& function = functions[command_.function];
  output().clear((command_.output_length + 3) & ~3U);
  command_.info = find_command(command_.opcode);
  const CommandInfo* info = command_.info;
  Result result;
  if (info == nullptr) {
    result = failed(Status::bad_opcode, Syndrome::unknown_opcode);
  } else if (command_.input_length < info->input) {
    result = failed(Status::bad_input_length, Syndrome::length);
  } else if (command_.output_length < info->output) {
    result = failed(Status::bad_output_length, Syndrome::length);
  } else if ((info->needs >= needs_enabled && !function.enabled) ||
             (info->needs >= needs_initialised && !function.initialised)) {
    result = failed(Status::bad_system_state, Syndrome::not_enabled);
  } else if (!inject(result)) {
    result = info->run(*this, function);
  }
  command_.result = result;
  if (result.pending) {
    command_.phase = Phase::draining;
    on_context_idle();  // it may have happened in between
    return;
  }
  begin_reply();
}

void Firmware::on_context_idle() {
  if (command_.phase != Phase::draining) {
    return;
  }
  command_.result = command_.info->finish(*this, functions[command_.function]);
  if (!command_.result.pending) {
    begin_reply();
  }
}

void Firmware::begin_reply() {
  const Result& result = command_.result;
  if (result.status != Status::ok) {
    output().clear((command_.output_length + 3) & ~3U);
    output().set(head::status, static_cast<std::uint32_t>(result.status));
    output().set_word(head::syndrome, result.syndrome);
  }
  command_.block = 0;
  write_mailbox();
}

void Firmware::write_mailbox() {
  const std::uint32_t done = entry::inline_bytes + command_.block * mailbox::data_bytes;
  if (done >= command_.output_length) {
    write_inline();
    return;
  }
  const std::uint32_t left = command_.output_length - done;
  command_.phase = Phase::write_mailbox;
  start_dma(command_channel, command_.function, reg::DmaCommand::write, command_.output_blocks[command_.block],
            local::output + done, left < mailbox::data_bytes ? left : mailbox::data_bytes);
}

void Firmware::write_inline() {
  command_.phase = Phase::write_inline;
  start_dma(command_channel, command_.function, reg::DmaCommand::write, command_.entry_address + entry::output_inline,
            local::output, entry::inline_bytes);
}

// The ownership bit goes last, in a write of its own. Signature: all 64 bytes XOR to 0xff.
void Firmware::write_status() {
  const View e(hal_, local::entry);
  if (command_.delivery == Delivery::ok) {
    for (std::uint32_t at = 0; at < entry::inline_bytes; at += 4) {
      e.set_word(entry::output_inline + at, output().word(at));
    }
  }
  e.set(entry::delivery, static_cast<std::uint32_t>(command_.delivery));
  e.set(entry::owner, 0);
  e.set(entry::signature, 0);
  std::uint32_t sum = 0;
  for (std::uint32_t at = 0; at < entry::bytes; at += 4) {
    sum ^= e.word(at);
  }
  sum ^= sum >> 16;
  e.set(entry::signature, ~(sum ^ sum >> 8) & 0xffU);
  command_.phase = Phase::write_status;
  start_dma(command_channel, command_.function, reg::DmaCommand::write, command_.entry_address + entry::last_word,
            local::entry + entry::last_word, 4);
}

void Firmware::trace() const {
  write32(hal_, reg::trace_command,
          static_cast<std::uint32_t>(command_.opcode) << 16 | static_cast<std::uint32_t>(command_.op_mod));
  write32(hal_, reg::trace_status,
          static_cast<std::uint32_t>(command_.delivery) << 8 | static_cast<std::uint32_t>(command_.result.status));
  write32(hal_, reg::trace_syndrome, command_.result.syndrome);
  write32(hal_, reg::trace_commit, command_.function);
}

// The driver polls until it has a command EQ; the command that creates that EQ is itself polled for, and so is
// whatever follows its end.
void Firmware::finish_command() {
  const Function& function = functions[command_.function];
  trace();
  if (command_.by_event && function.command_eqn != 0) {
    push_event(function, function.command_eqn, event_command_completion, 0, {1U << command_.slot});
  }
  command_.phase = Phase::idle;
}

}  // namespace orrery::firmware
