"""Layouts: views, expanded, overlapping, channels-last, lazy, sparse tensors, and subclasses."""

import torch
from hypothesis import strategies as st

from hooklaw.law.rule import observed
from hooklaw.packing._law import law
from hooklaw.packing.properties.parts import numbers, saved

STRIDES_LOST = "strides-lost"
STORAGE_SAVED = "storage-taken-for-the-tensor"
BITS_LOST = "lazy-bits-lost"

views = st.lists(
    st.sampled_from(
        [".mT", "[::2]", "[1:]", "[..., 1:]", "[:, None].squeeze(1)", ".flip(0)", ".clone()", "[..., ::2]"]
    ),
    min_size=1,
    max_size=3,
).map(lambda chain: "numbers(4, 6, device=device)" + "".join(chain))
dense = st.permutations(range(3)).map(lambda order: f"numbers(2, 3, 4, device=device).permute({order})")
LAZY_VIEWS = st.sampled_from(
    ["x.conj()", "x.conj().imag", "torch._neg_view(x)", "torch._neg_view(x.conj())", "x.mT.conj()", "x[1:].conj()"]
)
LAZY = {"x": st.just("torch.complex(numbers(2, 3, device=device), numbers(2, 3, device=device))"), "tensor": LAZY_VIEWS}


@law("packer.layout.views", wrong=[STORAGE_SAVED], draws={"tensor": views})
def layout_views(packer, device, close, tensor):
    """A view, contiguous or not, comes back with its own values and shape, not those of its base."""
    back = saved(packer, tensor)
    assert close(tensor, back), f"saved {tensor.tolist()}, got back {back.tolist()}"


@law(
    "packer.layout.strides",
    sources=[observed("value, size, dtype and device are all that is documented; kernels choose by strides")],
    wrong=[STRIDES_LOST],
    draws={"tensor": dense},
)
def strides(packer, device, tensor):
    """A tensor whose dimensions are permuted comes back with the same strides."""
    back = saved(packer, tensor)
    assert back.stride() == tensor.stride(), f"saved strides {tensor.stride()}, got back {back.stride()}"


@law(
    "packer.layout.channels-last",
    wrong=["channels-last-read-as-contiguous"],
    draws={"shape": st.sampled_from(["(1, 2, 2, 2)", "(2, 3, 2, 2)", "(2, 1, 3, 1)"])},
)
def channels_last(packer, device, close, shape):
    """A channels-last tensor comes back with every element in its place."""
    tensor = numbers(*shape, device=device).contiguous(memory_format=torch.channels_last)
    back = saved(packer, tensor)
    assert close(tensor, back), f"saved {tensor.tolist()}, got back {back.tolist()}"


@law(
    "packer.layout.channels-last.kept",
    sources=[observed("a convolution's backward is slower on a tensor that lost its memory format")],
    wrong=[STRIDES_LOST],
)
def channels_last_kept(packer, device):
    """A channels-last tensor comes back as a channels-last tensor."""
    tensor = numbers(2, 3, 4, 4, device=device).contiguous(memory_format=torch.channels_last)
    back = saved(packer, tensor)
    kept = back.is_contiguous(memory_format=torch.channels_last)
    assert kept, f"saved channels-last strides {tensor.stride()}, got back {back.stride()}"


@law(
    "packer.layout.expanded",
    wrong=["strides-assumed-contiguous"],
    draws={"shape": st.sampled_from(["(2, 3)", "(4, 1, 3)", "(1, 3)"])},
)
def expanded(packer, device, close, shape):
    """An expanded tensor comes back with all its elements."""
    tensor = numbers(3, device=device).expand(shape)
    back = saved(packer, tensor)
    assert close(tensor, back), f"saved {tensor.tolist()}, got back {back.tolist()}"


@law(
    "packer.layout.expanded.small",
    sources=[observed("an expanded tensor of 4 bytes and a million elements takes 4 MB if each element is copied")],
    wrong=["expanded-tensors-written-out"],
)
def expanded_small(packer, device):
    """An expanded tensor takes no more memory when it comes back than when it was saved."""
    tensor = torch.ones(1, device=device).expand(1000, 1000)
    back = saved(packer, tensor)
    was, now = tensor.untyped_storage().nbytes(), back.untyped_storage().nbytes()
    assert now <= was, f"saved a tensor over {was} bytes, got back one over {now} bytes"


@law(
    "packer.layout.overlapping",
    wrong=[STORAGE_SAVED],
    draws={
        "x": st.just("numbers(5, device=device)"),
        "tensor": st.sampled_from(
            ["x.unfold(0, 3, 1)", "x.as_strided((2, 4), (1, 1))", "x.as_strided((3, 2), (1, 1), 1)"]
        ),
    },
)
def overlapping(packer, device, close, x, tensor):
    """A tensor whose elements share memory comes back with every element's value."""
    back = saved(packer, tensor)
    assert close(tensor, back), f"saved {tensor.tolist()}, got back {back.tolist()}"


@law("packer.layout.lazy-bits", wrong=[BITS_LOST], draws=LAZY)
def lazy_bits(packer, device, close, x, tensor):
    """A tensor whose conjugation or negation is pending comes back conjugated and negated."""
    back = saved(packer, tensor)
    assert close(tensor, back), f"saved {tensor.tolist()}, got back {back.tolist()}"


@law(
    "packer.layout.lazy-bits.kept",
    sources=[observed("a pending conjugation is resolved only by operations that need it")],
    wrong=["lazy-bits-resolved"],
    draws=LAZY,
)
def lazy_bits_kept(packer, device, x, tensor):
    """A tensor whose conjugation or negation is pending comes back with it still pending."""
    back = saved(packer, tensor)
    was, now = (tensor.is_conj(), tensor.is_neg()), (back.is_conj(), back.is_neg())
    assert now == was, f"saved with conj, neg bits {was}, got back with {now}"


@law(
    "packer.layout.sparse",
    wrong=["dense-tensors-assumed"],
    draws={
        "x": st.just("numbers(2, 3, device=device)"),
        "tensor": st.sampled_from(["x.to_sparse()", "x.to_sparse().coalesce()", "x.to_sparse_csr()"]),
    },
)
def sparse(packer, device, close, x, tensor):
    """A sparse tensor comes back sparse, with its values."""
    back = saved(packer, tensor)
    assert back.layout == tensor.layout, f"saved {tensor.layout}, got back {back.layout}"
    was, now = tensor.to_dense(), back.to_dense()
    assert close(was, now), f"saved {was.tolist()}, got back {now.tolist()}"


@law("packer.layout.subclass", wrong=["subclasses-refused"])
def subclass(packer, device, close):
    """A tensor of a subclass comes back with its values."""

    class Named(torch.Tensor):
        pass

    tensor = numbers(3, device=device).as_subclass(Named)
    back = saved(packer, tensor)
    assert close(*(found.as_subclass(torch.Tensor) for found in (tensor, back))), f"got back {back}"


@law(
    "packer.layout.subclass.kept",
    sources=[observed("without hooks a saved tensor keeps its subclass")],
    wrong=["subclasses-forgotten"],
)
def subclass_kept(packer, device):
    """A tensor of a subclass comes back as an instance of that subclass."""

    class Named(torch.Tensor):
        pass

    back = saved(packer, numbers(3, device=device).as_subclass(Named))
    assert isinstance(back, Named), f"saved a {Named.__name__}, got back a {type(back).__name__}"
