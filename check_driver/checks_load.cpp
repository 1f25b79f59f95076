// check_driver/checks_load.cpp: family "load": what must hold before a driver can be used at all.
#include "context.h"
#include "loader.h"

namespace backplane::check {
namespace load_impl {

// Every rule is kept up to this step. A rule before it that fails is another row's failure.
template <driver::LoadStep Step>
void passes(Context& c) {
  try {
    load(c.options());
  } catch (const driver::LoadFailure& failure) {
    if (failure.step == Step) throw Failure{failure.text, rule_of(Step)};
    if (failure.step < Step) throw NotOffered{"an earlier rule failed"};
  }
}

void refusal(Context& c) {
  const Stack stack = load(c.options());
  std::vector<std::string> paths = stack.shims;
  paths.push_back(c.options().driver);
  auto config = driver::options_by_shim(c.options().config);
  constexpr uint32_t other_minor = BP_ABI_MINOR + 999;
  for (const std::string& path : paths) {
    const bool is_driver = path == c.options().driver;
    const bp_driver* inner = nullptr;
    if (!is_driver) inner = ask(c.options().driver, config[""], nullptr).table;
    const driver::Answer answer = ask(path, config[is_driver ? "" : driver::shim_name(path)], inner, other_minor);
    const std::string asked = format("%s, asked for ABI %u.%u,", path.c_str(), BP_ABI_MAJOR, other_minor);
    if (answer.status == BP_OK) {
      // It leaves the comparison to the caller; then it must report its own version.
      c.require(answer.table && !(answer.table->abi_major == BP_ABI_MAJOR && answer.table->abi_minor == other_minor),
                "while abi_major is 0 the minor must be equal", "%s claims to speak it", asked.c_str());
      continue;
    }
    const char* rule =
        "A driver that refuses (an unsupported ABI, ...) passes the reason to host->set_error and returns "
        "BP_INVALID_ARGUMENT or BP_UNSUPPORTED";
    c.require(answer.status == BP_INVALID_ARGUMENT || answer.status == BP_UNSUPPORTED, rule,
              "%s refused with %s, expected BP_INVALID_ARGUMENT or BP_UNSUPPORTED", asked.c_str(), status_text(answer.status).c_str());
    c.require(!answer.reason.empty(), rule, "%s refused and gave no reason", asked.c_str());
    c.require(!answer.table, rules::errors, "%s refused and yet set *out", asked.c_str());
  }
}

void instances(Context& c) {
  const Stack first = load(c.options()), second = load(c.options());
  c.require(first.instance != second.instance, "Each call gives a new instance, whose table lives until its close()",
            "two calls of bp_driver_get gave the same table %p", static_cast<const void*>(first.instance));
}

}  // namespace load_impl

Checks load_checks() {
  using namespace load_impl;
  constexpr uint64_t unloaded = needs_no_device | starts_unloaded;
  return {
      {"load.symbol", "exports bp_driver_get", unloaded, passes<driver::LoadStep::symbol>},
      {"load.answer", "bp_driver_get answers with a table", unloaded, passes<driver::LoadStep::answer>},
      {"load.abi", "speaks this ABI", unloaded, passes<driver::LoadStep::abi>},
      {"load.size", "the table's struct_size is plausible", unloaded, passes<driver::LoadStep::size>},
      {"load.minimum", "has the nine required entries", unloaded, passes<driver::LoadStep::minimum>},
      {"load.groups", "every group of slots is whole or absent", unloaded, passes<driver::LoadStep::groups>},
      {"load.refusal", "refuses another ABI, and says why", unloaded, refusal},
      {"load.instances", "each call gives a new instance", unloaded, instances},
  };
}

}  // namespace backplane::check
