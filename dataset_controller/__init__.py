"""The roof: Dataset resources, decisions, clusters, the API and the command `forebay`."""
