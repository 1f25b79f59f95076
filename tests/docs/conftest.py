"""Makes the helpers of this folder, and those that build generated projects, importable."""

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parents[1] / "template"):
    sys.path.insert(0, str(folder))
