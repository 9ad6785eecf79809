# Stand-ins for the two public images that compose.yaml names, from Debian's packages: for rehearsals where no registry
# can be reached. They take the same variables and commands; never use them for anything else.
ARG BASE=debian:bookworm-20250520-slim

FROM ${BASE} AS postgres
RUN apt-get update \
    && apt-get install -y --no-install-recommends postgresql-15 \
    && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/15 \
    && install -d -o postgres -g postgres -m 0700 /var/lib/postgresql/data /run/postgresql
COPY deploy/rehearsal/postgres-entrypoint.sh /usr/local/bin/
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data
USER postgres
STOPSIGNAL SIGINT
ENTRYPOINT ["sh", "/usr/local/bin/postgres-entrypoint.sh"]
CMD ["postgres"]

FROM ${BASE} AS valkey
RUN apt-get update \
    && apt-get install -y --no-install-recommends redis-server redis-tools \
    && rm -rf /var/lib/apt/lists/* \
    && ln -s /usr/bin/redis-server /usr/local/bin/valkey-server \
    && ln -s /usr/bin/redis-cli /usr/local/bin/valkey-cli \
    && install -d -o redis -g redis /data
USER redis
WORKDIR /data
CMD ["valkey-server"]
