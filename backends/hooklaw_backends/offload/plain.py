"""The two strategies that move nothing: no hooks at all, and hooks alone."""

from hooklaw_backends.offload.packer import Packer


class HookOnly(Packer):
    """Every saved tensor stays: what hooks cost by themselves, the check for in-place changes included."""

    name = "hook-only"
