// runtime/overrides.cpp: the one instance, created at first use and never destroyed.
#include "runtime/overrides.h"

namespace backplane {

Overrides& overrides() {
  static auto* instance = new Overrides();
  return *instance;
}

}  // namespace backplane
