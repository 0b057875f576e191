// SPDX-License-Identifier: Apache-2.0
#include "decoder.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "../fault.hpp"
#include "../forms/build.hpp"

namespace ptx {

namespace {

constexpr std::size_t align_up(std::size_t value, std::size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

struct SpecialName {
  std::string_view name;
  Special which;
};

// A launch without clusters counts as clusters of one block.
constexpr std::array special_names{
    SpecialName{"%tid.x", Special::tid_x},
    SpecialName{"%tid.y", Special::tid_y},
    SpecialName{"%tid.z", Special::tid_z},
    SpecialName{"%ntid.x", Special::ntid_x},
    SpecialName{"%ntid.y", Special::ntid_y},
    SpecialName{"%ntid.z", Special::ntid_z},
    SpecialName{"%ctaid.x", Special::ctaid_x},
    SpecialName{"%ctaid.y", Special::ctaid_y},
    SpecialName{"%ctaid.z", Special::ctaid_z},
    SpecialName{"%nctaid.x", Special::nctaid_x},
    SpecialName{"%nctaid.y", Special::nctaid_y},
    SpecialName{"%nctaid.z", Special::nctaid_z},
    SpecialName{"%laneid", Special::laneid},
    SpecialName{"%warpid", Special::warpid},
    SpecialName{"%nwarpid", Special::nwarpid},
    SpecialName{"%smid", Special::smid},
    SpecialName{"%nsmid", Special::nsmid},
    SpecialName{"%gridid", Special::gridid},
    SpecialName{"%lanemask_eq", Special::lanemask_eq},
    SpecialName{"%lanemask_le", Special::lanemask_le},
    SpecialName{"%lanemask_lt", Special::lanemask_lt},
    SpecialName{"%lanemask_ge", Special::lanemask_ge},
    SpecialName{"%lanemask_gt", Special::lanemask_gt},
    SpecialName{"%dynamic_smem_size", Special::dynamic_smem_size},
    SpecialName{"%total_smem_size", Special::total_smem_size},
    SpecialName{"%cluster_ctarank", Special::zero},
    SpecialName{"%cluster_nctarank", Special::one},
    SpecialName{"%cluster_ctaid.x", Special::zero},
    SpecialName{"%cluster_nctaid.x", Special::one},
};

} // namespace

Decoder::Decoder(const Module::State& module, Program& out) : program(out), module_(module) {
  constant(1, 1); // the row at 0: a guard that lets all lanes pass
  program.scratch = new_row(64);
}

void Decoder::fail(FaultKind kind, const std::string& sentence) const {
  throw Fault(kind, sentence,
              {.kernel = program.kernel,
               .instruction = shortened(origin_.text),
               .line = origin_.line,
               .source = origin_.file < module_.files.size() && origin_.file != 0
                             ? module_.files[origin_.file] + ":" + std::to_string(origin_.source_line)
                             : ""});
}

// Rows

Slot Decoder::new_row(unsigned width) {
  // A row begins at a line of the cache; predicates are smaller.
  const std::size_t bytes = width == 1 ? 4 : align_up(std::size_t{width} / 8 * 32, 64);
  program.register_bytes = align_up(program.register_bytes, width == 1 ? 4 : 64);
  const auto slot = static_cast<Slot>(program.register_bytes);
  program.register_bytes += bytes;
  return slot;
}

Slot Decoder::constant(std::uint64_t value, unsigned width) {
  const auto [place, is_new] = constants_.try_emplace({value, width}, 0);
  if (is_new) {
    place->second = new_row(width);
    program.constants.push_back({place->second, width, value});
  }
  return place->second;
}

Slot Decoder::address_of(const Symbol& symbol, std::int64_t offset, unsigned width) {
  const std::uint64_t value = symbol.address + static_cast<std::uint64_t>(offset);
  if (!symbol.dynamic)
    return constant(value, width);
  const Slot slot = new_row(width);
  dynamic_constants_.push_back(program.constants.size());
  program.constants.push_back({slot, width, value});
  return slot;
}

std::optional<Register> Decoder::special(std::string_view name) {
  if (const auto known = specials_.find(name); known != specials_.end())
    return known->second;
  for (const SpecialName& candidate : special_names) {
    if (candidate.name != name)
      continue;
    const Register row{new_row(32), Type::u32};
    program.specials.push_back({row.slot, candidate.which});
    specials_.emplace(candidate.name, row);
    return row;
  }
  return std::nullopt;
}

std::optional<Register> Decoder::find_register(std::string_view name) {
  std::size_t digits = name.size();
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1])) != 0)
    --digits;
  const std::string_view prefix = name.substr(0, digits);
  std::size_t number = digits < name.size() ? 0 : ~std::size_t{0};
  for (std::size_t i = digits; i < name.size(); ++i)
    number = 10 * number + static_cast<std::size_t>(name[i] - '0');
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto single = scope->registers.find(name); single != scope->registers.end())
      return single->second;
    for (Family& family : scope->families) {
      if (family.prefix != prefix || number >= family.slots.size())
        continue;
      if (family.slots[number] == 0)
        family.slots[number] = new_row(bits(family.type));
      return Register{family.slots[number], family.type};
    }
  }
  return special(name);
}

