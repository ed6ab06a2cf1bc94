"""Every family of rules: importing this package fills the table."""

from __future__ import annotations
