"""Forms of composites: what is inside must be pointwise, and is written channels-last too."""

from __future__ import annotations

from jax.extend.core import ClosedJaxpr, JaxprEqn

from tpu_export.converters.stablehlo.inline import called, inlined
from tpu_export.converters.stablehlo.layout.choice import Program
from tpu_export.converters.stablehlo.layout.forms import Form, form_of, shape_of
from tpu_export.converters.stablehlo.layout.writer import Writer


def form_with_composites(eqn: JaxprEqn) -> Form | None:
    """Return the form of an equation, composites included."""
    return _composite(eqn) if eqn.primitive.name == "composite" else form_of(eqn)


def _composite(eqn: JaxprEqn) -> Form | None:
    scalar = [shape_of(v) == () for v in eqn.invars]
    shapes = {shape_of(v) for v in (*eqn.invars, *eqn.outvars)} - {()}
    closed = eqn.params["jaxpr"]
    if len(shapes) != 1 or len(*shapes) < 3 or closed.consts:
        return None
    equations, results = inlined(closed.jaxpr, called)
    forms = [form_of(e) for e in equations]
    (shape,) = shapes
    for e, form in zip(equations, forms, strict=True):
        small = all(shape_of(v) == () for v in e.outvars)
        if not small and (form is None or {shape_of(v) for v in e.outvars} != {shape}):
            return None
    writer = Writer()
    pairs = zip(closed.jaxpr.invars, scalar, strict=True)
    invars = [writer.argument(v, is_last=not s) for v, s in pairs]
    labels = [form is not None for form in forms]
    writer.write(Program(equations, forms, closed.jaxpr.invars, results), labels)
    outvars = [writer.get(v, True, None) for v in results]
    jaxpr = closed.jaxpr.replace(invars=invars, outvars=outvars, eqns=writer.equations)
    params = {"jaxpr": ClosedJaxpr(jaxpr, closed.consts)}
    return Form(tuple(not s for s in scalar), (True,) * len(eqn.outvars), params)
