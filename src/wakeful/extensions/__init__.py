"""Parts that a runtime can do without: each is a package of its own, imported when you use it."""
