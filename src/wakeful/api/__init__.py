"""The HTTP API as data, shared by the server and the client: bodies, queries, pages and problems."""
