"""The embedded cluster: workers as child processes, state in one directory of one user."""
