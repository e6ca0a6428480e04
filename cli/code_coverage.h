// Which lines of a firmware's source ran: from QEMU's log of the instructions it translated, the ELF file's code and
// its line table, as a tracefile of lcov (format: geninfo(1)).
//
// QEMU translates one instruction at a time for this (one-insn-per-tb) and logs it when it is first about to run, so a
// line has run or not; how often isn't known, and its count is 1. A line that became several instructions has run if
// one of them has; of inlined code it is the innermost line.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/elf_code.h"

namespace orrery::cli {

// The addresses in what `-d in_asm` logs ("0x80000000:  00000297  auipc …"), added to `executed`. Other lines are
// passed over.
void add_executed(std::istream& log, std::set<std::uint64_t>& executed);

struct SourceLine {
  std::string file;
  std::uint32_t line = 0;
};

// A line of addr2line's answer, "FILE:LINE", perhaps with " (discriminator N)". None: it doesn't know ("??:0", "??:?",
// "FILE:?", or anything else).
[[nodiscard]] std::optional<SourceLine> parse_source_line(std::string_view text);

struct FileCoverage {
  struct Function {
    std::uint32_t line = 0;
    bool ran = false;
  };
  std::map<std::uint32_t, bool> lines;        // with code; whether it ran
  std::map<std::string, Function> functions;  // by readable name
};

using CodeCoverage = std::map<std::string, FileCoverage>;  // by source file

// `lines`: of each of code.instructions, in their order.
[[nodiscard]] CodeCoverage code_coverage(const ElfCode& code, const std::vector<std::optional<SourceLine>>& lines,
                                         const std::set<std::uint64_t>& executed);

// Asks addr2line (of riscv64's binutils, or LLVM's) for the line of each instruction, in order. `scratch`: a private
// directory for what it is asked and answers. Blocks for as long as it runs. Throws Error if there is none, it fails,
// or it knows no line at all.
[[nodiscard]] std::vector<std::optional<SourceLine>> source_lines(const std::string& elf,
                                                                  const std::vector<std::uint64_t>& addresses,
                                                                  const std::string& scratch);

[[nodiscard]] std::string lcov_tracefile(const std::string& test, const CodeCoverage& coverage);

// A private directory for the logs of QEMU, as long as this object lives.
class CodeLogs {
 public:
  // Throws Error if none can be made in the directory for temporary files.
  CodeLogs();
  ~CodeLogs();
  CodeLogs(const CodeLogs&) = delete;
  CodeLogs& operator=(const CodeLogs&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Throws Error unless `tracefile` can be written and is another file than `elf`: told before the tests run, not after.
void require_tracefile(const std::string& tracefile, const std::string& elf);

// Merges the logs in directory `logs` and writes the tracefile; prints the totals and the functions that never ran.
// Throws Error naming what is wrong with the ELF file, the logs or the tracefile.
void write_code_coverage(const std::string& elf, const std::string& logs, const std::string& tracefile);

}  // namespace orrery::cli
