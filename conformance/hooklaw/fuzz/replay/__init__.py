"""Executing a program on a backend."""
