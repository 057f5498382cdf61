"""The ground floor: sources, snapshots, cells, workers and the reader of a Dataset. No Kubernetes, no torch."""
