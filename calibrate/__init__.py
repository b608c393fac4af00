"""Microbenchmarks on the user's own device, fitted into a hardware profile."""
