"""The A2A backend and its authentication."""

from .auth import ApiKey as ApiKey
from .auth import Auth as Auth
from .auth import Bearer as Bearer
from .auth import Env as Env
from .auth import OAuth2 as OAuth2
from .backend import A2ABackend as A2ABackend
from .backend import A2AFactory as A2AFactory
