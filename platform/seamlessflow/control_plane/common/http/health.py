"""`/healthz`: 200 while this process can reach the database, 503 with one sentence otherwise."""

from django.db import DatabaseError, InterfaceError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache

from seamlessflow.control_plane.common.http.problems import database_away


@never_cache
def healthz(request: HttpRequest) -> HttpResponse:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, InterfaceError):
        return database_away(request)
    return JsonResponse({"status": "ok"})
