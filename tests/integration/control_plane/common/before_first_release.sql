-- What `pg_dump` wrote of a database from before the first release, pared down: its record of migrations, and two tables of its own.

CREATE TABLE accounts_project (
    id uuid NOT NULL,
    slug character varying(63) NOT NULL,
    name character varying(120) NOT NULL,
    created_at timestamp with time zone NOT NULL
);

CREATE TABLE accounts_user (
    password character varying(128) NOT NULL,
    last_login timestamp with time zone,
    is_superuser boolean NOT NULL,
    username character varying(150) NOT NULL,
    first_name character varying(150) NOT NULL,
    last_name character varying(150) NOT NULL,
    email character varying(254) NOT NULL,
    is_staff boolean NOT NULL,
    is_active boolean NOT NULL,
    date_joined timestamp with time zone NOT NULL,
    id uuid NOT NULL
);

CREATE TABLE django_migrations (
    id bigint NOT NULL,
    app character varying(255) NOT NULL,
    name character varying(255) NOT NULL,
    applied timestamp with time zone NOT NULL
);

INSERT INTO accounts_project VALUES ('01a21efa-8d5a-7c49-a187-18b99c8f591b', 'default', 'Default', '2026-11-22 16:05:00+00');

INSERT INTO django_migrations VALUES
    (1, 'contenttypes', '0001_initial', '2026-11-22 16:05:00+00'),
    (2, 'contenttypes', '0002_remove_content_type_name', '2026-11-22 16:05:00+00'),
    (3, 'auth', '0001_initial', '2026-11-22 16:05:00+00'),
    (4, 'auth', '0002_alter_permission_name_max_length', '2026-11-22 16:05:00+00'),
    (5, 'auth', '0003_alter_user_email_max_length', '2026-11-22 16:05:00+00'),
    (6, 'auth', '0004_alter_user_username_opts', '2026-11-22 16:05:00+00'),
    (7, 'auth', '0005_alter_user_last_login_null', '2026-11-22 16:05:00+00'),
    (8, 'auth', '0006_require_contenttypes_0002', '2026-11-22 16:05:00+00'),
    (9, 'auth', '0007_alter_validators_add_error_messages', '2026-11-22 16:05:00+00'),
    (10, 'auth', '0008_alter_user_username_max_length', '2026-11-22 16:05:00+00'),
    (11, 'auth', '0009_alter_user_last_name_max_length', '2026-11-22 16:05:00+00'),
    (12, 'auth', '0010_alter_group_name_max_length', '2026-11-22 16:05:00+00'),
    (13, 'auth', '0011_update_proxy_permissions', '2026-11-22 16:05:00+00'),
    (14, 'auth', '0012_alter_user_first_name_max_length', '2026-11-22 16:05:00+00'),
    (15, 'accounts', '0001_initial', '2026-11-22 16:05:00+00'),
    (16, 'cluster', '0001_initial', '2026-11-22 16:05:00+00'),
    (17, 'accounts', '0002_initial', '2026-11-22 16:05:00+00'),
    (18, 'admin', '0001_initial', '2026-11-22 16:05:00+00'),
    (19, 'admin', '0002_logentry_remove_auto_add', '2026-11-22 16:05:00+00'),
    (20, 'admin', '0003_logentry_add_action_flag_choices', '2026-11-22 16:05:00+00'),
    (21, 'cluster', '0002_heartbeat_num_in_flight', '2026-11-22 16:05:00+00'),
    (22, 'common', '0001_initial', '2026-11-22 16:05:00+00'),
    (23, 'jobs', '0001_initial', '2026-11-22 16:05:00+00'),
    (24, 'jobs', '0002_stage_request', '2026-11-22 16:05:00+00'),
    (25, 'jobs', '0003_evaluation', '2026-11-22 16:05:00+00'),
    (26, 'jobs', '0004_recorded_data', '2026-11-22 16:05:00+00'),
    (27, 'jobs', '0005_submission_key', '2026-11-22 16:05:00+00'),
    (28, 'scheduling', '0001_initial', '2026-11-22 16:05:00+00'),
    (29, 'policies', '0001_initial', '2026-11-22 16:05:00+00'),
    (30, 'scheduling', '0002_phase_next', '2026-11-22 16:05:00+00'),
    (31, 'scheduling', '0003_phase_drain_grace', '2026-11-22 16:05:00+00'),
    (32, 'scheduling', '0004_phase_gang', '2026-11-22 16:05:00+00'),
    (33, 'sessions', '0001_initial', '2026-11-22 16:05:00+00'),
    (34, 'telemetry', '0001_initial', '2026-11-22 16:05:00+00'),
    (35, 'trajectories', '0001_initial', '2026-11-22 16:05:00+00'),
    (36, 'trajectories', '0002_mean_logprob', '2026-11-22 16:05:00+00'),
    (37, 'trajectories', '0003_sampling', '2026-11-22 16:05:00+00'),
    (38, 'trajectories', '0004_session_handed_back', '2026-11-22 16:05:00+00'),
    (39, 'trajectories', '0005_evaluation', '2026-11-22 16:05:00+00'),
    (40, 'trajectories', '0006_dataset', '2026-11-22 16:05:00+00'),
    (41, 'trajectories', '0007_evaluation_cancelled', '2026-11-22 16:05:00+00');
