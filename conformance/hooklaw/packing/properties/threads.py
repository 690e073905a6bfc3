"""Threads: backward in another thread than forward, and several threads at once."""

import threading

import torch

from hooklaw.law.rule import docstring, notes
from hooklaw.packing._cases import LEAVES
from hooklaw.packing._law import HOOKS, law
from hooklaw.packing.properties.parts import agree, numbers, together, watched

THREADS = notes("autograd", "registering-default-hooks-for-saved-tensors")
NODES = notes("autograd", "thread-safety-on-autograd-node")


@law(
    "packer.threads.backward-elsewhere",
    sources=[HOOKS.sentence(11), NODES.sentence(1)],
    wrong=["thread-local-state"],
    draws=LEAVES,
)
def backward_elsewhere(packer, device, tolerance, x):
    """Backward in another thread than forward is right; on an accelerator it always runs in another thread."""
    with packer():
        loss = (x * x).sum()
    together([loss.backward])
    agree("the gradient", 2 * x.detach(), x.grad, tolerance)


@law("packer.threads.each-its-own", sources=[HOOKS.sentence(11), THREADS.sentence(9)], wrong=["thread-shared-state"])
def each_its_own(packer, device, tolerance):
    """Threads that each enter their own context do not read each other's saved tensors."""
    inputs = [numbers(3, device=device).mul(factor).requires_grad_() for factor in range(1, 5)]
    barrier = threading.Barrier(len(inputs))

    def work(x):
        with packer():
            barrier.wait(5)
            loss = (x * x).sum()
            barrier.wait(5)
        barrier.wait(5)
        loss.backward()

    together([lambda x=x: work(x) for x in inputs])
    for place, x in enumerate(inputs):
        agree(f"the gradient of thread {place}", 2 * x.detach(), x.grad, tolerance)


@law("packer.threads.one-graph", sources=[HOOKS.sentence(11), NODES.sentence(1)], wrong=["unpacking-races"])
def one_graph(packer, device, tolerance):
    """Several threads can run backward through one retained graph at once, and all gradients are right."""

    def graph(x):
        y = x
        for factor in range(1, 9):
            y = y * (x + factor) / factor
        return y.sum()

    x = numbers(4, device=device).requires_grad_()
    (expected,) = torch.autograd.grad(graph(x), x)
    with packer():
        loss = graph(x)
    found = []
    together([lambda: found.append(torch.autograd.grad(loss, x, retain_graph=True)[0])] * 4)
    for seen in found:
        agree("the gradient of a thread", expected, seen, tolerance * 32)


@law("packer.threads.others-untouched", sources=[THREADS.sentence(9)], wrong=["patches-autograd-for-all-threads"])
def others_untouched(packer, device):
    """Tensors that another thread saves while the context is open in this thread are not packed."""
    seen = []
    with packer():
        together([lambda: seen.append(watched(device))])
    assert seen == [False], "a tensor saved in another thread went through the packer"


@law(
    "packer.threads.data-parallel",
    sources=[HOOKS.sentence(11), docstring("torch.nn.DataParallel").sentence(3, 4)],
    needs=["two-devices"],
    wrong=["thread-local-state"],
)
def data_parallel(packer, device, tolerance):
    """Under DataParallel, with the context entered in each replica, every parameter's gradient is right."""

    class Replica(torch.nn.Linear):
        def forward(self, x):
            with packer():
                return super().forward(x).tanh()

    def gradient(wrap):
        torch.manual_seed(0)
        model = Replica(3, 2).to(device)
        wrap(model)(numbers(4, 3, device=device)).sum().backward()
        return model.weight.grad

    agree("the gradient", gradient(lambda model: model), gradient(torch.nn.DataParallel), tolerance * 4)
