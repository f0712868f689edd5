"""Processes of this host: who they are, who started them, who ended them."""
