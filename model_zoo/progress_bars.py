"""transformers without progress bars and load reports on the terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

from tpu_export.model_zoo.packages import transformers


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Silence transformers inside the block; its GGUF reader has no switch."""
    logging = transformers().utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
