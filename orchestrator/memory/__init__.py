"""GPU memory of a server's start, predicted before anything is started."""
