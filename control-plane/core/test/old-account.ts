/** An account over several past days, for the ledger's audit. */
import { randomUUID } from 'node:crypto';
import type { Database } from '@matting/database/database.ts';
import { DAY_MS } from '@matting/program/durations.ts';

/** 2026-01-01. */
export const FIRST_DAY_MS = 1_767_225_600_000;
/** So small that few accounts, entries and jobs need several. */
export const RANGES = { accountsMax: 2, entriesMax: 3, jobsMax: 2 };
export const DAYS = 4;
export const JOBS_A_DAY = 6;
/** A grant, and two entries a job. */
export const ENTRIES = 1 + DAYS * JOBS_A_DAY * 2;
export const GRANTED = 100;

type Kind = 'grant' | 'reserve' | 'charge' | 'release';

export function entry(accountId: string, kind: Kind, createdAtMs: number, jobId: string | null) {
  const slot = kind === 'charge' || kind === 'release' ? ('settle' as const) : kind;
  return {
    id: randomUUID(),
    account_id: accountId,
    job_id: jobId,
    kind,
    slot,
    reference: jobId ?? 'order',
    amount: jobId === null ? GRANTED : 1,
    created_at: createdAtMs,
  };
}

export async function oldAccount(database: Database): Promise<string> {
  const account = { id: randomUUID(), name: `old ${randomUUID()}`, created_at: FIRST_DAY_MS };
  const rows = [entry(account.id, 'grant', FIRST_DAY_MS, null)];
  for (let job = 0; job < DAYS * JOBS_A_DAY; job += 1) {
    const id = randomUUID();
    const atMs = FIRST_DAY_MS + Math.floor(job / JOBS_A_DAY) * DAY_MS + (job % JOBS_A_DAY) * 1000;
    rows.push(entry(account.id, 'reserve', atMs, id), entry(account.id, 'charge', atMs + 9, id));
  }
  const available = GRANTED - DAYS * JOBS_A_DAY;
  await database.kysely
    .insertInto('accounts')
    .values({ ...account, available, reserved: 0 })
    .execute();
  await database.kysely.insertInto('ledger_entries').values(rows).execute();
  return account.id;
}
