import type { Generated } from 'kysely';
import type { CapPeriod } from './keys/key-policy.ts';
import type { LedgerKind, LedgerSlot } from './ledger/ledger.ts';
import type { RateKind } from './rates/rate-windows.ts';

interface AccountsTable {
  id: string;
  /** Unique, compared byte by byte. */
  name: string;
  available: number;
  /** Also counts the account's open paid jobs and waiting items, at one credit each. */
  reserved: number;
  /** Open corrections, which take no credit and count as in flight (docs/adr/0052). */
  open_corrections: Generated<number>;
  /** Credits of `reserved` held for jobs not yet created (core/groups/job-groups.ts). */
  batch_waiting: Generated<number>;
  /** On some engines takeAccount changes this counter to lock the row. */
  turns: Generated<number>;
  created_at: number;
}

interface ApiKeysTable {
  /** The 12 public characters of the key. */
  id: string;
  account_id: string;
  name: string;
  /** SHA-256 of the secret, hexadecimal. */
  secret_hash: string;
  created_at: number;
  revoked_at: number | null;
  expires_at: number | null;
  /** Approximate: a replica writes it at most once a minute. */
  last_used_at: number | null;
  /** Hash of the secret before the last rotation, and when it expires or expired. */
  previous_secret_hash: string | null;
  previous_expires_at: number | null;
  previous_last_used_at: number | null;
  /** Credits that the key's jobs may take in a period; null: no cap. */
  cap_credits: number | null;
  cap_period: CapPeriod | null;
  /** Start of the count in cap_used; null: no count yet. Each new count starts later. */
  cap_window_start: number | null;
  cap_used: number | null;
  /** null: the account's rate is the only limit. */
  submissions_per_minute: number | null;
  /** Separated by commas, like networks and models; null: all. */
  scopes: string | null;
  networks: string | null;
  models: string | null;
  /**
   * The purpose of a key that a package created: no list shows it, and nobody has its secret. null:
   * people created the key.
   */
  purpose: string | null;
  /** The person who created the key's latest secret; null: the operator. */
  made_by: string | null;
}

/** Append-only: the program never updates or deletes a row. */
interface LedgerEntriesTable {
  id: string;
  account_id: string;
  job_id: string | null;
  kind: LedgerKind;
  slot: LedgerSlot;
  /** The job's id, or the operator's text. */
  reference: string;
  amount: number;
  created_at: number;
}

/** One row per account and kind: the requests that replicas leased in the latest window. */
interface RateQuotasTable {
  account_id: string;
  kind: RateKind;
  window_start: number;
  leased: number;
}

/** Append-only until its retention ends. */
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
