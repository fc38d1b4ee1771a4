"""A cluster on one machine: every site of a plan is a process, every link a relay that delays, every node has its share
of a core."""
