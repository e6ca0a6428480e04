// Text for people, on the UART.
#include "firmware/riscv64/machine.h"

namespace orrery::firmware::riscv64 {

namespace {

void put(char character) {
  constexpr std::uint64_t line_status = uart + 5;
  constexpr unsigned transmitter_empty = 0x20;
  // Bounded: nobody may read what is printed.
  for (int tries = 0; tries < 10'000 && (load8(line_status) & transmitter_empty) == 0; ++tries) {
  }
  store8(uart, static_cast<std::uint8_t>(character));
}

}  // namespace

void print(const char* text) {
  for (; *text != '\0'; ++text) {
    put(*text);
  }
}

void print_hex(std::uint64_t value) {
  print("0x");
  int digits = 1;
  while (digits < 16 && value >> (4 * digits) != 0) {
    ++digits;
  }
  while (digits-- > 0) {
    put("0123456789abcdef"[value >> (4 * digits) & 0xfU]);
  }
}

}  // namespace orrery::firmware::riscv64
