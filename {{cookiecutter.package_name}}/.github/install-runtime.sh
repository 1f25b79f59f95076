#!/usr/bin/env bash
# .github/install-runtime.sh: the one place where CI gets the vendor's runtime: headers, libraries, and what the loader needs to find them.
# Every job of ci.yml that builds or runs this project begins with it. The driver that the project starts with needs nothing.
set -euo pipefail

# sudo apt-get install -y libvendor-dev
# echo "LD_LIBRARY_PATH=/opt/vendor/lib" >> "${GITHUB_ENV:?}"
