"""Comparing what two backends did with one program."""
