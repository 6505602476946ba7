"""Times wakeful, its peers and two floors doing the same scripted work."""
