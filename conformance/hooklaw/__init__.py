"""The law of PyTorch-style autograd hooks, executable."""

__version__ = "0.1.0"
