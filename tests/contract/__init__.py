"""One suite against two engines: whatever it says of the emulator, the real server was asked too."""
