// aten/defaults_last.cpp: runs register_defaults(). The build links this file last: its initialiser comes after the vendor's.
namespace backplane {

void register_defaults();  // aten/defaults.h, whose headers are not worth their time here

static const bool registered = (register_defaults(), true);

}  // namespace backplane
