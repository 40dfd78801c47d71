"""Admins: names, roles, the last one."""

from __future__ import annotations

import asyncio
import statistics
import time

import pytest

from gateway.admin.access.access import Access
from gateway.admin.api.access import CreateAdminForm
from gateway.admin.api.forms import validate
from gateway.admin.errors import AdminExists, FormError, LastAdmin, UnknownAdmin
from gateway.store.records import Role
from tests.admin.conftest import AdminFixture

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def cheap_passwords(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "expensive" not in request.fixturenames:
        monkeypatch.setattr("gateway.admin.access.passwords._SCRYPT_N", 2**10)


@pytest.fixture
def expensive() -> None:
    """Passwords cost what they do in use."""


@pytest.fixture
async def access(admin: AdminFixture) -> Access:
    return await Access.load(admin.operations.audit, admin.clock)


async def test_admins_survive_a_restart(access: Access, admin: AdminFixture) -> None:
    await access.admins.set_password(PASSWORD)
    await access.admins.add("alice", Role.VIEWER, "the password of alice")
    again = await Access.load(admin.operations.audit, admin.clock)
    assert again.admins.all() == access.admins.all()
    assert [(each.name, each.role) for each in again.admins.all()] == [
        ("admin", Role.ADMIN),
        ("alice", Role.VIEWER),
    ]
    assert (await again.admins.verify("alice", "the password of alice")) is not None
    assert (await again.admins.verify("alice", PASSWORD)) is None
    await again.close()
    await access.close()


async def test_a_name_exists_once_whatever_its_case(access: Access) -> None:
    await access.admins.add("alice", Role.ADMIN, PASSWORD)
    for same in ("Alice", "ALICE", " alice", "\uff41lice"):
        with pytest.raises(AdminExists):
            await access.admins.add(same, Role.ADMIN, PASSWORD)
        assert access.admins.get(same).name == "alice"
    await access.close()


@pytest.mark.parametrize(
    "name", ["alice", "Zo\u00eb", "a.b+c@example.org", "\u674e\u96f7", "x" * 64]
)
def test_names(name: str) -> None:
    form = {"name": name, "role": "viewer", "password": PASSWORD}
    assert validate(CreateAdminForm, form).name == name.casefold()


@pytest.mark.parametrize(
    "name",
    ["", " ", "a b", "a/b", "a\nb", "\x1b[31m", "a\u202eb", "x" * 65, "-x", "a\0", "\ud800", "a:b"],
)
def test_invalid_names(name: str) -> None:
    with pytest.raises(FormError) as raised:
        validate(CreateAdminForm, {"name": name, "role": "viewer", "password": PASSWORD})
    assert not name.strip() or name not in str(raised.value)


async def test_the_last_admin_stays(access: Access) -> None:
    await access.admins.set_password(PASSWORD)
    await access.admins.add("bob", Role.OPERATOR, PASSWORD)
    for change in (
        lambda: access.admins.remove("admin"),
        lambda: access.admins.update("Admin", role=Role.OPERATOR),
    ):
        with pytest.raises(LastAdmin, match="add another one first"):
            await change()
    await access.admins.update("bob", role=Role.ADMIN)
    await access.admins.remove("admin")
    with pytest.raises(LastAdmin):
        await access.admins.remove("bob")
    with pytest.raises(UnknownAdmin):
        await access.admins.remove("admin")
    await access.close()


async def test_two_admins_cannot_remove_each_other_at_once(access: Access) -> None:
    await access.admins.set_password(PASSWORD)
    await access.admins.add("bob", Role.ADMIN, PASSWORD)
    results = await asyncio.gather(
        access.admins.remove("admin"),
        access.admins.remove("bob"),
        access.admins.update("admin", role=Role.VIEWER),
        return_exceptions=True,
    )
    assert any(isinstance(result, LastAdmin) for result in results)
    assert [each.role for each in access.admins.all()].count(Role.ADMIN) == 1
    await access.close()


@pytest.mark.slow("hashes many passwords")
@pytest.mark.usefixtures("expensive")
async def test_an_unknown_name_takes_as_long_as_a_wrong_password(access: Access) -> None:
    await access.admins.set_password(PASSWORD)

    async def took(name: str) -> float:
        begun = time.perf_counter()
        assert await access.admins.verify(name, "wrong") is None
        return time.perf_counter() - begun

    pairs = [(await took("admin"), await took("nobody")) for _ in range(7)]
    known, unknown = (statistics.median(each) for each in zip(*pairs, strict=True))
    assert 0.6 < unknown / known < 1.7
    await access.close()
