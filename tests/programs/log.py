"""The table of programs, and the log that each of them writes."""

import warnings
from contextlib import contextmanager

PROGRAMS = {}


class UserError(Exception):
    """What a hook of the user raises."""


class Log(list):
    """What happened, in plain values, and what the programs need to make it happen."""

    def __init__(self, backend):
        super().__init__()
        self.backend = backend

    def saw(self, *what):
        """Note it."""
        self.append(tuple(map(self.plain, what)))

    def plain(self, value):
        """Return lists for tensors, also inside of tuples and mappings."""
        if self.backend.is_tensor(value):
            return self.backend.tolist(value)
        if isinstance(value, tuple | list):
            return (type(value).__name__, *map(self.plain, value))
        return {key: self.plain(one) for key, one in value.items()} if isinstance(value, dict) else value

    def hook(self, name, result=lambda *_: None):
        """Return a hook of a module that logs what it is given, and returns what `result` makes of it."""

        def hook(_module, *given):
            self.saw(name, *given)
            return result(*given)

        return hook

    def grads(self, name):
        """Return a hook that logs the one thing it is given."""
        return lambda given: self.saw(name, given)

    @contextmanager
    def refused(self):
        """Note whether the block raises, and what if it is of the user's own."""
        try:
            yield
            self.saw("accepted")
        except UserError as error:
            self.saw("raised", *error.args)
        except Exception:  # noqa: BLE001 - backends differ in the type
            self.saw("refused")

    def leaf(self, *values):
        """Make a leaf."""
        return self.backend.tensor([float(one) for one in values or (1, 2)], requires_grad=True)

    def plain_tensor(self, *values):
        """Make a tensor that does not require grad."""
        return self.backend.tensor([float(one) for one in values or (3, 4)])

    def double(self, *, name="forward"):
        """Make a module that doubles."""
        return self.backend.module({}, lambda _module, x: (self.saw(name, x), x * 2)[1])

    def scale(self):
        """Make a module that multiplies by a parameter."""
        return self.backend.module({"weight": self.backend.tensor([5.0, 7.0])}, lambda module, x: x * module.weight)

    def back(self, *outputs, **how):
        """Go back from the sum of the outputs."""
        total = self.backend.sum(outputs[0])
        for one in outputs[1:]:
            total = total + self.backend.sum(one)
        self.backend.backward(total, **how)

    def grad_of(self, *tensors):
        """Note the accumulated gradients."""
        self.saw("grad", *map(self.backend.grad_of, tensors))


def program(function):
    """Add a program to the table."""
    PROGRAMS[function.__name__] = function
    return function


def played(name, backend):
    """Return the log of a program on a backend; nothing it did to all modules stays."""
    backend.reset()
    log = Log(backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PROGRAMS[name](backend, log)
    backend.reset()
    return list(log)
