#include "cli/code_coverage.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include <fmt/format.h>

#include "cli/output.h"
#include "common/error.h"
#include "common/text.h"

namespace orrery::cli {
namespace {

namespace files = std::filesystem;

constexpr std::array<const char*, 4> addr2line_programs{"riscv64-linux-gnu-addr2line", "riscv64-unknown-elf-addr2line",
                                                        "llvm-addr2line", "llvm-addr2line-14"};
constexpr std::size_t most_names = 12;

std::string readable(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 ? name.get() : symbol;
}

// The exit status; none if there is no such program.
std::optional<int> run(const char* program, const std::string& elf, const std::string& in, const std::string& out) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  // What LLVM's says of line tables that it reads all the same.
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::array<std::string, 3> words{program, "-e", elf};
  std::array<char*, 4> argv{words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, program, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) {
    return std::nullopt;
  }
  if (error != 0) {
    throw Error(fmt::format("{} can't be run: {}", program, std::strerror(error)));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct Total {
  std::size_t ran = 0;
  std::size_t all = 0;
  void add(bool one_ran) {
    ++all;
    ran += one_ran ? 1 : 0;
  }
};

}  // namespace

CodeLogs::CodeLogs() : path_((files::temp_directory_path() / "orrery-code-XXXXXX").string()) {
  if (::mkdtemp(path_.data()) == nullptr) {
    throw Error(fmt::format("{} can't be made: {}", path_, std::strerror(errno)),
                "set TMPDIR to a directory with room");
  }
}

CodeLogs::~CodeLogs() {
  std::error_code ignored;
  files::remove_all(path_, ignored);
}

void add_executed(std::istream& log, std::set<std::uint64_t>& executed) {
  for (std::string line; std::getline(log, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with("0x") || colon == std::string::npos) {
      continue;
    }
    std::uint64_t address = 0;
    const auto [end, error] = std::from_chars(line.data() + 2, line.data() + colon, address, 16);
    if (error == std::errc{} && end == line.data() + colon) {
      executed.insert(address);
    }
  }
}

std::optional<SourceLine> parse_source_line(std::string_view text) {
  text = text.substr(0, text.find(" (discriminator"));
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || text.starts_with("??")) {
    return std::nullopt;
  }
  SourceLine line;
  const auto [end, error] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), line.line);
  if (error != std::errc{} || end != text.data() + text.size() || line.line == 0) {
    return std::nullopt;
  }
  line.file = files::path(text.substr(0, colon)).lexically_normal().string();
  return line;
}

CodeCoverage code_coverage(const ElfCode& code, const std::vector<std::optional<SourceLine>>& lines,
                           const std::set<std::uint64_t>& executed) {
  CodeCoverage coverage;
  for (std::size_t i = 0; i < code.instructions.size() && i < lines.size(); ++i) {
    if (lines[i]) {
      bool& ran = coverage[lines[i]->file].lines[lines[i]->line];
      ran = ran || executed.contains(code.instructions[i]);
    }
  }
  for (const ElfFunction& function : code.functions) {
    const auto entry = std::lower_bound(code.instructions.begin(), code.instructions.end(), function.address);
    const auto at = static_cast<std::size_t>(entry - code.instructions.begin());
    if (at >= lines.size() || !lines[at]) {
      continue;
    }
    const auto first = executed.lower_bound(function.address);
    auto& one = coverage[lines[at]->file].functions[readable(function.name)];
    one.line = lines[at]->line;
    one.ran = one.ran || (first != executed.end() && *first - function.address < function.bytes);
  }
  return coverage;
}

