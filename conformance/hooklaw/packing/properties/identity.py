"""Identity: an unpacked tensor equals the packed one in value, shape, dtype and device."""

import torch
from hypothesis import strategies as st

from hooklaw.packing._law import HOOKS, NOTES, law
from hooklaw.packing.properties.parts import identical, saved

FLOATS = ["torch.float32", "torch.float64", "torch.float16", "torch.bfloat16", "torch.complex64", "torch.complex128"]
INTEGERS = ["torch.uint8", "torch.int8", "torch.int16", "torch.int32", "torch.int64", "torch.bool"]

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(repr)
seeds = st.integers(0, 9).map(repr)
specials = st.lists(
    st.sampled_from(["nan", "inf", "-inf", "-0.0", "0.0", "1e-45", "3.4e38", "1.0"]), min_size=1, max_size=4
).map(lambda names: "[" + ", ".join(f'float("{name}")' for name in names) + "]")


@law(
    "packer.identity.value",
    sources=[HOOKS.sentence(11), NOTES.sentence(4)],
    wrong=["rounds-silently", "exceeds-its-tolerance"],
    draws={"shape": shapes, "dtype": st.sampled_from(FLOATS), "seed": seeds},
)
def value(packer, device, close, shape, dtype, seed):
    """An unpacked tensor equals the saved one, bitwise or within the tolerance that the packer declares."""
    torch.manual_seed(seed)
    tensor = torch.randn(shape, dtype=dtype, device=device)
    before = tensor.clone()
    back = saved(packer, tensor)
    assert close(before, back), f"saved {before.tolist()}, got back {back.tolist()}"


@law(
    "packer.identity.special-values",
    wrong=["special-values-lost"],
    draws={"values": specials, "dtype": st.sampled_from(["torch.float32", "torch.float64"])},
)
def special_values(packer, device, close, values, dtype):
    """Infinities, NaN, negative zero and tiny numbers come back; from a lossy packer only infinities and NaN must."""
    tensor = torch.tensor(values, dtype=dtype, device=device)
    back = saved(packer, tensor)
    assert close(tensor, back), f"saved {tensor.tolist()}, got back {back.tolist()}"


@law(
    "packer.identity.integers",
    wrong=["integers-made-floats"],
    draws={
        "dtype": st.sampled_from(INTEGERS),
        "values": st.lists(st.integers(0, 127), min_size=1, max_size=4).map(repr),
    },
)
def integers(packer, device, dtype, values):
    """Integer and bool tensors come back exactly, also from a lossy packer: a wrong index is a wrong gradient."""
    tensor = (torch.tensor(values, device=device) * (2**56 if dtype == torch.int64 else 1)).to(dtype)
    back = saved(packer, tensor)
    assert identical(tensor, back), f"saved {tensor.tolist()} of {dtype}, got back {back.tolist()} of {back.dtype}"


@law(
    "packer.identity.shape",
    wrong=["shape-lost"],
    draws={"shape": st.lists(st.integers(1, 3), min_size=1, max_size=5).map(repr)},
)
def shape(packer, device, shape):
    """An unpacked tensor has the shape of the saved one."""
    back = saved(packer, torch.ones(shape, device=device))
    assert list(back.shape) == shape, f"saved shape {shape}, got back {list(back.shape)}"


@law("packer.identity.scalar", wrong=["scalars-made-vectors"])
def scalar(packer, device, close):
    """A 0-d tensor comes back as a 0-d tensor."""
    tensor = torch.tensor(2.5, device=device)
    back = saved(packer, tensor)
    assert close(tensor, back), f"saved {tensor}, got back {back} of shape {list(back.shape)}"


@law(
    "packer.identity.empty",
    wrong=["empty-tensors-refused"],
    draws={"shape": st.sampled_from(["[0]", "[0, 3]", "[2, 0]", "[2, 0, 3]"])},
)
def empty(packer, device, shape):
    """A tensor without elements can be saved, and comes back with its shape and dtype."""
    tensor = torch.ones(shape, device=device)
    back = saved(packer, tensor)
    assert identical(tensor, back), f"saved shape {shape}, got back {list(back.shape)} of {back.dtype}"


@law("packer.identity.dtype", wrong=["dtype-lost"], draws={"dtype": st.sampled_from([*FLOATS, *INTEGERS])})
def dtype(packer, device, dtype):
    """An unpacked tensor has the dtype of the saved one."""
    back = saved(packer, torch.ones(3, dtype=dtype, device=device))
    assert back.dtype == dtype, f"saved {dtype}, got back {back.dtype}"


@law("packer.identity.device", wrong=["left-on-another-device"], draws={"there": st.sampled_from(["device", '"cpu"'])})
def device(packer, device, there):
    """An unpacked tensor is on the device of the saved one, whatever the device."""
    tensor = torch.ones(3, device=there)
    back = saved(packer, tensor)
    assert back.device == tensor.device, f"saved on {tensor.device}, got back on {back.device}"
