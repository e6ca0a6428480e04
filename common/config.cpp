#include "common/config.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include "common/config_state.h"
#include "common/text.h"

namespace orrery {

std::string ConfigOrigin::text() const {
  switch (kind) {
    case Kind::default_value:
      return "default";
    case Kind::file:
      return fmt::format("{}:{}", file, line);
    case Kind::override_option:
      return "--set " + assignment;
  }
  return "default";
}

void ConfigProblems::add(std::string_view path, std::string what, std::string remedy) {
  // The nearest enclosing key that was written down somewhere is the place to look.
  std::string_view at = path;
  while (true) {
    const auto found = origins_.find(at);
    if (found != origins_.end()) {
      add_at(found->second.text(), path, std::move(what), std::move(remedy));
      return;
    }
    const std::size_t dot = at.rfind('.');
    if (dot == std::string_view::npos) {
      add_at(fallback_, path, std::move(what), std::move(remedy));
      return;
    }
    at = at.substr(0, dot);
  }
}

void ConfigProblems::add_at(std::string place, std::string_view path, std::string what, std::string remedy) {
  std::string text = std::move(place);
  if (!path.empty()) {
    text += fmt::format(": {}", printable(path, 200));
  }
  problems_.push_back({fmt::format("{}: {}", text, what), std::move(remedy)});
}

void ConfigProblems::throw_if_any() const {
  if (problems_.empty()) {
    return;
  }
  if (problems_.size() == 1) {
    throw Error(problems_[0].text, problems_[0].remedy);
  }
  constexpr std::size_t shown = 20;
  std::string all = fmt::format("{} problems in the configuration", problems_.size());
  for (std::size_t i = 0; i < problems_.size() && i < shown; ++i) {
    all += fmt::format("\n  {}\n    {}", problems_[i].text, problems_[i].remedy);
  }
  if (problems_.size() > shown) {
    all += fmt::format("\n  … and {} more", problems_.size() - shown);
  }
  throw Error(all, "mend these keys; `orrery config defaults` prints every key with its meaning and range");
}

ConfigDocument::ConfigDocument() : state_(std::make_unique<State>()) {}
ConfigDocument::ConfigDocument(ConfigDocument&&) noexcept = default;
ConfigDocument& ConfigDocument::operator=(ConfigDocument&&) noexcept = default;
ConfigDocument::~ConfigDocument() = default;

const std::string& ConfigDocument::name() const {
  return state_->name;
}

namespace {

// The parser nests one table per part of a dotted key and destroys them recursively: bound the parts.
void check_nesting(std::string_view text, const std::string& name) {
  constexpr std::size_t most_dots = 512;
  unsigned line_number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++line_number;
    std::size_t dots = 0;
    for (const char c : line) {
      dots += c == '.' ? 1 : 0;
    }
    if (dots > most_dots) {
      throw Error(fmt::format("{}:{}: {} dots in one line", name, line_number, dots),
                  fmt::format("a line may have at most {}: shorten the key or the text", most_dots));
    }
  }
}

// Sources of hand-written text are small; a longer one is a wrong file.
void check_size(std::size_t bytes, const std::string& name) {
  if (bytes > ConfigDocument::maximum_bytes) {
    throw Error(fmt::format("{}: larger than {} bytes", name, ConfigDocument::maximum_bytes),
                "give a TOML configuration file, as `orrery config defaults` prints it");
  }
}

}  // namespace

std::string describe_node(const toml::node& node) {
  if (const auto* s = node.as_string()) {
    return fmt::format("the text \"{}\"", printable(s->get(), 60));
  }
  if (const auto* i = node.as_integer()) {
    return fmt::format("{}", i->get());
  }
  if (const auto* f = node.as_floating_point()) {
    return fmt::format("{}", f->get());
  }
  if (const auto* b = node.as_boolean()) {
    return b->get() ? "true" : "false";
  }
  if (node.is_table()) {
    return "a table";
  }
  if (node.is_array()) {
    return "an array";
  }
  return "a date or time";
}

