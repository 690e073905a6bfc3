"""The subjects of documentation coverage: what a docstring must mention to be counted."""

import re
from collections.abc import Collection

_WORDS = (
    "hook",
    *("saved tensor", "saved-tensor", "saved_tensor", "save_for_backward", "save_for_forward", "saved for backward"),
    *("retain_graph", "create_graph", "retain_grad", "retains_grad"),
    *("no_grad", "no-grad", "enable_grad", "set_grad_enabled", "grad mode", "gradient mode"),
    *("inference mode", "inference_mode", "inference-mode"),
    *("activation checkpoint", "activation-checkpoint", "gradient checkpoint", "use_reentrant"),
    "anomaly",
)
_NAMED = re.compile(
    r"torch\.utils\.checkpoint\.|torch\.autograd\.graph\."
    r"|torch\.nn\.DataParallel|torch\.nn\.parallel\.(?:data_parallel$|DistributedDataParallel)"
)

PAGES = (
    "autograd",
    "checkpoint",
    "notes/autograd",
    "notes/extending",
    "notes/modules",
    "notes/multiprocessing",
    "notes/serialization",
    "tutorials/beginner/former_torchies/nnft_tutorial",
    "tutorials/intermediate/autograd_saved_tensors_hooks_tutorial",
)
"""The pages of which each section counts that mentions a subject, or that a rule names."""


def speaks(text: str) -> bool:
    """Whether a text mentions hooks, saved tensors, the life of graphs, grad modes or activation checkpoints."""
    lowered = text.lower()
    return any(word in lowered for word in _WORDS)


def counts(name: str, docstring: str) -> bool:
    """Whether an object is counted: its name is of a subject, or its docstring mentions one."""
    return bool(_NAMED.match(name)) or speaks(docstring)


def is_public(module: str) -> bool:
    """Whether no part of a module's name begins with an underscore."""
    return not any(part.startswith("_") for part in module.split("."))


def rank(name: str, own: str, preferred: Collection[str]) -> tuple[bool, int, bool, int, str]:
    """Return what sorts the names of one object, the best first; `own` is its name where it is defined."""
    return name not in preferred, name.count("."), not name.endswith(own), len(name), name
