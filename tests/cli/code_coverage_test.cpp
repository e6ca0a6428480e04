#include "cli/code_coverage.h"

#include <gtest/gtest.h>

#include <sstream>

namespace orrery::cli {
namespace {

// As qemu-system-riscv64 11.1 writes it with `-accel tcg,one-insn-per-tb=on -d in_asm`.
TEST(CodeCoverage, ReadsQemusLog) {
  std::istringstream log(
      "----------------\n"
      "IN: start\n"
      "0x80000000:  00000297          auipc                   t0,0                    # 0x80000000\n"
      "\n"
      "----------------\n"
      "IN: \n"
      "0x80000004:  1141              addi                    sp,sp,-16\n"
      "0x8000000g:  1141              addi                    sp,sp,-16\n"
      "0x\n:\n0x:\n0x123456789abcdef01: too long\n"
      "0x80000004:  1141              addi                    sp,sp,-16\n");
  std::set<std::uint64_t> executed;
  add_executed(log, executed);
  EXPECT_EQ(executed, (std::set<std::uint64_t>{0x8000'0000, 0x8000'0004}));
}

TEST(CodeCoverage, ReadsAddr2linesLines) {
  const auto line = parse_source_line("build/fw/../../firmware/main.cpp:142 (discriminator 3)");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->file, "firmware/main.cpp");
  EXPECT_EQ(line->line, 142U);
  EXPECT_EQ(parse_source_line("C:/fw/a.c:7")->file, "C:/fw/a.c");
  for (const char* unknown : {"??:0", "??:?", "a.c:?", "a.c:0", "a.c", "", ":3", "a.c:99999999999", "a.c:3x"}) {
    EXPECT_FALSE(parse_source_line(unknown)) << unknown;
  }
}

// The format of geninfo(1): a line ran if one of its instructions did, a function if one of its own did.
TEST(CodeCoverage, WritesATracefile) {
  ElfCode code;
  code.instructions = {0x100, 0x102, 0x104, 0x108, 0x10a};
  code.functions = {{"_ZN2fw4workEi", 0x100, 8}, {"idle", 0x108, 4}, {"nowhere", 0x200, 4}};
  const std::vector<std::optional<SourceLine>> lines{SourceLine{"a.c", 10}, SourceLine{"a.c", 11},
                                                     SourceLine{"a.c", 10}, std::nullopt, SourceLine{"b.c", 5}};
  const CodeCoverage coverage = code_coverage(code, lines, {0x104, 0x10c});
  EXPECT_EQ(lcov_tracefile("fw", coverage),
            "TN:fw\n"
            "SF:a.c\nFN:10,fw::work(int)\nFNDA:1,fw::work(int)\nFNF:1\nFNH:1\n"
            "DA:10,1\nDA:11,0\nLF:2\nLH:1\nend_of_record\n"
            "SF:b.c\nFNF:0\nFNH:0\nDA:5,0\nLF:1\nLH:0\nend_of_record\n");
}

}  // namespace
}  // namespace orrery::cli
