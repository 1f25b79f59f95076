// runtime/slots.cpp: the one instance, made at first use and never destroyed.
#include "runtime/slots.h"

namespace backplane {

Slots& slots() {
  static auto* instance = new Slots();
  return *instance;
}

}  // namespace backplane
