"""Running a plan: tuples go to the replicas that need them, each replica joins its share, results meet at sinks."""
