"""Tensors to `Heads`: W_Q, W_K, W_V, W_O of every head in one layout, with norms, embeddings and MLPs around them."""

from headspan.heads.block import HeadBlock
from headspan.heads.embeddings import MLPWeights
from headspan.heads.heads import Heads
from headspan.heads.norms import NormWeights
from headspan.heads.reader import WeightReader

__all__ = ["HeadBlock", "Heads", "MLPWeights", "NormWeights", "WeightReader"]
