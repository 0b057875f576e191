// SPDX-License-Identifier: Apache-2.0
#include "../module.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "../fault.hpp"
#include "../program.hpp"
#include "module_state.hpp"
#include "scanner.hpp"

namespace ptx {

namespace {

/// @brief Reads what stands outside functions.
class Reader {
public:
  explicit Reader(Module::State& state) : state_(state), text_(state.text) {}

  void read() {
    while (skip_space()) {
      const std::string_view word = peek_word();
      if (word == ".version" || word == ".target" || word == ".address_size")
        take_until('\n');
      else if (word == ".file")
        read_file(take_until('\n'));
      else if (word == ".section")
        skip_section();
      else
        read_item();
    }
    for (const auto& [variable, declaration] : initial_)
      fill(variable, declaration);
  }

private:
  bool skip_space() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (text_.compare(at_, 2, "//") == 0)
        at_ = std::min(text_.find('\n', at_), text_.size()) - 1;
      else if (c == '\n')
        ++line_;
      else if (c != ' ' && c != '\t' && c != '\r' && c != ';')
        return true;
    }
    return false;
  }

  std::string_view peek_word() const {
    const std::size_t end = std::min(text_.find_first_of(" \t\n({;", at_), text_.size());
    return text_.substr(at_, end - at_);
  }

  std::string_view take_until(char stop) {
    const std::size_t end = std::min(text_.find(stop, at_), text_.size());
    const std::string_view taken = text_.substr(at_, end - at_);
    line_ += static_cast<unsigned>(std::count(taken.begin(), taken.end(), '\n'));
    at_ = end;
    return taken;
  }

  std::string_view skip_braces() {
    Scanner scanner(text_.substr(at_ + 1), line_);
    const std::string_view body = scanner.skip_body();
    at_ += 1 + scanner.position();
    line_ = scanner.line();
    return body;
  }

  void skip_section() {
    take_until('{');
    skip_braces();
  }

  void read_file(std::string_view line) {
    take_word(line);
    const auto number = read_number(take_word(line));
    const std::size_t open = line.find('"'), close = line.find('"', open + 1);
    if (!number || close == std::string_view::npos)
      return;
    state_.files.resize(std::max<std::size_t>(state_.files.size(), number->integer + 1));
    state_.files[number->integer] = line.substr(open + 1, close - open - 1);
  }

  /// A function, kernel or variable, with the words of linkage before it.
  void read_item() {
    const unsigned line = line_;
    for (std::string_view word = peek_word();; word = peek_word()) {
      if (word == ".visible" || word == ".extern" || word == ".weak" || word == ".common") {
        at_ += word.size();
        skip_space();
      } else if (word == ".entry" || word == ".func") {
        at_ += word.size();
        return read_function(word == ".entry");
      } else if (word == ".global" || word == ".const" || word == ".shared") {
        at_ += word.size();
        return read_variable(word, line);
      } else {
        throw Fault(FaultKind::syntax, "a module has no such statement: " + std::string(word.substr(0, 60)),
                    {.line = line});
      }
    }
  }

  std::vector<Declaration> read_parameters() {
    std::vector<Declaration> out;
    const unsigned line = line_;
    ++at_;
    std::string_view inside = trim(take_until(')'));
    ++at_;
    for (std::string_view part : split(inside, ','))
      out.push_back(read_declaration(part, line));
    return out;
  }

  void read_function(bool entry) {
    Function function;
    function.entry = entry;
    skip_space();
    if (text_[at_] == '(')
      function.results = read_parameters();
    skip_space();
    const std::size_t end = std::min(text_.find_first_of(" \t\n({;", at_), text_.size());
    function.name = text_.substr(at_, end - at_);
    at_ = end;
    skip_space();
    if (at_ < text_.size() && text_[at_] == '(')
      function.parameters = read_parameters();
    const std::string_view rest =
        text_.substr(at_, std::min(text_.find_first_of("{;", at_), text_.size()) - at_);
    read_limits(function, rest);
    line_ += static_cast<unsigned>(std::count(rest.begin(), rest.end(), '\n'));
    at_ += rest.size();
    if (at_ < text_.size() && text_[at_] == '{') {
      function.line = line_;
      function.defined = true;
      function.body = skip_braces();
    }
    Function& known = state_.functions[function.name];
    if (!known.defined)
      known = std::move(function);
  }

  static void read_limits(Function& function, std::string_view directives) {
    for (std::string_view word : {".maxntid", ".reqntid"}) {
      const std::size_t at = directives.find(word);
      if (at == std::string_view::npos)
        continue;
      std::string_view numbers = directives.substr(at + word.size());
      numbers = numbers.substr(0, numbers.find_first_of(".\n"));
      std::uint64_t product = 1;
      for (std::string_view number : split(numbers, ','))
        product *= read_number(number).value_or(Number{Number::Kind::integer, 1, 0}).integer;
      function.maximum_threads = static_cast<unsigned>(product);
    }
  }

  void read_variable(std::string_view space, unsigned line) {
    const Declaration declaration = read_declaration(trim(take_until(';')), line);
    if (space == ".shared") {
      state_.shared.emplace(declaration.name, declaration);
      return;
    }
    if (state_.variable_of.contains(declaration.name))
      return; // declared .extern and then defined
    const std::size_t room = declaration.bytes + declaration.alignment;
    auto storage = std::make_unique<std::byte[]>(room);
    void* begin = storage.get();
    std::size_t left = room;
    std::align(std::max<std::size_t>(declaration.alignment, 1), declaration.bytes, begin, left);
    state_.variable_of.emplace(declaration.name, state_.variables.size());
    state_.variables.push_back({std::string(declaration.name), static_cast<std::byte*>(begin),
                                declaration.bytes, declaration.alignment, space == ".const"});
    state_.storage.push_back(std::move(storage));
    if (!declaration.initial.empty())
      initial_.emplace_back(state_.variables.size() - 1, declaration);
  }