std::vector<std::optional<SourceLine>> source_lines(const std::string& elf, const std::vector<std::uint64_t>& addresses,
                                                    const std::string& scratch) {
  const std::string asked = (files::path(scratch) / "addresses").string();
  const std::string answered = (files::path(scratch) / "lines").string();
  {
    std::ofstream out(asked);
    for (const std::uint64_t address : addresses) {
      out << fmt::format("{:#x}\n", address);
    }
    out.close();
    if (!out) {
      throw Error(fmt::format("{} can't be written", asked), "make room there, or set TMPDIR");
    }
  }
  std::optional<int> status;
  const char* program = nullptr;
  for (const char* candidate : addr2line_programs) {
    program = candidate;
    if (status = run(candidate, elf, asked, answered); status) {
      break;
    }
  }
  if (!status) {
    throw Error("no addr2line for riscv64 is installed", "run ./dev setup firmware, or install LLVM's");
  }
  std::vector<std::optional<SourceLine>> lines;
  lines.reserve(addresses.size());
  std::ifstream in(answered);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(parse_source_line(line));
  }
  if (*status != 0 || lines.size() != addresses.size()) {
    throw Error(fmt::format("{} ends with status {} after {} of {} addresses of {}", program, *status, lines.size(),
                            addresses.size(), elf));
  }
  if (std::none_of(lines.begin(), lines.end(), [](const auto& line) { return line.has_value(); })) {
    throw Error(fmt::format("{} says nothing of its source lines", elf), "compile it with -g");
  }
  return lines;
}

std::string lcov_tracefile(const std::string& test, const CodeCoverage& coverage) {
  std::string text = fmt::format("TN:{}\n", test);
  for (const auto& [file, one] : coverage) {
    text += fmt::format("SF:{}\n", file);
    Total functions;
    for (const auto& [name, function] : one.functions) {
      text += fmt::format("FN:{},{}\n", function.line, name);
    }
    for (const auto& [name, function] : one.functions) {
      text += fmt::format("FNDA:{},{}\n", function.ran ? 1 : 0, name);
      functions.add(function.ran);
    }
    text += fmt::format("FNF:{}\nFNH:{}\n", functions.all, functions.ran);
    Total lines;
    for (const auto& [line, ran] : one.lines) {
      text += fmt::format("DA:{},{}\n", line, ran ? 1 : 0);
      lines.add(ran);
    }
    text += fmt::format("LF:{}\nLH:{}\nend_of_record\n", lines.all, lines.ran);
  }
  return text;
}

void require_tracefile(const std::string& tracefile, const std::string& elf) {
  require_other_file(tracefile, elf);
  if (!std::ofstream(tracefile, std::ios::app)) {
    throw Error(fmt::format("{} can't be written: {}", tracefile, std::strerror(errno)),
                "name a file that you may write");
  }
}

void write_code_coverage(const std::string& elf, const std::string& logs, const std::string& tracefile) {
  const ElfCode code = read_elf_code(elf);
  std::set<std::uint64_t> executed;
  for (const auto& entry : files::directory_iterator(logs)) {
    if (entry.path().extension() == ".log") {
      std::ifstream log(entry.path());
      add_executed(log, executed);
    }
  }
  if (executed.empty()) {
    throw Error("QEMU has logged no instruction",
                "choose tests in which the firmware runs, and see that the directory for temporary files isn't full");
  }
  const CodeCoverage coverage = code_coverage(code, source_lines(elf, code.instructions, logs), executed);
  std::ofstream out(tracefile);
  // A test's name is letters, digits and "_" (geninfo(1)).
  std::string test = files::path(elf).stem().string();
  std::replace_if(
      test.begin(), test.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  out << lcov_tracefile(test, coverage);
  out.close();
  if (!out) {
    discard_file(tracefile);
    throw Error(fmt::format("{} can't be written", tracefile), "name a file that you may write");
  }
  Total lines;
  Total functions;
  std::vector<std::string> never;  // functions
  for (const auto& [file, one] : coverage) {
    for (const auto& [line, ran] : one.lines) {
      lines.add(ran);
    }
    for (const auto& [name, function] : one.functions) {
      functions.add(function.ran);
      if (!function.ran) {
        never.push_back(name);
      }
    }
  }
  fmt::print("code: {} of {} lines and {} of {} functions ran; {} has them all\n", lines.ran, lines.all, functions.ran,
             functions.all, tracefile);
  for (std::size_t i = 0; i < never.size() && i < most_names; ++i) {
    fmt::print("  never ran: {}\n", printable(never[i]));
  }
  if (never.size() > most_names) {
    fmt::print("  and {} more\n", never.size() - most_names);
  }
}

}  // namespace orrery::cli
