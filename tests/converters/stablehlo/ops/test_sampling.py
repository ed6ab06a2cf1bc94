from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
TOL = (1e-4, 1e-4)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_grid_sampler_2d(compare, mode, padding, align_corners):
    x, grid = torch.randn(2, 3, 5, 6), torch.rand(2, 4, 7, 2) * 5 - 2.5
    for op in (aten.grid_sampler.default, aten.grid_sampler_2d.default):
        compare(op, x, grid, mode, padding, align_corners, tol=TOL)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("mode", [0, 1])
def test_grid_sampler_3d(compare, mode, padding, align_corners):
    x, grid = torch.randn(2, 3, 5, 6, 4), torch.rand(2, 4, 3, 2, 3) * 3 - 1.5
    op = aten.grid_sampler_3d.default
    compare(op, x, grid, mode, padding, align_corners, tol=TOL)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize(("rank", "mode"), [(2, 0), (2, 1), (2, 2), (3, 0), (3, 1)])
def test_what_is_not_finite_is_read_inside_only(
    compare, mode, rank, padding, align_corners
):
    x = torch.randn(1, 2, *[4] * rank)
    x[0, 0, 0], x[0, 1, 3] = torch.inf, torch.nan
    grid = torch.rand(1, *[5] * rank, rank) * 5 - 2.5
    op = aten.grid_sampler.default
    compare(op, x, grid, mode, padding, align_corners, tol=TOL)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("size", [[2, 3, 5, 6], [2, 3, 1, 6], [2, 1, 3, 4, 5]])
def test_affine_grid(compare, size, align_corners):
    rank = len(size) - 2
    theta = torch.randn(2, rank, rank + 1)
    compare(aten.affine_grid_generator.default, theta, size, align_corners, tol=TOL)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize(("rank", "mode"), [(2, 0), (2, 1), (2, 2), (3, 0), (3, 1)])
def test_coordinates_that_are_not_finite_or_far_away(
    compare, mode, rank, padding, align_corners
):
    far = [1e10, -1e10, 1e38] if padding != 2 else []  # torch's own rounding decides
    places = torch.tensor([torch.nan, torch.inf, -torch.inf, *far])
    grid = torch.zeros(1, *[1] * (rank - 1), len(places), rank)
    for dim in range(rank):
        grid[..., dim] = places
        op, x = aten.grid_sampler.default, torch.randn(1, 2, *[4] * rank)
        compare(op, x, grid, mode, padding, align_corners, tol=TOL)
        grid[..., dim] = 0
