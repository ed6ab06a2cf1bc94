"""Captured -> Lowered -> Compiled: a frozen value a stage."""
