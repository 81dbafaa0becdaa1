import type { Schema } from '@matting/database/database.ts';
import type { Selectable } from 'kysely';
import type { JobLease, JobStatus, QueueJob } from './job.ts';
import type {} from './tables.ts';

type Row = Selectable<Schema['jobs']>;
type StatusRow = Pick<Row, 'id' | 'account_id' | 'api_key_id' | 'state' | 'class' | 'created_at'> &
  Pick<Row, 'started_at' | 'finished_at' | 'expires_at' | 'deleted_at'> & {
    readonly read_at: number;
  };

export function statusFromRow(row: StatusRow): JobStatus {
  return {
    id: row.id,
    accountId: row.account_id,
    apiKeyId: row.api_key_id,
    state: row.state,
    class: row.class,
    createdAtMs: row.created_at,
    startedAtMs: row.started_at,
    finishedAtMs: row.finished_at,
    expiresAtMs: row.expires_at,
    deletedAtMs: row.deleted_at,
    readAtMs: row.read_at,
  };
}

export function queueFieldsFromRow(
  row: Pick<Row, 'source_host' | 'lease_holder' | 'lease_expires_at' | 'fence' | 'lost_attempts'> &
    Pick<Row, 'lost_with_process' | 'takeovers' | 'cap_window_start' | 'playground_day'> &
    GroupRow,
): Omit<QueueJob, keyof JobStatus> {
  return {
    sourceHost: row.source_host,
    lease: leaseFromRow(row),
    fence: row.fence,
    lostAttempts: row.lost_attempts,
    lostWithProcess: row.lost_with_process,
    takeovers: row.takeovers,
    capWindowStartMs: row.cap_window_start,
    unpaidDayMs: row.playground_day,
    group: groupFromRow(row),
  };
}

function leaseFromRow({
  lease_holder: holder,
  lease_expires_at: expiresAtMs,
}: Pick<Row, 'lease_holder' | 'lease_expires_at'>): JobLease | null {
  if (holder === null) return null;
  if (expiresAtMs === null) throw new Error('a lease has a holder and no expiry');
  return { holder, expiresAtMs };
}

type GroupRow = Pick<Row, 'batch_id' | 'batch_item'>;

export function groupFromRow(row: GroupRow): QueueJob['group'] {
  return row.batch_id === null ? null : { id: row.batch_id, item: row.batch_item ?? 0 };
}
