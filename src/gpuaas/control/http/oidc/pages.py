"""The two pages that a browser is shown. Nothing in them runs, and nothing is loaded."""

from html import escape

from litestar import Response

from gpuaas.kit.errors import Problem

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>GPUaaS</title>"
    "<body style='font:16px system-ui;max-width:40em;margin:4em auto'><h1>{title}</h1>{body}</body></html>"
)


def code(text: str) -> Response[str]:
    shown = (
        f"<p>Paste this into the terminal where you began, within five minutes:</p><p><code>{escape(text)}</code></p>"
    )
    warning = "<p><b>If somebody sent you here, close this page:</b> with the code they would be you.</p>"
    return _page("You are signed in", shown + warning, 200)


def refused(problem: Problem) -> Response[str]:
    body = f"<p>{escape(problem.message)}</p><p>{escape(problem.hint)}</p><p><code>{escape(problem.code)}</code></p>"
    return _page("You are not signed in", body, problem.status)


def _page(title: str, body: str, status: int) -> Response[str]:
    return Response(_PAGE.format(title=title, body=body), status_code=status, media_type="text/html", headers=HEADERS)
