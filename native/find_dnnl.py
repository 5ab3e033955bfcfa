"""Print the include directory and the shared library of oneDNN, for CMake.

The wheels put both outside of site-packages, at a place that differs between a virtual
environment and pip's isolated build environment; their own lists of files lead there from either.
"""

import sys
from importlib.metadata import files
from pathlib import Path


def locate(distribution: str, suffix: str) -> Path:
    """Return the installed path of the file whose path ends with ``suffix``."""
    for file in files(distribution) or []:
        if file.as_posix().endswith(suffix):
            return Path(str(file.locate())).resolve()
    sys.exit(f"find_dnnl: the distribution {distribution} holds no {suffix}")


header = locate("onednn-devel-cpu-gomp", "/include/oneapi/dnnl/dnnl.hpp")
library = locate("onednn-cpu-gomp", "/libdnnl.so.3")
print(header.parents[2], library, sep=";", end="")
