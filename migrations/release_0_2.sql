-- The tables of release 0.2, as the models stood then. Each later change is a migration of its own.

CREATE TABLE arrivals (
  storage_key TEXT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  removal_failed_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_arrivals PRIMARY KEY (storage_key)
);

CREATE TABLE dispatch_counts (
  engine_url TEXT NOT NULL,
  num_claimed BIGINT DEFAULT '0' NOT NULL,
  num_results BIGINT DEFAULT '0' NOT NULL,
  num_retries BIGINT DEFAULT '0' NOT NULL,
  num_fenced BIGINT DEFAULT '0' NOT NULL,
  num_refused BIGINT DEFAULT '0' NOT NULL,
  num_losses BIGINT DEFAULT '0' NOT NULL,
  num_handed_back BIGINT DEFAULT '0' NOT NULL,
  num_in_flight INTEGER DEFAULT '0' NOT NULL,
  num_unwritten INTEGER DEFAULT '0' NOT NULL,
  window_rows INTEGER DEFAULT '0' NOT NULL,
  in_flight_bytes BIGINT DEFAULT '0' NOT NULL,
  unwritten_bytes BIGINT DEFAULT '0' NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  CONSTRAINT pk_dispatch_counts PRIMARY KEY (engine_url)
);

CREATE TABLE dispatchers (
  id TEXT NOT NULL,
  engine_url VARCHAR NOT NULL,
  acquired_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  heartbeat_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_dispatchers PRIMARY KEY (id),
  CONSTRAINT uq_dispatchers_engine_url UNIQUE (engine_url)
);

CREATE TABLE ended_sessions (
  id VARCHAR NOT NULL,
  ended_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  CONSTRAINT pk_ended_sessions PRIMARY KEY (id)
);

CREATE INDEX ix_ended_sessions_ended_at ON ended_sessions (ended_at);

CREATE TABLE engines (
  url TEXT NOT NULL,
  name VARCHAR,
  model VARCHAR,
  context_tokens INTEGER,
  facts JSONB,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  seen_at TIMESTAMP WITH TIME ZONE,
  added_at TIMESTAMP WITH TIME ZONE,
  draining_at TIMESTAMP WITH TIME ZONE,
  beat_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_engines PRIMARY KEY (url)
);

CREATE TABLE full_stores (
  store TEXT NOT NULL,
  full_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_full_stores PRIMARY KEY (store)
);

CREATE TABLE history_points (
  step_s INTEGER NOT NULL,
  began_at TIMESTAMP WITH TIME ZONE NOT NULL,
  series TEXT NOT NULL,
  subject TEXT NOT NULL,
  figures FLOAT[] NOT NULL,
  CONSTRAINT pk_history_points PRIMARY KEY (step_s, began_at, series, subject)
);

CREATE TABLE history_writers (
  name TEXT NOT NULL,
  owner VARCHAR NOT NULL,
  seen JSONB NOT NULL,
  beat_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  CONSTRAINT pk_history_writers PRIMARY KEY (name)
);

CREATE TABLE organizations (
  id TEXT NOT NULL,
  name VARCHAR NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  CONSTRAINT pk_organizations PRIMARY KEY (id)
);

CREATE TABLE stage_counts (
  stage TEXT NOT NULL,
  num_runs BIGINT DEFAULT '0' NOT NULL,
  num_failed BIGINT DEFAULT '0' NOT NULL,
  wall_s DOUBLE PRECISION DEFAULT '0' NOT NULL,
  cpu_s DOUBLE PRECISION DEFAULT '0' NOT NULL,
  peak_rss_bytes BIGINT DEFAULT '0' NOT NULL,
  ended_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  CONSTRAINT pk_stage_counts PRIMARY KEY (stage)
);

CREATE TABLE suspects (
  digest BYTEA NOT NULL,
  num_losses SMALLINT NOT NULL,
  engine_url TEXT NOT NULL,
  lost_at TIMESTAMP WITH TIME ZONE NOT NULL,
  tried_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_suspects PRIMARY KEY (digest)
);

CREATE TABLE write_receipts (
  writer TEXT NOT NULL,
  number BIGINT NOT NULL,
  written_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  CONSTRAINT pk_write_receipts PRIMARY KEY (writer)
);

