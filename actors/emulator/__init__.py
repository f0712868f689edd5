"""A stand-in for `python -m sglang.launch_server` (0.5.23) that needs no GPU.

Same command line, log lines, HTTP API and exit behaviour; speed and memory come from calibrated models.
Everything it produces is marked `engine=emulator`.
"""
