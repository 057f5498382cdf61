"""The command `forebay` over stand-ins: a worker that only beats, and a listing that walks a directory.

Both do what a script in the file system says, so that a test can make a worker hang or a source refuse.
"""