CREATE TABLE projects (
  id TEXT NOT NULL,
  organization_id TEXT DEFAULT 'org_default' NOT NULL,
  name VARCHAR NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  archived_at TIMESTAMP WITH TIME ZONE,
  requests_per_minute INTEGER,
  tokens_per_minute BIGINT,
  batch_enqueued_token_limit BIGINT,
  concurrent_requests INTEGER,
  live_batches INTEGER,
  batches_per_hour INTEGER,
  stored_bytes BIGINT,
  models TEXT[],
  service_tier TEXT,
  flex_wait_seconds INTEGER,
  CONSTRAINT pk_projects PRIMARY KEY (id),
  CONSTRAINT ck_projects_requests_per_minute CHECK (requests_per_minute >= 0),
  CONSTRAINT ck_projects_tokens_per_minute CHECK (tokens_per_minute >= 0),
  CONSTRAINT ck_projects_batch_enqueued_token_limit CHECK (batch_enqueued_token_limit >= 0),
  CONSTRAINT ck_projects_concurrent_requests CHECK (concurrent_requests >= 0),
  CONSTRAINT ck_projects_live_batches CHECK (live_batches >= 0),
  CONSTRAINT ck_projects_batches_per_hour CHECK (batches_per_hour >= 0),
  CONSTRAINT ck_projects_stored_bytes CHECK (stored_bytes >= 0),
  CONSTRAINT ck_projects_service_tier CHECK (service_tier IN ('default', 'flex')),
  CONSTRAINT ck_projects_flex_wait_seconds CHECK (flex_wait_seconds >= 0),
  CONSTRAINT fk_projects_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE INDEX ix_projects_organization_id ON projects (organization_id);

CREATE TABLE api_keys (
  id TEXT NOT NULL,
  project_id TEXT NOT NULL,
  name VARCHAR NOT NULL,
  prefix VARCHAR NOT NULL,
  key_hash BYTEA NOT NULL,
  scopes TEXT[] NOT NULL,
  role VARCHAR,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE,
  revoked_at TIMESTAMP WITH TIME ZONE,
  last_used_at TIMESTAMP WITH TIME ZONE,
  requests_per_minute INTEGER,
  tokens_per_minute BIGINT,
  service_tier TEXT,
  may_raise_tier BOOLEAN DEFAULT false NOT NULL,
  flex_wait_seconds INTEGER,
  CONSTRAINT pk_api_keys PRIMARY KEY (id),
  CONSTRAINT ck_api_keys_role CHECK (role IN ('viewer', 'operator', 'admin')),
  CONSTRAINT ck_api_keys_requests_per_minute CHECK (requests_per_minute >= 0),
  CONSTRAINT ck_api_keys_tokens_per_minute CHECK (tokens_per_minute >= 0),
  CONSTRAINT ck_api_keys_service_tier CHECK (service_tier IN ('default', 'flex')),
  CONSTRAINT ck_api_keys_flex_wait_seconds CHECK (flex_wait_seconds >= 0),
  CONSTRAINT fk_api_keys_project_id FOREIGN KEY(project_id) REFERENCES projects (id),
  CONSTRAINT uq_api_keys_key_hash UNIQUE (key_hash)
);

CREATE INDEX ix_api_keys_project_id ON api_keys (project_id);

CREATE TABLE audit_log (
  seq BIGINT GENERATED BY DEFAULT AS IDENTITY,
  id VARCHAR NOT NULL,
  organization_id TEXT NOT NULL,
  project_id TEXT,
  action VARCHAR NOT NULL,
  target_id VARCHAR NOT NULL,
  source VARCHAR NOT NULL,
  actor_key_id VARCHAR,
  actor_name VARCHAR NOT NULL,
  address VARCHAR,
  request_id VARCHAR,
  detail JSONB,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  CONSTRAINT pk_audit_log PRIMARY KEY (seq),
  CONSTRAINT ck_audit_log_source CHECK (source IN ('cli', 'api', 'dashboard', 'system')),
  CONSTRAINT uq_audit_log_id UNIQUE (id),
  CONSTRAINT fk_audit_log_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id),
  CONSTRAINT fk_audit_log_project_id FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE INDEX ix_audit_log_organization ON audit_log (organization_id, seq);

CREATE TABLE conversations (
  id TEXT NOT NULL,
  project_id TEXT NOT NULL,
  metadata JSONB NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE DEFAULT (statement_timestamp() + '30 days'::interval) NOT NULL,
  CONSTRAINT pk_conversations PRIMARY KEY (id),
  CONSTRAINT fk_conversations_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE INDEX ix_conversations_expires_at ON conversations (expires_at);

CREATE INDEX ix_conversations_project_id ON conversations (project_id);

CREATE TABLE files (
  id TEXT NOT NULL,
  project_id TEXT NOT NULL,
  purpose VARCHAR NOT NULL,
  filename VARCHAR NOT NULL,
  size_bytes BIGINT NOT NULL,
  sha256 VARCHAR NOT NULL,
  storage_key VARCHAR NOT NULL,
  part_bytes BIGINT[],
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE,
  deleted_at TIMESTAMP WITH TIME ZONE,
  collected_at TIMESTAMP WITH TIME ZONE,
  removal_failed_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_files PRIMARY KEY (id),
  CONSTRAINT ck_files_purpose CHECK (purpose IN ('assistants', 'batch', 'batch_output', 'fine-tune', 'vision', 'user_data', 'evals')),
  CONSTRAINT ck_files_size CHECK (size_bytes >= 0),
  CONSTRAINT fk_files_project_id FOREIGN KEY(project_id) REFERENCES projects (id),
  CONSTRAINT uq_files_storage_key UNIQUE (storage_key)
);

CREATE INDEX ix_files_collected ON files (collected_at) WHERE collected_at IS NOT NULL;

CREATE INDEX ix_files_gone ON files (LEAST(deleted_at, expires_at)) WHERE collected_at IS NULL;

CREATE INDEX ix_files_listing ON files (project_id, created_at, id);

CREATE TABLE idempotency_keys (
  project_id TEXT NOT NULL,
  kind VARCHAR NOT NULL,
  key VARCHAR NOT NULL,
  fingerprint VARCHAR NOT NULL,
  object_id VARCHAR NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  CONSTRAINT pk_idempotency_keys PRIMARY KEY (project_id, kind, key),
  CONSTRAINT fk_idempotency_keys_project_id FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE INDEX ix_idempotency_keys_created_at ON idempotency_keys (created_at);

CREATE TABLE responses (
  id TEXT NOT NULL,
  project_id TEXT NOT NULL,
  previous_response_id VARCHAR,
  body BYTEA NOT NULL,
  input_items BYTEA NOT NULL,
  item_ids TEXT[] NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_responses PRIMARY KEY (id),
  CONSTRAINT fk_responses_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE INDEX ix_responses_expires_at ON responses (expires_at);

CREATE INDEX ix_responses_item_ids ON responses USING gin (item_ids);

CREATE INDEX ix_responses_project_id ON responses (project_id);

CREATE TABLE uploads (
  id TEXT NOT NULL,
  project_id TEXT NOT NULL,
  filename VARCHAR NOT NULL,
  purpose VARCHAR NOT NULL,
  size_bytes BIGINT NOT NULL,
  expires_after_s INTEGER,
  status VARCHAR DEFAULT 'pending' NOT NULL,
  part_ids TEXT[],
  file_id VARCHAR,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_uploads PRIMARY KEY (id),
  CONSTRAINT ck_uploads_status CHECK (status IN ('pending', 'completed', 'cancelled')),
  CONSTRAINT fk_uploads_project_id_projects FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE INDEX ix_uploads_expires_at ON uploads (expires_at);

CREATE INDEX ix_uploads_project_id ON uploads (project_id);

CREATE TABLE usage (
  project_id TEXT NOT NULL,
  key_id VARCHAR NOT NULL,
  model VARCHAR NOT NULL,
  request_class VARCHAR NOT NULL,
  day DATE NOT NULL,
  num_requests BIGINT DEFAULT '0' NOT NULL,
  prompt_tokens BIGINT DEFAULT '0' NOT NULL,
  cached_tokens BIGINT DEFAULT '0' NOT NULL,
  completion_tokens BIGINT DEFAULT '0' NOT NULL,
  CONSTRAINT pk_usage PRIMARY KEY (project_id, key_id, model, request_class, day),
  CONSTRAINT ck_usage_class CHECK (request_class IN ('online', 'flex', 'offline')),
  CONSTRAINT fk_usage_project_id FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE TABLE webhook_endpoints (
  id TEXT NOT NULL,
  project_id TEXT NOT NULL,
  name VARCHAR NOT NULL,
  url VARCHAR NOT NULL,
  event_types TEXT[] NOT NULL,
  secret BYTEA NOT NULL,
  old_secret BYTEA,
  old_secret_until_at TIMESTAMP WITH TIME ZONE,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
  failing_since_at TIMESTAMP WITH TIME ZONE,
  disabled_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_webhook_endpoints PRIMARY KEY (id),
  CONSTRAINT fk_webhook_endpoints_project_id FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE INDEX ix_webhook_endpoints_listing ON webhook_endpoints (project_id, created_at, id);

CREATE TABLE batches (
  id TEXT NOT NULL,
  project_id TEXT NOT NULL,
  key_id TEXT,
  endpoint VARCHAR NOT NULL,
  completion_window VARCHAR NOT NULL,
  input_file_id TEXT NOT NULL,
  output_file_id TEXT,
  error_file_id TEXT,
  model VARCHAR,
  status VARCHAR DEFAULT 'validating' NOT NULL,
  errors JSONB,
  metadata JSONB,
  output_expires_after_s INTEGER,
  traceparent VARCHAR,
  priority INTEGER DEFAULT '0' NOT NULL,
  paused_at TIMESTAMP WITH TIME ZONE,
  retry_of TEXT,
  webhook_endpoints TEXT[],
  response_id VARCHAR,
  num_total INTEGER DEFAULT '0' NOT NULL,
  num_completed INTEGER DEFAULT '0' NOT NULL,
  num_failed INTEGER DEFAULT '0' NOT NULL,
  num_stopped INTEGER DEFAULT '0' NOT NULL,
  num_results INTEGER DEFAULT '0' NOT NULL,
  prompt_tokens BIGINT DEFAULT '0' NOT NULL,
  cached_tokens BIGINT DEFAULT '0' NOT NULL,
  completion_tokens BIGINT DEFAULT '0' NOT NULL,
  reasoning_tokens BIGINT DEFAULT '0' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  stage_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  in_progress_at TIMESTAMP WITH TIME ZONE,
  finalizing_at TIMESTAMP WITH TIME ZONE,
  completed_at TIMESTAMP WITH TIME ZONE,
  failed_at TIMESTAMP WITH TIME ZONE,
  expired_at TIMESTAMP WITH TIME ZONE,
  cancelling_at TIMESTAMP WITH TIME ZONE,
  cancelled_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_batches PRIMARY KEY (id),
  CONSTRAINT ck_batches_status CHECK (status IN ('validating', 'failed', 'in_progress', 'finalizing', 'completed', 'expired', 'cancelling', 'cancelled')),
  CONSTRAINT ck_batches_counts CHECK (num_completed + num_failed <= num_total),
  CONSTRAINT fk_batches_project_id FOREIGN KEY(project_id) REFERENCES projects (id),
  CONSTRAINT fk_batches_key_id FOREIGN KEY(key_id) REFERENCES api_keys (id),
  CONSTRAINT fk_batches_input_file_id FOREIGN KEY(input_file_id) REFERENCES files (id),
  CONSTRAINT fk_batches_output_file_id FOREIGN KEY(output_file_id) REFERENCES files (id),
  CONSTRAINT fk_batches_error_file_id FOREIGN KEY(error_file_id) REFERENCES files (id),
  CONSTRAINT uq_batches_retry_of UNIQUE (retry_of),
  CONSTRAINT fk_batches_retry_of FOREIGN KEY(retry_of) REFERENCES batches (id)
);

CREATE INDEX ix_batches_ended ON batches (COALESCE(completed_at, failed_at, expired_at, cancelled_at)) WHERE COALESCE(completed_at, failed_at, expired_at, cancelled_at) IS NOT NULL;

CREATE INDEX ix_batches_error_file_id ON batches (error_file_id) WHERE error_file_id IS NOT NULL;

CREATE INDEX ix_batches_input_file_id ON batches (input_file_id);

CREATE INDEX ix_batches_listing ON batches (project_id, created_at, id);

CREATE INDEX ix_batches_live ON batches (expires_at) WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');

CREATE INDEX ix_batches_open ON batches (COALESCE(model, ''), project_id, priority DESC, (
CASE
    WHEN response_id IS NULL THEN expires_at
    ELSE created_at
END), id) WHERE status = 'in_progress' AND paused_at IS NULL AND num_completed + num_failed < num_total;

CREATE INDEX ix_batches_output_file_id ON batches (output_file_id) WHERE output_file_id IS NOT NULL;

CREATE INDEX ix_batches_past ON batches (finalizing_at) WHERE status = 'completed' AND retry_of IS NULL AND num_completed >= 32;

CREATE INDEX ix_batches_response_id ON batches (response_id) WHERE response_id IS NOT NULL;

CREATE INDEX ix_batches_stage_at ON batches (stage_at) WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');

CREATE INDEX ix_batches_stage_due ON batches (project_id, (
CASE
    WHEN status = 'in_progress' AND (paused_at IS NOT NULL OR (num_completed + num_failed) < num_total) THEN GREATEST(stage_at, expires_at)
    ELSE stage_at
END)) WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');

CREATE TABLE conversation_items (
  place BIGINT GENERATED ALWAYS AS IDENTITY,
  conversation_id TEXT NOT NULL,
  id VARCHAR NOT NULL,
  item BYTEA NOT NULL,
  CONSTRAINT pk_conversation_items PRIMARY KEY (place),
  CONSTRAINT fk_conversation_items_conversation_id_conversations FOREIGN KEY(conversation_id) REFERENCES conversations (id) ON DELETE CASCADE
);

CREATE INDEX ix_conversation_items_listing ON conversation_items (conversation_id, place);

CREATE TABLE upload_parts (
  id TEXT NOT NULL,
  upload_id TEXT NOT NULL,
  size_bytes BIGINT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  removal_failed_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_upload_parts PRIMARY KEY (id),
  CONSTRAINT fk_upload_parts_upload_id_uploads FOREIGN KEY(upload_id) REFERENCES uploads (id)
);

CREATE INDEX ix_upload_parts_upload_id ON upload_parts (upload_id);

CREATE TABLE batch_events (
  id BIGINT GENERATED BY DEFAULT AS IDENTITY,
  batch_id TEXT NOT NULL,
  event VARCHAR NOT NULL,
  from_status VARCHAR,
  to_status VARCHAR,
  actor VARCHAR,
  detail JSONB,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  CONSTRAINT pk_batch_events PRIMARY KEY (id),
  CONSTRAINT fk_batch_events_batch_id FOREIGN KEY(batch_id) REFERENCES batches (id) ON DELETE CASCADE
);

CREATE INDEX ix_batch_events_batch ON batch_events (batch_id, id);

CREATE TABLE batch_rows (
  id BIGINT GENERATED BY DEFAULT AS IDENTITY,
  batch_id TEXT NOT NULL,
  line_no INTEGER NOT NULL,
  custom_id VARCHAR NOT NULL,
  offset_bytes BIGINT NOT NULL,
  length_bytes INTEGER NOT NULL,
  prefix_hash BIGINT DEFAULT '0' NOT NULL,
  num_tokens INTEGER DEFAULT '0' NOT NULL,
  status VARCHAR DEFAULT 'pending' NOT NULL,
  attempt INTEGER DEFAULT '0' NOT NULL,
  num_losses SMALLINT DEFAULT '0' NOT NULL,
  num_refusals SMALLINT DEFAULT '0' NOT NULL,
  available_at TIMESTAMP WITH TIME ZONE,
  dispatcher_id VARCHAR,
  rid VARCHAR,
  last_error JSONB,
  CONSTRAINT pk_batch_rows PRIMARY KEY (id),
  CONSTRAINT ck_batch_rows_status CHECK (status IN ('pending', 'leased', 'succeeded', 'errored', 'cancelled', 'expired')),
  CONSTRAINT ck_batch_rows_lease CHECK ((status = 'leased') = (dispatcher_id IS NOT NULL)),
  CONSTRAINT fk_batch_rows_batch_id FOREIGN KEY(batch_id) REFERENCES batches (id) ON DELETE CASCADE
);

CREATE INDEX ix_batch_rows_claim ON batch_rows (batch_id, prefix_hash, line_no) WHERE status = 'pending';

CREATE INDEX ix_batch_rows_leased ON batch_rows (dispatcher_id) WHERE status = 'leased';

CREATE INDEX ix_batch_rows_suspects ON batch_rows (num_losses, batch_id) WHERE status = 'pending' AND num_losses >= 2;

CREATE UNIQUE INDEX uq_batch_rows_custom_id ON batch_rows (batch_id, custom_id);

CREATE TABLE output_parts (
  file_id TEXT NOT NULL,
  number INTEGER NOT NULL,
  batch_id TEXT NOT NULL,
  last_seq INTEGER NOT NULL,
  num_lines INTEGER NOT NULL,
  size_bytes BIGINT NOT NULL,
  sha256 VARCHAR NOT NULL,
  CONSTRAINT pk_output_parts PRIMARY KEY (file_id, number),
  CONSTRAINT fk_output_parts_batch_id_batches FOREIGN KEY(batch_id) REFERENCES batches (id) ON DELETE CASCADE
);

CREATE INDEX ix_output_parts_batch_id ON output_parts (batch_id);

CREATE TABLE row_results (
  row_id BIGINT NOT NULL,
  batch_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  succeeded BOOLEAN NOT NULL,
  line BYTEA NOT NULL,
  prompt_tokens INTEGER DEFAULT '0' NOT NULL,
  cached_tokens INTEGER DEFAULT '0' NOT NULL,
  completion_tokens INTEGER DEFAULT '0' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  CONSTRAINT pk_row_results PRIMARY KEY (row_id),
  CONSTRAINT fk_row_results_batch_id FOREIGN KEY(batch_id) REFERENCES batches (id) ON DELETE CASCADE
);

CREATE INDEX ix_row_results_failed ON row_results (batch_id, seq) WHERE NOT succeeded;

CREATE UNIQUE INDEX uq_row_results_seq ON row_results (batch_id, seq);

CREATE TABLE webhook_deliveries (
  id TEXT NOT NULL,
  endpoint_id TEXT NOT NULL,
  batch_event_id BIGINT NOT NULL,
  event_id VARCHAR NOT NULL,
  event_type VARCHAR NOT NULL,
  batch_id VARCHAR NOT NULL,
  event_at TIMESTAMP WITH TIME ZONE NOT NULL,
  status VARCHAR DEFAULT 'pending' NOT NULL,
  attempts INTEGER DEFAULT '0' NOT NULL,
  next_at TIMESTAMP WITH TIME ZONE NOT NULL,
  leased_until_at TIMESTAMP WITH TIME ZONE,
  last_status INTEGER,
  last_error VARCHAR,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT statement_timestamp() NOT NULL,
  ended_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_webhook_deliveries PRIMARY KEY (id),
  CONSTRAINT uq_webhook_deliveries_endpoint_id_batch_event_id UNIQUE (endpoint_id, batch_event_id),
  CONSTRAINT ck_webhook_deliveries_status CHECK (status IN ('pending', 'delivered', 'failed')),
  CONSTRAINT ck_webhook_deliveries_ended CHECK ((status = 'pending') = (ended_at IS NULL)),
  CONSTRAINT fk_webhook_deliveries_endpoint_id FOREIGN KEY(endpoint_id) REFERENCES webhook_endpoints (id) ON DELETE CASCADE,
  CONSTRAINT fk_webhook_deliveries_batch_event_id FOREIGN KEY(batch_event_id) REFERENCES batch_events (id) ON DELETE CASCADE
);

CREATE INDEX ix_webhook_deliveries_batch_event_id ON webhook_deliveries (batch_event_id);

CREATE INDEX ix_webhook_deliveries_due ON webhook_deliveries (endpoint_id, next_at) WHERE status = 'pending';

CREATE INDEX ix_webhook_deliveries_ended_at ON webhook_deliveries (ended_at);

CREATE FUNCTION refuse_change_of_audit_log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'audit_log is only ever appended to';
END
$$;

CREATE TRIGGER audit_log_append_only
BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_audit_log();

INSERT INTO organizations (id, name) VALUES ('org_default', 'Default');

INSERT INTO projects (id, name) VALUES ('proj_default', 'Default');

INSERT INTO full_stores (store) VALUES ('database'), ('files');
