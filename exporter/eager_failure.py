"""Whether a model that torch.export refuses fails by itself, in torch eager."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

import torch
from torch.utils import _pytree as pytree

from tpu_export.exporter.restored import restored


def eager_failure(
    model: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
) -> Exception | None:
    """Return what a call of the model on its example inputs raises, None if nothing.

    The model, the inputs and torch's random state are left as they were, and what the model
    prints is dropped: tracing it has shown that already.
    """
    args, kwargs = pytree.tree_map_only(
        torch.Tensor, lambda t: t.detach().clone(), (args, kwargs)
    )
    printed = io.StringIO()
    with (
        restored(model, dict(model.named_buffers())),
        torch.random.fork_rng(devices=()),
        torch.no_grad(),
        redirect_stdout(printed),
        redirect_stderr(printed),
    ):
        try:
            model(*args, **kwargs)
        except Exception as error:  # whatever the user's model raises
            return error
    return None
