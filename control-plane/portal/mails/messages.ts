/**
 * Daily quotas (UTC) of messages: invitations, notices to an account's owners, and events to its
 * own address. Mails and events count separately. Anybody can invite an address, so all accounts
 * together send it at most RECIPIENT_MAILS_MAX invitations, and one account half of them. For a
 * notice only the account's own messages count, so that no other account can suppress a warning.
 * The operator's mails do not count.
 *
 * The transaction that writes a message counts it. A row has a hash of what it counts, so that no
 * address outlives its mail here. Rows are locked first and in one order, which prevents deadlocks.
 */

import { hash } from 'node:crypto';
import type { CliContext } from '@matting/core/cli/context.ts';
import type { Database, Db, Schema } from '@matting/database/database.ts';
import { nowPlusMs, removeOldRows, startOfDay } from '@matting/database/statements.ts';
import type { Command } from 'commander';
import { type InsertQueryBuilder, type InsertResult, sql } from 'kysely';
import { mailKeyOf } from './mail-address.ts';

export const ACCOUNT_MAILS_DEFAULT = 100;
export const ACCOUNT_MAILS_MAX = 1_000_000;
const RECIPIENT_MAILS_MAX = 20;
/** Invitations of one account to one address, and notices to one owner. */
const RECIPIENT_ACCOUNT_MAILS_MAX = RECIPIENT_MAILS_MAX / 2;

export type Message =
  | { readonly kind: 'invitation'; readonly recipient: string }
  | { readonly kind: 'notice'; readonly recipient: string }
  | { readonly kind: 'event' };

export const WITHHELD_REASONS = ['account', 'recipient'] as const;
export type WithheldReason = (typeof WITHHELD_REASONS)[number];

interface MessageCount {
  readonly name: string;
  readonly max: number;
  readonly reason: WithheldReason;
}

function countsOf(accountId: string, message: Message, max: number): MessageCount[] {
  const kept = message.kind === 'event' ? 'event' : 'mail';
  const ofAccount: MessageCount = { name: `${kept} of ${accountId}`, max, reason: 'account' };
  if (message.kind === 'event') return [ofAccount];
  const to = addresseeOf(message.recipient);
  const reason = 'recipient';
  if (message.kind === 'notice') {
    const name = `notice of ${accountId} to ${to}`;
    return [ofAccount, { name, max: RECIPIENT_ACCOUNT_MAILS_MAX, reason }];
  }
  return [
    ofAccount,
    { name: `mail of ${accountId} to ${to}`, max: RECIPIENT_ACCOUNT_MAILS_MAX, reason },
    { name: `mail to ${to}`, max: RECIPIENT_MAILS_MAX, reason },
  ];
}

/** Subaddresses (RFC 5233) have one reader: ann+shop@ and ann+work@ count as ann@. */
function addresseeOf(mail: string): string {
  return mailKeyOf(mail).replace(/^([^+@]+)\+[^@]*@/, '$1@');
}

function takeMessages(
  messages: readonly (readonly MessageCount[])[],
  used: ReadonlyMap<string, number>,
): {
  /** The count that withholds each message. Undefined: the message is sent. */
  readonly withheldBy: readonly (MessageCount | undefined)[];
  readonly used: ReadonlyMap<string, number>;
} {
  const after = new Map(used);
  const of = (count: MessageCount) => after.get(count.name) ?? 0;
  const withheldBy = messages.map(counts => {
    const full = counts.find(count => of(count) >= count.max);
    if (full === undefined) for (const count of counts) after.set(count.name, of(count) + 1);
    return full;
  });
  return { withheldBy, used: after };
}

export interface Withheld {
  readonly reason: WithheldReason;
  readonly isFirst: boolean;
}

const KEPT_MS = 86_400_000;

/** Counts the messages that the quota allows. @param max messages of each kind */
export async function takeFromToday(
  database: Database,
  tx: Db,
  accountId: string,
  messages: readonly Message[],
  max: number,
): Promise<(Withheld | undefined)[]> {
  if (messages.length === 0) return [];
  const counted = messages.map(message => countsOf(accountId, message, max));
  const counts = new Map<string, number>();
  for (const { name } of counted.flat()) counts.set(name, (counts.get(name) ?? 0) + 1);
  await raise(database, tx, counts);
  const rows = await readRows(tx, [...counts.keys()]);
  const before = new Map([...counts].map(([name, by]) => [name, rows.get(name)!.used - by]));
  const { withheldBy, used } = takeMessages(counted, before);
  for (const [name, row] of rows) {
    const withheld = withheldBy.filter(count => count?.name === name).length;
    if (withheld === 0 && row.used === used.get(name)) continue;
    await tx
      .updateTable('message_counts')
      .set({ used: used.get(name) ?? 0, withheld: row.withheld + withheld })
      .where('key_hash', '=', hashOf(name))
      .execute();
  }
  return withheldBy.map((count, index) => {
    if (count === undefined) return undefined;
    const first = withheldBy.findIndex(one => one?.name === count.name);
    const isFirst = first === index && rows.get(count.name)!.withheld === 0;
    return { reason: count.reason, isFirst };
  });
}

