"""What is sampled of a server and its GPUs while it lives."""
