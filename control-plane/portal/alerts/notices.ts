/**
 * Puts a notice to an account's owners into the outbox: a mail to each, and an event to the
 * account's address. The same transaction notes what the daily quota withholds, for a round after
 * midnight (UTC).
 */
import { hash } from 'node:crypto';
import {
  type AccountEventRow,
  insertMail,
  insertWebhook,
  type NewMail,
} from '@matting/core/webhooks/outbox-store.ts';
import type { Database, Db } from '@matting/database/database.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { type Message, takeFromToday, type Withheld } from '../mails/messages.ts';

interface Notice {
  readonly accountId: string;
  readonly event?: AccountEventRow | undefined;
  readonly mails: readonly NewMail[];
  /** Most mails of the account a day, and most events. */
  readonly messagesMax: number;
}

export interface QueuedNotice {
  readonly mails: number;
  readonly event: boolean;
  readonly withheld: readonly Withheld[];
}

/** Unsent messages: EVERYTHING, or their keys, separated by spaces. */
export type Rest = string;
export const EVERYTHING: Rest = '*';
const EVENT = 'event';

interface WithheldColumns {
  readonly withheld_at: number | null;
  readonly withheld_rest: Rest | null;
}

/** Whether the notice was withheld on the day of `nowMs`. The next try is on the next day. */
export function isWithheldToday({ withheld_at: atMs }: WithheldColumns, nowMs: number): boolean {
  return atMs !== null && atMs >= nowMs - (nowMs % DAY_MS);
}

/**
 * Writes the messages of `rest` that the quota allows.
 * @returns the unsent rest; null: all are sent. Without a receiver it is EVERYTHING.
 */
export async function writeNotice(
  database: Database,
  tx: Db,
  notice: Notice,
  rest: Rest,
): Promise<{ readonly queued: QueuedNotice; readonly rest: Rest | null }> {
  const isLeft = (key: string) => rest === EVERYTHING || rest.split(' ').includes(key);
  const event = isLeft(EVENT) ? notice.event : undefined;
  const mails = notice.mails.filter(({ recipient }) => isLeft(recipientKeyOf(recipient)));
  const messages: Message[] = mails.map(({ recipient }) => ({ kind: 'notice', recipient }));
  if (event !== undefined) messages.unshift({ kind: 'event' });
  if (messages.length === 0 && rest === EVERYTHING) {
    return { queued: { mails: 0, event: false, withheld: [] }, rest };
  }
  const { accountId, messagesMax } = notice;
  const kept = await takeFromToday(database, tx, accountId, messages, messagesMax);
  const sendsEvent = event !== undefined && kept[0] === undefined;
  if (sendsEvent) await insertWebhook(database, tx, event);
  const ofMails = event === undefined ? kept : kept.slice(1);
  const sent = mails.filter((_, index) => ofMails[index] === undefined);
  for (const mail of sent) await insertMail(database, tx, mail);
  const withheld = kept.filter(one => one !== undefined);
  const queued = { mails: sent.length, event: sendsEvent, withheld };
  if (withheld.length === 0) return { queued, rest: null };
  if (withheld.length === messages.length) return { queued, rest };
  const left = mails
    .filter(mail => !sent.includes(mail))
    .map(({ recipient }) => recipientKeyOf(recipient));
  if (event !== undefined && !sendsEvent) left.unshift(EVENT);
  return { queued, rest: left.join(' ') };
}

/** Identifies an owner's mail without the address, for rows that wait. */
function recipientKeyOf(recipient: string): string {
  return hash('sha256', recipient, 'hex').slice(0, 16);
}
