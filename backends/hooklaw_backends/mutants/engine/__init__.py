"""Mutants of the reference engine only: each replaces a step of `hooklaw.model`."""
