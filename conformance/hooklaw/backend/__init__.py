"""Backends as rules see them: the protocol's verbs, the capabilities, and loading by name."""
