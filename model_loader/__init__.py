"""Model formats to tensors; not built yet."""
