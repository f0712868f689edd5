"""The load of one point: when requests are sent, by how many processes, and what is kept of them."""
