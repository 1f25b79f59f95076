// dispatch/registered_last.cpp: registrations that must see the vendor's first. The build links this file last: its initializer runs after
// the vendor's.
namespace backplane {

// Declared here: their headers would cost compile time.
void register_defaults();  // dispatch/defaults.h
void register_hooks();     // runtime/hooks.h

static const bool registered = (register_hooks(), register_defaults(), true);

}  // namespace backplane
