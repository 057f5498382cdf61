"""One file a question; `make bench` runs all, `make bench NAME=wire` one."""
