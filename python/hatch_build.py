"""The wheel's tag: programs for this kind of machine, and no Python extension."""

import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    """auditwheel then replaces the platform by the oldest one whose libraries the programs can use."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
