"""Quantized checkpoints: codes, scales and code books become weights under their ordinary names.

One file per layout: `words` (GPTQ, AWQ), `bitsandbytes`, `scaled` (fp8, int8, compressed-tensors' packed integers),
`four_bit_floats` (MXFP4, NVFP4). `arithmetic` is the only one that needs torch, when a weight is read.
"""

from headspan.checkpoint.formats.packed.store import UnpackedWeights, unpack_weights

__all__ = ["UnpackedWeights", "unpack_weights"]
