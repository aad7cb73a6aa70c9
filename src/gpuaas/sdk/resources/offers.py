"""What can be launched."""

from collections.abc import Iterator

from gpuaas.sdk.api import Api, path
from gpuaas.wire.api import NewOffer, OfferPage, OfferView


class Offers:
    def __init__(self, api: Api) -> None:
        self._api = api

    def list(self) -> Iterator[OfferView]:
        return self._api.pages(path("offers"), OfferPage)

    def create(self, offer: NewOffer) -> OfferView:
        """For platform administrators."""
        return self._api.post(path("offers"), offer, OfferView)
