"""Skills: instructions that a model loads when it needs them, from SKILL.md packages, code and MCP prompts."""

from .package import Skill as Skill
from .package import SkillProblem as SkillProblem
from .plugin import LoadedSkills as LoadedSkills
from .plugin import Skills as Skills
from .scripts import ScriptRunner as ScriptRunner
from .scripts import Subprocess as Subprocess
from .sources import Prompt as Prompt
from .sources import PromptSource as PromptSource

# The public names.
__all__ = [
    "LoadedSkills",
    "Prompt",
    "PromptSource",
    "ScriptRunner",
    "Skill",
    "SkillProblem",
    "Skills",
    "Subprocess",
]
