"""The law for packers: properties that anything that packs saved tensors must have, each with a minimal program.

A packer is a callable without arguments that returns a context manager; tensors saved inside it are packed.
Only `service`, `control` and the properties import torch, and `check` and `packer` when they are called.
"""
