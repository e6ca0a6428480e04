#include "systemc_models/rnic/register_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/config.h"
#include "common/error.h"
#include "systemc_models/rnic/register_names.h"

namespace orrery::rnic {

namespace {

const std::array<std::string, 4> register_modes{"rw", "ro", "wo", "w1c"};
constexpr std::uint32_t most_registers = 4096;
constexpr std::uint32_t most_words = 0x4'0000;
constexpr IntegerRule word_rule{.minimum = 0, .maximum = 0xffff'ffff, .hexadecimal = true};
constexpr IntegerRule bit_rule{.minimum = 0, .maximum = 31};
constexpr TextRule name_rule{.may_be_empty = false, .identifier = true};

void describe(ConfigVisitor& v, RegisterMapDescription& map) {
  v.integer("bar_bytes", map.bar_bytes,
            {.minimum = 4096, .maximum = 1U << 24, .power_of_two = true, .hexadecimal = true},
            {"size of BAR0", "choice"});
  v.list("register", map.registers, most_registers, "a register", [](ConfigVisitor& r, RegisterDescription& one) {
    r.text("name", one.name, name_rule, {"its name", "choice"});
    r.integer("offset", one.offset, word_rule, {"in BAR0, a multiple of 4", "choice"});
    r.integer("count", one.count, {.minimum = 1, .maximum = most_words}, {"words in a row", "choice"});
    r.choice("access", one.mode, register_modes, {"rw, ro, wo, w1c", "choice"});
    r.integer("reset", one.reset, word_rule, {"value after reset", "choice"});
    r.integer("writable", one.writable, word_rule, {"bits that a write changes", "choice"});
    r.text("on", one.on, {}, {"register of the management block that it is", "choice"});
    r.list("field", one.fields, 32, "bits with a name", [](ConfigVisitor& f, RegisterField& field) {
      f.text("name", field.name, name_rule, {"its name", "choice"});
      f.integer("high", field.high, bit_rule, {"highest bit", "choice"});
      f.integer("low", field.low, bit_rule, {"lowest bit", "choice"});
    });
    r.list("source", one.sources, 32, "bits that show a register of the block",
           [](ConfigVisitor& s, RegisterSource& source) {
             s.text("on", source.on, {.may_be_empty = false}, {"register of the management block", "choice"});
             s.integer("high", source.high, bit_rule, {"highest bit here", "choice"});
             s.integer("low", source.low, bit_rule, {"lowest bit here", "choice"});
             s.integer("from", source.from, bit_rule, {"lowest bit there", "choice"});
           });
    r.list("effect", one.effects, 32, "what a write does", [](ConfigVisitor& e, RegisterEffect& effect) {
      e.text("on", effect.on, {.may_be_empty = false}, {"register of the management block", "choice"});
      e.integer("when", effect.when, word_rule, {"only if these bits are written as 1", "choice"});
      e.integer("value", effect.value, word_rule, {"written there", "choice"});
      e.boolean("pass", effect.pass, {"write what was written instead", "choice"});
      e.integer("shift", effect.shift, bit_rule, {"pass: shifted right by so many bits", "choice"});
    });
  });
}

void require_block_register(const std::string& path, const std::string& name, ConfigProblems& problems) {
  if (!register_offset(name)) {
    problems.add(path, fmt::format("the management block has no register \"{}\"", name),
                 "firmware/interface/registers.h lists them; several of a kind have numbers, as in \"dma_control.1\"");
  }
}

void require_bits(const std::string& path, std::uint32_t high, std::uint32_t low, ConfigProblems& problems) {
  if (high < low) {
    problems.add(path, fmt::format("bits {} to {}", high, low), "give high and low in this order");
  }
}

void require_name(const std::string& path, const std::string& name, ConfigProblems& problems) {
  if (name.empty()) {
    problems.add(path + ".name", "it has none", "give it one, of letters, digits, '-', '_' and '.'");
  }
}

void check(const RegisterMapDescription& map, ConfigProblems& problems) {
  if (map.registers.empty()) {
    problems.add("register", "there is none", "describe each in a [[register]]");
  }
  for (std::size_t i = 0; i < map.registers.size(); ++i) {
    const RegisterDescription& one = map.registers[i];
    const std::string path = fmt::format("register.{}", i);
    const std::uint64_t end = one.offset + std::uint64_t{4} * one.count;
    require_name(path, one.name, problems);
    if (one.offset % 4 != 0 || end > map.bar_bytes) {
      problems.add(path + ".offset", fmt::format("{} is at {:#x} to {:#x}", one.name, one.offset, end),
                   fmt::format("give a multiple of 4 within bar_bytes, {:#x}", map.bar_bytes));
    }
    for (std::size_t j = 0; j < i; ++j) {
      const RegisterDescription& other = map.registers[j];
      if (one.name == other.name && !one.name.empty()) {
        problems.add(path + ".name", fmt::format("{} is there already", one.name), "give each a name of its own");
      }
      if (one.offset < other.offset + std::uint64_t{4} * other.count && other.offset < end) {
        problems.add(path + ".offset", fmt::format("{} lies over {}", one.name, other.name), "give each its own words");
      }
    }
    if (!one.on.empty()) {
      require_block_register(path + ".on", one.on, problems);
      const auto first = register_offset(one.on);
      if (first && one.count > 1 && register_name(*first + 4 * (one.count - 1)).starts_with("0x")) {
        problems.add(path + ".count", fmt::format("{} words from {} on are more than there are", one.count, one.on),
                     "give fewer");
      }
      if (!one.sources.empty()) {
        problems.add(path + ".source", "a register that is one of the block's has no sources",
                     "leave out on or source");
      }
    }
    for (std::size_t k = 0; k < one.fields.size(); ++k) {
      const std::string where = fmt::format("{}.field.{}", path, k);
      require_name(where, one.fields[k].name, problems);
      require_bits(where, one.fields[k].high, one.fields[k].low, problems);
    }
    for (std::size_t k = 0; k < one.sources.size(); ++k) {
      const std::string where = fmt::format("{}.source.{}", path, k);
      require_bits(where, one.sources[k].high, one.sources[k].low, problems);
      require_block_register(where + ".on", one.sources[k].on, problems);
    }
    for (std::size_t k = 0; k < one.effects.size(); ++k) {
      require_block_register(fmt::format("{}.effect.{}.on", path, k), one.effects[k].on, problems);
    }
  }
}

RegisterMapDescription read_map(const ConfigDocument& document) {
  ConfigProblems problems(document.name());
  RegisterMapDescription map;
  ConfigReader reader(document, problems);
  describe(reader, map);
  reader.finish();
  if (problems.empty()) {
    check(map, problems);
  }
  problems.throw_if_any();
  return map;
}

constexpr std::uint32_t bits(std::uint32_t high, std::uint32_t low) {
  return (high - low == 31 ? 0xffff'ffffU : (1U << (high - low + 1)) - 1) << low;
}

}  // namespace

RegisterMapDescription load_register_map(const std::string& path) {
  return read_map(ConfigDocument::load(path));
}

RegisterMapDescription parse_register_map(const std::string& text, const std::string& name) {
  return read_map(ConfigDocument::parse(text, name));
}

RegisterMap::RegisterMap(const RegisterMapDescription& description, firmware::RegisterAccess& block)
    : description_(description), block_(block) {
  std::sort(description_.registers.begin(), description_.registers.end(),
            [](const RegisterDescription& a, const RegisterDescription& b) { return a.offset < b.offset; });
  for (const RegisterDescription& one : description_.registers) {
    Register r;
    r.first = one.offset;
    r.words = one.count;
    r.bound = !one.on.empty();
    r.target = r.bound ? register_offset(one.on).value() : 0;
    r.storage = static_cast<std::uint32_t>(storage_.size());
    for (const RegisterSource& source : one.sources) {
      r.sources.push_back({register_offset(source.on).value(), bits(source.high, source.low), source.low, source.from});
    }
    for (const RegisterEffect& effect : one.effects) {
      r.effects.push_back({register_offset(effect.on).value(), effect.when, effect.value, effect.shift, effect.pass});
    }
    if (!r.bound) {
      storage_.resize(storage_.size() + one.count);
    }
    registers_.push_back(std::move(r));
    use_.push_back({one.name, 0, 0});
  }
  reset();
}

void RegisterMap::reset() {
  for (std::size_t i = 0; i < registers_.size(); ++i) {
    if (!registers_[i].bound) {
      std::fill_n(storage_.begin() + registers_[i].storage, registers_[i].words, description_.registers[i].reset);
    }
  }
}

std::size_t RegisterMap::find(std::uint32_t offset) const {
  const auto after = std::upper_bound(registers_.begin(), registers_.end(), offset,
                                      [](std::uint32_t at, const Register& r) { return at < r.first; });
  if (after == registers_.begin()) {
    return registers_.size();
  }
  const auto found = std::prev(after);
  return offset - found->first < 4 * found->words ? static_cast<std::size_t>(found - registers_.begin())
                                                  : registers_.size();
}

std::uint32_t RegisterMap::read32(std::uint32_t offset) {
  const std::size_t at = find(offset);
  std::uint32_t value = 0;
  if (at == registers_.size()) {
    ++refused_;
  } else {
    const Register& r = registers_[at];
    ++use_[at].reads;
    if (description_.registers[at].mode == RegisterMode::wo) {
      value = 0;
    } else if (r.bound) {
      value = block_.read32(r.target + (offset - r.first));
    } else {
      value = storage_[r.storage + (offset - r.first) / 4];
      for (const Source& source : r.sources) {
        value = (value & ~source.mask) | (block_.read32(source.offset) >> source.from << source.low & source.mask);
      }
    }
  }
  return faults_.any() ? faults_.apply(offset, false, value) : value;
}

void RegisterMap::write32(std::uint32_t offset, std::uint32_t value) {
  if (faults_.any()) {
    value = faults_.apply(offset, true, value);
  }
  const std::size_t at = find(offset);
  if (at == registers_.size() || description_.registers[at].mode == RegisterMode::ro) {
    ++refused_;
    return;
  }
  const Register& r = registers_[at];
  const RegisterDescription& described = description_.registers[at];
  ++use_[at].writes;
  if (r.bound) {
    block_.write32(r.target + (offset - r.first), value);
  } else {
    std::uint32_t& word = storage_[r.storage + (offset - r.first) / 4];
    switch (described.mode) {
      case RegisterMode::rw:
        word = (word & ~described.writable) | (value & described.writable);
        break;
      case RegisterMode::w1c:
        word &= ~(value & described.writable);
        break;
      case RegisterMode::ro:
      case RegisterMode::wo:
        break;
    }
  }
  for (const Effect& effect : r.effects) {
    if ((value & effect.when) == effect.when) {
      block_.write32(effect.offset, effect.pass ? value >> effect.shift : effect.value);
    }
  }
}

std::string RegisterMap::name(std::uint32_t offset) const {
  const std::size_t at = find(offset);
  if (at == registers_.size()) {
    return fmt::format("{:#x}", offset);
  }
  const Register& r = registers_[at];
  return r.words == 1 ? description_.registers[at].name
                      : fmt::format("{}.{}", description_.registers[at].name, (offset - r.first) / 4);
}

std::string RegisterMap::fields(std::uint32_t offset, std::uint32_t value) const {
  std::string text;
  if (const std::size_t at = find(offset); at != registers_.size()) {
    for (const RegisterField& field : description_.registers[at].fields) {
      text += fmt::format("{}{}={:#x}", text.empty() ? "" : " ", field.name,
                          (value & bits(field.high, field.low)) >> field.low);
    }
  }
  return text;
}

}  // namespace orrery::rnic
