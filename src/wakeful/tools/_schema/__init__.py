"""Types and signatures as the JSON schemas that models are given, and JSON as values of those types."""

from ._shape import Parameters as Parameters
from ._shape import Shape as Shape
from ._signature import description_of as description_of
from ._signature import parameters_of as parameters_of
from ._validate import schema_faults as schema_faults
from ._validate import value_fault as value_fault
