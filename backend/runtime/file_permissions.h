// runtime/file_permissions.h: which files this process may run code from: those that only their owner can have written.
#pragma once

#include <string>

namespace backplane {

// Throws c10::Error, with the reason and the remedy, if everybody may write the file or may replace it: a folder of its path that everybody
// may write, without the sticky bit. Links are followed. `what` begins the sentence: "The driver".
void require_private(const std::string& path, const char* what);

}  // namespace backplane
