"""Public topologies and sensor archives by name, and the fixed instances of the published simulations."""
