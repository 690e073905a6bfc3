"""A compiler that has compiled a function and its backward: forks do not pay again for what it builds at first."""

import traceback

import torch
import torch._dynamo.compiled_autograd
import torch._dynamo.exc
import torch._dynamo.guards
import torch._inductor.compile_fx
import torch.export._trace

torch._dynamo.guards.profile_guard_manager = lambda *_: 0.0  # for a debug log alone, 20 ms for each region
torch._dynamo.exc._extract_stack_with_positions = traceback.StackSummary  # idem, 10 ms for each place where one ends


class Breaks(torch.autograd.Function):
    """A function whose backward no compiler takes whole, as what the hooks of rules do."""

    @staticmethod
    def forward(ctx, x):
        """Save the tensor."""
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        """Use what is saved, beyond the end of a region."""
        torch._dynamo.graph_break()
        return grad * ctx.saved_tensors[0]


def hooked(x):
    """Run a backward that calls hooks of each kind, of which one ends a region."""

    def hook(grad):
        torch._dynamo.graph_break()
        return grad * 2

    y = Breaks.apply(x)
    y.register_hook(hook)
    y.grad_fn.register_hook(lambda *_: None)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        (y * y).sum().backward()


x = torch.ones(2, requires_grad=True)
x.sum().backward()  # in torch's CUDA build, a first backward that comes after a compiler forbids all later forks
with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
    torch.compile(lambda x: (x * x).sum(), backend="aot_eager")(x).backward()
    hooked(x)
torch.compiler.reset()
del x
