/** The tables of accounts, as Kysely sees them; the core's migrations make them. Times are UTC milliseconds by the database's clock. */

import type { Generated } from 'kysely';
import type { CapPeriod } from './keys/key-policy.ts';
import type { LedgerKind, LedgerSlot } from './ledger/ledger.ts';
import type { RateKind } from './rates/rate-windows.ts';

interface AccountsTable {
  id: string;
  /** Unique, compared byte by byte. */
  name: string;
  available: number;
  /** The number is also that of the account's open jobs and waiting items, at one credit each. */
  reserved: number;
  /** Open jobs that correct others: they have no credit, and are in flight (docs/adr/0052). */
  open_corrections: Generated<number>;
  /** Credits of `reserved` that are held for jobs to come (core/groups/job-groups.ts). */
  batch_waiting: Generated<number>;
  /** A transaction took the row so often and changed nothing else; on some engines alone. */
  turns: Generated<number>;
  created_at: number;
}

interface ApiKeysTable {
  /** The 12 characters of the key that are no secret. */
  id: string;
  account_id: string;
  name: string;
  /** SHA-256 of the secret, hexadecimal. */
  secret_hash: string;
  created_at: number;
  revoked_at: number | null;
  /** null: never. */
  expires_at: number | null;
  /** About when: written at most once a minute and replica. */
  last_used_at: number | null;
  /** The secret from before the last rotation, hashed alike, and when it ends or ended. */
  previous_secret_hash: string | null;
  previous_expires_at: number | null;
  previous_last_used_at: number | null;
  /** Credits that the key's jobs may take in a period; null: no cap. */
  cap_credits: number | null;
  cap_period: CapPeriod | null;
  /** The count of cap_used began then; null: it never did. It rises with every count. */
  cap_window_start: number | null;
  cap_used: number | null;
  /** null: the account's rate alone. */
  submissions_per_minute: number | null;
  /** Separated by commas, as networks; null: all. */
  scopes: string | null;
  networks: string | null;
  /** Requests with the key may name these. */
  models: string | null;
  /**
   * A package made the key for this: no list shows it, and nobody has its secret. null: a key that
   * people made.
   */
  purpose: string | null;
  /** The person who was shown its secret; null: the operator. */
  made_by: string | null;
}

/** Append-only: no statement of this program updates or deletes a row. */
interface LedgerEntriesTable {
  id: string;
  account_id: string;
  job_id: string | null;
  kind: LedgerKind;
  slot: LedgerSlot;
  /** The job's id, or what the operator gave. */
  reference: string;
  amount: number;
  created_at: number;
}

/** One row an account and kind: what replicas have leased of its quota in the latest window. */
interface RateQuotasTable {
  account_id: string;
  kind: RateKind;
  window_start: number;
  leased: number;
}

/** Append-only, until its time is over. */
interface AuditEntriesTable {
  id: string;
  account_id: string;
  created_at: number;
  actor_kind: 'person' | 'operator' | 'payment' | 'system';
  actor_user_id: string | null;
  actor_mail: string | null;
  address: string | null;
  action: string;
  subject: string;
  /** JSON objects. */
  value_before: string | null;
  value_after: string | null;
}

declare module '@matting/database/database.ts' {
  interface Schema {
    accounts: AccountsTable;
    api_keys: ApiKeysTable;
    ledger_entries: LedgerEntriesTable;
    rate_quotas: RateQuotasTable;
    audit_entries: AuditEntriesTable;
  }
}
