"""Scheduling opinions that know where the data is; not built yet."""
