"""tpu-export: one command a file, each loaded when it is asked for."""

from __future__ import annotations

import signal
import sys
from importlib import import_module

import click

import tpu_export
from tpu_export.cli.failures import UsageError, run_safely
from tpu_export.cli.near import did_you_mean

COMMANDS = {
    "export": "Export a model and prove the result (the default command).",
    "debug": "Find the op of a model that is computed otherwise than in torch.",
    "demo": "Export EfficientNet-Lite0 for both targets and compare the answers.",
    "diff": "Say how two .tflite files differ.",
    "doctor": "Show versions, extras, and what this host can compile and run.",
    "explain": "Explain an error code.",
    "inspect": "Show what a .tpuexe or .tflite holds.",
    "ops": "Show whether the ops of a model are covered, or one op by name.",
    "parity": "Compare an artifact with the model, or with its recorded outputs.",
    "quantize-debug": "Find the layer that a quantization for LiteRT hurts.",
    "run": "Run a .tpuexe or .tflite on inputs from a file.",
    "zoo": "List the model zoo, or export from it.",
}


OWN_OPTIONS = ("--help", "-h", "--version")


class Commands(click.Group):
    """Loads a command's module on use; `export` is meant when none is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"tpu_export.cli.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `export` in front of what is no command."""
        if not args or args[0] not in {*COMMANDS, *OWN_OPTIONS}:
            refuse_misspelt(
                args[0] if args else "", alone=not args[1:] or args[1].startswith("-")
            )
            args = ["export", *args]
        return super().parse_args(ctx, args)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def refuse_misspelt(word: str, *, alone: bool) -> None:
    """Refuse a word that is nearly a command, or has arguments as one, and can be no MODEL.

    Raises:
        UsageError: with the commands that are near.
    """
    if word.startswith("--"):
        hint = did_you_mean(word, OWN_OPTIONS, cutoff=0.8)
    # Every form of MODEL has a dot or a colon; "-t" is an option of export's.
    elif word.replace("-", "").isalnum() and not word.startswith("-"):
        hint = did_you_mean(word, COMMANDS, cutoff=0.7)
        if not alone and not hint:
            hint = f"commands are {', '.join(COMMANDS)}"
    else:
        return
    if hint:
        kind = "option" if word.startswith("--") else "command"
        raise UsageError(f"no {kind} {word!r}", hint=hint)


EPILOG = """
MODEL is path.py[:factory] (with get_model() and get_inputs(); optionally
get_dynamic_shapes() and get_signatures()), path.pt2, hf:DIR or zoo:NAME. Without it:
[tool.tpu-export] of the nearest pyproject.toml, else the one model file in the folder.
"""


@click.group(
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(tpu_export.__version__, prog_name="tpu-export")
def group() -> None:
    """Export PyTorch models to Cloud TPU and LiteRT, and prove them right.

    tpu-export [MODEL] --target {cloud-tpu,litert,stablehlo} [-o FILE]
    """


def main() -> None:
    """Run the command line and exit with 0 fine, 1 the job failed, 2 usage."""
    # An exit unwinds: partial files go and workers end, as they do after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(run_safely(group, sys.argv[1:]))


if __name__ == "__main__":
    main()