// Variables

Symbol Decoder::place(const Declaration& declaration, Space space) {
  std::size_t& used = space == Space::shared ? program.shared_bytes : program.local_bytes;
  const std::size_t address = align_up(used, std::max<std::size_t>(declaration.alignment, 1));
  used = address + declaration.bytes;
  return {space, address, declaration.bytes};
}

std::optional<Symbol> Decoder::find_symbol(std::string_view name) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto found = scope->symbols.find(name); found != scope->symbols.end())
      return found->second;
  if (const auto placed = shared_.find(name); placed != shared_.end())
    return placed->second;
  if (const auto declared = module_.shared.find(name); declared != module_.shared.end()) {
    const Declaration& declaration = declared->second;
    Symbol symbol{Space::shared, 0, 0, true};
    if (declaration.count != 0)
      symbol = place(declaration, Space::shared);
    else
      dynamic_alignment_ = std::max(dynamic_alignment_, declaration.alignment);
    shared_.emplace(declared->first, symbol);
    return symbol;
  }
  if (const auto variable = module_.variable_of.find(name); variable != module_.variable_of.end()) {
    const Variable& found = module_.variables[variable->second];
    return Symbol{found.constant ? Space::constant : Space::global,
                  reinterpret_cast<std::uintptr_t>(found.address), found.bytes};
  }
  return std::nullopt;
}

std::uint32_t Decoder::string(std::string text) {
  program.strings.push_back(std::move(text));
  return static_cast<std::uint32_t>(program.strings.size() - 1);
}

// Labels

void Decoder::refer_to_label(std::string_view label, std::uint32_t instruction) {
  scopes_.back().branches.emplace_back(label, instruction);
}

void Decoder::refer_to_label_in_list(std::string_view label, std::uint32_t entry) {
  scopes_.back().entries.emplace_back(label, entry);
}

const std::vector<std::string_view>& Decoder::branch_targets(std::string_view name) const {
  const auto found = branch_targets_.find(name);
  if (found == branch_targets_.end())
    fail(FaultKind::syntax, "there is no .branchtargets " + std::string(name) + " before this.");
  return found->second;
}

void Decoder::close_scope() {
  Scope closing = std::move(scopes_.back());
  scopes_.pop_back();
  const auto resolve = [&](auto& references, auto put, auto pass_on) {
    for (const auto& [label, where] : references) {
      const auto found = closing.labels.find(label);
      if (found != closing.labels.end())
        put(where, found->second);
      else if (!scopes_.empty())
        pass_on(label, where);
      else
        fail(FaultKind::syntax, "there is no label " + std::string(label) + ".");
    }
  };
  resolve(
      closing.branches,
      [&](std::uint32_t where, std::uint32_t target) { program.code[where].target = target; },
      [&](std::string_view label, std::uint32_t where) { refer_to_label(label, where); });
  resolve(
      closing.entries, [&](std::uint32_t where, std::uint32_t target) { program.lists[where] = target; },
      [&](std::string_view label, std::uint32_t where) { refer_to_label_in_list(label, where); });
}

// Statements

void Decoder::append(const Instruction& instruction, bool is_site) {
  if (is_site)
    program.sites.push_back(static_cast<std::uint32_t>(program.code.size()));
  program.code.push_back(instruction);
  program.origins.push_back(origin_);
}

void Decoder::declare_registers(std::string_view text) {
  std::optional<Type> type;
  while (!text.empty() && text.front() == '.')
    type = type_of(take_word(text).substr(1));
  if (!type)
    fail(FaultKind::unsupported, "the interpreter does not know the type of these registers.");
  for (std::string_view name : split(text, ',')) {
    const std::size_t angle = name.find('<');
    if (angle == std::string_view::npos) {
      scopes_.back().registers[name] = {new_row(bits(*type)), *type};
      continue;
    }
    const auto count = read_number(trim(name.substr(angle + 1, name.size() - angle - 2)));
    scopes_.back().families.push_back(
        {trim(name.substr(0, angle)), *type, std::vector<Slot>(count ? count->integer : 0)});
  }
}

void Decoder::location(std::string_view text) {
  const auto file = read_number(take_word(text)), line = read_number(take_word(text));
  origin_.file = file ? static_cast<std::uint32_t>(file->integer) : 0;
  origin_.source_line = line ? static_cast<std::uint32_t>(line->integer) : 0;
}

void Decoder::directive(std::string_view text) {
  const std::string_view word = take_word(text);
  if (word == ".reg")
    declare_registers(text);
  else if (word == ".local" || word == ".shared" || word == ".param") {
    const Declaration declaration = read_declaration(text, origin_.line);
    scopes_.back().symbols[declaration.name] =
        place(declaration, word == ".shared" ? Space::shared : Space::local);
  } else if (word == ".branchtargets")
    branch_targets_[label_] = split(text, ',');
  else if (word != ".pragma" && word != ".callprototype")
    fail(FaultKind::unsupported, "the interpreter does not know the directive " + std::string(word) + ".");
}

