"""Websocket routes."""

from django.urls import path

from seamlessflow.control_plane.live.consumers import LiveConsumer

websocket_urlpatterns = [path("ws/live", LiveConsumer.as_asgi())]