  void fill(std::size_t variable, const Declaration& declaration) {
    std::string flat(declaration.initial); // nested braces list the elements in order
    std::erase_if(flat, [](char c) { return c == '{' || c == '}'; });
    const std::size_t width = bits(declaration.type) / 8;
    std::size_t offset = 0;
    for (std::string_view element : split(flat, ',')) {
      if (offset + width > declaration.bytes)
        break;
      const std::uint64_t value = initial_value(element, declaration.type);
      std::memcpy(state_.variables[variable].address + offset, &value, width);
      offset += width;
    }
  }

  /// A number, or the address of a variable: `name`, `name+8` or `generic(name)`.
  std::uint64_t initial_value(std::string_view element, Type type) const {
    if (const auto number = read_number(element))
      return number->as(type);
    if (element.starts_with("generic("))
      element = trim(element.substr(8, element.find(')') - 8));
    const std::size_t plus = std::min(element.find('+'), element.size());
    const auto found = state_.variable_of.find(trim(element.substr(0, plus)));
    if (found == state_.variable_of.end())
      throw Fault(FaultKind::unsupported,
                  "a variable begins with what is neither a number nor the address of a "
                  "variable: " +
                      std::string(element),
                  {});
    const auto offset = plus < element.size() ? read_number(trim(element.substr(plus + 1))) : std::nullopt;
    return reinterpret_cast<std::uintptr_t>(state_.variables[found->second].address) +
           (offset ? offset->integer : 0);
  }

  Module::State& state_;
  std::string_view text_;
  std::size_t at_ = 0;
  unsigned line_ = 1;
  std::vector<std::pair<std::size_t, Declaration>> initial_;
};

} // namespace

Module::Module(std::unique_ptr<State> state) : state_(std::move(state)) {}
Module::Module(Module&&) noexcept = default;
Module& Module::operator=(Module&&) noexcept = default;
Module::~Module() = default;

const std::string& Module::name() const { return state_->name; }

const Kernel* Module::find(std::string_view entry) const {
  const std::lock_guard lock(state_->decoding);
  const auto function = state_->functions.find(entry);
  if (function == state_->functions.end() || !function->second.entry)
    return nullptr;
  std::unique_ptr<Kernel>& kernel = state_->kernels[function->first];
  if (!kernel)
    kernel = decode(*state_, function->second);
  return kernel.get();
}

std::vector<std::string_view> Module::entries() const {
  std::vector<std::string_view> out;
  for (const auto& [name, function] : state_->functions)
    if (function.entry)
      out.push_back(name);
  return out;
}

std::span<const Variable> Module::variables() const { return state_->variables; }

const Variable* Module::variable(std::string_view name) const {
  const auto found = state_->variable_of.find(name);
  return found == state_->variable_of.end() ? nullptr : &state_->variables[found->second];
}

Module parse(std::string_view text, std::string name) {
  auto state = std::make_unique<Module::State>();
  state->name = std::move(name);
  state->text = text;
  Reader(*state).read();
  return Module(std::move(state));
}

std::size_t Kernel::instructions() const { return program->sites.size(); }

Site Kernel::site(std::size_t instruction) const {
  const std::uint32_t at = program->sites[instruction];
  const Program::Origin& origin = program->origins[at];
  return {origin.opcode, program->text(at), origin.line, program->source(at)};
}

std::vector<std::vector<std::size_t>> Kernel::predecessors() const {
  const std::vector<std::uint32_t>& sites = program->sites; // ascending
  std::vector<std::vector<std::size_t>> before(sites.size());
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const auto leads_to = [&](std::uint32_t place) {
      const auto behind = std::upper_bound(sites.begin(), sites.end(), place);
      before[static_cast<std::size_t>(behind - sites.begin()) - 1].push_back(i);
    };
    bool goes_on = i + 1 < sites.size();
    const std::size_t end = goes_on ? sites[i + 1] : program->code.size();
    for (std::size_t at = sites[i]; at < end; ++at) {
      const Instruction& part = program->code[at];
      if (part.flow == Flow::branch || part.flow == Flow::call)
        leads_to(part.target);
      if (part.flow == Flow::branch_table)
        for (std::int64_t k = 0; k < part.immediate; ++k)
          leads_to(program->lists[part.list + static_cast<std::size_t>(k)]);
      const bool leaves = part.flow == Flow::branch || part.flow == Flow::branch_table ||
                          part.flow == Flow::ret || part.flow == Flow::exit;
      if (leaves && part.guard == 0 && part.guard_flip == 0) { // the row at 0 lets all lanes pass
        goes_on = false;
        break;
      }
    }
    if (goes_on)
      before[i + 1].push_back(i);
  }
  return before;
}

std::uint64_t Kernel::executed(std::size_t instruction) const {
  return program->counts[program->sites[instruction]];
}

void Kernel::clear_counts() const {
  for (std::size_t i = 0; i < program->code.size(); ++i)
    program->counts[i] = 0;
}

std::string Program::text(std::size_t instruction) const { return shortened(origins[instruction].text); }

std::string Program::source(std::size_t instruction) const {
  const Origin& origin = origins[instruction];
  if (origin.file == 0 || files == nullptr || origin.file >= files->size() || (*files)[origin.file].empty())
    return "";
  return (*files)[origin.file] + ":" + std::to_string(origin.source_line);
}

} // namespace ptx
