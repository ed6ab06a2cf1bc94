"""What the installed converter and engines do with programs known to be difficult.

Entries are tiny JAX functions in tables, one file a kind; `selftest` lowers each, converts
it without our rewrites and runs it in both engines, and says where the outcome is not the
recorded one.
"""
