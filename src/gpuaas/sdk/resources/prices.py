"""Price books: what an hour costs, and since when."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import NewPriceBook, PriceBookPage, PriceBookView


class Prices:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self) -> Iterator[PriceBookView]:
        """All versions, the newest first."""
        return self._api.pages(path("prices"), PriceBookPage)

    def publish(self, book: NewPriceBook) -> PriceBookView:
        """For platform administrators. A book never changes: publish the next one."""
        return self._api.post(path("prices"), book, PriceBookView)
