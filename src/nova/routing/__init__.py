"""Which replicas a tuple must reach: the plan as data flow, in numpy, without Spark.

A tuple has four coordinates: its source, its *share* (a stable hash of the tuple in [0, 1)), its *slice* (the place of
its window in [0, 1)) and its *key* (a hash of the columns it joins on, in [0, 1)). A replica is a box of left shares ×
right shares × slices × keys, so a left tuple reaches the replicas of its source whose left, slice and key ranges
contain it, whatever its partner's share is; a right tuple likewise. The boxes of a sub-join tile the unit cube, hence
two joinable tuples of one window meet at exactly one replica.
"""

from nova.routing.position import GOLDEN, key_position, slice_position, tuple_share, window_number
from nova.routing.routes import Routes, Side, compile_routes
from nova.routing.timeline import Epoch, Timeline

__all__ = [
    "GOLDEN",
    "key_position",
    "slice_position",
    "tuple_share",
    "window_number",
    "Routes",
    "Side",
    "compile_routes",
    "Epoch",
    "Timeline",
]
