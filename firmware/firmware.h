// The RNIC's management firmware: command queues, resource tables, memory registration, events, health.
//
// Freestanding, without heap, exceptions or waiting: step() does what can be done now and returns; whatever it
// started (a DMA, a queue that drains) raises an event that wakes it again. One object per RNIC serves all its
// functions. It must lie in zeroed memory (a .bss, calloc): all zero is the state before boot().
#pragma once

#include <cstdint>

#include "firmware/hal.h"
#include "firmware/interface/contexts.h"
#include "firmware/interface/registers.h"
#include "firmware/layouts.h"
#include "firmware/objects.h"
#include "firmware/translation_pool.h"

namespace orrery::firmware {

// Status of a command's output.
enum class Status : std::uint8_t {
  ok = 0x00,
  internal = 0x01,
  bad_opcode = 0x02,
  bad_parameter = 0x03,
  bad_system_state = 0x04,
  bad_resource = 0x05,
  busy = 0x06,
  limit = 0x08,
  bad_resource_state = 0x09,
  bad_index = 0x0a,
  no_resources = 0x0f,
  bad_qp_state = 0x10,
  bad_size = 0x40,
  bad_input_length = 0x50,
  bad_output_length = 0x51,
};

// Delivery status of a command queue entry: whether it could be executed at all.
enum class Delivery : std::uint8_t {
  ok = 0x0,
  token = 0x2,
  block_number = 0x3,
  output_pointer = 0x4,
  input_pointer = 0x5,
  firmware = 0x6,  // the mailbox couldn't be read
  input_length = 0x7,
  output_length = 0x8,
  descriptor = 0x10,
};

// Why a command failed, in its syndrome. Meanings, not places: docs/firmware.md lists them.
enum class Syndrome : std::uint32_t {
  none = 0,
  unknown_opcode = 0x0100,
  not_enabled = 0x0101,     // ENABLE_HCA or INIT_HCA is missing
  already = 0x0102,         // it is enabled or initialised
  length = 0x0103,          // of input or output
  list_length = 0x0104,     // the page or key list is longer than the input
  handle = 0x0110,          // no such object of this function
  in_use = 0x0111,          // others refer to it
  exhausted = 0x0112,       // no number left
  no_translation = 0x0113,  // no translation memory left
  state = 0x0114,           // of the object
  pd = 0x0120,              // objects that the command names
  uar = 0x0121,
  cq = 0x0122,
  eq = 0x0123,
  srq = 0x0124,
  xrcd = 0x0125,
  transport_domain = 0x0126,
  queue = 0x0127,
  table = 0x0128,
  counter_set = 0x0129,
  value = 0x0130,  // a field out of range
  size = 0x0131,
  unsupported = 0x0132,  // what no capability offers
  register_id = 0x0133,
  hardware = 0x0140,  // + ContextStatus: the hardware refused
  injected = 0x0fff,
};

struct Result {
  Status status = Status::ok;
  std::uint32_t syndrome = 0;
  bool pending = false;  // the hardware drains; CommandInfo::finish is called when it has
};
constexpr Result failed(Status status, Syndrome why) {
  return {status, static_cast<std::uint32_t>(why), false};
}

class Firmware;
struct Function;

struct CommandInfo {
  std::uint16_t opcode;
  const char* name;
  std::uint16_t input;   // fewest bytes
  std::uint16_t output;  // fewest bytes
  std::uint8_t needs;    // enum Needs
  Result (*run)(Firmware&, Function&);
  Result (*finish)(Firmware&, Function&);  // null: it never drains
};
enum Needs : std::uint8_t { needs_nothing = 0, needs_enabled = 1, needs_initialised = 2 };

// The command of that opcode, or null.
const CommandInfo* find_command(std::uint32_t opcode);
// All of them, for documentation and tests.
const CommandInfo* commands(std::uint32_t& count);

inline constexpr std::uint32_t general_words = 64;  // of the general capability block that mean anything to us
inline constexpr std::uint32_t donated_pages = 4096;
inline constexpr std::uint32_t eq_count = rnic::max_eqs;

struct Vport {
  std::uint64_t mac = 0;
  std::uint32_t mtu = 0;
  std::uint32_t promiscuous = 0;
  std::uint32_t roce = 0;
  bool down = false;            // by the driver's will
  std::uint32_t addresses = 0;  // of its list of unicast addresses that the hardware has
};

struct Function {
  std::uint32_t number = 0;
  bool enabled = false;
  bool initialised = false;
  std::uint16_t issi = 0;
  std::uint32_t command_eqn = 0;              // 0: the driver polls
  std::uint32_t pages = 0;                    // given by the driver
  std::uint32_t general[general_words] = {};  // current capabilities
  std::uint32_t atomic_mode = 0;
  Vport vport;
  Eq eqs[eq_count];
};

// Where things lie in the shared SRAM.
namespace local {
inline constexpr std::uint32_t entry = 0x0;
inline constexpr std::uint32_t input = 0x100;
inline constexpr std::uint32_t input_blocks = 1024;
inline constexpr std::uint32_t output = 0x9'0000;
inline constexpr std::uint32_t output_blocks = 32;
inline constexpr std::uint32_t trailer = 0x9'8000;
inline constexpr std::uint32_t work = 0xa'0000;  // a list of a work request
inline constexpr std::uint32_t work_bytes = 0x1'0000;
inline constexpr std::uint32_t request = 0xb'0000;  // a copy of the work request
}  // namespace local
inline constexpr std::uint32_t max_input = layout::entry::inline_bytes + local::input_blocks * 512;
inline constexpr std::uint32_t max_output = layout::entry::inline_bytes + local::output_blocks * 512;

class Firmware {
 public:
  // Once, after reset. `hal` is kept.
  void boot(const Hal& hal);
  // Handles what is pending.
  void step();

