"""A compiler that has compiled a function and its backward: forks do not pay again for what it builds at first."""

import torch
import torch._dynamo.compiled_autograd
import torch._dynamo.guards
import torch._inductor.compile_fx
import torch.export._trace

torch._dynamo.guards.profile_guard_manager = lambda *_: 0.0  # for a debug log alone, 20 ms for each region
x = torch.ones(2, requires_grad=True)
x.sum().backward()  # in torch's CUDA build, a first backward that comes after a compiler forbids all later forks
with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
    torch.compile(lambda x: (x * x).sum(), backend="aot_eager")(x).backward()
torch.compiler.reset()
del x
