/**
 * Tells the owners of an account, by mail, that one of its API keys is about to end: once for each
 * end that a key has, KEY_END_TOLD_MS before. Every replica with a mail server looks, a page of all
 * keys at a time; what is told commits with the row that says so, whose unique key lets one do it.
 */
import { randomUUID } from 'node:crypto';
import { publicPrefix } from '@matting/core/keys/authenticate.ts';
import type { CallbackSecrets } from '@matting/core/secrets/secret-box.ts';
import { insertMail, type NewMail } from '@matting/core/webhooks/outbox-store.ts';
import { type Database, type Db, query, transact } from '@matting/database/database.ts';
import { pollingLoop } from '@matting/database/round-loop.ts';
import { isInserted, nowPlusMs, removeOldRows } from '@matting/database/statements.ts';
import type { Logger } from 'pino';
import type { AlertStore } from './alert-store.ts';
import { type Message, takeFromToday, type Withheld } from './messages.ts';
import { type MailText, nameInMail, type OnWithheld, ownersMails } from './owners-mails.ts';

const DAY_MS = 86_400_000;
/** Time for a release of whoever has it. */
export const KEY_END_TOLD_MS = 14 * DAY_MS;

export type EndingKey = Awaited<ReturnType<typeof look>>['ending'][number];

interface Telling {
  readonly key: EndingKey;
  /** Made outside of what is tried again. */
  readonly id: string;
  readonly mails: readonly NewMail[];
  /** As many as the account sends a day. */
  readonly messagesMax: number;
}

interface Told {
  readonly mails: number;
  readonly withheld: readonly Withheld[];
}

export type KeyEndStore = ReturnType<typeof keyEndStore>;

export function keyEndStore(database: Database) {
  return {
    /** @param after the id of a key; keys behind it are looked at, `limit` of them */
    look: (after: string, limit: number) => look(database, after, limit),
    /** Undefined: another replica has told it. */
    tell: (telling: Telling) => transact(database, tx => tell(database, tx, telling)),
    /** For the sweeper: of keys that ended a day ago. */
    removeOld: (limit: number) => {
      const before = nowPlusMs(database.nowMs, -DAY_MS);
      const ends = { table: 'key_ends_told', key: 'id', time: 'expires_at', before } as const;
      return removeOldRows(database, ends, limit);
    },
  };
}

async function look(database: Database, after: string, limit: number) {
  const rows = await query(database, db =>
    db
      .selectFrom('api_keys')
      .select(['id', 'account_id', 'name', 'expires_at', 'revoked_at'])
      .select(() => database.nowMs.as('seen_at'))
      .where('id', '>', after)
      .orderBy('id')
      .limit(limit)
      .execute(),
  );
  const near = rows.flatMap(({ expires_at: endsAtMs, seen_at: seenAtMs, ...row }) => {
    if (endsAtMs === null || row.revoked_at !== null) return [];
    if (endsAtMs <= seenAtMs || endsAtMs > seenAtMs + KEY_END_TOLD_MS) return [];
    return [{ id: row.id, name: row.name, accountId: row.account_id, endsAtMs }];
  });
  const ids = near.map(({ id }) => id);
  const told = ids.length === 0 ? [] : await query(database, db => readTold(db, ids));
  const isTold = (key: (typeof near)[number]) =>
    told.some(row => row.api_key_id === key.id && row.expires_at === key.endsAtMs);
  const ending = near.filter(key => !isTold(key));
  return { ending, next: rows.length < limit ? undefined : rows.at(-1)?.id };
}

function readTold(db: Db, ids: readonly string[]) {
  return db
    .selectFrom('key_ends_told')
    .select(['api_key_id', 'expires_at'])
    .where('api_key_id', 'in', ids)
    .execute();
}

async function tell(database: Database, tx: Db, telling: Telling): Promise<Told | undefined> {
  const { id, key, mails, messagesMax } = telling;
  const row = { id, api_key_id: key.id, expires_at: key.endsAtMs };
  const isFirst = await isInserted(tx.insertInto('key_ends_told').values(row).execute());
  if (!isFirst) return hasTold(tx, telling);
  const messages: Message[] = mails.map(({ recipient }) => ({ kind: 'mail', recipient }));
  const kept = await takeFromToday(database, tx, key.accountId, messages, messagesMax);
  const sent = mails.filter((_, index) => kept[index] === undefined);
  for (const mail of sent) await insertMail(database, tx, mail);
  return { mails: sent.length, withheld: kept.filter(one => one !== undefined) };
}