  // ---- What the commands work with -----------------------------------------------------------------------------
  [[nodiscard]] const Hal& hal() const { return hal_; }
  [[nodiscard]] View input() const { return {hal_, local::input}; }
  [[nodiscard]] View output() const { return {hal_, local::output}; }
  [[nodiscard]] std::uint32_t input_length() const { return command_.input_length; }
  [[nodiscard]] std::uint32_t output_length() const { return command_.output_length; }
  [[nodiscard]] std::uint32_t opcode() const { return command_.opcode; }
  [[nodiscard]] std::uint32_t op_mod() const { return command_.op_mod; }
  [[nodiscard]] std::uint32_t handle() const { return input().get(layout::head::handle); }
  void give_handle(std::uint32_t handle) const { output().set(layout::head::handle, handle); }
  [[nodiscard]] bool ethernet() const { return ethernet_; }
  [[nodiscard]] std::uint32_t strap(std::uint32_t offset) const { return read32(hal_, offset); }
  [[nodiscard]] std::uint64_t port_guid(const Function& function) const;
  [[nodiscard]] std::uint64_t strap_mac(const Function& function) const;

  // Hardware contexts. `words`: of the structure.
  rnic::reg::ContextStatus write_context(rnic::ContextKind kind, std::uint32_t index, const void* context,
                                         std::uint32_t bytes) const;
  rnic::reg::ContextStatus read_context(rnic::ContextKind kind, std::uint32_t index, void* context,
                                        std::uint32_t bytes) const;
  rnic::reg::ContextStatus context_op(rnic::ContextKind kind, std::uint32_t index, rnic::reg::ContextOp op,
                                      std::uint32_t value = 0) const;
  // Tells the hardware what the function's vport is like now.
  void write_function(const Function& function) const;

  // Translation memory.
  [[nodiscard]] bool allocate_run(std::uint32_t entries, Run& run);
  void release_run(Run& run);
  // Pages are `function`'s.
  rnic::reg::ContextStatus load_list(std::uint32_t function, std::uint32_t local, std::uint32_t index,
                                     std::uint32_t count, rnic::reg::BulkFormat format, std::uint32_t flags) const;
  // A queue's page list in the input at `offset`: allocates its run, loads it and describes the buffer.
  Result load_queue(std::uint32_t list, std::uint32_t log_page_size, std::uint32_t offset, std::uint64_t bytes,
                    Run& run, rnic::QueueBuffer& buffer);

  // References. A number of 0 refers to nothing.
  template <class Table>
  static void refer(Table& table, std::uint32_t number, int by) {
    if (number != 0) {
      table[number].references += static_cast<std::uint32_t>(by);
    }
  }

  // Puts an event into an EQ. Data: 7 big-endian words.
  void push_event(const Function& function, std::uint32_t eqn, std::uint32_t type, std::uint32_t subtype,
                  const std::uint32_t (&data)[7]) const;
  // Into every EQ of the function that wants the type.
  void raise_event(const Function& function, std::uint32_t type, std::uint32_t subtype,
                   const std::uint32_t (&data)[7]) const;

  // Frees everything of the function; the hardware's contexts are gone already, or go now.
  void drop_objects(Function& function, bool hardware_too);
  // Forgets the pages that the function's driver gave.
  void drop_pages(Function& function);
  void reset_function(Function& function);

  // The object that the command drains, for `finish`.
  void remember(std::uint32_t number) { command_.draining = number; }
  [[nodiscard]] std::uint32_t remembered() const { return command_.draining; }

