"""The judge: all approaches side by side on one scenario, and the paper's experiments as one report."""
