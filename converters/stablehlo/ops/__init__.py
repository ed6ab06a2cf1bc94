"""Every family of rules: importing this package fills the table."""

from __future__ import annotations

from tpu_export.converters.stablehlo.ops import (
    activation as activation,
)
from tpu_export.converters.stablehlo.ops import (
    attention as attention,
)
from tpu_export.converters.stablehlo.ops import (
    convolution as convolution,
)
from tpu_export.converters.stablehlo.ops import (
    dropout as dropout,
)
from tpu_export.converters.stablehlo.ops import (
    embedding as embedding,
)
from tpu_export.converters.stablehlo.ops import (
    linear as linear,
)
from tpu_export.converters.stablehlo.ops import (
    normalization as normalization,
)
from tpu_export.converters.stablehlo.ops import (
    pooling as pooling,
)
