"""Benchmarks of the product itself: ratios against something measured in the same run, gaps against bounds."""
