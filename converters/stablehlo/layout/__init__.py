"""Where a program for LiteRT keeps its channels: last, between convolutions."""

from tpu_export.converters.stablehlo.layout.channels_last import (
    channels_last as channels_last,
)
