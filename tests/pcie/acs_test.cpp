// ACS decisions, held against a table written down by hand from PCI Express Base 6.3 §6.12.1.1, §6.12.3 and
// §7.7.11.3. The table is data: the test looks rows up by pattern and contains no rule of its own.
#include "pcie/acs.h"

#include <array>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace orrery::pcie::acs_test {
namespace {

// One row: a pattern per input and the outcome. '*' matches everything, otherwise the character must be equal.
//   bits   SV TB RR CR UF EC DT IB DSP USP URR; DSP and USP: d direct, b block, r redirect
//   kind   m memory, i I/O, o other request, c completion
//   at     0 untranslated, 1 translation request, 2 translated
//   ro     relaxed ordering; range: requester's bus within the port's range; vec: egress vector bit
//   target h outside the windows, s own egress port, p peer port, D downstream port memory,
//          U upstream port memory, n unclaimed
//   result d direct, u upstream, v violation, x unsupported request
// The first row that matches holds, as the evaluation order of the specification.
struct Row {
  const char* number;
  std::string_view bits;  // 11 characters, in the order above
  char kind;
  char at;
  char ro;
  char range;
  char vec;
  char target;
  char result;
};

// clang-format off
constexpr std::array rows{
  //        SV.TB.RR.CR.UF.EC.DT.IB.DSP.USP.URR  kind at  ro  range vec target result
  // Completions: only Completion Redirect and Upstream Forwarding look at them.
  Row{"Ca", "***********",                        'c', '*', '*', '*', '*', 'h', 'u'},
  Row{"Cb", "***1*******",                        'c', '*', '0', '*', '*', 'p', 'u'},
  Row{"Cc", "***1*******",                        'c', '*', '1', '*', '*', 'p', 'd'},
  Row{"Cd", "***0*******",                        'c', '*', '*', '*', '*', 'p', 'd'},
  Row{"Ce", "****1******",                        'c', '*', '*', '*', '*', 's', 'u'},
  Row{"Cf", "****0******",                        'c', '*', '*', '*', '*', 's', 'x'},
  Row{"Cg", "***********",                        'c', '*', '*', '*', '*', 'D', 'd'},
  Row{"Ch", "***********",                        'c', '*', '*', '*', '*', 'U', 'd'},
  Row{"Ci", "***********",                        'c', '*', '*', '*', '*', 'n', 'x'},
  // 1: Source Validation
  Row{"1m", "1**********",                        'm', '*', '*', '0', '*', '*', 'v'},
  Row{"1i", "1**********",                        'i', '*', '*', '0', '*', '*', 'v'},
  Row{"1o", "1**********",                        'o', '*', '*', '0', '*', '*', 'v'},
  // 2: Translation Blocking
  Row{"2a", "*1*********",                        'm', '1', '*', '*', '*', '*', 'v'},
  Row{"2b", "*1*********",                        'm', '2', '*', '*', '*', '*', 'v'},
  // 3: I/O Request Blocking
  Row{"3",  "*******1***",                        'i', '*', '*', '*', '*', '*', 'v'},
  // 4: not below this switch
  Row{"4",  "***********",                        '*', '*', '*', '*', '*', 'h', 'u'},
  // 5: back to where it came from
  Row{"5a", "****1******",                        '*', '*', '*', '*', '*', 's', 'u'},
  Row{"5b", "****0******",                        '*', '*', '*', '*', '*', 's', 'x'},
  // 6: Direct Translated
  Row{"6",  "******1****",                        'm', '2', '*', '*', '*', 'p', 'd'},
  // 7: other peer requests; E, R, vector bit
  Row{"7a", "**0**0*****",                        '*', '*', '*', '*', '*', 'p', 'd'},
  Row{"7b", "**1**0*****",                        '*', '*', '*', '*', '*', 'p', 'u'},
  Row{"7c", "**0**1*****",                        '*', '*', '*', '*', '1', 'p', 'v'},
  Row{"7d", "**0**1*****",                        '*', '*', '*', '*', '0', 'p', 'd'},
  Row{"7e", "**1**1*****",                        '*', '*', '*', '*', '1', 'p', 'u'},
  Row{"7f", "**1**1*****",                        '*', '*', '*', '*', '0', 'p', 'd'},
  // 8: memory of the switch's own ports
  Row{"8a", "********d**",                        '*', '*', '*', '*', '*', 'D', 'd'},
  Row{"8b", "********b**",                        '*', '*', '*', '*', '*', 'D', 'v'},
  Row{"8c", "********r**",                        '*', '*', '*', '*', '*', 'D', 'u'},
  Row{"8d", "*********d*",                        '*', '*', '*', '*', '*', 'U', 'd'},
  Row{"8e", "*********b*",                        '*', '*', '*', '*', '*', 'U', 'v'},
  Row{"8f", "*********r*",                        '*', '*', '*', '*', '*', 'U', 'u'},
  // 9: nobody's
  Row{"9a", "**********1",                        '*', '*', '*', '*', '*', 'n', 'u'},
  Row{"9b", "**********0",                        '*', '*', '*', '*', '*', 'n', 'x'},
};
// clang-format on

struct Inputs {
  std::string bits;
  char kind, at, ro, range, vec, target;
};

bool fits(char pattern, char actual) {
  return pattern == '*' || pattern == actual;
}

const Row* row_of(const Inputs& in) {
  for (const Row& row : rows) {
    bool match = fits(row.kind, in.kind) && fits(row.at, in.at) && fits(row.ro, in.ro) && fits(row.range, in.range) &&
                 fits(row.vec, in.vec) && fits(row.target, in.target);
    for (std::size_t i = 0; i < row.bits.size(); ++i) {
      match = match && fits(row.bits[i], in.bits[i]);
    }
    if (match) {
      return &row;
    }
  }
  return nullptr;
}

char letter(AcsDecision decision) {
  constexpr std::string_view letters = "duvx";
  return letters[static_cast<std::size_t>(decision)];
}

TEST(Acs, EveryCombinationGivesWhatTheTableSays) {
  constexpr std::string_view memory_letters = "dbr";
  constexpr std::array<unsigned, 3> memory_values{0, 1, 2};  // encodings of §7.7.11.3
  constexpr std::string_view kinds = "mioc";
  constexpr std::string_view targets = "hspDUn";
  std::array<std::uint64_t, rows.size()> used{};
  std::uint64_t cases = 0;

  for (unsigned bits = 0; bits < 256; ++bits) {
    for (unsigned dsp = 0; dsp < 3; ++dsp) {
      for (unsigned usp = 0; usp < 3; ++usp) {
        for (unsigned urr = 0; urr < 2; ++urr) {
          const auto value =
              static_cast<std::uint16_t>(bits | memory_values[dsp] << 8U | memory_values[usp] << 10U | urr << 12U);
          const AcsControl control = AcsControl::from_register(value);
          Inputs in;
          for (unsigned i = 0; i < 8; ++i) {
            in.bits += ((bits >> i) & 1U) != 0 ? '1' : '0';
          }
          in.bits += memory_letters[dsp];
          in.bits += memory_letters[usp];
          in.bits += urr != 0 ? '1' : '0';
          for (unsigned rest = 0; rest < 4 * 3 * 2 * 2 * 2 * 6; ++rest) {
            unsigned r = rest;
            const auto take = [&r](unsigned n) {
              const unsigned digit = r % n;
              r /= n;
              return digit;
            };
            const unsigned kind = take(4);
            const unsigned at = take(3);
            const unsigned ro = take(2);
            const unsigned range = take(2);
            const unsigned vec = take(2);
            const unsigned target = take(6);
            in.kind = kinds[kind];
            in.at = static_cast<char>('0' + at);
            in.ro = static_cast<char>('0' + ro);
            in.range = static_cast<char>('0' + range);
            in.vec = static_cast<char>('0' + vec);
            in.target = targets[target];
            const AcsQuery query{.kind = static_cast<AcsTlpKind>(kind),
                                 .at = static_cast<AddressType>(at),
                                 .relaxed_ordering = ro != 0,
                                 .requester_in_bus_range = range != 0,
                                 .target = static_cast<AcsTarget>(target),
                                 .egress_blocked = vec != 0};
            const Row* row = row_of(in);
            ASSERT_NE(row, nullptr) << "no row for " << in.bits << in.kind << in.at << in.target;
            ASSERT_EQ(letter(acs_decide(control, query)), row->result)
                << "row " << row->number << ", control " << in.bits << " kind " << in.kind << " at " << in.at << " ro "
                << in.ro << " range " << in.range << " vec " << in.vec << " target " << in.target;
            ++used[static_cast<std::size_t>(row - rows.data())];
            ++cases;
          }
        }
      }
    }
  }
  EXPECT_EQ(cases, std::uint64_t{256} * 3 * 3 * 2 * 576);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_GT(used[i], 0U) << "row " << rows[i].number << " was never the one to decide";
  }
}

