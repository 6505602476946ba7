"""Types and signatures as the JSON schemas that models are given, and JSON as values of those types."""

from .shape import Parameters as Parameters
from .shape import Shape as Shape
from .signature import description_of as description_of
from .signature import parameters_of as parameters_of
from .validate import schema_faults as schema_faults
from .validate import value_fault as value_fault
