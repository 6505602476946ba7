"""Benchmarks of wakeful, its peers and two floors on the same scripted work."""
