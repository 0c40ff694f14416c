"""One strict schema for everything that can be set, and the sources it is read from.

    loaded = load(files=default_files())
    loaded.settings.recall.hard_cap_tokens
    loaded.origins["recall.hard_cap_tokens"]

`docs/settings.md` lists every setting; `python -m holdfast.settings` writes it.
"""

from holdfast.settings.loading import Loaded as Loaded
from holdfast.settings.loading import default_files as default_files
from holdfast.settings.loading import load as load
from holdfast.settings.loading import user_files as user_files
from holdfast.settings.projects import ProjectSettings as ProjectSettings
from holdfast.settings.projects import folder_of as folder_of
from holdfast.settings.schema import DEFAULT_CONTEXT_TOKENS as DEFAULT_CONTEXT_TOKENS
from holdfast.settings.schema import DEFAULT_RESERVE_TOKENS as DEFAULT_RESERVE_TOKENS
from holdfast.settings.schema import DEFAULT_RESERVE_TOKENS_FLOOR as DEFAULT_RESERVE_TOKENS_FLOOR
from holdfast.settings.schema import Agent as Agent
from holdfast.settings.schema import Archive as Archive
from holdfast.settings.schema import Compaction as Compaction
from holdfast.settings.schema import Embedding as Embedding
from holdfast.settings.schema import HardClear as HardClear
from holdfast.settings.schema import HookSettings as HookSettings
from holdfast.settings.schema import Knowledge as Knowledge
from holdfast.settings.schema import LongTerm as LongTerm
from holdfast.settings.schema import LongTermEmbedding as LongTermEmbedding
from holdfast.settings.schema import Memory as Memory
from holdfast.settings.schema import MemoryFlush as MemoryFlush
from holdfast.settings.schema import MemorySearch as MemorySearch
from holdfast.settings.schema import Pruning as Pruning
from holdfast.settings.schema import Qmd as Qmd
from holdfast.settings.schema import QmdPath as QmdPath
from holdfast.settings.schema import QualityGuard as QualityGuard
from holdfast.settings.schema import Recall as Recall
from holdfast.settings.schema import Search as Search
from holdfast.settings.schema import Secret as Secret
from holdfast.settings.schema import ServerSettings as ServerSettings
from holdfast.settings.schema import Session as Session
from holdfast.settings.schema import SessionReset as SessionReset
from holdfast.settings.schema import Settings as Settings
from holdfast.settings.schema import Slots as Slots
from holdfast.settings.schema import SoftTrim as SoftTrim
from holdfast.settings.schema import Tokens as Tokens
from holdfast.settings.schema import ToolFilter as ToolFilter
from holdfast.settings.schema import Trim as Trim
from holdfast.settings.schema import Workspace as Workspace
from holdfast.settings.schema import read_duration as read_duration
from holdfast.settings.schema import spell_duration as spell_duration
from holdfast.settings.table import Setting as Setting
from holdfast.settings.table import as_dict as as_dict
from holdfast.settings.table import reference as reference
from holdfast.settings.table import settings_table as settings_table
