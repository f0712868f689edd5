"""What runs on the GPU hosts: the guarded server, the log follower, the load, and the emulator."""
