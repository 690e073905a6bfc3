"""The law for packers: properties that whatever packs saved tensors must keep, each with a minimal program.

A packer is anything that, called without arguments, returns a context manager under which saved tensors are packed.
Nothing here imports torch but `worker` and what only it imports.
"""
