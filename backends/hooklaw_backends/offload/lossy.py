"""Saved tensors in fewer bits: bfloat16, and int8 by blocks. They declare that gradients differ."""

import torch
from torch import Tensor

from hooklaw_backends.offload.packer import Choice, Form, Medium, Memory, Packer

WIDE = (torch.float32, torch.float64)
LARGEST = torch.finfo(torch.bfloat16).max
FLOATS = (*WIDE, torch.float16, torch.bfloat16)
BLOCK = 256
SCALE_BYTES = 4
NOT_FINITE = -128
TINY = torch.finfo(torch.float32).tiny


class Bf16Codec:
    """float32 and float64 as bfloat16; what is as narrow already stays."""

    def takes(self, flat: Tensor) -> bool:
        return flat.dtype in WIDE

    def encode(self, flat: Tensor) -> Tensor:
        return flat.where(flat.isinf(), flat.clamp(-LARGEST, LARGEST)).to(torch.bfloat16)

    def decode(self, coded: Tensor, like: Form) -> Tensor:
        return coded.to(like.dtype)


class Int8Codec:
    """Blocks of 256 elements as int8 multiples of a 127th of the block's largest magnitude.

    The codes and the float32 scales stand in one run of bytes, so that any medium takes them as one piece. An infinity
    comes back as a NaN, as a NaN does: an overflow is not hidden, and its neighbours are not lost.
    """

    def takes(self, flat: Tensor) -> bool:
        return flat.dtype in FLOATS and flat.numel() >= BLOCK

    def encode(self, flat: Tensor) -> Tensor:
        blocks = torch.nn.functional.pad(flat.float(), (0, -flat.numel() % BLOCK)).view(-1, BLOCK)
        finite = blocks.isfinite()
        scales = blocks.where(finite, 0).abs().amax(dim=1, keepdim=True) / 127
        codes = (blocks / scales.clamp_min(TINY)).round_().where(finite, NOT_FINITE).to(torch.int8)
        return torch.cat([codes.view(-1).view(torch.uint8), scales.view(-1).view(torch.uint8)])

    def decode(self, coded: Tensor, like: Form) -> Tensor:
        count = coded.numel() // (BLOCK + SCALE_BYTES)
        codes, scales = coded.split([count * BLOCK, count * SCALE_BYTES])
        numbers = codes.view(torch.int8).view(-1, BLOCK).float()
        values = numbers.where(numbers != NOT_FINITE, torch.nan) * scales.view(torch.float32).view(-1, 1)
        return values.view(-1)[: like.length].to(like.dtype)


class Bf16(Packer):
    """Saved floating-point tensors as bfloat16: half the bytes of float32."""

    name = "bf16"
    lossless = False
    tolerance = 2**-8
    gradient_tolerance = 5e-2

    def __init__(self, medium: Medium | None = None, *, choice: Choice | None = None, min_bytes: int = 0) -> None:
        self.codec = Bf16Codec()
        super().__init__(medium or Memory(), codec=self.codec, choice=choice, min_bytes=min_bytes)


class Int8(Packer):
    """Saved floating-point tensors as int8 by blocks: about a quarter of the bytes of float32."""

    name = "int8"
    lossless = False
    tolerance = 2**-7
    gradient_tolerance = 2e-1

    def __init__(self, medium: Medium | None = None, *, choice: Choice | None = None, min_bytes: int = 0) -> None:
        self.codec = Int8Codec()
        super().__init__(medium or Memory(), codec=self.codec, choice=choice, min_bytes=min_bytes)
