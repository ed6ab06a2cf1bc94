"""The base of every error that a user can meet.

Subclasses live in the file that raises them; each has its own ``TPX-nnnn`` code,
documented in docs/errors.md. The first two digits name the stage: 00 command line,
01 sources and capture, 02 lowering, 03 ahead-of-time compile, 04 artifact,
05 runtime, 06 LiteRT, 07 parity, 08 model zoo.
"""

from __future__ import annotations

from typing import ClassVar


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "byte"), counted(2, "byte")
    ('1 byte', '2 bytes')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def with_article(noun: str) -> str:
    """Return the name of a type after "a" or "an".

    >>> with_article("int"), with_article("list"), with_article("NoneType")
    ('an int', 'a list', 'None')
    """
    if noun == "NoneType":
        return "None"
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"


class TpuExportError(Exception):
    """One line of what and where, one line of what to do.

    Attributes:
        code: ``TPX-nnnn``; ``tpu-export explain CODE`` prints its page.
        message: what is wrong, with which thing, where; lower case, no period.
        hint: what the user can do about it.
    """

    code: ClassVar[str] = "TPX-0000"

    def __init__(self, message: str, *, hint: str) -> None:
        """Keep the message and the hint apart, so that tools can show both."""
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.code}: {self.message}\n  {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        """Survive a process border: workers send errors back."""
        return (_rebuild, (type(self), self.message, self.hint, self.__dict__))


def _rebuild(
    kind: type[TpuExportError], message: str, hint: str, state: dict[str, object]
) -> TpuExportError:
    error = kind.__new__(kind)
    TpuExportError.__init__(error, message, hint=hint)
    error.__dict__.update(state)
    return error


class MissingExtraError(TpuExportError):
    """An optional dependency is needed for what was asked."""

    code = "TPX-0001"

    def __init__(self, package: str, extra: str) -> None:
        """Name the package that is missing and the extra that brings it."""
        super().__init__(
            f"the package {package!r} is not installed",
            hint=f'install it with: pip install "tpu-export[{extra}]"',
        )
