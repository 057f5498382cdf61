"""Serving replicas and what their cold start costs; not built yet."""
