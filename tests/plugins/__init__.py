"""Tests of plugins: phases, merging, plans, actions, notices and gates."""
