"""The environment of a compile worker: what it needs, and nothing else.

Variables such as XLA_FLAGS, LIBTPU_INIT_ARGS or JAX_* change what a compiler makes.
None is handed down, so that an executable depends on its inputs alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

# What a process needs to start: where programs, libraries, temporary files are.
_HANDED_DOWN: Final = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "LANG", "LC_ALL")

# libtpu asks the Cloud metadata server and a host list for its place in a pod, and
# takes a lock that admits one process; a compiler on a host without a TPU needs none of
# that.
_FIXED: Final = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_LOG_DIR": "disabled",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
}


def worker_environment(ambient: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the whole environment for a worker started from this process."""
    source = os.environ if ambient is None else ambient
    kept = {name: source[name] for name in _HANDED_DOWN if name in source}
    # The worker imports what this process would, however its path came about.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**kept, **_FIXED, "PYTHONPATH": path}
