"""Phase I on Spark: the batch stress solver for topologies whose measured pairs do not fit one process."""
