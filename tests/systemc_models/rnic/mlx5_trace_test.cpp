// The commands that stock drivers send, in their order, are all answered with status ok. traces/*.txt were logged from
// Debian's kernels; object numbers are translated, page lists are our own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "firmware/firmware.h"
#include "tests/systemc_models/rnic/mlx5_rig.h"

namespace orrery::test::mlx5_trace_test {
namespace {

// First page of the page list, by opcode; 0: it has none.
std::size_t page_list_at(std::uint32_t opcode) {
  switch (opcode) {
    case 0x301:
    case 0x400:
    case 0x500:
    case 0x705:
    case 0x904:
    case 0x908:
    case 0x90c:
      return 0x110;
    default:
      return 0;
  }
}

// Elsewhere, if this program was installed (orrery fw test says where).
std::string traces() {
  const char* elsewhere = std::getenv("ORRERY_TRACES");
  return elsewhere != nullptr ? elsewhere : ORRERY_TRACES;
}

class Replay {
 public:
  Replay(Mlx5Rig& rig, const std::string& name) : rig_(rig), file_(traces() + "/" + name + ".txt") {}

  void run() {
    ASSERT_TRUE(file_.good());
    ASSERT_TRUE(rig_.driver.begin());
    for (std::string line; std::getline(file_, line);) {
      if (line.empty() || line[0] == '#') {
        continue;
      }
      one(line);
      if (testing::Test::HasFatalFailure()) {
        return;
      }
    }
  }
  std::size_t commands = 0;
  std::set<std::uint32_t> opcodes;

 private:
  void one(const std::string& line) {
    std::istringstream words(line);
    std::string opcode_text;
    std::string op_mod_text;
    std::string name;
    std::size_t input_bytes = 0;
    std::size_t output_bytes = 0;
    unsigned times = 0;
    words >> opcode_text >> op_mod_text >> input_bytes >> output_bytes >> times >> name;
    const auto opcode = static_cast<std::uint32_t>(std::stoul(opcode_text, nullptr, 16));
    Words input(input_bytes);
    input.set(0, opcode << 16).set(4, static_cast<std::uint32_t>(std::stoul(op_mod_text, nullptr, 16)));
    std::string made;
    std::string used;
    for (std::string word; words >> word;) {
      if (word == ">") {
        words >> made;
        break;
      }
      field(input, word, used);
    }
    if (opcode == 0x109) {  // what the device offers, kept
      const Reply caps = rig_.driver.run(0x100, input[4] | 1U, {}, 4112);
      std::memcpy(input.bytes().data() + 16, caps.output.bytes().data() + 16, 4096);
    }
    if (const std::size_t list = page_list_at(opcode); list != 0) {
      const std::uint64_t pages = rig_.driver.pages((input.size() - list) / 8);
      for (std::size_t at = list; at + 8 <= input.size(); at += 8) {
        input.set64(at, pages + (at - list) / 8 * page_bytes);
      }
    }
    if (opcode == 0x916 || opcode == 0x917) {  // RQ tables: the trace doesn't say which
      for (std::size_t at = 0x110; at + 4 <= input.size(); at += 4) {
        input.set(at, last_rq_);
      }
    }
    for (unsigned i = 0; i < times; ++i) {
      if (opcode == 0x764) {
        input.set(0x0c, i);
      }
      const Reply reply = rig_.driver.run(input, output_bytes);
      ++commands;
      opcodes.insert(opcode);
      ASSERT_TRUE(reply.ok()) << line << "\ndelivery " << reply.delivery << ", status " << reply.status << ", syndrome "
                              << std::hex << reply.syndrome;
      if (!made.empty()) {
        objects_[made].push_back(reply.handle());
        last_rq_ = opcode == 0x908 ? reply.handle() : last_rq_;
      } else if (name.starts_with("DESTROY") || name.starts_with("DEALLOC")) {
        objects_[used].pop_back();
      }
    }
  }

  // offset.high.low=value, or =kind:number.
  void field(Words& input, const std::string& word, std::string& used) {
    unsigned offset = 0;
    unsigned high = 0;
    unsigned low = 0;
    char value[64] = {};
    ASSERT_EQ(std::sscanf(word.c_str(), "%x.%u.%u=%63s", &offset, &high, &low, value), 4) << word;
    std::uint32_t number = 0;
    if (std::strchr(value, ':') != nullptr) {
      used = value;
      const auto found = objects_.find(value);
      number = found == objects_.end() || found->second.empty() ? 0 : found->second.back();
    } else {
      number = static_cast<std::uint32_t>(std::stoul(value, nullptr, 16));
    }
    input.put(0,
              firmware::Field{"", static_cast<std::uint16_t>(offset), static_cast<std::uint8_t>(high),
                              static_cast<std::uint8_t>(low)},
              number);
  }

  Mlx5Rig& rig_;
  std::ifstream file_;
  std::map<std::string, std::vector<std::uint32_t>> objects_;
  std::uint32_t last_rq_ = 0;
};

void replay(const std::string& name, rnic::reg::PortType type, std::size_t opcodes) {
  Mlx5Rig rig(rig_settings(type));
  Replay replay(rig, name);
  replay.run();
  EXPECT_EQ(replay.opcodes.size(), opcodes);
  EXPECT_EQ(rig.rnic.management().counters().commands_failed, 0U);
  // It ended with DISABLE_HCA: nothing is left.
  if (const firmware::Firmware* fw = rig.native_firmware()) {
    EXPECT_EQ(fw->translations.used(), 0U);
    EXPECT_EQ(fw->qps.used() + fw->cqs.used() + fw->mkeys.used() + fw->pds.used() + fw->flow_entries.used(), 0U);
  }
  for (const auto& [key, context] : rig.data->contexts) {
    EXPECT_TRUE(key.first == rnic::ContextKind::function) << static_cast<int>(key.first) << " " << key.second;
  }
  EXPECT_EQ(rig.data->contexts.count({rnic::ContextKind::qp, 64}), 0U);
  testing::Test::RecordProperty("commands", static_cast<int>(replay.commands));
}

TEST(Mlx5Trace, InfinibandKernel73) {
  replay("ib-k73", rnic::reg::PortType::infiniband, 38);
}
TEST(Mlx5Trace, EthernetKernel61) {
  replay("eth-k61", rnic::reg::PortType::ethernet, 69);
}
TEST(Mlx5Trace, EthernetKernel612) {
  replay("eth-k612", rnic::reg::PortType::ethernet, 67);
}
TEST(Mlx5Trace, EthernetKernel73) {
  replay("eth-k73", rnic::reg::PortType::ethernet, 67);
}

}  // namespace
}  // namespace orrery::test::mlx5_trace_test
