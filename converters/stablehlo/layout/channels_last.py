"""Keep channels last from one convolution to the next.

Rules compute on [N, C, ...] as torch does; those of convolutions transpose before and after.
Given:  conv -> transpose to [N, C, H, W] -> relu -> pad -> transpose to [N, H, W, C] -> conv
Result: conv -> relu -> pad -> conv
Every equation with a form is written either way; the choice is the one that moves the fewest
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from tpu_export.converters.stablehlo.inline import alive, called, inlined
from tpu_export.converters.stablehlo.layout.choice import Program, chosen
from tpu_export.converters.stablehlo.layout.composites import form_with_composites
from tpu_export.converters.stablehlo.layout.writer import Writer

_CONVOLUTION = "conv_general_dilated"


def channels_last(
    closed: ClosedJaxpr,
    n_weights: int,
    arguments: Sequence[int] = (),
    results: Sequence[int] = (),
) -> ClosedJaxpr:
    """Return the program with fewer transposes; itself when it has no convolution.

    Args:
        closed: the whole signature; n_weights: how many leading arguments are weights.
        arguments: positions of those that come with their channels last; results: likewise.
    """
    jaxpr = closed.jaxpr
    equations, outs = inlined(jaxpr, called)
    equations = alive(equations, outs)
    if not _convolves(equations) and not arguments and not results:
        return closed
    program = Program(
        equations,
        [form_with_composites(eqn) for eqn in equations],
        jaxpr.invars,
        outs,
        frozenset(jaxpr.invars[:n_weights]),
        frozenset(jaxpr.invars[i] for i in arguments),
        frozenset(results),
    )
    return ClosedJaxpr(_written(jaxpr, program, chosen(program)), closed.consts)


def _convolves(equations: Sequence[JaxprEqn]) -> bool:
    return any(eqn.primitive.name == _CONVOLUTION for eqn in equations)


def _written(jaxpr: Jaxpr, program: Program, labels: Sequence[bool]) -> Jaxpr:
    writer = Writer()
    for v in jaxpr.constvars:
        writer.argument(v)
    last = program.last_arguments
    invars = [writer.argument(v, is_last=v in last) for v in jaxpr.invars]
    writer.write(program, labels)
    outs = [
        writer.get(v, i in program.last_results, None)
        for i, v in enumerate(program.results)
    ]
    equations = alive(writer.equations, outs)
    written: Jaxpr = jaxpr.replace(invars=invars, outvars=outs, eqns=equations)
    return written