ConfigDocument ConfigDocument::parse(std::string_view text, const std::string& name) {
  check_size(text.size(), name);
  check_nesting(text, name);
  ConfigDocument document;
  document.state_->name = name;
  try {
    document.state_->root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    throw Error(
        fmt::format("{}:{}: not valid TOML: {}", name, error.source().begin.line, printable(error.description(), 300)),
        "mend the line (https://toml.io describes the format)");
  }
  return document;
}

ConfigDocument ConfigDocument::load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int reason = errno;
    throw Error(fmt::format("{}: cannot open the configuration: {}", path, std::strerror(reason)),
                "check the path and its permissions");
  }
  std::string text(maximum_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.gcount() == 0 && !file.eof())) {
    throw Error(fmt::format("{}: cannot read the configuration", path), "check that it is a regular, readable file");
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse(text, path);
}

void ConfigDocument::set(std::string_view assignment) {
  const std::string place = fmt::format("--set {}", printable(assignment));
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    throw Error(fmt::format("{}: no value given", place), "write --set path.of.key=value");
  }
  check_size(assignment.size(), place);
  // As in a file, blanks around the key and the value mean nothing.
  const std::string path(trimmed(assignment.substr(0, equals)));
  const std::string value(trimmed(assignment.substr(equals + 1)));
  const std::vector<std::string_view> parts = split(path, '.');
  for (const std::string_view part : parts) {
    if (part.empty() || parts.size() > 16) {
      throw Error(fmt::format("{}: \"{}\" is not a key path", place, printable(path)),
                  "write --set path.of.key=value, e.g. --set topology.switches=1");
    }
  }
  toml::table parsed;
  check_nesting(value, place);
  try {
    parsed = toml::parse("value = " + value);
    if (parsed.size() != 1) {
      throw Error(fmt::format("{}: more than one value", place), "give one --set option per key");
    }
  } catch (const toml::parse_error&) {
    parsed.clear();
    parsed.insert("value", value);  // not TOML: a bare word or a path
  }

  // Walk to the table or array that holds the last part, making what is missing.
  toml::node* holder = &state_->root;
  const auto element_number = [&](const toml::array& array, std::string_view part) {
    const std::optional<std::uint64_t> number = parse_unsigned(part);
    if (!number || *number > array.size()) {
      throw Error(fmt::format("{}: \"{}\" is no element of a list of {}", place, printable(part), array.size()),
                  fmt::format("use a number from 0 to {}", array.size()));
    }
    return static_cast<std::size_t>(*number);
  };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    if (toml::array* array = holder->as_array()) {
      const std::size_t number = element_number(*array, parts[i]);
      if (last) {
        parsed.get("value")->visit([&](auto& node) {
          if (number == array->size()) {
            array->push_back(std::move(node));
          } else {
            array->replace(array->cbegin() + static_cast<std::ptrdiff_t>(number), std::move(node));
          }
        });
      } else {
        if (number == array->size()) {
          array->push_back(toml::table{});
        }
        holder = array->get(number);
      }
    } else if (toml::table* table = holder->as_table()) {
      if (last) {
        parsed.get("value")->visit([&](auto& node) { table->insert_or_assign(parts[i], std::move(node)); });
      } else {
        // A list that isn't there yet begins as a table of numbers: begin_list() knows.
        if (table->get(parts[i]) == nullptr) {
          table->insert(parts[i], toml::table{});
        }
        holder = table->get(parts[i]);
      }
    } else {
      throw Error(fmt::format("{}: \"{}\" is {}, it has no key \"{}\"", place, printable(parts[i - 1]),
                              describe_node(*holder), printable(parts[i])),
                  "`orrery config defaults` prints every key");
    }
  }
  state_->overrides.push_back({path, std::string(assignment)});
}

}  // namespace orrery
