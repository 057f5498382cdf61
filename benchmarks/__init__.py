"""Measurements, one file a question: `make bench` runs all, `make bench NAME=wire` one.

`python -m benchmarks [NAME...] [--json] [--rounds N] [--quick] [--strict]`. A benchmark is a module here with
`def questions(options)`; `harness` asks (interleaved arms, medians of per-round ratios, conditions), `report` prints
a table or JSON lines, `arms` runs peers in processes of their own, `objectstore/` is the origin. Results that
matter are kept in `LOG.md`, negative ones too.
"""
