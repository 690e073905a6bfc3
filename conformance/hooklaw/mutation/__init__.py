"""Mutants against rules: every wrong backend must be caught."""
