// backplane/torch_compat.h: the differences between torch versions that affect public headers, each with the version that makes it
// unnecessary.
#pragma once

// An output's dimension names, which torch before 2.13 passes along, always empty here. Unnecessary when 2.13 is the oldest.
#if __has_include(<ATen/core/Dimname.h>)
#define BACKPLANE_NAMES_PARAMETER , at::DimnameList
#define BACKPLANE_NAMES_ARGUMENT , at::DimnameList()
#else
#define BACKPLANE_NAMES_PARAMETER
#define BACKPLANE_NAMES_ARGUMENT
#endif
