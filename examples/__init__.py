"""Runnable stories: `make demo` is the first."""
