/**
 * Puts a notice to an account's owners into the outbox: a mail to each of them, and an event if the
 * account has an address. The same transaction notes as withheld what the account's quota of the
 * day keeps back, and a round after midnight (UTC) sends that part.
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
  /** If absent, the account has no address. */
  readonly event?: AccountEventRow | undefined;
  readonly mails: readonly NewMail[];
  /** The account sends this many mails a day, and as many events. */
  readonly messagesMax: number;
}

export interface QueuedNotice {
  /** Counts the mails that are sent; `event` says whether there is one. */
  readonly mails: number;
  readonly event: boolean;
  /** Lists which of its event and mails the account's quota of today keeps back. */
  readonly withheld: readonly Withheld[];
}

/** Names what is still to be sent: EVERYTHING, or keys of messages, which blanks separate. */
export type Rest = string;
export const EVERYTHING: Rest = '*';
const EVENT = 'event';

/** A notice has these columns; both are null if nothing of it is withheld. */
interface WithheldColumns {
  readonly withheld_at: number | null;
  readonly withheld_rest: Rest | null;
}

/** Whether a notice was kept back on the day of `nowMs`: another try begins with the next day. */
export function isWithheldToday({ withheld_at: atMs }: WithheldColumns, nowMs: number): boolean {
  return atMs !== null && atMs >= nowMs - (nowMs % DAY_MS);
}

/**
 * Writes what may be sent of `rest`, and answers what is left of it; null: nothing. If there is no
 * receiver, EVERYTHING is left.
 */
export async function writeNotice(
  database: Database,
  tx: Db,
  notice: Notice,
  rest: Rest,
): Promise<{ readonly queued: QueuedNotice; readonly rest: Rest | null }> {
  const isLeft = (key: string) => rest === EVERYTHING || rest.split(' ').includes(key);
  const event = isLeft(EVENT) ? notice.event : undefined;
  const mails = notice.mails.filter(({ recipient }) => isLeft(keyOf(recipient)));
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
  const left = mails.filter(mail => !sent.includes(mail)).map(({ recipient }) => keyOf(recipient));
  if (event !== undefined && !sendsEvent) left.unshift(EVENT);
  return { queued, rest: left.join(' ') };
}

/** Recognises an owner's mail again: a row that waits holds no address. */
function keyOf(recipient: string): string {
  return hash('sha256', recipient, 'hex').slice(0, 16);
}
