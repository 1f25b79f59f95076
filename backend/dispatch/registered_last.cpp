// dispatch/registered_last.cpp: what must see the vendor's own first. The build links this file last: its initialiser comes after the
// vendor's.
namespace backplane {

// Declared here: their headers are not worth their time.
void register_defaults();  // dispatch/defaults.h
void register_hooks();     // runtime/hooks.h

static const bool registered = (register_hooks(), register_defaults(), true);

}  // namespace backplane
