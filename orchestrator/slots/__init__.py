"""Slots: GPUs of one host (or of several) that hold one server at a time, as the driver reaches them."""
