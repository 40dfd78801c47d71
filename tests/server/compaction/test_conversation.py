"""What is left of a conversation with compactions."""

from __future__ import annotations

import time

from gateway.server.compaction.conversation import open_items
from gateway.server.compaction.seal import Sealer

SEALER = Sealer(bytes(32))
SETTING = {"role": "developer", "content": "red"}


def test_what_a_compaction_covers_is_left_out_but_for_settings() -> None:
    own = {"type": "compaction", "encrypted_content": "of an upstream"}
    turn = {"role": "user", "content": "hello"}
    items = [turn, SETTING, {"type": "compaction_trigger"}, own, turn]
    assert open_items(items, SEALER) == [SETTING, own, turn]


def test_many_compactions_and_settings_take_linear_time() -> None:
    of_upstream = {"type": "compaction", "encrypted_content": "of an upstream"}
    group = [SETTING, {"type": "compaction_trigger"}, of_upstream]
    begun = time.process_time()
    assert open_items(group * 20_000, SEALER) == [SETTING] * 20_000 + [of_upstream]
    assert time.process_time() - begun < 2
