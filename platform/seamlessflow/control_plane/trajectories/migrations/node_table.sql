-- The token table, partitioned by the month in which the session was opened. Written by gateways with binary COPY.
CREATE TABLE trajectory_node (
    month             date        NOT NULL,
    session_id        uuid        NOT NULL,
    node_index        integer     NOT NULL,  -- 0, 1, 2, … within the session
    project_id        uuid        NOT NULL,
    job_id            uuid        NOT NULL,
    parent_index      integer,               -- null for the root
    kind              smallint    NOT NULL,  -- NodeKind
    prompt_id         uuid,                  -- kind 0: its PromptContent
    num_tokens        integer     NOT NULL,
    token_ids         bytea,                 -- zstd(int32 little-endian); null for kind 0
    logprobs          bytea,                 -- zstd(float32 little-endian), kind 2
    version_spans     integer[],             -- kind 2: flat run-length [start, version, start, version, …]; -1: unknown, never trained
    loss_mask         bytea,                 -- kind 2, packed bits; null: every token is trained
    min_version       bigint,
    max_version       bigint,
    finish_reason     text,                  -- stop, length, tool_calls, abort
    messages          json,                  -- not jsonb, which refuses the NUL a policy may sample; kind 0, 1: messages added; kind 2: [the assistant message as delivered]
    drift             text,                  -- kind 1 and 0: clean, realign or fork: how the request joined its parent
    cause             text,                  -- why it is not clean
    turn_id           uuid        NOT NULL,  -- nodes written by the same request share it
    request_digest    bytea,                 -- kind 2: of the request body, recognises a marked retry
    is_partial        boolean     NOT NULL DEFAULT false,  -- cut short, never acknowledged, never trained
    flags             jsonb       NOT NULL DEFAULT '{}',   -- overridden sampling values, masked spans and their reason
    num_handovers     integer     NOT NULL DEFAULT 0,      -- times the request moved to another engine
    num_continuations integer     NOT NULL DEFAULT 0,      -- of these, how many continued from sampled tokens
    max_gap_s         real,                  -- largest time without a token, as the gateway saw it
    duration_s        real,
    num_wasted_tokens integer     NOT NULL DEFAULT 0,      -- sampled, then discarded (after a stop string)
    created_at        timestamptz NOT NULL DEFAULT now(),
    mean_logprob      real,                  -- kind 2: colours the answer in a zoomed-out forest
    PRIMARY KEY (month, session_id, node_index)
) PARTITION BY RANGE (month);
ALTER TABLE trajectory_node ALTER COLUMN token_ids SET STORAGE EXTERNAL;
ALTER TABLE trajectory_node ALTER COLUMN logprobs SET STORAGE EXTERNAL;
ALTER TABLE trajectory_node ALTER COLUMN loss_mask SET STORAGE EXTERNAL;
ALTER TABLE trajectory_prompt ALTER COLUMN token_ids SET STORAGE EXTERNAL;
ALTER TABLE trajectory_batch ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE INDEX trajectory_node_job ON trajectory_node (job_id, created_at);
-- Holds rows of months without a partition; the background worker makes partitions ahead of time.
CREATE TABLE trajectory_node_default PARTITION OF trajectory_node DEFAULT;
