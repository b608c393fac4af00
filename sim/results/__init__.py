"""Columns written by the fleet, and the metrics made from them."""
