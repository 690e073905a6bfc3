"""Saved tensors in fewer bits: bfloat16, and int8 by blocks. They declare that gradients differ."""

from typing import ClassVar

import torch
from torch import Tensor

from hooklaw_backends.offload.packer import Choice, Codec, Memory, Packer

WIDE = (torch.float32, torch.float64)
LARGEST = torch.finfo(torch.bfloat16).max
FLOATS = (*WIDE, torch.float16, torch.bfloat16)
BLOCK = 256
SCALE_BYTES = 4
NOT_FINITE = -128
TINY = torch.finfo(torch.float32).tiny


class Bf16Codec:
    """float32 and float64 as bfloat16; what is as narrow already stays."""

    tolerance = 2**-8
    gradient_tolerance = 5e-2

    def takes(self, flat: Tensor) -> bool:
        return flat.dtype in WIDE

    def encode(self, flat: Tensor) -> Tensor:
        if flat.device.type == "cpu" and _is_within(flat):  # elsewhere to ask would wait for the device
            return flat.to(torch.bfloat16)
        return flat.where(flat.isinf(), flat.clamp(-LARGEST, LARGEST)).to(torch.bfloat16)

    def decode(self, coded: Tensor, dtype: torch.dtype, length: int) -> Tensor:  # noqa: ARG002 - as long
        return coded.to(dtype)


def _is_within(flat: Tensor) -> bool:
    """Whether no element is NaN, or rounds to an infinity."""
    least, most = flat.aminmax()
    return least.item() >= -LARGEST and most.item() <= LARGEST


class Int8Codec:
    """Blocks of 256 elements as int8 multiples of a 127th of the block's largest magnitude.

    The codes and the float32 scales stand in one run of bytes, so that any medium takes them as one piece. An infinity
    comes back as a NaN, as a NaN does: an overflow is not hidden, and its neighbours are not lost.
    """

    tolerance = 2**-7
    gradient_tolerance = 2e-1

    def takes(self, flat: Tensor) -> bool:
        return flat.dtype in FLOATS and flat.numel() >= BLOCK

    def encode(self, flat: Tensor) -> Tensor:
        blocks = torch.nn.functional.pad(flat.float(), (0, -flat.numel() % BLOCK)).view(-1, BLOCK)
        finite = blocks.isfinite()
        scales = blocks.where(finite, 0).abs().amax(dim=1, keepdim=True) / 127
        codes = (blocks / scales.clamp_min(TINY)).round_().where(finite, NOT_FINITE).to(torch.int8)
        return torch.cat([codes.view(-1).view(torch.uint8), scales.view(-1).view(torch.uint8)])

    def decode(self, coded: Tensor, dtype: torch.dtype, length: int) -> Tensor:
        count = coded.numel() // (BLOCK + SCALE_BYTES)
        codes, scales = coded.split([count * BLOCK, count * SCALE_BYTES])
        numbers = codes.view(torch.int8).view(-1, BLOCK).float()
        values = numbers.where(numbers != NOT_FINITE, torch.nan) * scales.view(torch.float32).view(-1, 1)
        return values.view(-1)[:length].to(dtype)


class Bf16(Packer):
    """Saved floating-point tensors as bfloat16: half the bytes of float32."""

    codec: ClassVar[Codec] = Bf16Codec()

    def __init__(self, *, choice: Choice | None = None) -> None:
        super().__init__(Memory(), codec=self.codec, choice=choice)


class Int8(Bf16):
    """Saved floating-point tensors as int8 by blocks: about a quarter of the bytes of float32."""

    codec = Int8Codec()
