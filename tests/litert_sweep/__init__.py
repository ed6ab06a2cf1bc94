"""Ops that edge models need, each through LiteRT: right in both engines, or refused."""

from litert_sweep import (
    control as control,
)
from litert_sweep import (
    convolutions as convolutions,
)
from litert_sweep import (
    detection as detection,
)
from litert_sweep import (
    layers as layers,
)
from litert_sweep import (
    numbers_and_logic as numbers_and_logic,
)
from litert_sweep import (
    ordering as ordering,
)
from litert_sweep import (
    pooling as pooling,
)
from litert_sweep import (
    writing as writing,
)
from litert_sweep.case import CASES as CASES
from litert_sweep.judge import judge as judge
