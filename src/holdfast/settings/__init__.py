"""The settings of the engine: one strict schema, and the sources it is read from.

    loaded = load(files=default_files())
    loaded.settings.recall.hard_cap_tokens
    loaded.origins["recall.hard_cap_tokens"]

The settings of `holdfast chat` are in `holdfast_agent.settings`. `docs/settings.md` lists all of them; `python -m
holdfast.settings` writes it.
"""

from holdfast.settings.loading import Loaded as Loaded
from holdfast.settings.loading import check_settings as check_settings
from holdfast.settings.loading import default_files as default_files
from holdfast.settings.loading import load as load
from holdfast.settings.loading import load_schema as load_schema
from holdfast.settings.loading import user_files as user_files
from holdfast.settings.projects import ProjectSettings as ProjectSettings
from holdfast.settings.projects import folder_of as folder_of
from holdfast.settings.schema import DEFAULT_CONTEXT_TOKENS as DEFAULT_CONTEXT_TOKENS
from holdfast.settings.schema import DEFAULT_FLUSH_TOKENS as DEFAULT_FLUSH_TOKENS
from holdfast.settings.schema import DEFAULT_RESERVE_TOKENS as DEFAULT_RESERVE_TOKENS
from holdfast.settings.schema import DEFAULT_RESERVE_TOKENS_FLOOR as DEFAULT_RESERVE_TOKENS_FLOOR
from holdfast.settings.schema import Archive as Archive
from holdfast.settings.schema import Compaction as Compaction
from holdfast.settings.schema import Embedding as Embedding
from holdfast.settings.schema import HardClear as HardClear
from holdfast.settings.schema import Knowledge as Knowledge
from holdfast.settings.schema import MemoryFlush as MemoryFlush
from holdfast.settings.schema import Mmr as Mmr
from holdfast.settings.schema import ModelSettings as ModelSettings
from holdfast.settings.schema import Postgres as Postgres
from holdfast.settings.schema import Pruning as Pruning
from holdfast.settings.schema import QualityGuard as QualityGuard
from holdfast.settings.schema import Recall as Recall
from holdfast.settings.schema import Search as Search
from holdfast.settings.schema import Secret as Secret
from holdfast.settings.schema import ServerSettings as ServerSettings
from holdfast.settings.schema import Settings as Settings
from holdfast.settings.schema import SoftTrim as SoftTrim
from holdfast.settings.schema import Tokens as Tokens
from holdfast.settings.schema import ToolFilter as ToolFilter
from holdfast.settings.schema import Trim as Trim
from holdfast.settings.schema import read_duration as read_duration
from holdfast.settings.schema import spell_duration as spell_duration
from holdfast.settings.table import ENGINE as ENGINE
from holdfast.settings.table import Schema as Schema
from holdfast.settings.table import Setting as Setting
from holdfast.settings.table import as_dict as as_dict
