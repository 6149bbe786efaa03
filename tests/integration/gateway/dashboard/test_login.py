"""Getting in, staying in, getting out, and what does not get in."""

from __future__ import annotations

import httpx

from gateway.dashboard.session import COOKIE_NAME, FREE_ATTEMPTS
from store.repositories import key as keys
from tests.fixtures.dashboard import Site, log_in, token_in

PAGES = ["/admin/batches", "/admin/batches/new", "/admin/batches/batch_1", "/admin/engines"]


async def test_a_page_leads_to_the_login_and_back(site: Site) -> None:
    async with site.client() as client:
        reply = await client.get("/admin/engines")
        assert reply.status_code == 303
        assert reply.headers["location"] == "/admin/login?next=%2Fadmin%2Fengines"
        reply = await log_in(client, site.key, "/admin/engines")
        assert (reply.status_code, reply.headers["location"]) == (303, "/admin/engines")
        assert (await client.get("/admin/engines")).status_code == 200


async def test_no_page_is_open(site: Site) -> None:
    async with site.client() as client:
        for path in (*PAGES, "/admin/batches/batch_1/files/input"):
            reply = await client.get(path)
            assert reply.status_code == 303, path
            assert reply.headers["location"].startswith("/admin/login")


async def test_a_stream_without_a_session_is_401(site: Site) -> None:
    async with site.client() as client:
        assert (await client.get("/admin/events?view=batches")).status_code == 401


async def test_the_cookie_is_kept_from_scripts_and_other_paths(site: Site) -> None:
    async with site.client() as client:
        reply = await log_in(client, site.key)
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE_NAME}=")
    attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=lax", "path=/admin"} <= attributes
    assert "secure" not in attributes


async def test_behind_https_the_cookie_is_secure(site: Site) -> None:
    # The host trusts this header from a proxy on the same machine.
    async with site.client() as client:
        reply = await client.get("/admin/login", headers={"x-forwarded-proto": "https"})
    assert "secure" in reply.headers["set-cookie"].lower()


async def test_the_form_asks_for_what_it_takes(site: Site) -> None:
    async with site.client() as client:
        page = (await client.get("/admin/login")).text
    assert "Use an API key that has a role." in page
    assert '<label for="key">API key</label>' in page


async def test_a_wrong_key_is_told_so(site: Site) -> None:
    async with site.client() as client:
        for key in ("sk-coserve-wrong", "", "x" * 5000, "\N{SNOWMAN}"):
            reply = await log_in(client, key)
            assert reply.status_code == 401
            assert "not known here" in reply.text
            assert not key or key not in reply.text
            assert (await client.get("/admin/batches")).status_code == 303


async def test_a_key_without_a_role_is_told_so(site: Site) -> None:
    async with site.client() as client:
        reply = await log_in(client, site.plain_key)
        assert reply.status_code == 403
        assert "has no role" in reply.text
        assert (await client.get("/admin/batches")).status_code == 303


async def test_guessing_is_slowed_even_for_the_right_key(site: Site) -> None:
    async with site.client() as client:
        for _ in range(FREE_ATTEMPTS):
            assert (await log_in(client, "sk-coserve-wrong")).status_code == 401
        reply = await log_in(client, site.key)
        assert reply.status_code == 429
        assert int(reply.headers["retry-after"]) >= 1


async def test_a_form_without_its_token_is_refused(site: Site) -> None:
    async with site.client() as client:
        await client.get("/admin/login")
        for fields in ({"key": site.key}, {"key": site.key, "csrf_token": "wrong"}):
            reply = await client.post("/admin/login", data=fields)
            assert reply.status_code == 403
            assert "out of date" in reply.text


async def test_a_token_of_another_session_is_refused(site: Site) -> None:
    async with site.client() as mine, site.client() as other:
        token = token_in((await other.get("/admin/login")).text)
        await mine.get("/admin/login")
        reply = await mine.post("/admin/login", data={"key": site.key, "csrf_token": token})
    assert reply.status_code == 403


async def test_a_form_sent_by_another_site_is_refused(site: Site) -> None:
    elsewhere = [
        {"origin": "https://elsewhere.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ]
    async with site.client() as client:
        token = token_in((await client.get("/admin/login")).text)
        fields = {"key": site.key, "csrf_token": token}
        for headers in elsewhere:
            reply = await client.post("/admin/login", data=fields, headers=headers)
            assert reply.status_code == 403, headers
        assert (await client.post("/admin/login", data=fields)).status_code == 303


async def test_logging_in_starts_a_new_session(site: Site) -> None:
    async with site.client() as client:
        before = token_in((await client.get("/admin/login")).text)
        await log_in(client, site.key)
        assert token_in((await client.get("/admin/batches")).text) != before


async def test_logging_out_ends_it(site: Site) -> None:
    async with site.admin() as client:
        token = token_in((await client.get("/admin/batches")).text)
        reply = await client.post("/admin/logout", data={"csrf_token": token})
        assert reply.headers["location"] == "/admin/login"
        assert (await client.get("/admin/batches")).status_code == 303


async def test_a_copied_cookie_is_worth_nothing_after_the_logout(site: Site) -> None:
    async with site.admin() as client, site.admin() as elsewhere, site.client() as thief:
        token = token_in((await client.get("/admin/batches")).text)
        thief.cookies.update(client.cookies)
        assert (await thief.get("/admin/batches")).status_code == 200
        await client.post("/admin/logout", data={"csrf_token": token})
        assert (await thief.get("/admin/batches")).status_code == 303
        assert (await thief.get("/admin/events?view=batches")).status_code == 401
        assert (await elsewhere.get("/admin/batches")).status_code == 200, "another session"


async def test_revoking_the_key_ends_the_session(site: Site) -> None:
    async with site.admin() as client:
        async with site.bench.database.unit_of_work() as session:
            assert await keys.revoke(session, site.key_id)
        assert (await client.get("/admin/batches")).status_code == 303


async def test_the_login_leads_to_no_other_site(site: Site) -> None:
    async with site.client() as client:
        for path in ("https://a.example/", "//a.example", "/admin/\\evil", "/admin//a", "/other"):
            reply = await log_in(client, site.key, path)
            assert reply.headers["location"] == "/admin/"
            await client.post("/admin/logout", data={"csrf_token": await _token(client)})


async def test_every_page_has_the_security_headers(site: Site) -> None:
    async with site.client() as visitor, site.admin() as client:
        replies = [await visitor.get("/admin/login")]
        replies += [await client.get(path) for path in (*PAGES, "/admin/nowhere")]
    for reply in replies:
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["referrer-policy"] == "same-origin"


async def _token(client: httpx.AsyncClient) -> str:
    return token_in((await client.get("/admin/batches")).text)


async def test_assets_are_served_for_long_and_only_assets(site: Site) -> None:
    async with site.client() as client:
        page = (await client.get("/admin/login")).text
        addresses = [part.split('"')[0] for part in page.split("/admin/static/")[1:]]
        assert len(addresses) >= 9
        for address in addresses:
            reply = await client.get(f"/admin/static/{address}")
            assert reply.status_code == 200, address
            assert "immutable" in reply.headers["cache-control"]
        outside = httpx.URL(f"{site.url}/admin/static/%2e%2e/app.py")
        assert (await client.get(outside)).status_code == 404
