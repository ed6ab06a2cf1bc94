"""Training norms update running statistics that no schema announces."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn


class Functional(nn.Module):
    def forward(self, x, mean, var):
        return F.instance_norm(x, mean, var, use_input_stats=True, momentum=0.3)


class Native(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("var", torch.ones(3))

    def forward(self, x):
        y = torch.native_batch_norm(x, None, None, self.mean, self.var, True, 0.2, 1e-5)
        return y[0] + self.mean[:, None]


@pytest.mark.parametrize("affine", [True, False])
def test_instance_norm_keeps_its_statistics(check_module, affine):
    module = nn.InstanceNorm2d(3, track_running_stats=True, affine=affine).train()
    check_module(module, (torch.randn(2, 3, 5, 4) * 3 + 1,), calls=3)


def test_statistics_that_are_inputs(check_module):
    args = (torch.randn(2, 3, 7), torch.zeros(3), torch.ones(3))
    check_module(Functional(), args, calls=2)


def test_native_batch_norm_reads_what_it_wrote(check_module):
    check_module(Native(), (torch.randn(4, 3, 6) * 2 - 1,), calls=3)


class Frozen(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        with torch.no_grad():
            y = self.norm(x)
        return y * 2


@pytest.mark.parametrize(
    "norm", [nn.InstanceNorm1d(3, track_running_stats=True), nn.BatchNorm1d(3)]
)
def test_statistics_written_in_a_subgraph(check_module, norm):
    check_module(Frozen(norm).train(), (torch.randn(2, 3, 5) + 1,), calls=2)


def test_a_momentum_that_is_an_integer(check_module):
    module = nn.InstanceNorm1d(3, momentum=1, track_running_stats=True).train()
    check_module(module, (torch.randn(2, 3, 5) + 1,), calls=2)


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("var", torch.ones(3))

    def forward(self, x):
        y = F.instance_norm(x, self.mean, self.var, use_input_stats=True)
        return y.float().sum() * 0 + self.mean


def test_statistics_are_wider_than_the_input(check_module):
    x = (torch.randn(2, 3, 999) + 1).bfloat16()
    # Eager rounds the statistics of a sample to bfloat16.
    check_module(Mixed(), (x,), calls=2, tol=(5e-3, 1e-3))
