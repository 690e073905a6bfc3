"""Mutants of distributed data parallel: each is wrong in its situation, and right elsewhere."""

import pytest

pytest.importorskip("torch", reason="mutants of torch need torch, which is not installed")

import torch

from hooklaw.backend.loading import load
from hooklaw.backend.protocol import VERBS
from hooklaw.mutation._service import altered
from hooklaw_backends.mutants import mutants
from hooklaw_backends.mutants.torch_only import ddp_hooks_in_situations as hooks
from hooklaw_backends.mutants.torch_only import wrappers
from hooklaw_backends.torch_eager import TorchEager


class Parallel:
    """Stands for a distributed module: no other process is needed to see which situation it is in."""

    def __init__(self, module):
        self.module, self.hooks = module, []

    def register_forward_pre_hook(self, hook):
        """Register what counts passes."""
        self.hooks.append(hook)

    def begin(self):
        """Begin a pass."""
        for hook in self.hooks:
            hook()


class Wrapping(TorchEager):
    """A backend that distributes modules without any process."""

    def distributed_data_parallel(self, module, **options):
        """Return what stands for the distributed module."""
        return Parallel(module)


@pytest.fixture
def distributed(monkeypatch):
    """Make a mutant that knows modules, over a backend without processes, and two modules of it."""
    mutant = type("Known", (wrappers.KnowingWrappers, Wrapping), {"original": "torch-eager"})()
    modules = [mutant.distributed_data_parallel(torch.nn.Linear(1, 1)) for _ in range(2)]
    monkeypatch.setattr(wrappers.distributed, "get_rank", lambda: 1)
    return mutant, modules


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("ALWAYS", [True, True, True], [True, True, True]),
        ("SECOND_MODULE", [False, False, False], [True, True, True]),
        ("LATER", [False, False, False], [False, False, True]),
        ("EARLIER", [True, True, True], [False, False, False]),
        ("RANK_0", [False, False, False], [False, False, False]),
        ("RANK_1", [True, True, True], [True, True, True]),
    ],
)
def test_situations(distributed, name, first, second):
    """A situation is that of one of two modules, or begins with one of three passes."""
    mutant, modules = distributed
    situation, seen = getattr(wrappers, name), ([], [])
    for _ in range(3):
        for module, noted in zip(modules, seen, strict=True):
            module.begin()
            noted.append(situation.holds(mutant, wrappers.known(module)))

    assert seen == (first, second)


def test_a_parameter_and_a_submodule_belong_to_their_distributed_module(distributed):
    """The distributed module of a parameter or module is found, and none for any other."""
    mutant, (first, second) = distributed

    assert mutant.wrapper_of(id(first.module)) is wrappers.known(first)
    assert mutant.wrapper_of(id(second.module.weight)) is wrappers.known(second)
    assert mutant.wrapper_of(id(object())) is None


def test_only_hooks_of_a_distributed_module_are_wrong():
    """A hook on a tensor that belongs to no distributed module is right."""
    mutant = mutants("torch-eager")["ddp-tensor-hook-lost-later"]()
    mutant.reset()
    x, seen = mutant.tensor([1.0], requires_grad=True), []
    mutant.register_hook(x, seen.append)
    for _ in range(4):
        mutant.backward(mutant.sum(x * 2))

    assert len(seen) == 4


@pytest.mark.parametrize("of", hooks.HOOKS)
def test_only_its_verbs_count_as_altered(of):
    """Verbs that a mutant overrides only to know distributed modules are not among those that it alters."""
    found = altered(mutants("torch-eager")[f"ddp-{of}-lost-later"](), load("torch-eager"))

    assert found & {*VERBS} == {*hooks.KINDS[of].verbs}


def test_each_mutant_of_the_tables_is_tried_on_rules_of_several_processes():
    """The ids with which the rules of a table begin are those of distributed data parallel."""
    tables = ("ddp_in_situations", "ddp_contexts_in_situations", "ddp_hooks_in_situations", "comm_hooks_in_situations")
    made = [each for each in mutants("torch-eager").values() if each.__mro__[1].__module__.endswith(tables)]

    assert made
    assert all(chapter.startswith("ddp.") for each in made for chapter in each.first)