export interface TestBounds {
  readonly everyMs: number;
  readonly messagesMax: number;
}

/**
 * Counts a test of the account's address, and bounds tests even if the address changes. Undefined:
 * the test may be sent.
 */
export async function takeTest(
  database: Database,
  tx: Db,
  accountId: string,
  { everyMs, messagesMax }: TestBounds,
): Promise<'too-soon' | Withheld | undefined> {
  const { nowMs } = database;
  const keyHash = hashOf(`event of ${accountId}`);
  const recent = await tx
    .selectFrom('message_counts')
    .select('tested_at')
    .where('key_hash', '=', keyHash)
    .where('tested_at', '>', nowPlusMs(nowMs, -everyMs))
    .executeTakeFirst();
  if (recent !== undefined) return 'too-soon';
  const [withheld] = await takeFromToday(database, tx, accountId, [{ kind: 'event' }], messagesMax);
  if (withheld !== undefined) return withheld;
  await tx
    .updateTable('message_counts')
    .set({ tested_at: nowMs })
    .where('key_hash', '=', keyHash)
    .execute();
  return undefined;
}

export async function readSentToday({ nowMs }: Database, db: Db, accountId: string) {
  const [mails, events] = ['mail', 'event'].map(kind => hashOf(`${kind} of ${accountId}`));
  const rows = await db
    .selectFrom('message_counts')
    .select(['key_hash', 'used'])
    .where('key_hash', 'in', [mails ?? '', events ?? ''])
    .where('day_at', '=', startOfDay(nowMs))
    .execute();
  const usedOf = (key: string | undefined) => rows.find(row => row.key_hash === key)?.used ?? 0;
  return { mails: usedOf(mails), events: usedOf(events) };
}

export function removeOldCounts(database: Database, limit: number): Promise<number> {
  const before = nowPlusMs(startOfDay(database.nowMs), -KEPT_MS);
  const days = { table: 'message_counts', key: 'key_hash', time: 'day_at', before } as const;
  return removeOldRows(database, days, limit);
}

async function raise({ dialect, nowMs }: Database, tx: Db, counts: ReadonlyMap<string, number>) {
  const values = [...counts]
    .map(([name, used]) => ({ key_hash: hashOf(name), used }))
    .sort((one, other) => (one.key_hash < other.key_hash ? -1 : 1))
    .map(row => ({ ...row, day_at: startOfDay(nowMs), withheld: 0 }));
  await raising(dialect, tx.insertInto('message_counts').values(values)).execute();
}

type Insert = InsertQueryBuilder<Schema, 'message_counts', InsertResult>;

function raising(dialect: Database['dialect'], insert: Insert): Insert {
  const given = (column: string) =>
    dialect === 'sqlite' ? sql.ref(`excluded.${column}`) : sql`values(${sql.ref(column)})`;
  // A clock that is set back does not reset a day.
  const isOver = sql`${sql.ref('message_counts.day_at')} < ${given('day_at')}`;
  const raised = {
    // MySQL assigns from left to right, so `day_at` must come last.
    used: sql<number>`${given('used')} + case when ${isOver} then 0 else ${sql.ref('message_counts.used')} end`,
    withheld: sql<number>`case when ${isOver} then 0 else ${sql.ref('message_counts.withheld')} end`,
    day_at: sql<number>`case when ${isOver} then ${given('day_at')} else ${sql.ref('message_counts.day_at')} end`,
  };
  return dialect === 'sqlite'
    ? insert.onConflict(conflict => conflict.column('key_hash').doUpdateSet(raised))
    : insert.onDuplicateKeyUpdate(raised);
}

async function readRows(tx: Db, names: readonly string[]) {
  const byHash = new Map(names.map(name => [hashOf(name), name]));
  const rows = await tx
    .selectFrom('message_counts')
    .select(['key_hash', 'used', 'withheld'])
    .where('key_hash', 'in', [...byHash.keys()])
    .execute();
  return new Map(rows.map(({ key_hash, ...row }) => [byHash.get(key_hash) as string, row]));
}

function hashOf(name: string): string {
  return hash('sha256', name, 'hex');
}

const PAGE = 500;

export function addMailCommands(program: Command, context: CliContext): void {
  const mails = program.command('mails').description('retry waiting mails');
  mails
    .command('retry')
    .description('send every waiting mail now')
    .action(async () => {
      const retried = await context.withStores(async ({ outbox }) => {
        let all = 0;
        for (let found = PAGE; found === PAGE; all += found) {
          found = await outbox.sendMailsNow(PAGE);
        }
        return all;
      });
      context.report({ retried }, () => [`mails due now: ${retried}`]);
    });
}
