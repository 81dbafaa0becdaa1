/**
 * People of a service that has run for a year, beside the accounts of large-tables.ts: one account
 * with as many as an account may have, their sessions, links that were used, and its log.
 */
import { createHash } from 'node:crypto';
import type { Insertable } from 'kysely';
import type { Database } from '../../control-plane/src/store/database/connect.ts';
import type { Schema } from '../../control-plane/src/store/database/schema.ts';
import { accountOf } from './large-tables.ts';

/** Fewer than an account may have, so that one more can join. */
const PEOPLE = 150;
const OTHERS = 2000;
const LINKS = 2000;
const ENTRIES = 3000;
const CHUNK_ROWS = 200;
const DAY_MS = 86_400_000;

export const personOf = (index: number) =>
  `00000000-0000-4000-b000-${index.toString(16).padStart(12, '0')}`;
export const personMailOf = (index: number) => `person-${index}@large.example`;
export const sessionHashOf = (index: number) => hashOf(`session ${index}`);

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** Of tables that hold nothing yet. */
export async function fillLargePeople(database: Database): Promise<void> {
  const nowMs = Date.now();
  const people = Array.from({ length: PEOPLE + OTHERS }, (_, index) => index);
  await insert(database, 'users', people.map(userRow));
  await insert(database, 'members', people.map(memberRow));
  await insert(
    database,
    'sessions',
    people.map(index => sessionRow(index, nowMs)),
  );
  const links = Array.from({ length: LINKS }, (_, index) => linkRow(index, nowMs));
  await insert(database, 'one_time_links', links);
  const entries = Array.from({ length: ENTRIES }, (_, index) => entryRow(index, nowMs));
  await insert(database, 'audit_entries', entries);
}

async function insert<T extends keyof Schema>(
  { kysely }: Database,
  table: T,
  rows: readonly Insertable<Schema[T]>[],
): Promise<void> {
  for (let from = 0; from < rows.length; from += CHUNK_ROWS) {
    await kysely
      .insertInto(table)
      .values(rows.slice(from, from + CHUNK_ROWS))
      .execute();
  }
}

function userRow(index: number): Insertable<Schema['users']> {
  const mail = personMailOf(index);
  return {
    id: personOf(index),
    mail,
    mail_key: mail,
    password_hash: 'a hash',
    language: null,
    created_at: 1,
    disabled_at: null,
    proven_at: 1,
  };
}

function memberRow(index: number): Schema['members'] {
  return {
    account_id: index < PEOPLE ? accountOf(0) : accountOf(1 + (index % 19)),
    user_id: personOf(index),
    role: index % 3 === 0 ? 'owner' : 'member',
    source: 'invited',
    created_at: 1,
  };
}

function sessionRow(index: number, nowMs: number): Schema['sessions'] {
  return {
    id: `session-${index}`,
    id_hash: sessionHashOf(index),
    user_id: personOf(index),
    account_id: memberRow(index).account_id,
    method: 'password',
    created_at: nowMs - DAY_MS,
    seen_at: nowMs - 120_000,
    expires_at: nowMs + DAY_MS,
    address: '192.0.2.1',
    agent: 'a browser',
  };
}

/** The last few are open invitations. */
function linkRow(index: number, nowMs: number): Insertable<Schema['one_time_links']> {
  const isOpen = index >= LINKS - 20;
  return {
    id: `link-${index}`,
    token_hash: hashOf(`link ${index}`),
    purpose: 'invitation',
    account_id: accountOf(index % 2 === 0 ? 0 : 1),
    mail: `guest-${index}@large.example`,
    role: 'viewer',
    created_by: 'operator',
    created_at: nowMs - (LINKS - index) * 1000,
    expires_at: nowMs + DAY_MS,
    used_at: isOpen ? null : nowMs - 1000,
    proves_mail: 0,
  };
}

function entryRow(index: number, nowMs: number): Schema['audit_entries'] {
  return {
    id: `00000000-0000-4000-c000-${index.toString(16).padStart(12, '0')}`,
    account_id: accountOf(index % 2 === 0 ? 0 : 1),
    created_at: nowMs - (ENTRIES - index) * 1000,
    actor_kind: 'operator',
    actor_user_id: null,
    actor_mail: null,
    address: null,
    action: 'key.created',
    subject: 'a key',
    value_before: null,
    value_after: '{"name":"a key"}',
  };
}
