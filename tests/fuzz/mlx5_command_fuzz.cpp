// Fuzz target: commands of a hostile guest, as the management firmware gets them: any opcode and content, damaged
// entries and mailbox chains, work requests that change keys, resets in between.
//
// Input: steps. First byte: 0 … 0xdf: a command (number of the table; beyond it an opcode of the next two bytes),
// then flags, 16-bit input length, output length / 16, bytes to damage, then that many bytes of input (what is missing
// is 0). 0xe0 … 0xef: a work request. 0xf0 and above: a reset of the function.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "firmware/firmware.h"
#include "tests/fuzz/require.h"
#include "tests/systemc_models/rnic/mlx5_rig.h"

namespace orrery::test {
namespace {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  [[nodiscard]] bool empty() const { return left_ == 0; }
  std::uint32_t byte() {
    if (left_ == 0) {
      return 0;
    }
    --left_;
    return *data_++;
  }
  std::uint32_t half() {
    const std::uint32_t high = byte();
    return high << 8 | byte();
  }
  void take(std::vector<std::byte>& into, std::size_t from) {
    for (std::size_t at = from; at < into.size() && left_ > 0; ++at) {
      into[at] = static_cast<std::byte>(byte());
    }
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

constexpr std::uint64_t step_limit = 200'000;

void run(Mlx5Rig& rig) {
  for (std::uint64_t i = 0; i < step_limit; ++i) {
    if (!rig.bus.simulation.events.run_one()) {
      return;
    }
  }
  fuzz::require(false, "the firmware comes to rest");
}

// Some of everything, so that numbers of the input mean something.
void populate(Mlx5Rig& rig) {
  rig.driver.bring_up();
  rig.driver.create_command_eq();
  const std::uint32_t eqn = rig.driver.create_eq(0x1f'12be, 4, 1).handle();
  const std::uint32_t pd = rig.driver.run(0x800).handle();
  const std::uint32_t cqn = rig.driver.create_cq(eqn).handle();
  for (const std::uint32_t service : {0U, 2U, 0xcU}) {
    static_cast<void>(rig.driver.create_qp({.service = service, .pd = pd, .cqn = cqn, .reserved_key = true}));
  }
  static_cast<void>(rig.driver.create_mkey(pd, 1, 8, true, 0));
  static_cast<void>(rig.driver.create_mkey(pd, 0, 0, false, 0));
  static_cast<void>(rig.driver.run(0x80e));
  static_cast<void>(rig.driver.run(0x816));
  rig.driver.forget_command_eq();
}

void command(Mlx5Rig& rig, Input& input, std::uint32_t kind) {
  std::uint32_t count = 0;
  const firmware::CommandInfo* table = firmware::commands(count);
  const std::uint32_t opcode = kind < count ? table[kind].opcode : input.half();
  const std::uint32_t flags = input.byte();
  // Mostly lengths that the command accepts.
  const bool free_length = (flags & 1U) != 0 || kind >= count;
  const std::size_t input_bytes = free_length ? input.half() % 6000 : table[kind].input + (input.half() & 0x3f0U);
  const std::size_t output_bytes = free_length ? input.byte() * 16 : table[kind].output;
  const std::uint32_t damage = (flags & 2U) != 0 ? input.byte() % 8 : 0;
  Words words(std::max<std::size_t>(input_bytes, 16));
  input.take(words.bytes(), 8);
  words.set(0, opcode << 16).set(4, flags >> 4);
  rig.driver.prepare(0, words, output_bytes);
  for (std::uint32_t i = 0; i < damage; ++i) {
    const auto value = static_cast<std::byte>(input.byte());
    const std::uint32_t where = input.half();
    std::uint64_t at = rig.driver.queue() + where % 64;
    if ((where & 0x8000U) != 0 && !rig.driver.input_chain(0).empty()) {
      at = rig.driver.input_chain(0)[where % rig.driver.input_chain(0).size()] + 0x230 + where / 64 % 16;
    }
    rig.bus.write(at, &value, 1);
  }
  rig.driver.ring(0);
  run(rig);
  if (damage == 0) {
    fuzz::require(rig.driver.collect(0).answered, "a whole command is answered");
  }
}

void work_request(Mlx5Rig& rig, Input& input) {
  std::vector<std::byte> wqe(64 * (1 + input.byte() % 16));
  const std::uint32_t qp = 64 + input.byte() % 4;
  input.take(wqe, 0);
  wqe[3] = std::byte{0x25};
  rig.data->leave_to_firmware(0, qp, std::move(wqe));
  run(rig);
}

}  // namespace
}  // namespace orrery::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orrery;
  using namespace orrery::test;
  Mlx5Rig rig;
  populate(rig);
  Input input(data, size);
  for (int steps = 0; steps < 64 && !input.empty(); ++steps) {
    const std::uint32_t kind = input.byte();
    if (kind >= 0xf0) {
      rig.port.cancel_all();
      rig.rnic.reset();
      populate(rig);
    } else if (kind >= 0xe0) {
      work_request(rig, input);
    } else {
      command(rig, input, kind);
    }
  }
  fuzz::require(rig.rnic.management().read32(rnic::reg::bad_accesses) == 0, "the firmware keeps to its register map");
  fuzz::require(rig.rnic.management().counters().crashes == 0, "the firmware doesn't fail");
  rig.port.cancel_all();
  rig.rnic.reset();
  run(rig);
  firmware::Firmware& fw = rig.rnic.processor().firmware().firmware();
  fuzz::require(fw.translations.used() == 0 && fw.qps.used() == 0 && fw.cqs.used() == 0 && fw.mkeys.used() == 0 &&
                    fw.pds.used() == 0 && fw.uars.used() == 0,
                "a reset frees everything");
  return 0;
}
