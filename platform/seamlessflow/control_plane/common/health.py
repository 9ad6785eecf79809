"""`/healthz`: 200 while this process can reach the database, 503 with one sentence otherwise."""

from http import HTTPStatus

from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache

from seamlessflow.control_plane.common.problems import problem_response


@never_cache
def healthz(request: HttpRequest) -> HttpResponse:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return problem_response(HTTPStatus.SERVICE_UNAVAILABLE, "the database does not answer")
    return JsonResponse({"status": "ok"})
