"""The law for packers: properties that a packer of saved tensors must keep, each with a minimal program.

A packer is a callable without arguments that returns a context manager under which saved tensors are packed.
Only `service`, `control` and the properties import torch; the process that judges does not.
"""
