"""Where the workers of a Dataset run: `local` as child processes of `forebay up`."""
