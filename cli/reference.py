"""docs/cli.md from the commands' own help: python -m tpu_export.cli.reference > docs/cli.md."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tpu_export.cli.main import group


def reference() -> str:
    """Return the page."""
    parts = ["# Command line\n\nWritten by `make docs`; do not edit.\n"]
    parts += [f"## {name}\n\n```\n{text}\n```\n" for name, text in _pages()]
    return "\n".join(parts)


def _pages() -> Iterator[tuple[str, str]]:
    names = ["-h", "--help"]
    root = click.Context(
        group, info_name="tpu-export", terminal_width=80, help_option_names=names
    )
    yield "tpu-export", group.get_help(root)
    for name in group.list_commands(root):
        command = group.get_command(root, name)
        assert command is not None
        yield from _help(command, name, root)


def _help(
    command: click.Command, name: str, parent: click.Context
) -> Iterator[tuple[str, str]]:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=80)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for inner, child in command.commands.items():
            yield from _help(child, inner, context)


if __name__ == "__main__":
    print(reference(), end="")
