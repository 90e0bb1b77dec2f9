"""Feeds: the records of one shard, in order, from a place on; by polling, or by enhanced fan-out.

A feed holds nothing back: the shard's reader asks for the next page, and so decides how much is fetched ahead.
"""

from penstock.runtime.feeds.fan_out import FanOutFeed, FanOutOptions, Registration, SubscriptionGate
from penstock.runtime.feeds.polling import FetchRoom, PollingFeed

__all__ = ["FanOutFeed", "FanOutOptions", "FetchRoom", "PollingFeed", "Registration", "SubscriptionGate"]