/** What an earlier round told, whose answer was lost. */
async function hasTold(db: Db, { id, mails }: Telling): Promise<Told | undefined> {
  const own = await db.selectFrom('key_ends_told').select('id').where('id', '=', id).execute();
  return own.length === 0 ? undefined : { mails: mails.length, withheld: [] };
}

interface KeyEndMail {
  readonly key: Pick<EndingKey, 'id' | 'name' | 'endsAtMs'>;
  /** Where keys are. */
  readonly keysUrl: string;
}

/** @param language null or another: English */
export function keyEndMail({ key, keysUrl }: KeyEndMail, language: string | null): MailText {
  const name = nameInMail(key.name);
  const prefix = publicPrefix(key.id);
  const end = new Date(key.endsAtMs).toISOString();
  const [day, time] = [end.slice(0, 10), end.slice(11, 16)];
  if (language === 'zh-CN') {
    return {
      subject: `API 密钥“${name}”将于 ${day} 到期`,
      text: [
        `API 密钥“${name}”（${prefix}）将于 ${day} ${time}（UTC）到期。`,
        '到期后使用该密钥的请求会被拒绝（INVALID_API_KEY）；已提交的任务不受影响。',
        '',
        `更改到期时间或创建新密钥：${keysUrl}/${key.id}`,
        '',
      ].join('\n'),
    };
  }
  return {
    subject: `The API key "${name}" ends on ${day}`,
    text: [
      `The API key "${name}" (${prefix}) ends on ${day} at ${time} UTC.`,
      'From then on requests with it are refused (INVALID_API_KEY). Jobs under way go on.',
      '',
      `Set a later end or make another key: ${keysUrl}/${key.id}`,
      '',
    ].join('\n'),
  };
}

/** Nobody waits for it to the minute. */
const LOOK_EVERY_MS = 3_600_000;
const PAGE_KEYS = 500;
/** Pages of a look: past 100,000 keys the next look goes on. */
const PAGES_MAX = 200;

interface KeyEndWatchDependencies {
  readonly keyEnds: Pick<KeyEndStore, 'look' | 'tell'>;
  readonly alerts: Pick<AlertStore, 'owners'>;
  readonly secrets: Pick<CallbackSecrets, 'sealText'>;
  readonly messagesMax: number;
  readonly onWithheld: OnWithheld;
  readonly keysUrl: string;
  readonly log: Pick<Logger, 'info' | 'warn'>;
}

export class KeyEndWatch {
  readonly #dependencies: KeyEndWatchDependencies;
  readonly loop = pollingLoop(
    LOOK_EVERY_MS,
    () => this.look(),
    err => this.#dependencies.log.warn({ err }, 'ends of keys were not looked at'),
  );
  #place = '';

  constructor(dependencies: KeyEndWatchDependencies) {
    this.#dependencies = dependencies;
  }

  /** From where the last look stopped to the end, PAGES_MAX pages at most. */
  async look(): Promise<void> {
    for (let page = 0; page < PAGES_MAX; page += 1) {
      const { ending, next } = await this.#dependencies.keyEnds.look(this.#place, PAGE_KEYS);
      for (const key of ending) await this.#tell(key);
      this.#place = next ?? '';
      if (next === undefined) return;
    }
  }

  async #tell(key: EndingKey): Promise<void> {
    const { keyEnds, alerts, secrets, keysUrl, messagesMax, onWithheld, log } = this.#dependencies;
    const { accountId } = key;
    const owners = await alerts.owners(accountId);
    const textOf = (language: string | null) => keyEndMail({ key, keysUrl }, language);
    const mails = ownersMails(owners, { accountId, secrets, textOf });
    const told = await keyEnds.tell({ key, id: randomUUID(), mails, messagesMax });
    if (told === undefined) return;
    const apiKeyId = key.id;
    log.info({ accountId, apiKeyId, mails: told.mails }, 'the end of a key was told');
    for (const withheld of told.withheld) onWithheld(accountId, withheld);
  }
}
