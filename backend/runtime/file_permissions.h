// runtime/file_permissions.h: which files this process may run code from: those that nobody but their owner can have put there.
#pragma once

#include <string>

namespace backplane {

// Throws c10::Error, with the reason and the cure, if everybody may write the file or may replace it: a folder on the way to it that
// everybody may write, and that has no sticky bit. Links are followed. `what` begins the sentence: "The driver".
void require_private(const std::string& path, const char* what);

}  // namespace backplane
