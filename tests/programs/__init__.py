"""Small programs with hooks on modules and on several tensors: each logs what its hooks saw, on any backend."""

from programs import backward, boundaries, forward, multi_grad
from programs.log import PROGRAMS, played

__all__ = ["PROGRAMS", "backward", "boundaries", "forward", "multi_grad", "played"]
