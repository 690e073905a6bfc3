"""Mutants of the reference engine alone: each replaces a step of hooklaw.model while it is in force."""
