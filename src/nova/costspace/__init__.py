"""Phase I: the cost space, in which distance says latency."""

from nova.costspace.accuracy import measure, tiv
from nova.costspace.embedding import embed, embed_latency
from nova.costspace.neighbours import choose
from nova.costspace.newcomers import embed_new
from nova.model.space import Accuracy, CostSpace

__all__ = ["Accuracy", "CostSpace", "choose", "embed", "embed_latency", "embed_new", "measure", "tiv"]