void Decoder::statement(const Statement& statement) {
  std::string_view text = statement.text;
  if (text.empty())
    return;
  origin_.text = text;
  origin_.line = statement.line;
  if (text.front() == '.')
    return directive(text);
  std::string_view guard;
  if (text.front() == '@')
    guard = take_word(text);
  const std::string_view words = take_word(text);
  Build build(*this, words, text, guard);
  origin_.opcode = build.opcode;
  build.decode();
}

void Decoder::decode_body(const Function& function) {
  Scanner scanner(function.body, function.line);
  for (Statement next = scanner.next(); next.kind != Statement::Kind::end; next = scanner.next()) {
    switch (next.kind) {
    case Statement::Kind::open:
      scopes_.emplace_back();
      break;
    case Statement::Kind::close:
      close_scope();
      break;
    case Statement::Kind::location:
      location(next.text);
      break;
    case Statement::Kind::label:
      scopes_.back().labels[next.text] = static_cast<std::uint32_t>(program.code.size());
      label_ = next.text;
      break;
    default:
      statement(next);
    }
  }
  Build(*this, "ret", "", "").decode(); // what the end of a body does
  program.sites.pop_back();
  close_scope();
}

// Functions

const Callee* Decoder::callee(std::string_view name) const {
  const auto found = callees_.find(name);
  return found == callees_.end() ? nullptr : &found->second;
}

void Decoder::decode_callees(const Function& function) {
  Scanner scanner(function.body, function.line);
  for (Statement next = scanner.next(); next.kind != Statement::Kind::end; next = scanner.next()) {
    std::string_view text = next.text;
    if (next.kind != Statement::Kind::other || text.find("call") == std::string_view::npos ||
        text.front() == '.')
      continue;
    if (text.front() == '@')
      take_word(text);
    if (!take_word(text).starts_with("call"))
      continue;
    for (std::string_view part : split(text, ',')) {
      const auto found = module_.functions.find(trim(part));
      if (found == module_.functions.end() || !found->second.defined || callees_.contains(found->first))
        continue;
      origin_.text = next.text;
      origin_.line = next.line;
      if (std::find(open_functions_.begin(), open_functions_.end(), found->first) != open_functions_.end())
        fail(FaultKind::unsupported,
             "a function that calls itself, directly or not: the interpreter gives each "
             "function one frame.");
      decode_function(found->second);
    }
  }
}

void Decoder::decode_function(const Function& function) {
  open_functions_.push_back(function.name);
  decode_callees(function);
  open_functions_.pop_back();
  Callee callee;
  callee.entry = static_cast<std::uint32_t>(program.code.size());
  callee.return_to = return_to = new_row(32);
  in_kernel = false;
  scopes_.emplace_back();
  for (const Declaration& parameter : function.parameters)
    scopes_.back().symbols[parameter.name] = callee.parameters.emplace_back(place(parameter, Space::local));
  for (const Declaration& result : function.results)
    scopes_.back().symbols[result.name] = callee.results.emplace_back(place(result, Space::local));
  origin_.file = 0;
  decode_body(function);
  callees_[function.name] = callee;
}

void Decoder::decode_kernel(const Function& function, Kernel& kernel) {
  open_functions_.push_back(function.name);
  decode_callees(function);
  program.entry = static_cast<std::uint32_t>(program.code.size());
  in_kernel = true;
  scopes_.emplace_back();
  std::size_t offset = 0;
  for (const Declaration& parameter : function.parameters) {
    offset = align_up(offset, parameter.alignment);
    scopes_.back().symbols[parameter.name] = {Space::parameter, offset, parameter.bytes};
    kernel.parameters.push_back({std::string(parameter.name), offset, parameter.bytes, parameter.alignment});
    offset += parameter.bytes;
  }
  origin_.file = 0;
  decode_body(function);
  program.parameter_bytes = offset;
  program.maximum_threads = function.maximum_threads;
  program.dynamic_offset = align_up(program.shared_bytes, dynamic_alignment_);
  for (const std::size_t constant : dynamic_constants_)
    program.constants[constant].value += program.dynamic_offset;
  program.local_bytes = align_up(program.local_bytes, 16);
}

std::unique_ptr<Kernel> decode(const Module::State& module, const Function& function) {
  auto kernel = std::make_unique<Kernel>();
  auto program = std::make_shared<Program>();
  kernel->name = program->kernel = function.name;
  program->files = &module.files;
  Decoder(module, *program).decode_kernel(function, *kernel);
  program->counts = std::make_unique<std::atomic<std::uint64_t>[]>(program->code.size());
  kernel->parameter_bytes = program->parameter_bytes;
  kernel->shared_bytes = program->shared_bytes;
  kernel->local_bytes = program->local_bytes;
  kernel->maximum_threads = program->maximum_threads;
  kernel->program = std::move(program);
  return kernel;
}

} // namespace ptx
