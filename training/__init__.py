"""Training streams over a Dataset; not built yet."""
