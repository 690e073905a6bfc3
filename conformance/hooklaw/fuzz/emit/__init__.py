"""Printing a program as plain torch code."""