  // ---- Tables ---------------------------------------------------------------------------------------------------
  ObjectTable<Pd, 1U << 16, 1> pds;
  ObjectTable<Uar, 8192 - 8, 8> uars;  // page 0 is the init segment; the driver keeps away from the first ones
  ObjectTable<XrcDomain, 1U << 12, 1> xrc_domains;
  ObjectTable<TransportDomain, 1U << 10, 1> transport_domains;
  ObjectTable<CounterSet, 255, 1> counter_sets;        // numbers are 8 bits
  ObjectTable<Mkey, (1U << 20) - 0x200, 0x200> mkeys;  // those below are reserved_key and its like
  ObjectTable<Cq, (1U << 16) - 1, 1> cqs;
  ObjectTable<Srq, (1U << 16) - 1, 1> srqs;
  ObjectTable<Qp, (1U << 17) - 64, 64> qps;  // 0 and 1 mean SMI and GSI on the wire
  ObjectTable<Group, (1U << 12) - 1, 1> groups;
  ObjectTable<Tis, 1U << 12, 1> tises;
  ObjectTable<Tir, 1U << 12, 1> tirs;
  ObjectTable<Rqt, 1U << 10, 1> rqts;
  ObjectTable<EthernetQueue, 1U << 12, 1> rqs;
  ObjectTable<EthernetQueue, 1U << 12, rnic::max_qps> sqs;  // a doorbell must tell them from QPs
  ObjectTable<FlowTable, 1U << 10, 1> flow_tables;
  ObjectTable<FlowGroup, 1U << 12, 1> flow_groups;
  ObjectTable<FlowEntry, 1U << 14, 1> flow_entries;
  TranslationPool translations;
  Function functions[rnic::max_functions];
  std::uint64_t page_addresses[donated_pages];  // given by drivers, of every function
  std::uint16_t page_functions[donated_pages];
  std::uint32_t page_count;

 private:
  enum class Phase : std::uint8_t {
    idle,
    fetch_entry,
    fetch_input,
    fetch_output,
    draining,
    write_mailbox,
    write_inline,
    write_status
  };
  struct CommandState {
    Phase phase;
    std::uint8_t slot;
    std::uint8_t token;
    bool by_event;
    std::uint16_t opcode;
    std::uint16_t op_mod;
    std::uint32_t function;
    std::uint32_t input_length;
    std::uint32_t output_length;
    std::uint32_t block;
    std::uint32_t draining;
    std::uint64_t entry_address;
    std::uint64_t mailbox;
    const CommandInfo* info;
    Result result;
    Delivery delivery;
    std::uint64_t output_blocks[local::output_blocks];
  };
  enum class WorkPhase : std::uint8_t { idle, list, draining };
  struct WorkState {
    WorkPhase phase;
    std::uint32_t function;
    std::uint32_t qp;
    std::uint32_t key;          // index
    std::uint64_t address;      // of the rest of the list
    std::uint32_t bytes;        // of the rest of the list
    std::uint32_t chunk;        // bytes under way
    std::uint32_t entry;        // translation entry of the chunk
    rnic::MkeyContext context;  // as it will be
    bool change_context;
  };
  struct WorkItem {
    std::uint32_t function;
    std::uint32_t qp;
  };
  static constexpr std::uint32_t work_items = 256;

  // command_queue.cpp
  void start_dma(std::uint32_t channel, std::uint32_t function, rnic::reg::DmaCommand command, std::uint64_t address,
                 std::uint32_t local, std::uint32_t length) const;
  void handle_dma();
  void handle_resets();
  void handle_init_writes();
  void next_command();
  void on_command_dma(bool ok);
  void on_entry();
  void fetch_input_block();
  void on_input_block();
  void fetch_output_trailer();
  void on_output_trailer();
  void execute();
  void on_context_idle();
  void begin_reply();
  void write_mailbox();
  void write_inline();
  void write_status();
  void finish_command();
  void abandon_command();
  void reject(Delivery delivery);
  void update_enables() const;
  void trace() const;
  [[nodiscard]] bool inject(Result& result) const;

  // hardware_events.cpp
  void handle_hardware_events();
  void report(rnic::EventCode code, const Function& function, std::uint32_t object, std::uint32_t detail) const;
  void report_page_fault(const Function& function, std::uint32_t token) const;

  // work_requests.cpp
  void next_work();
  void begin_work(const WorkItem& item);
  [[nodiscard]] bool apply_mask(const View& context, std::uint64_t mask);
  void start_work_list();
  void load_work_list(std::uint32_t at, std::uint32_t octwords);
  void on_work_dma(bool ok);
  void apply_work();
  void on_work_drained();
  void complete_work(rnic::reg::WorkResult result);
  [[nodiscard]] bool resolve_key(std::uint32_t function, std::uint32_t key, std::uint64_t address,
                                 std::uint64_t& bus) const;

  Hal hal_;
  bool ethernet_;
  CommandState command_;
  WorkState work_;
  WorkItem queue_[work_items];
  std::uint32_t queue_head_;
  std::uint32_t queue_count_;
  std::uint32_t last_function_;  // whose command was served last
  std::uint32_t last_slot_;
};

}  // namespace orrery::firmware