// The settings that the field knows by their number (Linux's default, the one for GPUDirect with ATS, and the same
// with Translation Blocking).
TEST(Acs, WellKnownRegisterValues) {
  const AcsQuery translated{.at = AddressType::translated, .target = AcsTarget::peer_port};
  const AcsQuery untranslated{.target = AcsTarget::peer_port};
  EXPECT_EQ(acs_decide(AcsControl::from_register(0x1d), translated), AcsDecision::upstream);
  EXPECT_EQ(acs_decide(AcsControl::from_register(0x5d), translated), AcsDecision::direct);
  EXPECT_EQ(acs_decide(AcsControl::from_register(0x5f), translated), AcsDecision::violation);
  EXPECT_EQ(acs_decide(AcsControl::from_register(0x5d), untranslated), AcsDecision::upstream);
  EXPECT_EQ(acs_decide(AcsControl::from_register(0x00), untranslated), AcsDecision::direct);
}

TEST(Acs, RegisterRoundTrip) {
  for (unsigned value = 0; value < 0x2000; ++value) {
    const bool reserved = ((value >> 8U) & 3U) == 3 || ((value >> 10U) & 3U) == 3;
    const AcsControl control = AcsControl::from_register(static_cast<std::uint16_t>(value));
    if (!reserved) {
      ASSERT_EQ(control.to_register(), value);
    } else if (((value >> 8U) & 3U) == 3) {
      ASSERT_EQ(control.downstream_port_memory, AcsMemoryTarget::block) << value;
    }
  }
  // Bits beyond the defined ones are dropped.
  EXPECT_EQ(AcsControl::from_register(0xe000).to_register(), 0);
}

TEST(Acs, KindOfEveryTlpType) {
  EXPECT_EQ(acs_kind(TlpType::MRd), AcsTlpKind::memory_request);
  EXPECT_EQ(acs_kind(TlpType::MWr), AcsTlpKind::memory_request);
  EXPECT_EQ(acs_kind(TlpType::Cpl), AcsTlpKind::completion);
  EXPECT_EQ(acs_kind(TlpType::CplD), AcsTlpKind::completion);
  for (const TlpType type :
       {TlpType::CfgRd0, TlpType::CfgWr0, TlpType::CfgRd1, TlpType::CfgWr1, TlpType::Msg, TlpType::MsgD}) {
    EXPECT_EQ(acs_kind(type), AcsTlpKind::other_request);
  }
}

}  // namespace
}  // namespace orrery::pcie::acs_test
