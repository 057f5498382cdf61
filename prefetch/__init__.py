"""What to read before anybody asks for it; so far: warming a Dataset."""
