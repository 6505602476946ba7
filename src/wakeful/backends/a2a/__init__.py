"""Agents behind A2A: how they are reached, and who we are to them."""

from ._auth import ApiKey as ApiKey
from ._auth import Auth as Auth
from ._auth import Bearer as Bearer
from ._auth import Env as Env
from ._auth import OAuth2 as OAuth2
from ._backend import A2ABackend as A2ABackend
from ._backend import A2AFactory as A2AFactory
